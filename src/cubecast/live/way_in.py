"""How a member gets into its group: with founders, over a contact, alone, or from its journal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cubecast.errors import LocalProtocolError
from cubecast.member.settings import MEMBERS_MAX, parse_address


@dataclass(frozen=True, kw_only=True)
class WayIn:
    """How a member gets into its group."""

    founders: tuple[str, ...] = ()
    contacts: tuple[str, ...] = ()
    is_founder: bool = False

    @property
    def is_given(self) -> bool:
        """Was any way in named?"""
        return bool(self.founders or self.contacts or self.is_founder)


def way_in(
    me: str, peers: Sequence[str] | None, contact: str | Sequence[str] | None, *, found: bool, has_journal: bool
) -> WayIn:
    """The one way into the group that was given; with a journal there may be none."""
    given = [
        word for word, value in (("peers", peers), ("contact", contact), ("found", found or None)) if value is not None
    ]
    if len(given) > 1 or (not given and not has_journal):
        said = " and ".join(given) or "none of them"
        raise LocalProtocolError(f"give one of peers=[...], contact=... and found=True; given: {said}")
    if peers is not None:
        return WayIn(founders=_founders(me, peers))
    if contact is None:
        return WayIn(is_founder=found)
    contacts = (contact,) if isinstance(contact, str) else tuple(contact)
    for one in contacts:
        parse_address(one)
    if me in contacts and not has_journal:
        raise LocalProtocolError(f"contact {me}: that is this member itself; name another one")
    if not contacts:
        raise LocalProtocolError("contact=[]: name at least one member of the group")
    return WayIn(contacts=tuple(one for one in contacts if one != me))


def _founders(me: str, peers: Sequence[str]) -> tuple[str, ...]:
    """All founding members in one order at all of them."""
    if isinstance(peers, str):
        raise LocalProtocolError(f"peers={peers!r}: give a list of addresses")
    founders = tuple(sorted({me, *peers}, key=parse_address))
    if len(founders) < 2:
        raise LocalProtocolError(f"peers={list(peers)!r}: name at least one member besides {me}, or give found=True")
    if len(founders) > MEMBERS_MAX:
        raise LocalProtocolError(f"{len(founders)} members: at most {MEMBERS_MAX}")
    return founders

"""How a member enters its group: with founders, over a contact, as the only founder, or from its journal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cubecast.errors import LocalProtocolError
from cubecast.live.dns import parse_contact
from cubecast.member.settings import MEMBERS_MAX, parse_address


@dataclass(frozen=True, kw_only=True)
class JoinOptions:
    """How a member enters its group."""

    founders: tuple[str, ...] = ()
    contacts: tuple[str, ...] = ()
    is_founder: bool = False

    @property
    def is_given(self) -> bool:
        """Was any of them given?"""
        return bool(self.founders or self.contacts or self.is_founder)


def read_join_options(
    me: str, peers: Sequence[str] | None, contact: str | Sequence[str] | None, *, found: bool, has_journal: bool
) -> JoinOptions:
    """Validate the options; exactly one is given, or none with a journal."""
    given = [
        word for word, value in (("peers", peers), ("contact", contact), ("found", found or None)) if value is not None
    ]
    if len(given) > 1 or (not given and not has_journal):
        said = " and ".join(given) or "none of them"
        raise LocalProtocolError(f"give one of peers=[...], contact=... and found=True; given: {said}")
    if peers is not None:
        return JoinOptions(founders=_founders(me, peers))
    if contact is None:
        return JoinOptions(is_founder=found)
    contacts = (contact,) if isinstance(contact, str) else tuple(contact)
    for one in contacts:
        parse_contact(one)
    if me in contacts and not has_journal:
        raise LocalProtocolError(f"contact {me}: that is this member itself; name another one")
    if not contacts:
        raise LocalProtocolError("contact=[]: name at least one member of the group")
    return JoinOptions(contacts=tuple(one for one in contacts if one != me))


def _founders(me: str, peers: Sequence[str]) -> tuple[str, ...]:
    """All founding members, in the same order at each of them."""
    if isinstance(peers, str):
        raise LocalProtocolError(f"peers={peers!r}: give a list of addresses")
    founders = tuple(sorted({me, *peers}, key=parse_address))
    if len(founders) < 2:
        raise LocalProtocolError(f"peers={list(peers)!r}: name at least one member besides {me}, or give found=True")
    if len(founders) > MEMBERS_MAX:
        raise LocalProtocolError(f"{len(founders)} members: at most {MEMBERS_MAX}")
    return founders

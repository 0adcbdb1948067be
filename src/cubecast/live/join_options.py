"""The ways to enter a group: with founders, through a contact, as the only founder, or from a journal."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass

from cubecast.errors import LocalProtocolError
from cubecast.live.dns import parse_contact
from cubecast.member.settings import MEMBERS_MAX, parse_address

NAME_BYTES_MAX = 255
"""The longest name of a group, in UTF-8."""


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


def require_name(group: object) -> None:
    """Require a name that a HELLO, a log line and a metric can carry."""
    if not isinstance(group, str) or not 0 < len(group.encode()) <= NAME_BYTES_MAX:
        shown = repr(group) if len(repr(group)) < NAME_BYTES_MAX else f"{repr(group)[:32]}…"
        raise LocalProtocolError(f"group name {shown}: give a text of 1 to {NAME_BYTES_MAX} bytes")


def read_name(listen: str, advertise: str | None) -> str:
    """The name of a member: the address that others dial."""
    parse_address(listen)
    name = listen if advertise is None else advertise
    host, port = parse_address(name)
    try:
        is_any = ipaddress.ip_address(host).is_unspecified
    except ValueError:
        is_any = False
    if is_any:
        raise LocalProtocolError(
            f"{name} means every interface of a machine, which no member can dial: "
            f"give the address by which others reach this member as advertise=HOST:{port} (--advertise)"
        )
    return name


def require_state_functions(snapshot: object, restore: object) -> None:
    """Require both functions or none."""
    for option, function in (("snapshot", snapshot), ("restore", restore)):
        if function is not None and not callable(function):
            raise LocalProtocolError(f"{option}={function!r}: give a function")
    if (snapshot is None) != (restore is None):
        raise LocalProtocolError("give snapshot= and restore= together: one member restores the snapshot of another")


def read_join_options(
    me: str, peers: Sequence[str] | None, contact: str | Sequence[str] | None, *, found: bool, has_journal: bool
) -> JoinOptions:
    """Validate the options; exactly one is given, or none with a journal."""
    given = [
        word for word, value in (("peers", peers), ("contact", contact), ("found", found or None)) if value is not None
    ]
    if len(given) > 1 or (not given and not has_journal):
        said = " and ".join(given) or "none of them"
        raise LocalProtocolError(
            f"give one of peers=[...], contact=... and found=True (--peer, --contact, --found); given: {said}"
        )
    if peers is not None:
        return JoinOptions(founders=_founders(me, peers))
    if contact is None:
        return JoinOptions(is_founder=found)
    contacts = (contact,) if isinstance(contact, str) else tuple(contact)
    for one in contacts:
        parse_contact(one)
    if me in contacts and not has_journal:
        raise LocalProtocolError(f"contact {me}: this is the member itself; give another member")
    if not contacts:
        raise LocalProtocolError("contact=[]: give at least one member of the group")
    return JoinOptions(contacts=tuple(one for one in contacts if one != me))


def _founders(me: str, peers: Sequence[str]) -> tuple[str, ...]:
    """All founding members, in the same order at each of them."""
    if isinstance(peers, str):
        raise LocalProtocolError(f"peers={peers!r}: give a list of addresses")
    founders = tuple(sorted({me, *peers}, key=parse_address))
    if len(founders) < 2:
        raise LocalProtocolError(f"peers={list(peers)!r}: give at least one member besides {me}, or found=True")
    if len(founders) > MEMBERS_MAX:
        raise LocalProtocolError(f"{len(founders)} members: at most {MEMBERS_MAX}")
    return founders

"""Compile the functions of a live member once, so that later members start immediately.

Two members in this process communicate without sockets: the calls are those of a real member.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from cubecast.jit.garbage import exempt_loaded
from cubecast.member.member import Member
from cubecast.member.reranking import ranked
from cubecast.member.settings import Settings
from cubecast.member.stack import Stack
from cubecast.protocols.catalogue import list_protocols
from cubecast.protocols.membership.views import MemberId

MEMBER = "live member"
STEP_NS = 2_000_000
STEPS_MAX = 2000


def states() -> set[type]:
    """The classes of the states of a member's protocols."""
    found: set[type] = set()
    for data in auto_protocols():
        for member in _pair(data):
            stack = member.stack
            assert isinstance(stack, Stack)
            found |= {type(core.state) for core in (stack._data, stack._stability, stack._failure)}
    return found


def compile_piece(name: str) -> None:
    """Compile the only piece there is: a member."""
    assert name == MEMBER, name
    warm()


def auto_protocols() -> list[str]:
    """The protocols that `auto` chooses from, by the size of the view."""
    return [one.name for one in list_protocols("causal") if one.live is not None and one.auto_from is not None]


def warm(names: Iterable[str] = ()) -> None:
    """Call every compiled function of a member once."""
    for data in names or auto_protocols():
        _pair(data)
    load_search()


@cache
def load(data: str, stability: str) -> None:
    """Load the compiled code of these protocols, so that the first view does not wait for it."""
    _pair(data, stability)
    exempt_loaded()


@cache
def load_search() -> None:
    """Load the compiled code of the search for ranks, so that the first change does not wait for it."""
    members = [MemberId(str(number), 1) for number in range(4)]
    measured = {one: {other: int(other.name) + 1 for other in members} for one in members}
    ranked(members, measured, Settings(rerank_gain=0.5))


def _pair(data: str, stability: str = Settings.stability) -> list[Member]:
    """Two members that founded a group, multicast, and agreed that everything is stable."""
    names = ["127.0.0.1:1", "127.0.0.1:2"]
    settings = Settings(data=data, stability=stability, round_every_s=0.001)
    members = [
        Member("warm", name, settings, incarnation=1, session=place + 1, is_durable=False, makes_snapshots=False)
        for place, name in enumerate(names)
    ]
    now_ns = 0
    for member in members:
        member.form(names, now_ns)
    sent = None
    for _ in range(STEPS_MAX):
        now_ns += STEP_NS
        for member in members:
            member.on_timer(now_ns)
            _carry_out(member, members, names, now_ns)
        if sent is None and all(member.stack is not None for member in members):
            sent = [member.multicast(b"warm", now_ns) for member in members]
        if sent is not None and all(one.is_stable for one in sent):
            return members
    raise AssertionError(f"two members with data={data} did not get a message stable")


def _carry_out(member: Member, members: list[Member], names: list[str], now_ns: int) -> None:
    """A connection has the number of the member that dialled, plus one, at both ends."""
    effects = member.take_effects()
    other = members[1 - members.index(member)]
    for name in effects.dials:
        number = members.index(member) + 1
        other.connection_made(number, "", None, names[members.index(member)], now_ns)
        member.connection_made(number, name, None, name, now_ns)
    for number, buffers in effects.writes:
        other.data_received(number, b"".join(buffers), now_ns)
    for close in effects.closes:
        other.connection_lost(close.connection, close.reason, now_ns)

"""Membership messages and journal records, drawn at random: of every kind, with every field in use."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from cubecast.protocols.membership import MemberId, View, ViewId
from cubecast.protocols.membership import messages as m
from cubecast.protocols.membership import records as r
from cubecast.protocols.membership.messages import Message, Proposal
from cubecast.protocols.membership.views import next_view

HOSTS = ("127.0.0.1", "[::1]", "a.example", "very-long-host-name.of-a-department.example.org")


def draw_member(chance: random.Random) -> MemberId:
    """One incarnation of a process."""
    return MemberId(f"{chance.choice(HOSTS)}:{chance.randrange(1, 1 << 16)}", chance.randrange(-1, 1 << 62))


def draw_members(chance: random.Random) -> tuple[MemberId, ...]:
    """Some."""
    return tuple(draw_member(chance) for _ in range(chance.randrange(5)))


def draw_vector(chance: random.Random) -> tuple[int, ...]:
    """One number per rank."""
    return tuple(chance.getrandbits(chance.randrange(33)) for _ in range(chance.randrange(6)))


def draw_ballot(chance: random.Random) -> tuple[int, int]:
    """An attempt of a rank, or none."""
    return chance.choice([m.NO_BALLOT, (chance.getrandbits(32), chance.randrange(1 << 15))])


def draw_view_id(chance: random.Random) -> ViewId:
    """Number and tag."""
    return ViewId(chance.getrandbits(62), chance.getrandbits(63))


def draw_view(chance: random.Random) -> View:
    """A view with newcomers, leavers and departed members."""
    members = draw_members(chance)
    return View(
        number=chance.getrandbits(62),
        tag=chance.getrandbits(63),
        group_id=chance.getrandbits(63),
        members=members,
        joined=members[: chance.randrange(3)],
        left=draw_members(chance),
        sent=tuple(chance.getrandbits(62) for _ in members),
        departed=draw_members(chance),
        forgotten=chance.randrange(-1, 1 << 62),
    )


def draw_proposal(chance: random.Random) -> Proposal:
    """A view and a cut."""
    return Proposal(draw_view(chance), draw_vector(chance))


def draw_base(chance: random.Random, members: int) -> View:
    """A view of so many members, each of another name, some of them new, with a past."""
    everybody = tuple(MemberId(f"10.0.0.{rank}:7000", chance.randrange(1, 1 << 40)) for rank in range(members))
    return View(
        number=chance.randrange(1, 1 << 40),
        tag=chance.getrandbits(63),
        group_id=chance.getrandbits(63),
        members=everybody,
        joined=everybody[: chance.randrange(3)],
        left=(),
        sent=tuple(chance.getrandbits(40) for _ in everybody),
        departed=tuple(MemberId(f"10.0.1.{place}:7000", place) for place in range(chance.randrange(4))),
        forgotten=chance.randrange(-1, 9),
    )


def draw_successor(chance: random.Random, base: View) -> Proposal:
    """What may follow a view: some go, some of them leave, some join, one of them perhaps as a later incarnation."""
    stay = {who for who in base.members if chance.random() < 0.7}
    gone = [who for who in base.members if who not in stay]
    join = [MemberId(f"10.0.2.{place}:7000", place) for place in range(chance.randrange(3) + (not stay))]
    if gone and chance.random() < 0.5:
        join.append(MemberId(gone[0].name, gone[0].incarnation + 1))
    cut = tuple(chance.getrandbits(chance.randrange(20)) for _ in base.members)
    return Proposal(next_view(base, stay, join, cut, [who for who in gone if chance.random() < 0.5]), cut)


def draw_relative(chance: random.Random, base: View) -> Message:
    """A message of a view that proposes what follows it."""
    proposal = draw_successor(chance, base)
    ballot = draw_ballot(chance)
    promise = m.Promise(base.id, ballot, proposal.cut, ballot, proposal, base.members[0], _flag(chance), _flag(chance))
    messages: list[Message] = [m.Accept(base.id, ballot, proposal), m.Decide(base.id, proposal), promise]
    return chance.choice(messages)


def draw_octets(chance: random.Random) -> bytes:
    """A payload, or a piece of a state."""
    return chance.randbytes(chance.randrange(200))


def _flag(chance: random.Random) -> bool:
    return chance.random() < 0.5


def _perhaps(chance: random.Random, draw: Callable[[random.Random], Any]) -> Any:
    return draw(chance) if _flag(chance) else None


def _draw_report(chance: random.Random) -> m.ChangeReport:
    suspects, behind = (chance.getrandbits(chance.randrange(1100)) for _ in range(2))
    return m.ChangeReport(draw_view_id(chance), suspects, behind, draw_members(chance), _flag(chance), _flag(chance))


def _draw_promise(chance: random.Random) -> m.Promise:
    return m.Promise(
        draw_view_id(chance),
        draw_ballot(chance),
        draw_vector(chance),
        draw_ballot(chance),
        _perhaps(chance, draw_proposal),
        draw_member(chance),
        _flag(chance),
        _flag(chance),
    )


def draw_decide(chance: random.Random) -> m.Decide:
    """A decision."""
    return m.Decide(draw_view_id(chance), draw_proposal(chance))


MESSAGES: dict[type, Callable[[random.Random], Message]] = {
    m.Join: lambda c: m.Join(draw_view_id(c), draw_member(c)),
    m.ChangeReport: _draw_report,
    m.Prepare: lambda c: m.Prepare(draw_view_id(c), draw_ballot(c)),
    m.Promise: _draw_promise,
    m.Refusal: lambda c: m.Refusal(draw_view_id(c), draw_ballot(c)),
    m.Flush: lambda c: m.Flush(draw_view_id(c), draw_ballot(c), draw_vector(c), draw_vector(c)),
    m.Pull: lambda c: m.Pull(draw_view_id(c), draw_ballot(c), draw_vector(c), draw_vector(c)),
    m.Missing: lambda c: m.Missing(draw_view_id(c), draw_octets(c)),
    m.Flushed: lambda c: m.Flushed(draw_view_id(c), draw_ballot(c)),
    m.Accept: lambda c: m.Accept(draw_view_id(c), draw_ballot(c), draw_proposal(c)),
    m.Accepted: lambda c: m.Accepted(draw_view_id(c), draw_ballot(c)),
    m.Decide: draw_decide,
    m.Gone: lambda c: m.Gone(draw_view_id(c)),
    m.AskState: lambda c: m.AskState(draw_view_id(c), c.getrandbits(32), c.getrandbits(32)),
    m.State: lambda c: m.State(draw_view_id(c), c.getrandbits(32), c.getrandbits(32), draw_octets(c)),
    m.NoState: lambda c: m.NoState(draw_view_id(c)),
    m.Ready: lambda c: m.Ready(draw_view_id(c)),
    m.Probe: lambda c: m.Probe(draw_view_id(c)),
    m.Present: lambda c: m.Present(draw_view_id(c)),
    m.AskLevel: lambda c: m.AskLevel(draw_view_id(c), c.getrandbits(2), c.getrandbits(32)),
    m.LevelReached: lambda c: m.LevelReached(draw_view_id(c), c.getrandbits(2), c.getrandbits(32)),
    m.RoundTrips: lambda c: m.RoundTrips(draw_view_id(c), draw_vector(c)),
}


def draw_message(chance: random.Random) -> Message:
    """A message of any kind."""
    return chance.choice(list(MESSAGES.values()))(chance)


def _draw_kept(chance: random.Random) -> r.Kept:
    return r.Kept(chance.getrandbits(62), draw_octets(chance), draw_members(chance))


def _draw_names(chance: random.Random) -> tuple[str, ...]:
    return tuple(who.name for who in draw_members(chance))


def _draw_payloads(chance: random.Random) -> tuple[bytes, ...]:
    return tuple(draw_octets(chance) for _ in range(chance.randrange(4)))


def _draw_checkpoint(chance: random.Random) -> r.Checkpoint:
    return r.Checkpoint(
        draw_member(chance),
        _draw_names(chance),
        draw_view(chance),
        _perhaps(chance, draw_decide),
        draw_ballot(chance),
        draw_ballot(chance),
        _perhaps(chance, draw_proposal),
        draw_vector(chance),
        draw_vector(chance),
        draw_octets(chance),
        draw_octets(chance),
        _draw_payloads(chance),
        (_draw_kept(chance),),
        draw_octets(chance),
    )


RECORDS: dict[type, Callable[[random.Random], r.Record]] = {
    r.Incarnation: lambda c: r.Incarnation(
        draw_member(c), _draw_names(c), _draw_names(c), _draw_payloads(c), _draw_payloads(c)
    ),
    r.Entered: lambda c: r.Entered(draw_view(c), _perhaps(c, draw_decide), _flag(c)),
    r.Promised: lambda c: r.Promised(draw_ballot(c)),
    r.Adopted: lambda c: r.Adopted(draw_ballot(c), draw_proposal(c)),
    r.Delivered: lambda c: r.Delivered(draw_octets(c)),
    r.Recovered: lambda c: r.Recovered(draw_octets(c)),
    r.Settled: lambda c: r.Settled(draw_vector(c)),
    r.Pending: lambda c: r.Pending(draw_octets(c)),
    r.Knows: lambda c: r.Knows(draw_member(c).name),
    r.Restored: lambda c: r.Restored(c.getrandbits(62), draw_octets(c)),
    r.Kept: _draw_kept,
    r.Over: lambda c: r.Over(_perhaps(c, draw_decide), _flag(c)),
    r.Checkpoint: _draw_checkpoint,
    r.StatePiece: lambda c: r.StatePiece(c.getrandbits(62), draw_octets(c)),
    r.ExclusionReported: lambda _: r.ExclusionReported(),
}


def draw_record(chance: random.Random, kind: type) -> r.Record:
    """A record of that kind."""
    return RECORDS[kind](chance)

"""Messages and records of a changing group, drawn at random: of every kind, with every field in use."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from cubecast.core.membership import MemberId, View
from cubecast.core.membership import messages as said
from cubecast.core.membership import records as r
from cubecast.core.membership.messages import Message, Proposal

HOSTS = ("127.0.0.1", "[::1]", "a.example", "very-long-host-name.of-a-department.example.org")


def draw_member(chance: random.Random) -> MemberId:
    """One life of a process."""
    return MemberId(f"{chance.choice(HOSTS)}:{chance.randrange(1, 1 << 16)}", chance.randrange(1 << 62))


def draw_members(chance: random.Random) -> tuple[MemberId, ...]:
    """Some."""
    return tuple(draw_member(chance) for _ in range(chance.randrange(5)))


def draw_vector(chance: random.Random) -> tuple[int, ...]:
    """One number a rank."""
    return tuple(chance.getrandbits(chance.randrange(33)) for _ in range(chance.randrange(6)))


def draw_ballot(chance: random.Random) -> tuple[int, int]:
    """An attempt of a rank, or none."""
    return chance.choice([said.NO_BALLOT, (chance.getrandbits(32), chance.randrange(1 << 15))])


def draw_view(chance: random.Random) -> View:
    """A view with newcomers and the lives of those who were in it."""
    members = draw_members(chance)
    lives = tuple(tuple(who) for who in draw_members(chance))
    return View(chance.getrandbits(62), members, members[: chance.randrange(3)], lives)


def draw_proposal(chance: random.Random) -> Proposal:
    """A view and a cut."""
    return Proposal(draw_view(chance), draw_vector(chance))


def draw_octets(chance: random.Random) -> bytes:
    """A payload, or a piece of a state."""
    return chance.randbytes(chance.randrange(200))


def draw_data(chance: random.Random) -> said.Data:
    """A message of the application."""
    return said.Data(*_numbers(chance, 62, 16, 32), draw_vector(chance), draw_octets(chance))  # type: ignore[call-arg,arg-type]


def draw_status(chance: random.Random) -> said.Status:
    """A sign of life."""
    return said.Status(
        view=chance.getrandbits(62),
        beats=draw_vector(chance),
        round=chance.getrandbits(62),
        counted=chance.getrandbits(chance.randrange(1100)),
        minimum=draw_vector(chance),
        stable=draw_vector(chance),
        received=draw_vector(chance),
        delivered=draw_vector(chance),
        suspects=draw_members(chance),
        joins=_aged(chance),
        slow=_aged(chance),
        leavers=draw_members(chance),
        ready=chance.getrandbits(chance.randrange(1100)),
        asks=_flag(chance),
    )


def _aged(chance: random.Random) -> tuple[said.Aged, ...]:
    return tuple((who, chance.getrandbits(40)) for who in draw_members(chance))


def _numbers(chance: random.Random, *bits: int) -> list[int]:
    return [chance.getrandbits(chance.randrange(size + 1)) for size in bits]


def _flag(chance: random.Random) -> bool:
    return chance.random() < 0.5


def _perhaps(chance: random.Random, draw: Callable[[random.Random], Any]) -> Any:
    return draw(chance) if _flag(chance) else None


MESSAGES: dict[type, Callable[[random.Random], Message]] = {
    said.Data: draw_data,
    said.Status: lambda c: draw_status(c),
    said.Join: lambda c: said.Join(draw_member(c)),
    said.Prepare: lambda c: said.Prepare(c.getrandbits(62), draw_ballot(c)),
    said.Promise: lambda c: said.Promise(
        c.getrandbits(62),
        draw_ballot(c),
        draw_vector(c),
        draw_ballot(c),
        _perhaps(c, draw_proposal),
        _flag(c),
        _flag(c),
    ),
    said.Refusal: lambda c: said.Refusal(c.getrandbits(62), draw_ballot(c)),
    said.Flush: lambda c: said.Flush(c.getrandbits(62), draw_ballot(c), draw_vector(c), draw_members(c)),
    said.Pull: lambda c: said.Pull(*_numbers(c, 62, 16, 32, 32)),
    said.Flushed: lambda c: said.Flushed(c.getrandbits(62), draw_ballot(c)),
    said.Accept: lambda c: said.Accept(c.getrandbits(62), draw_ballot(c), draw_proposal(c)),
    said.Accepted: lambda c: said.Accepted(c.getrandbits(62), draw_ballot(c)),
    said.Decide: lambda c: said.Decide(c.getrandbits(62), draw_proposal(c)),
    said.Gone: lambda c: said.Gone(c.getrandbits(62)),
    said.AskState: lambda c: said.AskState(*_numbers(c, 62, 32)),
    said.State: lambda c: said.State(*_numbers(c, 62, 32, 32), draw_octets(c)),  # type: ignore[call-arg,arg-type]
    said.NoState: lambda c: said.NoState(c.getrandbits(62)),
}


def draw_message(chance: random.Random) -> Message:
    """A message of any kind."""
    return chance.choice(list(MESSAGES.values()))(chance)


def _draw_kept(chance: random.Random) -> r.Kept:
    return r.Kept(chance.getrandbits(62), draw_octets(chance), draw_members(chance))


def _draw_names(chance: random.Random) -> tuple[str, ...]:
    return tuple(who.name for who in draw_members(chance))


def _draw_decision(chance: random.Random) -> said.Decide | None:
    return said.Decide(chance.getrandbits(62), draw_proposal(chance)) if _flag(chance) else None


def _draw_end(chance: random.Random) -> said.Left | said.Excluded | None:
    excluded = said.Excluded("they went on: ×", (draw_octets(chance), b""), _flag(chance))
    return chance.choice([None, said.Left(), excluded])


def _draw_whole(chance: random.Random) -> r.Whole:
    return r.Whole(
        draw_member(chance),
        _draw_names(chance),
        draw_view(chance),
        _draw_decision(chance),
        draw_ballot(chance),
        draw_ballot(chance),
        _perhaps(chance, draw_proposal),
        draw_vector(chance),
        draw_vector(chance),
        tuple(draw_data(chance) for _ in range(3)),
        (draw_octets(chance), draw_octets(chance)),
        _flag(chance),
        (_draw_kept(chance),),
        draw_octets(chance),
    )


RECORDS: dict[type, Callable[[random.Random], r.Record]] = {
    r.Life: lambda c: r.Life(draw_member(c)),
    r.Asked: lambda c: r.Asked(_draw_names(c)),
    r.Entered: lambda c: r.Entered(draw_view(c), _draw_decision(c), _flag(c)),
    r.Promised: lambda c: r.Promised(draw_ballot(c)),
    r.Adopted: lambda c: r.Adopted(draw_ballot(c), draw_proposal(c)),
    said.Data: draw_data,
    r.Delivered: lambda c: r.Delivered(c.getrandbits(16)),
    r.Settled: lambda c: r.Settled(draw_vector(c)),
    r.Waiting: lambda c: r.Waiting(draw_octets(c)),
    r.Leaving: lambda _: r.Leaving(),
    r.Knows: lambda c: r.Knows(draw_member(c).name),
    said.Restore: lambda c: said.Restore(c.getrandbits(62), draw_octets(c)),
    r.Kept: _draw_kept,
    r.Over: lambda c: r.Over(_draw_decision(c), _draw_end(c)),
    r.Whole: _draw_whole,
}


def draw_record(chance: random.Random, kind: type) -> r.Record:
    """A record of that kind."""
    return RECORDS[kind](chance)

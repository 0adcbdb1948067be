"""What a live member does at once and what it puts off: single messages go, many gather, rounds wait for messages."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cubecast.core import compiled
from cubecast.live.member import Member
from cubecast.live.rounds import Rounds
from cubecast.live.settings import Causal, Settings
from cubecast.live.store import Store
from cubecast.wire import frame
from tests.unit.test_live_link import Pipe

ROUND_7 = (None, frame.CONTROL, 0, 7)
ADDRESSES = [f"127.0.0.1:{7001 + rank}" for rank in range(8)]


def connected(rank: int, causal: Causal = "auto") -> tuple[Member, dict[int, Pipe]]:
    """A member whose links end in pipes."""
    settings = Settings(causal=causal)
    member = Member(group="g", addresses=ADDRESSES, rank=rank, settings=settings, credentials=None, recorder=None)
    pipes = {}
    for peer in member.cores.neighbours:
        pipes[peer] = Pipe()
        member.transport.open_link(peer, dial=False).attach(pipes[peer], received=0, dialled_by=rank)
    return member, pipes


def test_a_message_that_comes_alone_leaves_at_once_and_many_of_one_turn_leave_together() -> None:
    async def run() -> None:
        member, pipes = connected(0)
        sent = [len(pipes[7].frames())]
        for count in (1, 3, 2, 1, 1):
            for _ in range(count):
                member.traffic.publish(b"payload")
                sent.append(len(pipes[7].frames()))
            await asyncio.sleep(0)
            sent.append(len(pipes[7].frames()))
        alone, first_alone, together = [1, 1], [2, 2, 2, 3], [3, 3, 4]
        assert sent == [0, *alone, *first_alone, *together, *[4, 5], *[6, 6]]

    asyncio.run(run())


def test_in_a_star_one_member_forwards_and_the_others_do_not() -> None:
    async def run() -> None:
        source, out = connected(5, "star")
        source.traffic.publish(b"hello")
        assert {peer for peer, pipe in out.items() if pipe.written} == {0}
        arrived = out[0].frames()[0]
        for rank, others in ((0, {1, 2, 3, 4, 6, 7}), (6, set())):
            member, pipes = connected(rank, "star")
            member._arrived(5 if rank == 0 else 0, arrived)
            assert [delivery.payload for delivery in member.traffic.queue] == [b"hello"]
            await asyncio.sleep(0)
            assert {peer for peer, pipe in pipes.items() if pipe.written} == others
            assert all(pipes[peer].frames()[0].body == arrived.body for peer in others)

    asyncio.run(run())


def test_in_a_small_group_nobody_forwards_and_what_comes_too_early_waits() -> None:
    async def run() -> None:
        (first, one), (second, two), (last, out) = (connected(rank) for rank in (5, 6, 7))
        first.traffic.publish(b"cause")
        cause = one[7].frames()[0]
        assert all(pipe.frames()[0].body == cause.body for pipe in one.values())
        second._arrived(5, cause)
        second.traffic.publish(b"effect")
        await asyncio.sleep(0)
        effect = two[7].frames()[0]
        last._arrived(6, effect)
        assert not last.traffic.queue
        assert last.traffic.store.waiting == 1
        last._arrived(5, cause)
        assert [delivery.payload for delivery in last.traffic.queue] == [b"cause", b"effect"]
        assert last.traffic.store.waiting == 0
        await asyncio.sleep(0)
        assert not any(pipe.written for pipe in out.values())

    asyncio.run(run())


class Bench:
    """A member as its rounds see it, with a clock that is moved by hand."""

    def __init__(self) -> None:
        """Nothing published, nothing held."""
        self.rank, self.settings = 0, Settings()
        self.traffic = SimpleNamespace(published=0, own_bytes=0, store=Store(2))
        self.cores = SimpleNamespace(window=4096, stability=None)
        self.began: list[tuple[object, int, int, int]] = []
        self._now_s = 0.0
        self._timers: list[tuple[float, Callable[..., None], tuple[Any, ...]]] = []

    def later(self, delay_s: float, function: Callable[..., None], *arguments: Any) -> None:
        """Set a timer."""
        self._timers.append((self._now_s + delay_s, function, arguments))

    def fire(self, core: object, kind: int, timer: int, tag: int) -> None:
        """A round begins."""
        self.began.append((core, kind, timer, tag))

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        until = self._now_s + seconds
        while due := [one for one in self._timers if one[0] <= until]:
            first = min(due, key=lambda one: one[0])
            self._timers.remove(first)
            self._now_s = first[0]
            first[1](*first[2])
        self._now_s = until


def test_a_message_after_a_quiet_time_has_a_head_start_before_the_round() -> None:
    member = Bench()
    rounds = Rounds(cast(Member, member))
    rounds.rest(0, 7, int(0.1e9))
    member.wait(1)
    assert member.began == [], "everything is stable"
    member.traffic.store.add(1, b"record")
    rounds.watch()
    member.wait(0.9 * rounds.round_s)
    assert member.began == [], "the round overtakes the message"
    member.wait(2 * rounds.round_s)
    assert member.began == [ROUND_7]


def test_while_messages_flow_a_round_begins_when_the_pause_is_over() -> None:
    member = Bench()
    rounds = Rounds(cast(Member, member))
    member.traffic.store.add(1, b"record")
    rounds.rest(0, 7, int(0.1e9))
    rounds.watch()
    member.wait(0.099)
    assert member.began == []
    member.wait(0.001)
    assert member.began == [ROUND_7]


@pytest.mark.skipif(not compiled.COMPILED, reason="nothing is loaded with CUBECAST_JIT=off")
def test_the_first_message_waits_for_no_code_to_be_loaded() -> None:
    program = """
import asyncio
import cubecast
from cubecast.core import drive
from cubecast.live.local import free_addresses
from cubecast.wire import data

async def main():
    addresses = free_addresses(2)
    groups = [cubecast.join("g", listen=one, peers=addresses, plaintext=True) for one in addresses]
    await asyncio.gather(*(group.__aenter__() for group in groups))
    print([len(one.overloads) for one in (data._walk, drive.receive_batch, drive.publish_batch)])
    await groups[0].multicast(b"first")
    async for delivery in groups[1]:
        break
    print([len(one.overloads) for one in (data._walk, drive.receive_batch, drive.publish_batch)])
    await asyncio.gather(*(group.leave(drain=False) for group in groups))

asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.split("\n")[:2] == ["[1, 1, 1]", "[1, 1, 1]"], done.stdout + done.stderr

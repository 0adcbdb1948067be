"""Stacks of one view joined by a fake host: deliveries, stability, parked batches, freezing, failure detection."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from cubecast.errors import LocalProtocolError, RemoteProtocolError
from cubecast.member.alone import Alone
from cubecast.member.arena import Arena
from cubecast.member.levels import PROCESSED, RECEIVED, Levels
from cubecast.member.link import Link, Pipe
from cubecast.member.message_log import SEQUENCE_MASK, Batch
from cubecast.member.settings import Settings
from cubecast.member.stack import Stack
from cubecast.member.timers import Timers
from cubecast.models.reliability import STEPS_MIN
from cubecast.protocols.membership.views import MemberId, View, founding_view
from cubecast.wire import frame
from cubecast.wire.data import payload_of
from cubecast.wire.frame import Frame, FrameReader

MS = 1_000_000
SETTINGS = Settings(heartbeat_s=0.05, suspect_after_s=0.4)
PROTOCOLS = ["timestamp", "star", "tree", "overlay", "causal_plumtree", "causal_rasm"]


class Host:
    """A member as its stack sees it."""

    keeps_journal = False

    def __init__(self, world: World, rank: int, settings: Settings) -> None:
        """Nothing delivered."""
        self.world = world
        self.rank = rank
        self.timers = Timers()
        self.links: dict[MemberId, Link] = {}
        self.readers: dict[MemberId, FrameReader] = {}
        self.payloads: list[bytes] = []
        self.keys: list[int] = []
        self.stable: dict[int, int] = {}
        self.takes = True
        self.is_down = False
        self.arena = Arena()
        self.stack = Stack(self, world.view, rank, settings, 0.01)

    def now(self) -> int:
        """The clock of the world."""
        return self.world.now_ns

    def later(self, delay_ns: int, function: Callable[..., None], *arguments: Any) -> None:
        """Set a timer."""
        self.timers.at(self.world.now_ns + delay_ns, function, *arguments)

    def link_to(self, who: MemberId) -> Link:
        """A link that is always up."""
        if who not in self.links:
            link = self.links[who] = Link(who, 1)
            link.resume(Pipe(0, "", None, "", 0), received=0, session=1, dialled_by="")
            link.begin_view(self.world.view.tag)
            self.readers[who] = FrameReader(1 << 24)
        return self.links[who]

    def mark(self, link: Link) -> None:
        """Everything is flushed in each step of the world."""

    def open_links(self) -> list[tuple[int, Link]]:
        """All links."""
        return [(self.world.view.members.index(who), link) for who, link in self.links.items()]

    def deliver(self, delivered: Batch, size: int) -> None:
        """Keep what is delivered."""
        assert size == sum(map(len, delivered.records))
        self.keys += delivered.keys
        self.payloads += map(payload_of, delivered.records)

    def stable_moved(self, moved: list[tuple[int, int]]) -> None:
        """Keep the frontier."""
        for rank, number in moved:
            assert number > self.stable.get(rank, 0)
            self.stable[rank] = number

    def takes_data(self) -> bool:
        """As the test says."""
        return self.takes

    def contribute(self, levels: Levels) -> None:
        """The application deals with everything at once."""
        received = levels.block(RECEIVED)
        levels.block(PROCESSED)[:] = 1 + received
        levels.sent(int(received[self.rank]))

    def levels_moved(self) -> None:
        """Keep what is causally stable."""
        levels = self.stack.levels
        levels.learn(levels.block(RECEIVED).tolist())


class World:
    """All hosts of one view; a frame takes one step, and steps take a millisecond."""

    def __init__(self, members: int, settings: Settings = SETTINGS, *, seed: int | None = None) -> None:
        """The view begins."""
        self.now_ns = 0
        self.view: View = founding_view([MemberId(f"m{rank}", 1) for rank in range(members)])
        self.chance = random.Random(seed) if seed is not None else None
        self.hosts = [Host(self, rank, settings) for rank in range(members)]
        self.under_way: dict[tuple[int, int], list[Frame]] = {}
        for host in self.hosts:
            host.stack.start()

    def collect(self) -> None:
        """Take what is written to links."""
        for host in self.hosts:
            for who, link in host.links.items():
                link.flush()
                assert link.pipe is not None
                data, link.pipe.out = b"".join(link.pipe.out), []
                to = self.view.members.index(who)
                self.under_way.setdefault((host.rank, to), []).extend(host.readers[who].feed(data))

    def step(self) -> None:
        """A millisecond: timers fire, and frames in transit arrive; with a seed, some of them later."""
        self.now_ns += MS
        for host in self.hosts:
            if not host.is_down:
                host.timers.run(self.now_ns)
        self.collect()
        for (source, to), frames in list(self.under_way.items()):
            count = len(frames) if self.chance is None else self.chance.randint(0, len(frames))
            arrived, self.under_way[source, to] = frames[:count], frames[count:]
            for one in arrived:
                self.arrive(source, to, one)

    def arrive(self, source: int, to: int, arrived: Frame) -> None:
        """A frame reaches a stack."""
        host = self.hosts[to]
        if host.is_down or self.hosts[source].is_down:
            return
        link = host.link_to(self.view.members[source])
        link.heard = True
        if arrived.kind == frame.DATA:
            host.stack.receive(source, arrived.body)
        elif arrived.kind in (frame.CONTROL, frame.FAILURE):
            host.stack.control(source, arrived.kind, arrived.body)

    def run(self, milliseconds: int) -> None:
        """Let time pass."""
        for _ in range(milliseconds):
            self.step()

    def run_until(self, is_done: Callable[[], bool], milliseconds: int = 20_000) -> None:
        """Let time pass until a condition holds."""
        for _ in range(milliseconds):
            if is_done():
                return
            self.step()
        raise AssertionError(f"not within {milliseconds} ms")


@pytest.mark.parametrize("data", PROTOCOLS)
@pytest.mark.parametrize("members", [2, 3, 5])
def test_everything_is_delivered_once_in_order_and_found_stable(data: str, members: int) -> None:
    world = World(members, replace(SETTINGS, data=data), seed=members)
    for turn in range(20):
        for host in world.hosts:
            host.stack.publish([f"{host.rank} {turn} {number}".encode() for number in range(3)])
        world.step()
    world.run_until(lambda: all(host.stable == dict.fromkeys(range(members), 60) for host in world.hosts))
    for host in world.hosts:
        for sender in range(members):
            numbers = [key & SEQUENCE_MASK for key in host.keys if key >> 32 == sender]
            assert numbers == list(range(1, 61))
        assert host.stack.log.bytes == 0
        assert host.stack.log.waiting == 0
        assert host.stack.rounds > 0


@pytest.mark.parametrize("data", PROTOCOLS)
def test_an_effect_is_never_delivered_before_its_cause(data: str) -> None:
    for seed in range(6):
        world = World(4, replace(SETTINGS, data=data), seed=seed)
        world.run(10)
        world.hosts[3].stack.publish([b"cause"])
        world.run_until(lambda world=world: b"cause" in world.hosts[1].payloads)  # type: ignore[misc]
        world.hosts[1].stack.publish([b"effect"])
        world.run_until(lambda world=world: all(len(host.payloads) == 2 for host in world.hosts))  # type: ignore[misc]
        assert all(host.payloads == [b"cause", b"effect"] for host in world.hosts)


def test_a_message_that_comes_too_early_waits_in_the_log() -> None:
    world = World(3, replace(SETTINGS, data="timestamp"))
    first, second, last = world.hosts
    first.stack.publish([b"cause"])
    world.collect()
    (cause,) = [one for one in world.under_way[0, 1] if one.kind == frame.DATA]
    second.stack.receive(0, cause.body)
    second.stack.publish([b"effect"])
    world.collect()
    (effect,) = [one for one in world.under_way[1, 2] if one.kind == frame.DATA]
    last.stack.receive(1, effect.body)
    assert last.payloads == []
    assert last.stack.log.waiting == 1
    last.stack.receive(0, cause.body)
    assert last.payloads == [b"cause", b"effect"]
    assert last.stack.log.waiting == 0


def test_in_a_star_one_member_forwards_and_the_others_do_not() -> None:
    world = World(5, replace(SETTINGS, data="star"))
    world.run(2)
    world.under_way.clear()
    world.hosts[3].stack.publish([b"hello"])
    world.collect()
    data = {way for way, frames in world.under_way.items() if any(one.kind == frame.DATA for one in frames)}
    assert data == {(3, 0)}
    (hello,) = [one for one in world.under_way[3, 0] if one.kind == frame.DATA]
    world.under_way.clear()
    world.hosts[0].stack.receive(3, hello.body)
    world.collect()
    data = {way for way, frames in world.under_way.items() if any(one.kind == frame.DATA for one in frames)}
    assert data == {(0, 1), (0, 2), (0, 4)}


def test_messages_of_one_turn_share_a_frame() -> None:
    world = World(3)
    world.hosts[0].stack.publish([b"one", b"two", b"three"])
    world.collect()
    frames = [one for one in world.under_way[0, 1] if one.kind == frame.DATA]
    assert len(frames) == 1


def test_batches_are_parked_while_the_application_does_not_take_them() -> None:
    world = World(3)
    slow = world.hosts[2]
    slow.takes = False
    for number in range(5):
        world.hosts[0].stack.publish([b"%d" % number])
        world.step()
    world.run(1000)
    assert slow.payloads == []
    assert [host.stack.is_parked for host in world.hosts] == [False, False, True]
    assert world.hosts[0].stable == {}, "what one member has not taken in is not stable"
    slow.takes = True
    slow.stack.unpark()
    assert slow.payloads == [b"0", b"1", b"2", b"3", b"4"]
    assert not any(host.stack.is_parked for host in world.hosts)
    world.run_until(lambda: world.hosts[0].stable == {0: 5})


def test_parked_batches_are_taken_in_order_and_only_while_there_is_room() -> None:
    world = World(2)
    slow = world.hosts[1]
    slow.takes = False
    for number in range(3):
        world.hosts[0].stack.publish([b"%d" % number])
        world.step()
    world.run(2)
    taken = iter([True, True, False])
    slow.takes_data = lambda: next(taken)  # type: ignore[method-assign]
    slow.stack.unpark()
    assert slow.payloads == [b"0", b"1"]
    slow.takes_data = lambda: True  # type: ignore[method-assign]
    world.hosts[0].stack.publish([b"3"])
    world.run(2)
    assert slow.payloads == [b"0", b"1"], "what comes later waits behind what is parked"
    slow.stack.unpark()
    assert slow.payloads == [b"0", b"1", b"2", b"3"]


def test_a_frozen_stack_delivers_nothing_more_and_still_detects_failures() -> None:
    world = World(4)
    world.run(10)
    frozen = world.hosts[1]
    frozen.takes = False
    world.hosts[0].stack.publish([b"parked"])
    world.run(3)
    frozen.stack.freeze()
    frozen.takes = True
    frozen.stack.unpark()
    world.hosts[0].stack.publish([b"late"])
    world.run(50)
    assert frozen.payloads == []
    assert not frozen.stack.is_parked
    world.hosts[3].is_down = True
    world.run_until(lambda: frozen.stack.suspects() == [3])


def test_a_silent_member_is_suspected_and_is_no_longer_when_it_speaks() -> None:
    world = World(5)
    world.run(200)
    assert all(host.stack.suspects() == [] for host in world.hosts)
    world.hosts[2].is_down = True
    others = [host for host in world.hosts if host.rank != 2]
    world.run_until(lambda: all(host.stack.suspects() == [2] for host in others))
    world.hosts[2].is_down = False
    world.run_until(lambda: all(host.stack.suspects() == [] for host in others))


def test_everybody_learns_how_far_the_others_are() -> None:
    world = World(4)
    world.hosts[3].takes = False
    world.hosts[0].stack.publish([b"x"] * 10)
    world.run(1000)
    assert world.hosts[0].stack.progress() == [10, 10, 10, 0]
    assert world.hosts[2].stack.progress() == [10, 10, 10, 0]


def test_stability_can_be_requested_before_the_pause_is_over() -> None:
    world = World(3, replace(SETTINGS, round_every_s=3600.0))
    world.run(20)
    world.hosts[0].stack.publish([b"x"])
    world.hosts[0].stack.ask_stable(1)
    world.run_until(lambda: world.hosts[0].stable == {0: 1}, 200)


def test_a_malformed_batch_or_control_message_is_the_peers_error() -> None:
    world = World(3)
    with pytest.raises(RemoteProtocolError):
        world.hosts[0].stack.receive(1, b"nonsense")
    with pytest.raises(RemoteProtocolError):
        world.hosts[0].stack.control(1, frame.CONTROL, b"nonsense")


def test_the_neighbours_hold_those_of_the_hypercube_and_of_the_data_protocol() -> None:
    assert World(5, replace(SETTINGS, data="tree")).hosts[3].stack.neighbours() >= {1, 2}
    assert World(5, replace(SETTINGS, data="timestamp")).hosts[3].stack.neighbours() == {0, 1, 2, 4}
    assert World(5, replace(SETTINGS, data="timestamp")).hosts[3].stack.eager() == {0, 1, 2, 4}


def test_a_stability_protocol_that_is_none_is_refused() -> None:
    with pytest.raises(LocalProtocolError, match="stability='timestamp': choose one of auto, cascade, coord"):
        World(2, replace(SETTINGS, stability="timestamp"))


def test_a_member_that_is_alone_delivers_and_finds_stable_at_once() -> None:
    world = World(2)
    host = world.hosts[0]
    alone = Alone(host, founding_view([MemberId("m0", 1)]), SETTINGS)
    alone.publish([b"one", b"two"])
    alone.publish([b"three"])
    assert host.payloads == [b"one", b"two", b"three"]
    assert host.keys == [1, 2, 3]
    assert host.stable == {0: 3}
    assert alone.log.bytes == 0
    assert alone.progress() == [3]


def data_sent_to(world: World, rank: int) -> set[int]:
    """The ranks to which this member has data records to send now."""
    host = world.hosts[rank]
    reached: set[int] = set()
    for who, link in host.links.items():
        link.flush()
        assert link.pipe is not None
        data, link.pipe.out = b"".join(link.pipe.out), []
        if any(one.kind == frame.DATA for one in host.readers[who].feed(data)):
            reached.add(world.view.members.index(who))
    return reached


def test_rasm_requests_from_others_what_came_over_a_link_that_got_worse() -> None:
    """The tree of 3 reaches 1 over the link 1–3 until 1 misses every other heartbeat of 3."""
    world = World(8, replace(SETTINGS, data="causal_rasm"))
    world.hosts[3].stack.publish([b"payload"])
    for _ in range(20):
        world.step()
    member = world.hosts[1].stack
    assert world.hosts[1].payloads == [b"payload"]
    data_sent_to(world, 1)
    for step in range(STEPS_MIN):
        member._judge_link(3, heard=step % 2 == 0)
    assert data_sent_to(world, 1)


def test_other_data_protocols_do_not_judge_links() -> None:
    world = World(8, replace(SETTINGS, data="causal_plumtree"))
    for _ in range(20):
        world.step()
    assert not world.hosts[1].stack._data.judges_links

"""Pieces of the live runtime of changing groups: what waits for a peer, and the window of own messages."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from cubecast.core.membership.messages import ANY_LIFE, AskState, Gone, Message
from cubecast.errors import ExcludedError, LocalProtocolError
from cubecast.live.changing.peer import BATCH_BYTES, Peer
from cubecast.live.changing.window import ChangingMessage, Window
from cubecast.wire.frame import FrameReader
from cubecast.wire.membership import decode_batch, encode_message


class Wire:
    """A connection that keeps what is written."""

    def __init__(self) -> None:
        self.paused = False
        self.closed = False
        self.written = b""

    def write(self, data: bytes) -> None:
        self.written += data

    def close(self) -> None:
        self.closed = True

    def messages(self) -> list[Message]:
        frames = FrameReader(1 << 22).feed(self.written)
        return [message for arrived in frames for message in decode_batch(arrived.body, 1 << 20)]


def connected(peer: Peer, life: int = 5) -> Any:
    wire = Wire()
    peer.attach(wire, life, "a:1")  # type: ignore[arg-type]
    return wire


def test_messages_wait_for_a_connection_and_leave_in_order() -> None:
    peer = Peer("a:1", 1 << 20)
    for view in range(3):
        peer.add(ANY_LIFE, encode_message(Gone(view)))
    peer.flush()
    wire = connected(peer)
    peer.flush()
    assert wire.messages() == [Gone(0), Gone(1), Gone(2)]
    assert peer.waiting_bytes == 0


def test_what_was_for_another_life_is_not_sent() -> None:
    peer = Peer("a:1", 1 << 20)
    peer.add(4, encode_message(Gone(1)))
    peer.add(5, encode_message(Gone(2)))
    peer.add_status(4, encode_message(Gone(3)))
    wire = connected(peer, life=5)
    peer.flush()
    assert wire.messages() == [Gone(2)]


def test_of_what_repeats_itself_only_the_last_waits() -> None:
    peer = Peer("a:1", 1 << 20)
    for view in range(100):
        peer.add_status(ANY_LIFE, encode_message(Gone(view)))
    wire = connected(peer)
    peer.flush()
    assert wire.messages() == [Gone(99)]


def test_a_peer_that_does_not_read_costs_a_bounded_amount() -> None:
    peer = Peer("a:1", 1000)
    wire = connected(peer)
    wire.paused = True
    encoded = encode_message(AskState(1, 1))
    for _ in range(1000):
        peer.add(ANY_LIFE, encoded)
    peer.flush()
    assert wire.written == b""
    assert peer.waiting_bytes <= 1000
    assert peer.dropped == 1000 - 1000 // len(encoded)
    wire.paused = False
    peer.flush()
    assert len(wire.messages()) == 1000 // len(encoded)


def test_large_queues_leave_in_several_frames() -> None:
    peer = Peer("a:1", 1 << 24)
    wire = connected(peer)
    wire.paused = True
    encoded = bytes(100_000)
    for _ in range(10):
        peer.add(ANY_LIFE, encoded)
    wire.paused = False
    peer.flush()
    sizes = [len(arrived.body) for arrived in FrameReader(1 << 22).feed(wire.written)]
    assert sum(sizes) == 1_000_000
    assert max(sizes) <= BATCH_BYTES


def test_a_new_connection_closes_the_old_one() -> None:
    peer = Peer("a:1", 1000)
    first = connected(peer)
    second = connected(peer, life=6)
    assert first.closed
    assert not peer.detach(first)
    assert peer.detach(second)
    assert not peer.is_up


def test_messages_become_stable_in_their_view_and_all_of_them_with_the_next_view() -> None:
    window = Window(100)
    first, second, third = (window.add(bytes(10)) for _ in range(3))
    window.sent(1, 1)
    window.sent(1, 2)
    window.stable(1, 1)
    assert [one.is_stable for one in (first, second, third)] == [True, False, False]
    window.stable(2, 0)
    assert [one.is_stable for one in (first, second, third)] == [True, True, False]
    assert (len(window), window.bytes) == (1, 10)


def test_what_comes_back_are_the_last_messages_and_the_others_were_delivered() -> None:
    window = Window(100)
    outgoing = [window.add(b"%d" % number) for number in range(4)]
    for number in range(1, 4):
        window.sent(1, number)
    returned = window.returned([b"2", b"3"])
    assert returned == outgoing[2:]
    assert [one.is_stable for one in outgoing] == [True, True, False, False]
    assert [one.was_sent for one in returned] == [True, False]
    window.again(returned[0])
    window.lose(returned[1], "gone")
    assert list(window.waiting) == [outgoing[2]]
    assert window.bytes == 1
    with pytest.raises(ExcludedError, match="gone"):
        asyncio.run(ChangingMessage(returned[1]).stable())


def test_messages_of_the_time_before_a_restart_come_back_too() -> None:
    window = Window(100)
    window.add(b"new")
    returned = window.returned([b"old", b"older", b"new"])
    assert [one.payload for one in returned] == [b"old", b"older", b"new"]
    assert [one.was_sent for one in returned] == [True, True, False]


def test_those_who_wait_for_room_go_on_one_by_one_in_their_order() -> None:
    async def work() -> None:
        window = Window(10)
        window.add(bytes(10))
        done: list[int] = []

        async def send(number: int) -> None:
            await window.wait_for_room()
            window.add(bytes(10))
            done.append(number)

        tasks = [asyncio.create_task(send(number)) for number in range(3)]
        await asyncio.sleep(0)
        tasks[0].cancel()
        for view in range(1, 3):
            window.sent(view, 1)
            window.stable(view, 1)
            for _ in range(5):
                await asyncio.sleep(0)
            assert done == [1, 2][:view]
        waiting = asyncio.create_task(window.wait_for_room())
        await asyncio.sleep(0)
        window.end(LocalProtocolError("over"))
        with pytest.raises(LocalProtocolError, match="over"):
            await waiting

    asyncio.run(work())

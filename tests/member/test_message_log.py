"""The messages of one view at one member: delivered, stable, waiting, recovered."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cubecast.member.message_log import Batch, MessageLog
from tests.member.logs import unstable


def batch(*messages: tuple[int, int]) -> Batch:
    keys = [sender << 32 | sequence for sender, sequence in messages]
    return Batch(keys, [f"{sender}:{sequence}".encode() for sender, sequence in messages])


def log_of(*delivered: tuple[int, int], members: int = 3) -> MessageLog:
    log = MessageLog(members)
    for one in delivered:
        log.add(batch(one))
    return log


def test_what_is_stable_is_freed_and_its_bytes_are_given_back() -> None:
    log = log_of((0, 1), (1, 1), (0, 2))
    assert log.delivered() == (2, 1, 0)
    assert log.bytes == 9
    assert log.free(0, 1) == 3
    assert (log.stable, log.unstable, log.bytes) == ([1, 0, 0], 2, 6)
    assert log.delivered() == (2, 1, 0), "stable messages were delivered too"
    assert log.get(0, 2) == b"0:2"
    with pytest.raises(AssertionError, match="message 1 of rank 0 is stable"):
        log.get(0, 1)


def test_stability_that_runs_ahead_of_delivery_frees_what_is_here() -> None:
    log = log_of((0, 1))
    log.free(0, 5)
    assert log.stable == [1, 0, 0]
    log.free(0, 1)
    assert log.stable == [1, 0, 0]


def test_a_message_that_waits_is_found_until_it_is_delivered() -> None:
    log = log_of((0, 1))
    held_back = batch((0, 3))
    (key,), (record,) = held_back
    log.wait(held_back)
    assert log.waiting == 1
    assert log.get(0, 3) == record
    assert log.delivered_of(b"..0:2", [[key - 1, key], [2, -1], [5, -1]]) == [b"0:2", record]
    assert log.waiting == 0


def test_messages_are_given_in_the_order_of_delivery() -> None:
    log = log_of((1, 1), (0, 1), (0, 2), (2, 1), (1, 2))
    assert log.in_order((0, 1, 0), (2, 1, 1)) == [b"0:1", b"0:2", b"2:1"]
    log.free(0, 1)
    log.free(1, 1)
    assert unstable(log) == [b"0:2", b"2:1", b"1:2"]


def test_only_the_next_message_of_a_sender_is_recovered() -> None:
    log = log_of((0, 1))
    assert log.recover(batch((0, 1), (0, 3), (0, 2), (0, 3))) == [b"0:2", b"0:3"]
    assert log.recover(batch((0, 2))) == []
    assert not log.lacks((3, 0, 0))
    assert log.lacks((4, 0, 0))
    assert log.lacks((3, 1, 0))
    assert log.take_recovered((2, 0, 0)) == batch((0, 2))
    assert log.recovered == {}


@given(st.integers(1, 4), st.lists(st.integers(0, 3), max_size=40), st.data())
def test_between_stable_and_delivered_everything_is_held_in_order(
    members: int, senders: list[int], data: st.DataObject
) -> None:
    log = MessageLog(members)
    count = [0] * members
    delivered: list[tuple[int, int]] = []
    for sender in senders:
        sender %= members
        count[sender] += 1
        delivered.append((sender, count[sender]))
    at = 0
    while at < len(delivered):
        step = data.draw(st.integers(1, 5))
        log.add(batch(*delivered[at : at + step]))
        at += step
    for sender in range(members):
        log.free(sender, data.draw(st.integers(0, count[sender])))
    held = batch(*[(sender, sequence) for sender, sequence in delivered if sequence > log.stable[sender]]).records
    assert log.delivered() == tuple(count)
    assert unstable(log) == held
    assert (log.unstable, log.bytes) == (len(held), sum(map(len, held)))


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 40)), max_size=12), st.integers(0, 1 << 20))
def test_the_runs_of_a_batch_are_those_found_one_by_one(parts: list[tuple[int, int]], before: int) -> None:
    sent = [before] * 4
    keys: list[int] = []
    places: list[int] = []
    for sender, count in parts:
        for _ in range(count):
            sent[sender] += 1
            if not keys or keys[-1] + 1 != sender << 32 | sent[sender]:
                places.append(len(keys))
            keys.append(sender << 32 | sent[sender])
    runs = Batch(keys, [b""] * len(keys)).runs()
    assert [begin for begin, _ in runs] == places
    assert [end for _, end in runs] == [*places[1:], len(keys)][: len(places)]

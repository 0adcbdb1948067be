"""How a live member calls a data core: held-back messages, deliveries and timers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pytest

from cubecast.jit.decorators import linked
from cubecast.member.arena import Arena
from cubecast.member.data_core import DataCore
from cubecast.protocol import handlers
from cubecast.protocol.definition import LiveData
from cubecast.protocol.mail import (
    begin_round,
    deliver,
    draft,
    hold_back,
    multicast,
    send,
    set_timer,
)
from cubecast.wire import data

FORM = data.Form(members=2, stamp_numbers=2, own_numbers=2, payload_bytes_max=100)


class OddState(NamedTuple):
    held: np.ndarray


@linked
def _publish(state, row, now_ns, mail):  # type: ignore[no-untyped-def]
    """Every message says in its first number how many messages are held."""
    slot = draft(mail, 0, -1, 0)
    mail.heads[slot].sender = 0
    mail.heads[slot].sequence = state.held[1] + 1
    state.held[1] += 1
    mail.numbers[slot, 0] = state.held[0]
    mail.numbers[slot, 1] = 77
    deliver(mail, 0, state.held[1])
    multicast(mail, slot)


@linked
def _receive(state, row, now_ns, mail, slot):  # type: ignore[no-untyped-def]
    """An odd message is held back and wakes the member later; an even one is delivered before the one held back."""
    sequence = mail.heads[slot].sequence
    sender = mail.heads[slot].sender
    if sequence % 2 == 1:
        state.held[0] = sequence
        hold_back(mail, 1, True)
        set_timer(mail, 5, sequence, 1_000)
    else:
        deliver(mail, sender, sequence)
        deliver(mail, sender, state.held[0])
        state.held[0] = 0
        hold_back(mail, 0, False)


@linked
def _on_timer(state, row, now_ns, mail, timer, tag):  # type: ignore[no-untyped-def]
    """A control message about sender 1; for timer 9, an action that no data core may request."""
    if timer == 9:
        begin_round(mail, 1)
    slot = draft(mail, 3, -1, 0)
    mail.heads[slot].sender = 1
    mail.numbers[slot, 0] = tag
    mail.numbers[slot, 1] = timer
    send(mail, slot, 1)


handlers.register(OddState, SimpleNamespace(publish=_publish, receive=_receive, on_timer=_on_timer))


def _core(*, changes_numbers: bool = False) -> DataCore:
    live = LiveData(linked=lambda state: [], stamp_numbers=lambda members: members, changes_numbers=changes_numbers)
    return DataCore(OddState(np.zeros(2, np.int64)), live, members=2, window=8, arena=Arena())


def _batch(*sequences: int) -> tuple[bytes, np.ndarray, int]:
    body = b"".join(data.encode_record(0, 1, number, b"payload", bytes(8)) for number in sequences)
    table = data.new_table()
    return body, table, data.decode_batch(body, table, FORM)


def test_a_held_back_message_is_stored_and_read_when_it_is_delivered() -> None:
    core = _core()
    body, table, count = _batch(1, 2)
    size = len(body) // 2
    assert core.receive(0, 1, body, table, 0, 1) == 1
    first = core.results()
    assert first.deliveries == [[], [], []]
    assert first.kept == [[1 << 32 | 1], [0], [size]]
    assert first.timers == [[5, 1, 1_000]]
    core.receive(0, 1, body, table, 1, count)
    second = core.results()
    assert second.deliveries == [[1 << 32 | 2, 1 << 32 | 1], [size, -1], [2 * size, -1]]
    assert second.kept == [[], [], []]
    assert second.timers == []


def test_one_batch_may_keep_and_deliver() -> None:
    core = _core()
    body, table, count = _batch(1, 2)
    assert core.receive(0, 1, body, table, 0, count) == 2
    asked = core.results()
    assert [key & 0xFF for key in asked.kept[0]] == [1]
    keys, starts, _ = asked.deliveries
    assert [(key & 0xFF, start >= 0) for key, start in zip(keys, starts, strict=True)] == [(2, True), (1, False)]


def test_a_publication_brings_the_numbers_it_carries() -> None:
    core = _core()
    assert core.publish(0, 3) == 3
    asked = core.results()
    keys, rows, _ = asked.deliveries
    assert keys == [1, 2, 3]
    for row in rows:
        assert np.frombuffer(core.numbers(row), "<i4").tolist() == [0, 77]
    assert asked.sends == [[-1, -1, -1], [0, 0, 0], [1, 2, 3], [-1, -1, -1]]


def test_numbers_that_change_on_the_way_come_with_every_send() -> None:
    core = _core(changes_numbers=True)
    core.publish(0, 1)
    _, _, _, (row,) = core.results().sends
    assert np.frombuffer(core.numbers(row), "<i4").tolist() == [0, 77]


def test_a_timer_may_make_the_core_say_something_of_its_own_about_a_sender() -> None:
    core = _core()
    core.on_timer(0, 5, 42)
    (rank,), (kind,), (key,), (row,) = core.results().sends
    assert (rank, kind, key >> 32, key & 0xFFFFFFFF) == (1, 3, 1, 0)
    assert np.frombuffer(core.numbers(row), "<i4").tolist() == [42, 5]


def test_what_a_live_member_does_not_do_for_data_is_an_error() -> None:
    core = _core()
    core.on_timer(0, 9, 0)
    with pytest.raises(AssertionError, match="cannot continue"):
        core.results()

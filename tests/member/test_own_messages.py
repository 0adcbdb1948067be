"""Own messages from the call of `multicast` to stability, return or loss."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cubecast.errors import ExcludedError, LocalProtocolError
from cubecast.member.effects import Effects, Outgoing
from cubecast.member.own_messages import OwnMessages


def several(own: OwnMessages, count: int) -> list[Outgoing]:
    return [own.add(b"x" * 10) for _ in range(count)]


def test_messages_are_sent_in_the_order_of_the_calls_and_numbered_on() -> None:
    own = OwnMessages(bytes_max=1000)
    added = several(own, 5)
    assert [one.serial for one in added] == [1, 2, 3, 4, 5]
    assert own.send(2, view=3, first=11) == added[:2]
    assert own.send(3, view=4, first=13) == added[2:]
    assert [(one.view, one.sequence) for one in added] == [(3, 11), (3, 12), (4, 13), (4, 14), (4, 15)]


def test_the_window_counts_messages_and_bytes_until_they_are_stable() -> None:
    own, effects = OwnMessages(bytes_max=50), Effects()
    added = several(own, 3)
    assert own.has_room(4)
    assert not own.has_room(3)
    several(own, 2)
    assert not own.has_room(100), "50 bytes are the limit"
    own.send(5, view=1, first=1)
    own.is_stable(2, effects)
    assert effects.settled == added[:2]
    assert all(one.is_stable and one.failure is None for one in added[:2])
    assert (len(own), own.bytes) == (3, 30)
    assert own.has_room(4)


def test_an_exclusion_returns_what_did_not_reach_the_group_oldest_first() -> None:
    own, effects = OwnMessages(bytes_max=1000), Effects()
    added = several(own, 5)
    own.send(3, view=1, first=1)
    back = own.returned(above=1, effects=effects)
    assert effects.settled == added[:1]
    assert back == added[1:]
    assert [one.was_sent for one in back] == [True, True, False, False]
    own.again(back[0])
    own.lose(back[1], ExcludedError("gone"), effects)
    assert isinstance(added[2].failure, ExcludedError)
    assert not added[2].is_stable
    assert (added[1].view, added[1].sequence, added[1].was_sent) == (0, 0, False)
    assert own.send(1, view=7, first=1) == [added[1]]


def test_at_the_end_everything_fails() -> None:
    own, effects = OwnMessages(bytes_max=1000), Effects()
    added = several(own, 3)
    own.send(1, view=1, first=1)
    own.end(LocalProtocolError("stopped"), effects)
    assert effects.settled == added
    assert all(isinstance(one.failure, LocalProtocolError) for one in added)
    assert (len(own), own.bytes) == (0, 0)


@given(st.lists(st.tuples(st.sampled_from(["add", "send", "stable", "exclude"]), st.integers(0, 6)), max_size=60))
def test_every_message_settles_once_and_the_bytes_add_up(steps: list[tuple[str, int]]) -> None:
    own, effects = OwnMessages(bytes_max=1 << 30), Effects()
    added: list[Outgoing] = []
    sequence = 0
    for step, count in steps:
        if step == "add":
            added += [own.add(bytes(count)) for _ in range(count)]
        elif step == "send":
            count = min(count, len(own.waiting))
            own.send(count, 1, sequence + 1)
            sequence += count
        elif step == "stable":
            own.is_stable(sequence - len(own.sent) + min(count, len(own.sent)), effects)
        else:
            for one in own.returned(sequence - len(own.sent), effects):
                own.again(one)
    assert len(set(map(id, effects.settled))) == len(effects.settled)
    assert [one.serial for one in effects.settled] == sorted(one.serial for one in effects.settled)
    assert len(own) + len(effects.settled) == len(added)
    assert own.bytes == sum(len(one.payload) for one in (*own.sent, *own.waiting))
    assert [*own.sent, *own.waiting] == added[len(effects.settled) :]

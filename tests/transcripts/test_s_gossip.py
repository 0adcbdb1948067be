"""S_Gossip, one receive at a time (guo §4.3.3): local groups 0 1 2 and 3 4 5, two controllers each."""

from __future__ import annotations

from tests.transcripts.talk import Message, Talk

RECEIVED = [[9], [8], [7], [6], [5], [4]]


def begun(**options: bool) -> Talk:
    talk = Talk("s_gossip", RECEIVED, group_size=3, **options)
    talk.start()
    talk.said()
    return talk


def local(source: int, to: int, heard: tuple[int, ...], number: int) -> Message:
    return Message(source=source, to=to, kind="LOCAL", round=1, heard=heard, numbers=(number,))


def among(source: int, to: int, groups: tuple[int, ...], number: int) -> Message:
    return Message(source=source, to=to, kind="AMONG", round=1, heard=groups, numbers=(number,))


def test_the_first_phase_stays_in_the_local_group() -> None:
    talk = begun()
    for _ in range(10):
        talk.wake(4, "STEP")
    assert {message.to for message in talk.under_way} <= {3, 5}
    assert {str(message) for message in talk.under_way} == {"LOCAL 1 {4} [5]"}


def test_a_controller_that_has_heard_its_group_turns_to_the_controllers() -> None:
    talk = begun()
    talk.receive(local(1, 0, (1, 2), 7))
    for _ in range(10):
        talk.wake(0, "STEP")
    assert {message.to for message in talk.under_way} <= {1, 3, 4}
    assert {str(message) for message in talk.under_way} == {"AMONG 1 {0} [7]"}


def test_who_is_no_controller_goes_on_gossiping_locally() -> None:
    talk = begun()
    talk.receive(local(1, 2, (0, 1), 8))
    talk.wake(2, "STEP")
    assert str(talk.under_way[0]) == "LOCAL 1 {0 1 2} [7]"


def test_the_first_to_hold_all_groups_multicasts_the_result() -> None:
    talk = begun()
    talk.receive(local(1, 0, (1, 2), 7))
    talk.receive(among(3, 0, (1,), 4))
    talk.deliver_all()
    assert talk.done == [1] * 6
    assert all(talk.stable(rank) == [4] for rank in range(6))


def test_the_round_survives_its_controllers() -> None:
    """Without 0 and 1 member 2 is the only controller of its group; it has gossiped all along."""
    talk = begun()
    talk.receive(local(1, 2, (0, 1), 8))
    for who in (0, 1):
        talk.crash(who)
        talk.leave(2, who)
    talk.wake(2, "STEP")
    assert str(talk.under_way[0]) == "AMONG 1 {0} [7]"
    assert talk.under_way[0].to in (3, 4)


def test_a_group_of_which_nobody_is_left_is_not_waited_for() -> None:
    talk = begun()
    talk.receive(local(1, 0, (1, 2), 7))
    for who in (3, 4, 5):
        talk.crash(who)
        talk.leave(0, who)
    assert (talk.done[0], talk.stable(0)) == (1, [7])


def test_sizes() -> None:
    """36 + 4m + one byte for a bitmap of three members, or of two groups."""
    talk = begun()
    talk.wake(0, "STEP")
    talk.receive(local(1, 0, (1, 2), 7))
    talk.wake(0, "STEP")
    assert [message.size for message in talk.under_way] == [36 + 4 + 1, 36 + 4 + 1]

"""Gossip, one receive at a time (guo Figs 4.4–4.6). Targets are random, so the test delivers the messages."""

from __future__ import annotations

import random
from typing import Any

import pytest

from cubecast.errors import LocalProtocolError
from cubecast.protocol.context import Context
from cubecast.protocol.overlays import hypercube, ring
from cubecast.protocols.catalogue import protocol_named
from cubecast.protocols.stability.gossiping import scope
from tests.transcripts.talk import STEP_NS, Message, Talk

RECEIVED = [[5, 3], [4, 4], [6, 2], [5, 5]]
ALL = (0, 1, 2, 3)


def gossip(source: int, to: int, number: int, heard: tuple[int, ...], *numbers: int) -> Message:
    return Message(source=source, to=to, kind="GOSSIP", round=number, heard=heard, numbers=numbers)


def state_of(talk: Talk, rank: int) -> tuple[int, list[int], list[int]]:
    """r, M and W."""
    heard = [other for other in range(talk.members) if int(talk.state.heard[rank, 0]) >> other & 1]
    return int(talk.state.round[rank]), talk.state.minimum[rank].tolist(), heard


def begun(**options: Any) -> Talk:
    talk = Talk("gossip", RECEIVED, **options)
    talk.start()
    talk.said()
    return talk


def test_everybody_begins_with_its_own_array_at_an_offset_inside_the_step() -> None:
    talk = begun()
    assert [state_of(talk, rank) for rank in range(4)] == [(1, RECEIVED[rank], [rank]) for rank in range(4)]
    offsets = [timer.delay_ns for timer in talk.timers]
    assert len(set(offsets)) > 1
    assert all(0 <= offset < STEP_NS for offset in offsets)


def test_a_step_tells_distinct_others() -> None:
    talk = begun(subset=2)
    for _ in range(20):
        talk.wake(1, "STEP")
        targets = [message.to for message in talk.under_way]
        assert len(set(targets)) == 2
        assert 1 not in targets
        assert {str(message) for message in talk.under_way} == {"GOSSIP 1 {1} [4 4]"}
        talk.under_way.clear()


def test_those_who_are_gone_are_not_told() -> None:
    talk = begun(subset=3)
    talk.leave(1, 0)
    talk.wake(1, "STEP")
    assert sorted(message.to for message in talk.under_way) == [2, 3]


def test_news_is_merged() -> None:
    talk = begun()
    talk.receive(gossip(1, 0, 1, (1,), 4, 4))
    assert state_of(talk, 0) == (1, [4, 3], [0, 1])


def test_news_that_adds_nothing_is_ignored() -> None:
    """Member 1 has received more meanwhile; its old number stays."""
    talk = begun()
    talk.receive(gossip(1, 0, 1, (1,), 4, 4))
    talk.receive(gossip(1, 0, 1, (1,), 1, 1))
    assert state_of(talk, 0) == (1, [4, 3], [0, 1])


def test_news_that_says_all_and_more_is_adopted() -> None:
    talk = begun()
    talk.receive(gossip(1, 0, 1, (0, 1, 2), 7, 7))
    assert state_of(talk, 0) == (1, [7, 7], [0, 1, 2])


def test_the_first_to_cover_the_group_multicasts_the_result() -> None:
    talk = begun()
    talk.receive(gossip(1, 0, 1, (1, 2, 3), 4, 2))
    talk.says(
        """
        0 → all: INFO 1 [4 2]
        0 knows 1: [4 2]
        """
    )
    talk.deliver_all()
    assert talk.done == [1, 1, 1, 1]
    assert all(talk.stable(rank) == [4, 2] for rank in ALL)


def test_after_the_result_everybody_rests_until_the_next_round() -> None:
    talk = begun()
    talk.receive(gossip(1, 0, 1, (1, 2, 3), 4, 2))
    talk.deliver_all()
    talk.wake(2, "STEP")
    assert talk.under_way == []
    talk.group.received[2, 1] = 3
    talk.wake(2, "NEXT_ROUND")
    assert state_of(talk, 2) == (2, [6, 3], [2])
    talk.wake(2, "STEP")
    assert [str(message) for message in talk.under_way] == ["GOSSIP 2 {2} [6 3]"]


def test_whoever_enters_a_later_round_merges_its_own_array() -> None:
    """Fig 4.6 as printed adopts M' alone and would certify a round that member 0 took no part in."""
    talk = begun()
    talk.receive(gossip(1, 0, 2, (1, 2, 3), 9, 9))
    assert talk.done[0] == 2
    assert talk.stable(0) == [5, 3]


def test_old_news_is_ignored() -> None:
    talk = begun()
    talk.receive(gossip(1, 0, 3, (1,), 9, 9))
    talk.receive(gossip(2, 0, 2, (2, 3), 1, 1))
    assert state_of(talk, 0) == (3, [5, 3], [0, 1])


def test_a_member_that_missed_the_result_is_told_where_messages_can_be_lost() -> None:
    for lossy in (False, True):
        talk = begun(lossy=lossy)
        talk.receive(gossip(1, 0, 1, (1, 2, 3), 4, 2))
        talk.said()
        talk.receive(gossip(3, 0, 1, (3,), 5, 5))
        assert talk.said() == ("0 → 3: INFO 1 [4 2]" if lossy else "")


def test_the_result_is_piggybacked_on_later_gossip() -> None:
    talk = begun(ending="piggyback")
    talk.receive(Message(source=1, to=0, kind="GOSSIP", round=1, heard=(1, 2, 3), numbers=(4, 2, 0, 0)))
    talk.says("0 knows 1: [4 2]")
    talk.wake(0, "NEXT_ROUND")
    assert state_of(talk, 0) == (2, [5, 3], [0])
    talk.wake(0, "STEP")
    message = talk.lose(0)
    assert message.numbers == (5, 3, 4, 2)
    talk.receive(Message(**{**vars(message), "to": 3}))
    assert (talk.done[3], talk.stable(3)) == (1, [4, 2])
    assert state_of(talk, 3) == (2, [5, 3], [0, 3])


def test_where_no_next_round_comes_the_cover_itself_is_told() -> None:
    talk = begun(ending="piggyback")
    talk.receive(Message(source=1, to=0, kind="GOSSIP", round=1, heard=(1, 2, 3), numbers=(4, 2, 0, 0)))
    talk.wake(0, "STEP")
    message = talk.lose(0)
    talk.receive(Message(**{**vars(message), "to": 3}))
    assert (talk.done[3], talk.stable(3)) == (1, [4, 2])


@pytest.mark.parametrize(("piggyback", "second"), [(False, 36 + 8 + 1), (True, 36 + 8 + 8 + 1)])
def test_sizes(piggyback: bool, second: int) -> None:
    """36 + 4m + ⌈n/8⌉ (guo §5.2); S costs its 4m from the second round on, where it is piggybacked."""
    talk = begun(ending="piggyback" if piggyback else "optimised")
    talk.wake(0, "STEP")
    assert talk.lose(0).size == 36 + 8 + 1
    talk.receive(gossip(1, 0, 1, (1, 2, 3), 4, 2, *((0, 0) if piggyback else ())))
    talk.under_way.clear()
    talk.wake(0, "NEXT_ROUND")
    talk.wake(0, "STEP")
    assert talk.lose(0).size == second


def test_a_member_that_is_gone_is_not_waited_for() -> None:
    talk = begun()
    talk.receive(gossip(1, 0, 1, (1, 2), 4, 2))
    assert talk.done[0] == 0
    talk.leave(0, 3)
    assert (talk.done[0], talk.stable(0)) == (1, [4, 2])


@pytest.mark.parametrize(
    ("members", "senders", "step_s"), [(50, 50, 0.7), (200, 50, 3.0), (500, 50, 5.0), (300, 1, 0.6)]
)
def test_the_step_intervals_of_the_table(members: int, senders: int, step_s: float) -> None:
    """guo Table 5.1; local groups of 50 step as its first row says, whatever the size of the whole group."""
    context = Context(members=members, senders=senders)
    for name, wanted in (("gossip", step_s), ("s_gossip", 0.7 if senders == 50 else 0.1)):
        entry = protocol_named(name)
        assert entry.resolve(entry.make_parameters({"step_rule": "table"}), context).step_s == wanted
        given = entry.make_parameters({"step_rule": "table", "step_s": 9.0})
        assert entry.resolve(given, context).step_s == 9.0
    entry = protocol_named("s_gossip")
    assert entry.resolve(entry.make_parameters({"step_rule": "group-table"}), context).step_s == step_s


@pytest.mark.parametrize(("members", "senders"), [(150, 50), (200, 20)])
def test_a_group_that_is_not_in_the_table_is_refused(members: int, senders: int) -> None:
    entry = protocol_named("gossip")
    with pytest.raises(
        LocalProtocolError, match=f"{members} gossiping members and {senders} senders: guo Table 5.1 has"
    ):
        entry.resolve(entry.make_parameters({"step_rule": "table"}), Context(members=members, senders=senders))


def test_gossip_with_a_time_to_live_goes_to_all_within_so_many_hops() -> None:
    """The TTL field can limit the scope of a gossip (guo §4.2.4)."""
    received = [[rank] for rank in range(7)]
    for ttl, targets in ((1, {0, 2}), (2, {0, 2, 3, 6}), (3, {0, 2, 3, 4, 5, 6}), (9, {0, 2, 3, 4, 5, 6})):
        talk = Talk("gossip", received, ttl=ttl, overlay=ring(7))
        talk.start()
        talk.wake(1, "STEP")
        assert {message.to for message in talk.under_way} == targets
        assert len(talk.under_way) == len(targets)
        talk.leave(1, 2)
        talk.under_way.clear()
        talk.wake(1, "STEP")
        assert {message.to for message in talk.under_way} == targets - {2}


def test_news_travels_as_many_hops_per_step_as_the_time_to_live() -> None:
    talk = Talk("gossip", [[rank] for rank in range(9)], ttl=2, overlay=ring(9))
    talk.start()
    talk.wake(0, "STEP")
    talk.deliver_all()
    assert [rank for rank in range(9) if int(talk.state.heard[rank, 0]) & 1] == [0, 1, 2, 7, 8]


def test_a_time_to_live_needs_hops() -> None:
    with pytest.raises(LocalProtocolError, match="every node of the network is a member"):
        Talk("gossip", RECEIVED, ttl=1)


def test_the_scope_is_what_a_walk_of_so_many_hops_reaches() -> None:
    for seed in range(30):
        draw = random.Random(seed)
        overlay = hypercube(draw.randint(3, 40)) if seed % 2 else ring(draw.randint(3, 20))
        members, ttl = len(overlay.offsets) - 1, draw.randint(1, 4)
        rank = draw.randrange(members)
        reached = {rank}
        for _ in range(ttl):
            reached |= {
                int(other)
                for node in set(reached)
                for other in overlay.neighbours[overlay.offsets[node] : overlay.offsets[node + 1]]
            }
        assert scope(overlay, rank, ttl) == sorted(reached - {rank})

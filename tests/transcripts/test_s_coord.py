"""S_Coord, line by line (cube §2.3, Fig 3; lossy form cube §3.5; the tree after a crash guo §5.2).

Five members in a binary tree: 0 over 1 and 2, 1 over 3 and 4.
"""

from __future__ import annotations

import pytest

from cubecast.protocol.context import Context, NetworkFacts
from cubecast.protocols.catalogue import protocol_named
from cubecast.protocols.stability.s_coord import SCoordParameters
from tests.transcripts.talk import Message, Talk

RECEIVED = [[5, 3], [4, 4], [6, 2], [5, 5], [7, 1]]


def talk_of(*, lossy: bool = False, tree_degree: int = 2, relayed: bool = False) -> Talk:
    return Talk("s_coord", RECEIVED, lossy=lossy, tree_degree=tree_degree, relayed=relayed)


def test_a_round() -> None:
    talk = talk_of()
    talk.start()
    talk.deliver_all()
    talk.says(
        """
        0 begins 1
        0 → all: START 1
        1 begins 1
        2 begins 1
        2 → 0: ACK 1 [6 2]
        3 begins 1
        3 → 1: ACK 1 [5 5]
        4 begins 1
        4 → 1: ACK 1 [7 1]
        1 → 0: ACK 1 [4 1]
        0 knows 1: [4 1]
        0 → all: INFO 1 [4 1]
        1 knows 1: [4 1]
        2 knows 1: [4 1]
        3 knows 1: [4 1]
        4 knows 1: [4 1]
        """
    )


def test_an_inner_member_waits_for_every_child() -> None:
    talk = talk_of()
    talk.start()
    for rank in (1, 2, 3):
        talk.deliver(0, rank, "START")
    talk.deliver(3, 1, "ACK")
    assert not any(message.source == 1 for message in talk.under_way)
    talk.deliver(0, 4, "START")
    talk.deliver(4, 1, "ACK")
    assert [str(message) for message in talk.under_way if message.source == 1] == ["ACK 1 [4 1]"]


def test_an_ack_that_overtakes_start_opens_the_round_and_is_reported_once() -> None:
    """The children's way to 1 can be shorter than the root's."""
    talk = talk_of()
    talk.start()
    late = talk.lose(0, 1, "START")
    talk.deliver(0, 3, "START")
    talk.deliver(0, 4, "START")
    talk.deliver(3, 1, "ACK")
    talk.deliver(4, 1, "ACK")
    talk.said()
    talk.receive(late)
    talk.says("")
    assert [str(message) for message in talk.under_way if message.source == 1] == ["ACK 1 [4 1]"]


def test_the_minimum_is_taken_when_the_round_is_joined() -> None:
    """What arrives at a member after it joined counts in the next round only, or at most as much as it sent."""
    talk = talk_of()
    talk.start()
    talk.deliver(0, 1, "START")
    talk.group.received[1] = [9, 9]
    talk.deliver_all()
    assert talk.stable(2) == [4, 1]
    talk.wake(0, "NEXT_ROUND")
    talk.deliver_all()
    assert talk.stable(2) == [5, 1]


def test_lost_messages_are_repeated_edge_by_edge() -> None:
    talk = talk_of(lossy=True)
    talk.start()
    talk.lose(0, 3, "START")
    talk.lose(0, 1, "START")
    talk.deliver_all()
    talk.says(
        """
        0 begins 1
        0 → all: START 1
        2 begins 1
        2 → 0: ACK 1 [6 2]
        4 begins 1
        4 → 1: ACK 1 [7 1]
        1 begins 1
        """
    )
    talk.wake(1, "REPEAT")
    talk.deliver(1, 3, "START")
    talk.lose(3, 1, "ACK")
    talk.wake(1, "REPEAT")
    talk.deliver_all_but("INFO")
    talk.says(
        """
        1 → 3: START 1
        3 begins 1
        3 → 1: ACK 1 [5 5]
        1 → 3: START 1
        3 → 1: ACK 1 [5 5]
        1 → 0: ACK 1 [4 1]
        0 knows 1: [4 1]
        0 → all: INFO 1 [4 1]
        """
    )


def test_the_root_repeats_start_to_a_child_that_answers_again() -> None:
    talk = talk_of(lossy=True)
    talk.start()
    talk.deliver_all_but("ACK")
    talk.lose(2, 0, "ACK")
    talk.said()
    talk.wake(0, "REPEAT")
    talk.deliver(0, 2, "START")
    talk.says("0 → 1: START 1\n0 → 2: START 1\n2 → 0: ACK 1 [6 2]")


def test_ack_info_climbs_the_tree_so_that_the_root_waits_for_all() -> None:
    talk = talk_of(lossy=True)
    talk.start()
    talk.deliver_all_but("INFO")
    talk.lose(0, 4, "INFO")
    talk.deliver_all()
    talk.said()
    assert not talk.has_timer(0, "NEXT_ROUND")
    talk.wake(1, "REPEAT")
    talk.deliver_all()
    talk.says(
        """
        1 → 4: INFO 1 [4 1]
        4 knows 1: [4 1]
        4 → 1: ACK_INFO 1
        1 → 0: ACK_INFO 1
        """
    )
    assert talk.has_timer(0, "NEXT_ROUND")


def test_a_child_that_knows_before_its_parent_is_not_asked_again() -> None:
    talk = talk_of(lossy=True)
    talk.start()
    talk.deliver_all_but("INFO")
    late = talk.lose(0, 1, "INFO")
    talk.deliver_all()
    talk.said()
    talk.receive(late)
    talk.says("1 knows 1: [4 1]\n1 → 0: ACK_INFO 1")


def test_an_ack_of_an_earlier_round_does_not_count() -> None:
    talk = talk_of(lossy=True)
    talk.start()
    talk.deliver_all()
    talk.wake(0, "NEXT_ROUND")
    talk.under_way.clear()
    for rank in (1, 2):
        talk.receive(Message(source=rank, to=0, kind="ACK", round=1, numbers=(9, 9)))
        talk.receive(Message(source=rank, to=0, kind="ACK_INFO", round=1))
    assert talk.done[0] == 1
    assert not talk.has_timer(0, "NEXT_ROUND")


def test_a_member_that_is_ahead_tells_a_root_that_is_behind() -> None:
    talk = talk_of(lossy=True)
    talk.start()
    talk.deliver_all()
    talk.receive(Message(source=0, to=3, kind="START", round=2))
    talk.under_way.clear()
    talk.said()
    talk.receive(Message(source=0, to=3, kind="START", round=1))
    talk.says("3 → 0: START 2")
    talk.deliver(3, 0, "START")
    talk.says("0 begins 2\n0 → all: START 2")


def test_a_second_timer_opens_no_round_twice() -> None:
    talk = talk_of(lossy=True)
    talk.start()
    talk.deliver_all()
    talk.timers *= 2
    talk.wake(0, "NEXT_ROUND")
    talk.said()
    talk.wake(0, "NEXT_ROUND")
    talk.says("")


# Crashes


def test_orphans_report_to_their_nearest_live_ancestor() -> None:
    talk = talk_of()
    talk.start()
    for rank in (1, 2, 3, 4):
        talk.deliver(0, rank, "START")
    talk.deliver(2, 0, "ACK")
    talk.crash(1)
    talk.said()
    for rank in (3, 4, 2, 0):
        talk.leave(rank, 1)
    talk.deliver_all()
    talk.says(
        """
        3 → 0: ACK 1 [5 5]
        4 → 0: ACK 1 [7 1]
        2 → 0: ACK 1 [6 2]
        0 → 2: ASK 1
        0 → 3: ASK 1
        0 → 4: ASK 1
        0 knows 1: [5 1]
        0 → all: INFO 1 [5 1]
        2 → 0: ACK 1 [6 2]
        3 → 0: ACK 1 [5 5]
        4 → 0: ACK 1 [7 1]
        2 knows 1: [5 1]
        3 knows 1: [5 1]
        4 knows 1: [5 1]
        """
    )


def test_the_lowest_rank_alive_becomes_the_root_and_collects_again() -> None:
    talk = talk_of()
    talk.start()
    for rank in (1, 2, 3, 4):
        talk.deliver(0, rank, "START")
    talk.deliver(3, 1)
    talk.deliver(4, 1)
    talk.crash(0)
    talk.said()
    talk.leave(1, 0)
    for rank in (2, 3, 4):
        talk.leave(rank, 0)
    talk.deliver_all()
    talk.says(
        """
        1 → 2: ASK 1
        1 → 3: ASK 1
        1 → 4: ASK 1
        1 → all: START 1
        2 → 1: ACK 1 [6 2]
        3 → 1: ACK 1 [5 5]
        4 → 1: ACK 1 [7 1]
        2 → 1: ACK 1 [6 2]
        3 → 1: ACK 1 [5 5]
        4 → 1: ACK 1 [7 1]
        1 knows 1: [4 1]
        1 → all: INFO 1 [4 1]
        2 knows 1: [4 1]
        3 knows 1: [4 1]
        4 knows 1: [4 1]
        """
    )


def test_an_ack_that_comes_before_its_receiver_knows_that_it_is_the_root_comes_again() -> None:
    talk = talk_of()
    talk.start()
    for rank in (1, 2, 3, 4):
        talk.deliver(0, rank, "START")
    talk.deliver(3, 1)
    talk.deliver(4, 1)
    talk.crash(0)
    talk.leave(2, 0)
    talk.deliver(2, 1, "ACK")
    talk.said()
    talk.leave(1, 0)
    talk.says("1 → 2: ASK 1\n1 → 3: ASK 1\n1 → 4: ASK 1\n1 → all: START 1")
    talk.deliver(1, 2, "ASK")
    talk.says("2 → 1: ACK 1 [6 2]")
    talk.deliver(1, 3, "ASK")
    talk.says("")  # it does not know of the crash yet, and reports by itself when it does
    talk.leave(3, 0)
    talk.leave(4, 0)
    talk.deliver_all()
    assert talk.done[1:] == [1, 1, 1, 1]


def test_what_moves_below_a_member_that_has_reported_is_waited_for() -> None:
    """0 and 1 crash; 1 had everybody's ACK but 2's. Now 3 and 4 are below 2, which reported before it knew."""
    talk = talk_of()
    talk.start()
    for rank in (1, 2, 3, 4):
        talk.deliver(0, rank, "START")
    talk.crash(0)
    for rank in (1, 2, 3, 4):
        talk.leave(rank, 0)
    talk.deliver(2, 1, "ACK")
    talk.crash(1)
    talk.leave(2, 1)
    talk.under_way.clear()
    assert talk.done[2] == 0, "2 leads, and must not conclude without 3 and 4"
    talk.leave(3, 1)
    talk.leave(4, 1)
    talk.deliver_all()
    assert talk.done[2:] == [1, 1, 1]
    assert talk.stable(2) == [5, 1]


def test_root_and_its_child_crash() -> None:
    talk = talk_of()
    talk.start()
    for rank in (1, 2, 3, 4):
        talk.deliver(0, rank, "START")
    talk.crash(0)
    talk.crash(1)
    for rank in (4, 2, 3):
        talk.leave(rank, 1)
        talk.leave(rank, 0)
    talk.deliver_all()
    assert talk.done[2:] == [1, 1, 1]
    assert talk.stable(4) == [5, 1]
    talk.wake_all("NEXT_ROUND")
    talk.deliver_all()
    assert talk.done[2:] == [2, 2, 2]


def test_the_last_word_of_a_departed_root_does_not_stop_its_successor() -> None:
    talk = talk_of()
    talk.start()
    talk.deliver_all_but("INFO")
    late = [talk.lose(0, rank, "INFO") for rank in (1, 2, 3, 4)]
    talk.crash(0)
    for rank in (1, 2, 3, 4):
        talk.leave(rank, 0)
    talk.under_way.clear()
    for message in late:
        talk.receive(message)
    talk.wake_all("NEXT_ROUND")
    talk.deliver_all()
    assert talk.done[1:] == [2, 2, 2, 2]


def test_a_new_root_tells_the_last_result_again_where_it_may_be_lost() -> None:
    talk = talk_of(lossy=True)
    talk.start()
    talk.deliver_all_but("INFO")
    talk.deliver(0, 1, "INFO")
    talk.under_way.clear()
    talk.crash(0)
    for rank in (1, 2, 3, 4):
        talk.leave(rank, 0)
    talk.deliver_all()
    assert talk.done[1:] == [1, 1, 1, 1]
    assert talk.has_timer(1, "NEXT_ROUND")


@pytest.mark.parametrize("adopter", ["root", "inner"])
def test_orphans_are_informed_by_the_one_that_takes_them_on(adopter: str) -> None:
    """It had stopped repeating, since all its own children knew."""
    degree, crashed, orphan = (2, 1, 4) if adopter == "root" else (1, 2, 3)
    talk = talk_of(lossy=True, tree_degree=degree)
    talk.start()
    talk.deliver_all_but("INFO")
    for rank in range(1, 5):
        message = talk.lose(0, rank, "INFO")
        if rank not in (orphan, 4):
            talk.receive(message)
    parent = (crashed - 1) // degree
    talk.receive(Message(source=crashed, to=parent, kind="ACK_INFO", round=1))
    talk.deliver_all()
    talk.timers = [timer for timer in talk.timers if timer.rank != parent]
    talk.crash(crashed)
    for rank in (parent, orphan):
        talk.leave(rank, crashed)
    talk.wake(parent, "REPEAT")
    talk.deliver_all()
    assert talk.done[orphan] == 1


def test_an_inner_member_acknowledges_when_its_last_uninformed_child_leaves() -> None:
    talk = talk_of(lossy=True)
    talk.start()
    talk.deliver_all_but("INFO")
    talk.lose(0, 4, "INFO")
    talk.deliver_all()
    talk.crash(4)
    talk.said()
    talk.leave(1, 4)
    talk.says("1 → 0: ACK_INFO 1")


def test_two_members_and_then_one() -> None:
    talk = Talk("s_coord", [[2], [1]], relayed=False)
    talk.start()
    talk.crash(0)
    talk.said()
    talk.leave(1, 0)
    talk.wake(1, "NEXT_ROUND")
    talk.says("1 begins 1\n1 → all: START 1\n1 knows 1: [1]\n1 → all: INFO 1 [1]")


def test_a_root_that_waited_for_those_who_now_report_to_a_newcomer_goes_on() -> None:
    talk = talk_of(lossy=True)
    talk.leave(0, 1)
    talk.start(0)
    view = int(talk.state.view_seen[0])
    for rank in (2, 3, 4):  # 3 and 4 are the root's own children while 1 is away
        talk.receive(Message(source=rank, to=0, kind="ACK", round=1, numbers=(6, 2), view=view))
    assert talk.said().endswith("0 → all: INFO 1 [5 2]")
    for rank in (2, 1):  # 1 is back, and 3 and 4 report to it; the root has not heard of it yet
        talk.receive(Message(source=rank, to=0, kind="ACK_INFO", round=1, numbers=()))
    assert not talk.has_timer(0, "NEXT_ROUND")
    talk.join(0, 1)
    talk.wake(0, "NEXT_ROUND")
    talk.says("0 begins 2\n0 → all: START 2")


def test_an_inner_member_that_waited_for_those_who_now_report_to_a_newcomer_reports() -> None:
    talk = Talk("s_coord", [*RECEIVED, [9, 9], [9, 9], [9, 9]], tree_degree=2, relayed=False)
    talk.leave(1, 3)  # 7 is a child of 3, and of 1 while 3 is away
    talk.receive(Message(source=0, to=1, kind="START", round=1, numbers=()))
    for rank in (4, 3):
        talk.receive(Message(source=rank, to=1, kind="ACK", round=1, numbers=(3, 3)))
    assert talk.said() == "1 begins 1"
    talk.join(1, 3)
    talk.says("1 → 3: ASK 1\n1 → 4: ASK 1")
    for rank in (4, 3):
        talk.receive(Message(source=rank, to=1, kind="ACK", round=1, numbers=(3, 3), view=int(talk.state.view_seen[1])))
    talk.says("1 → 0: ACK 1 [3 3]")


def test_a_newcomer_is_told_the_round_by_its_parent_which_waits_for_it() -> None:
    talk = talk_of()
    talk.leave(1, 4)
    talk.start(0, 1, 2, 3)
    talk.deliver(0, 1, "START")
    talk.said()
    talk.join(1, 4)
    talk.says("1 → 3: ASK 1\n1 → 4: ASK 1")
    talk.deliver(0, 3, "START")
    talk.deliver(3, 1, "ACK")
    assert not any(message.kind == "ACK" and message.source == 1 for message in talk.under_way)
    talk.deliver(1, 4, "ASK")
    talk.deliver(4, 1, "ACK")
    assert "1 → 0: ACK 1 [4 1]" in talk.said()


# Relayed down the logical tree


def test_a_relayed_round_takes_three_messages_per_edge_of_the_tree() -> None:
    """ "Each node sends and receives only log(n) messages" (cube §4.2.2): nobody speaks to more than its neighbours."""
    talk = talk_of(relayed=True)
    talk.start()
    talk.deliver_all()
    talk.says(
        """
        0 begins 1
        0 → 1: START 1
        0 → 2: START 1
        1 begins 1
        1 → 3: START 1
        1 → 4: START 1
        2 begins 1
        2 → 0: ACK 1 [6 2]
        3 begins 1
        3 → 1: ACK 1 [5 5]
        4 begins 1
        4 → 1: ACK 1 [7 1]
        1 → 0: ACK 1 [4 1]
        0 knows 1: [4 1]
        0 → 1: INFO 1 [4 1]
        0 → 2: INFO 1 [4 1]
        1 knows 1: [4 1]
        1 → 3: INFO 1 [4 1]
        1 → 4: INFO 1 [4 1]
        2 knows 1: [4 1]
        3 knows 1: [4 1]
        4 knows 1: [4 1]
        """
    )


def test_a_relay_that_crashed_kept_nothing_from_its_children() -> None:
    """START, and in the next round INFO, are lost with 1; the root sends them to 3 and 4 itself."""
    talk = talk_of(relayed=True)
    talk.start()
    talk.crash(1)
    talk.deliver_all()
    talk.said()
    for rank in (3, 4, 2, 0):
        talk.leave(rank, 1)
    talk.says("2 → 0: ACK 1 [6 2]\n0 → 2: ASK 1\n0 → 3: ASK 1\n0 → 4: ASK 1")
    talk.deliver_all()
    assert talk.done == [1, 0, 1, 1, 1]


def test_the_result_is_told_to_children_taken_on_after_it() -> None:
    talk = talk_of(relayed=True)
    talk.start()
    talk.deliver_all_but("INFO")
    talk.crash(1)
    talk.deliver_all()
    talk.said()
    talk.leave(0, 1)
    talk.says("0 → 3: INFO 1 [4 1]\n0 → 4: INFO 1 [4 1]")


def test_one_that_knows_the_result_answers_a_new_root_that_does_not() -> None:
    """The old root and the relay to 1 ... 4 are gone; 2 knew S, and reports again for those that did not."""
    talk = talk_of(relayed=True)
    talk.start()
    talk.deliver_all_but("INFO")
    talk.deliver(0, 2, "INFO")
    talk.under_way.clear()
    talk.crash(0)
    for rank in (1, 2, 3, 4):
        talk.leave(rank, 0)
    talk.deliver_all()
    assert talk.done[1:] == [1, 1, 1, 1]


def test_a_relayed_start_that_is_lost_is_repeated_by_the_parent() -> None:
    talk = talk_of(relayed=True, lossy=True)
    talk.start()
    talk.lose(0, 1, "START")
    talk.deliver_all()
    talk.said()
    talk.wake(0, "REPEAT")
    talk.deliver(0, 1, "START")
    talk.says("0 → 1: START 1\n1 begins 1\n1 → 3: START 1\n1 → 4: START 1")


def test_the_default_is_relayed_where_the_network_has_no_multicast() -> None:
    without, with_multicast = (
        protocol_named("s_coord").resolve(
            SCoordParameters(), Context(members=9, senders=1, network=NetworkFacts(has_multicast=has))
        )
        for has in (False, True)
    )
    assert without.relayed
    assert not with_multicast.relayed

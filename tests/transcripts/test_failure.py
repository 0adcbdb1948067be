"""The failure detectors, line by line (guo §3.1)."""

from __future__ import annotations

from typing import Any

import pytest

from cubecast.protocol.definition import Protocol
from cubecast.protocols.catalogue import detector_named, list_protocols
from cubecast.protocols.failure.live_array import GOSSIP, NEWS_STEPS
from cubecast.protocols.failure.structured_gossip import AMONG_GROUPS, LOCAL
from tests.transcripts.exchange import Exchange

STEP_NS = 100
STEP_MS = STEP_NS / 1e6
each_detector = pytest.mark.parametrize("detector", list_protocols("failure"), ids=lambda one: one.name)


def exchange(name: str, members: int = 4, **settings: Any) -> Exchange:
    return Exchange(detector_named(name), members=members, **({"step_ms": STEP_MS, "threshold": 3} | settings))


def live_array(talk: Exchange, rank: int) -> list[int]:
    return [int(entry) for entry in talk.state.silent[rank]]


def steps(talk: Exchange, count: int, *, down: tuple[int, ...] = ()) -> None:
    """Everybody but those who are down takes this many steps, and receives what is sent meanwhile."""
    for _ in range(count * STEP_NS):
        talk.alarms = [alarm for alarm in talk.alarms if alarm.rank not in down]
        talk.pass_time(1)
        talk.under_way = [copy for copy in talk.under_way if copy.to not in down]
        talk.deliver_all()


def test_the_sample_execution_of_the_live_array() -> None:
    """guo Fig 3.2, at member A = 0."""
    talk = exchange("gossip", threshold=100)
    talk.start(0)
    assert live_array(talk, 0) == [0, 0, 0, 0]
    talk.pass_time(STEP_NS)
    assert live_array(talk, 0) == [0, 1, 1, 1]
    talk.pass_time(STEP_NS)
    assert live_array(talk, 0) == [0, 2, 2, 2]
    talk.hear(0, 2)
    assert live_array(talk, 0) == [0, 2, 0, 2]
    talk.state.silent[0] = [0, 4, 3, 6]
    talk.state.silent[3] = [1, 0, 1, 0]
    talk.start(3)
    talk.under_way.clear()
    talk.pass_time(STEP_NS)
    copy = next(copy for copy in talk.under_way if copy.source == 3)
    assert copy.numbers == (2, 1, 2, 0)
    talk.state.silent[0] = [0, 4, 3, 6]
    talk.receive(type(copy)(**vars(copy) | {"to": 0}))
    assert live_array(talk, 0) == [0, 1, 2, 0]


def test_gossip_goes_to_a_subset_of_the_others_without_repetition() -> None:
    talk = exchange("gossip", members=6, subset=3, threshold=1000)
    talk.start(2)
    chosen = set()
    for _ in range(60):
        talk.pass_time(STEP_NS)
        targets = [copy.to for copy in talk.under_way]
        assert len(targets) == len(set(targets)) == 3
        assert 2 not in targets
        chosen |= set(targets)
        talk.under_way.clear()
    assert chosen == {0, 1, 3, 4, 5}


def test_a_gossip_message_is_a_header_and_one_entry_a_member() -> None:
    for threshold, entry_bytes in ((255, 1), (256, 2)):
        talk = exchange("gossip", members=5, threshold=threshold)
        talk.start(0)
        talk.pass_time(STEP_NS)
        assert talk.under_way[0].size == 32 + 5 * entry_bytes


@each_detector
def test_a_silent_member_is_suspected_by_all_and_nobody_else_is(detector: Protocol) -> None:
    talk = Exchange(detector, members=4, step_ms=STEP_MS, threshold=8)
    talk.start()
    steps(talk, 12)
    assert talk.suspected == []
    steps(talk, 12, down=(2,))
    assert {(0, 2), (1, 2), (3, 2)} == set(talk.suspected)


@each_detector
def test_data_messages_keep_a_member_alive(detector: Protocol) -> None:
    talk = Exchange(detector, members=3, step_ms=STEP_MS, threshold=3)
    talk.start()
    for _ in range(20):
        steps(talk, 1, down=(2,))
        talk.hear(0, 2)
        talk.hear(1, 2)
    assert 2 not in {who for _, who in talk.suspected}


@each_detector
def test_a_member_that_left_is_not_suspected_again(detector: Protocol) -> None:
    talk = Exchange(detector, members=3, step_ms=STEP_MS, threshold=4)
    talk.start()
    steps(talk, 6, down=(2,))
    talk.suspected.clear()
    for rank in (0, 1):
        talk.leave(rank, 2)
    steps(talk, 12, down=(2,))
    assert talk.suspected == []


@each_detector
def test_removed_members_do_not_stay_alive_elsewhere(detector: Protocol) -> None:
    """Member 0 suspects and removes 2 and 3; member 1, which heard of 3 later, must get no news of it from member 0."""
    talk = Exchange(detector, members=4, step_ms=STEP_MS, threshold=8)
    talk.start()
    steps(talk, 40, down=(2, 3))
    talk.leave(0, 2)
    talk.leave(0, 3)
    talk.hear(1, 3)
    talk.suspected.clear()
    steps(talk, 40, down=(2, 3))
    assert {(1, 2), (1, 3)} <= set(talk.suspected)


@each_detector
def test_a_late_message_of_a_removed_member_does_not_keep_it_alive_elsewhere(detector: Protocol) -> None:
    """Member 0 removes 2, and then receives what 2 sent before it stopped; member 1 must still notice."""
    talk = Exchange(detector, members=3, step_ms=STEP_MS, threshold=8)
    talk.start()
    steps(talk, 30, down=(2,))
    talk.leave(0, 2)
    talk.hear(0, 2)
    talk.hear(1, 2)
    talk.suspected.clear()
    steps(talk, 30, down=(2,))
    assert set(talk.suspected) == {(1, 2)}


@each_detector
def test_a_member_that_was_down_does_not_suspect_everybody_when_it_comes_back(detector: Protocol) -> None:
    """Silence is counted in own steps, and a member that is down takes none."""
    talk = Exchange(detector, members=3, step_ms=STEP_MS, threshold=4, where_known={"subset": 2})
    talk.start()
    steps(talk, 6)
    frozen = [alarm for alarm in talk.alarms if alarm.rank == 2]
    steps(talk, 2, down=(2,))
    talk.alarms += frozen
    steps(talk, 6)
    assert talk.suspected == []


def test_polls_are_answered() -> None:
    talk = exchange("polling", members=2)
    talk.start(0)
    talk.pass_time(STEP_NS)
    poll = talk.under_way.pop()
    assert (poll.source, poll.to) == (0, 1)
    talk.receive(poll)
    answer = talk.under_way.pop()
    assert (answer.source, answer.to) == (1, 0)
    assert live_array(talk, 0) == [0, 1]
    talk.receive(answer)
    assert live_array(talk, 0) == [0, 0]


def test_a_poll_is_no_answer() -> None:
    """guo §3.1.1: a member is suspected when it does not acknowledge, even if its own polls arrive."""
    talk = exchange("polling", members=2, threshold=3)
    talk.start()
    for _ in range(4):
        talk.pass_time(STEP_NS)
        for copy in list(talk.under_way):
            if copy.kind == 0:
                talk.under_way.remove(copy)
                talk.receive(copy)
        talk.under_way.clear()
    assert (0, 1) in talk.suspected


def heard_of(talk: Exchange, kind: int) -> list[tuple[int, int]]:
    """Source and destination of each message of that kind in transit."""
    return [(copy.source, copy.to) for copy in talk.under_way if copy.kind == kind]


def test_a_live_array_goes_to_the_neighbours_in_the_hypercube() -> None:
    talk = exchange("live_array", members=8, threshold=100)
    talk.start(5)
    assert heard_of(talk, GOSSIP) == [(5, 1), (5, 4), (5, 7)]
    talk.under_way.clear()
    talk.leave(5, 4)
    assert heard_of(talk, GOSSIP) == [(5, 1), (5, 7)]


def suspects(talk: Exchange, rank: int) -> list[int]:
    """The members that a member suspects now."""
    return [other for other, entry in enumerate(live_array(talk, rank)) if entry >= talk.state.threshold]


def test_a_suspicion_is_ones_own_opinion() -> None:
    """A suspicion of 6 by 0 makes no other member suspect it: membership collects the suspicions."""
    talk = exchange("live_array", members=8, threshold=5)
    talk.start()
    talk.deliver_all()
    talk.state.silent[0, 6] = 4
    talk.pass_time(STEP_NS)
    assert suspects(talk, 0) == [6]
    talk.deliver_all()
    assert all(6 not in suspects(talk, rank) for rank in range(1, 8))


def test_a_suspicion_ends_with_news_of_the_member() -> None:
    talk = exchange("live_array", members=4, threshold=3)
    talk.start()
    talk.deliver_all()
    steps(talk, 8, down=(3,))
    assert all(suspects(talk, rank) == [3] for rank in (0, 1, 2))
    talk.start(3)
    talk.deliver_all()
    assert suspects(talk, 1) == suspects(talk, 2) == [], "3 is their neighbour"
    steps(talk, 2)
    assert suspects(talk, 0) == []


def test_a_neighbour_that_is_heard_is_not_suspected_though_its_gossip_is_late() -> None:
    talk = exchange("live_array", members=4, threshold=5)
    talk.start(0)
    for _ in range(10):
        talk.hear(0, 1)
        talk.pass_time(STEP_NS)
        talk.under_way.clear()
    assert suspects(talk, 0) == [2, 3]


def test_the_progress_of_every_member_travels_with_the_gossip() -> None:
    talk = exchange("live_array", members=4, threshold=100)
    talk.start()
    talk.deliver_all()
    talk.state.group.received[3] = 10
    steps(talk, 3)
    assert [talk.state.progress[rank].tolist() for rank in range(4)] == [[0, 0, 0, 10]] * 4


def test_nobody_is_suspected_right_after_another_has_gone() -> None:
    """News of 3 came through 1 and 2: it must have time to come over another path."""
    talk = exchange("live_array", members=4, threshold=10)
    talk.start(0)
    talk.state.silent[0] = [0, 9, 9, 9]
    talk.leave(0, 1)
    talk.leave(0, 2)
    talk.pass_time((NEWS_STEPS - 1) * STEP_NS)
    assert talk.suspected == []
    talk.pass_time(STEP_NS)
    assert talk.suspected == [(0, 3)]


def test_whoever_has_not_appeared_yet_has_as_long_as_whoever_fell_silent() -> None:
    for has_appeared in (False, True):
        talk = exchange("live_array", members=2, threshold=3)
        talk.start(0)
        if has_appeared:
            talk.hear(0, 1)
        talk.pass_time(2 * STEP_NS)
        assert talk.suspected == []
        talk.pass_time(STEP_NS)
        assert talk.suspected == [(0, 1)]


def two_groups(**settings: Any) -> Exchange:
    """Members 0 and 1 in one local group, 2 and 3 in the other."""
    return exchange("structured_gossip", group_size=2, group_threshold=6, **settings)


def test_a_local_message_has_the_own_group_all_groups_and_the_failed() -> None:
    talk = two_groups()
    talk.state.silent_groups[0] = [0, 2]
    talk.start(0)
    talk.pass_time(STEP_NS)
    local = next(copy for copy in talk.under_way if copy.kind == LOCAL)
    assert (local.to, local.numbers[:4], local.mask) == (1, (0, 1, 0, 3), 0)
    assert local.size == 32 + 2 + 2 + 1
    others = [copy for copy in talk.under_way if copy.kind == AMONG_GROUPS]
    assert all((copy.to in (2, 3), copy.numbers[:2], copy.size) == (True, (0, 3), 32 + 2 + 1) for copy in others)


def test_about_one_message_per_step_leaves_a_local_group() -> None:
    talk = exchange("structured_gossip", members=20, group_size=5, threshold=10_000)
    talk.start(*range(5))
    kinds = {LOCAL: 0, AMONG_GROUPS: 0}
    for _ in range(200):
        talk.pass_time(STEP_NS)
        for copy in talk.under_way:
            kinds[copy.kind] += 1
            assert (copy.to < 5) == (copy.kind == LOCAL)
        talk.under_way.clear()
    assert 995 <= kinds[LOCAL] <= 1005
    assert 150 <= kinds[AMONG_GROUPS] <= 250


def test_a_failed_member_is_suspected_everywhere_as_soon_as_the_news_comes() -> None:
    talk = two_groups(threshold=3)
    talk.start(0)
    for _ in range(2):
        talk.pass_time(STEP_NS)
        talk.under_way.clear()
    assert talk.suspected == []
    talk.pass_time(STEP_NS)
    assert talk.suspected == [(0, 1)], "silent for three steps"
    news = next(copy for copy in talk.under_way if copy.mask == 0b10)
    for rank in (2, 3):
        talk.receive(type(news)(**vars(news) | {"to": rank, "kind": AMONG_GROUPS, "numbers": (0, 0)}))
    assert talk.suspected == [(0, 1), (2, 1), (3, 1)]
    talk.receive(type(news)(**vars(news) | {"to": 2, "kind": AMONG_GROUPS, "numbers": (0, 0)}))
    assert len(talk.suspected) == 3, "it is known already"
    talk.receive(type(news)(**vars(news) | {"to": 1, "kind": LOCAL, "numbers": (0, 0, 0, 0)}))
    assert len(talk.suspected) == 3, "no member suspects itself"


def test_a_local_group_that_is_silent_is_suspected_as_a_whole_and_by_each_for_itself() -> None:
    talk = two_groups(threshold=100)
    talk.start(0)
    for _ in range(6):
        assert talk.suspected == []
        talk.hear(0, 1)
        talk.under_way.clear()
        talk.pass_time(STEP_NS)
    assert talk.suspected == [(0, 2), (0, 3)]
    assert {copy.mask for copy in talk.under_way} == {0}


def test_any_news_of_a_local_group_keeps_all_of_it() -> None:
    talk = two_groups(threshold=100)
    talk.start(0)
    for _ in range(30):
        talk.hear(0, 2)
        talk.under_way.clear()
        talk.pass_time(STEP_NS)
    assert talk.suspected == []


def test_late_news_of_a_removed_local_group_does_not_keep_it_alive_elsewhere() -> None:
    """Member 0 removes the other group and then gets a message that was under way; member 1 must still notice."""
    talk = two_groups(threshold=100)
    talk.start(0, 1)
    steps(talk, 5, down=(2, 3))
    assert talk.suspected == []
    for rank in (2, 3):
        talk.leave(0, rank)
    talk.hear(0, 2)
    steps(talk, 12, down=(2, 3))
    assert {(1, 2), (1, 3)} <= set(talk.suspected)

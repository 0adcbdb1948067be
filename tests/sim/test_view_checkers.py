"""Each checker of views bites: a small transcript that keeps every promise, and one change that breaks one of them.

A transcript has one line per event: `a install 1 ab` (view 1 with members a and b), `a sent a1 1` (message 1 of a, in
view 1), `b deliver a1`, `c restore a2 v2`, `c hold b1`, `a stable b1`, `a returned a2`; and events without more.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cubecast.trace.checkers import (
    agreement,
    causal_order,
    check_all,
    exactly_once,
    in_order_delivery,
    premature_stability,
    restart_replay,
    returned_is_returned,
    same_state,
    sending_view,
    stable_never_decreases,
    view_agreement,
    virtual_synchrony,
)
from cubecast.trace.checkers.report import PartwiseChecker
from cubecast.trace.files import Trace
from cubecast.trace.schema import NOBODY, Event, blank_events
from tests.support.checkers import check_by

IDS = "abcd"


def trace_of(transcript: str, **scenario: Any) -> Trace:
    rows = [row for line in transcript.strip().splitlines() for row in _rows(line.split("#")[0].split())]
    events = blank_events(len(rows))
    events["time_ns"] = events["entered_ns"] = np.arange(1, len(rows) + 1)
    for place, columns in enumerate(rows):
        for column, value in columns.items():
            events[column][place] = value
    return Trace(events=events, scenario={"members": len(IDS), "family": "causal", **scenario}, metrics={})


def _rows(words: list[str]) -> list[dict[str, int]]:
    if not words:
        return []
    member, event, *more = words
    row = {"event": int(Event[event.upper()]), "member": IDS.index(member)}
    if event == "install":
        number, _, tag = more[0].partition("/")
        view = {"round": int(number), "message": int(tag or number)}
        ranks = [
            {"event": int(Event.VIEW), "member": NOBODY, "peer": IDS.index(peer), "sequence": rank, **view}
            for rank, peer in enumerate(more[1])
        ]
        return [*ranks, {**row, **view, "sequence": len(more[1])}]
    if event == "multicast":
        return [{**row, "message": int(more[0])}]
    if more:
        row |= {"sender": IDS.index(more[0][0]), "sequence": int(more[0][1:])}
    if event == "sent":
        row |= {"round": int(more[1]), "message": int(more[0][1:])}
    if event == "restore" and len(more) > 1:
        row |= {"round": int(more[1][1:]), "message": int(more[1][1:])}
    return [row]


def broken(checker: PartwiseChecker, transcript: str, **scenario: Any) -> list[str]:
    return [violation.message for violation in check_by(checker, trace_of(transcript, **scenario))]


GOOD = """
a install 1 ab
b install 1 ab
a multicast 1
a sent a1 1
a deliver a1
b deliver a1
b sent b1 1
b deliver b1
a stable a1
a deliver b1
a install 2 abc
b install 2 abc
b sent b2 2
b deliver b2
c hold b2
a deliver b2
a stable b2
c restore a1 v2
c restore b1 v2
c install 2 abc
c deliver b2
b crash
b restart
b restore a1
b deliver b1
b deliver b2
b restarted
a sent a2 2
a deliver a2
a excluded
a returned a2
b install 3 bc
c install 3 bc
c blocked
c unblocked
b sent b3 3
b deliver b3
c deliver b3
"""


def test_a_good_run_keeps_every_promise() -> None:
    report = check_all(trace_of(GOOD, unfinished_allowed=True))
    assert report.ok, report.lines()
    excused = [verdict.checker for verdict in report.verdicts if verdict.not_promised]
    assert excused == ["every round ends", "causal stability", "counts agree with the metrics"]


def test_a_run_without_views_promises_nothing_about_them() -> None:
    report = check_all(trace_of("a deliver a1\nb deliver a1"))
    reasons = {verdict.checker: verdict.not_promised for verdict in report.verdicts}
    for checker in (view_agreement, virtual_synchrony, same_state, sending_view, exactly_once, restart_replay):
        assert reasons[checker.NAME] == "the run has no views"
    assert reasons[returned_is_returned.NAME] == "the run has no views"


def changed(old: str, new: str) -> str:
    assert GOOD.count(f"\n{old}\n") == 1, old
    return GOOD.replace(f"\n{old}\n", f"\n{new}\n" if new else "\n")


@pytest.mark.parametrize(
    ("checker", "old", "new", "expected"),
    [
        (
            view_agreement,
            "b install 2 abc",
            "b install 2 bac",
            "view 2 has member 1 at rank 0, and in an earlier row",
        ),
        (view_agreement, "b install 2 abc", "b install 2 ab", "installs view 2 of 2 members; its view rows name 3"),
        (view_agreement, "b install 3 bc", "b install 4 bc", "member 1 installs view 4 after view 2"),
        (
            view_agreement,
            "c install 2 abc\nc deliver b2",
            "c install 2 abc\nd install 2 abc\nc deliver b2",
            "member 3 installs view 2, which is without it",
        ),
        (view_agreement, "c install 3 bc", "c install 3/9 bc", "a second view of number 3"),
        (virtual_synchrony, "a deliver b1", "", "member 1 leaves view 1 ("),
        (virtual_synchrony, "a deliver b1", "", "they differ in 1 of sender 1"),
        (same_state, "c restore b1 v2", "", "with sender 1 up to 0, but member 0 ("),
        (same_state, "c restore a1 v2", "c restore a2 v2", "member 2 begins view 2 ("),
        (same_state, "c deliver b2", "c deliver b2\nc restore b2 v2", "restores a state"),
        (sending_view, "a install 2 abc", "", "in view 1, but it was sent in view 2"),
        (sending_view, "b sent b2 2", "b sent b2 1", "sends message 2 of sender 1"),
        (sending_view, "c install 2 abc", "", "before it installed a view"),
        (exactly_once, "b deliver a1", "b deliver a1\nb deliver a1", "member 1 delivers message 1 of sender 0 ("),
        (exactly_once, "b sent b2 2", "", "before it was sent"),
        (exactly_once, "b sent b3 3", "b sent b3 3\nb sent b3 3", "member 1 sends message 3 of sender 1 ("),
        (exactly_once, "a returned a2", "a deliver b1", "member 0 writes deliver ("),
        (exactly_once, "b restart", "", "member 1 writes restore ("),
        (exactly_once, "b deliver b3", "b deliver b3\nb leave\nb stable b3", "writes stable"),
        (restart_replay, "b deliver b1\nb deliver b2", "b deliver b2\nb deliver b1", "where message 1 of sender 1"),
        (restart_replay, "b restore a1", "b restore b1", "restarts from a checkpoint without message 1 of sender 0"),
        (restart_replay, "b restart\nb restore a1\nb deliver b1", "b restart\nb restore a1", "again, where message 1"),
        (restart_replay, "b deliver b1\nb deliver b2\nb restarted", "b deliver b1\nb restarted", "continues after its"),
        (returned_is_returned, "a excluded", "c deliver a2\na excluded", "member 2 delivers message 2 of sender 0"),
        (premature_stability, "c hold b2", "", "but member 2 holds none"),
        (premature_stability, "b deliver a1", "a stable a1\nb deliver a1", "but member 1 holds none"),
        (in_order_delivery, "c deliver b2", "c deliver b3", "too early"),
        (agreement, "c deliver b3", "", "member 2 stays up and never delivers message 3 of sender 1"),
        (agreement, "c unblocked", "c unblocked\nc multicast 7", "member 2 stays up and never sends its multicast 7"),
    ],
    ids=lambda value: getattr(value, "NAME", None),
)
def test_one_change_breaks_a_promise(checker: PartwiseChecker, old: str, new: str, expected: str) -> None:
    found = broken(checker, changed(old, new))
    assert any(expected in message for message in found), found


def test_branches_share_numbers_where_any_quorum_decides() -> None:
    transcript = """
    a install 1/1 ab
    b install 1/1 ab
    a install 2/7 a
    b install 2/8 b
    """
    assert len(broken(view_agreement, transcript)) == 1
    assert broken(view_agreement, transcript, quorum="any") == []
    assert broken(agreement, transcript + "a sent a1 2\na deliver a1", quorum="any") == []


def test_a_group_founded_again_counts_its_views_anew() -> None:
    again = "a install 1/1 a\na install 2/2 a\na crash\nb install 1/3 b\nb install 2/4 b\n"
    assert broken(view_agreement, again) == []
    assert len(broken(view_agreement, "a install 1/1 ab\nb install 1/3 ab")) == 1
    split = "a install 1/1 ab\nb install 1/1 ab\na install 2/2 a\nb install 2/3 b"
    assert len(broken(view_agreement, split)) == 1


def test_two_incarnations_of_a_process_are_not_in_one_view() -> None:
    names = [["x", 0], ["y", 0], ["x", 1], ["z", 0]]
    assert broken(view_agreement, "a install 1 abc", names=names) == [
        "view 1 holds two incarnations of x: members 0 and 2 (row 2, 0.000003 ms)"
    ]


def test_causal_past_is_what_was_delivered_when_the_message_was_sent() -> None:
    start = "a install 1 abc\nb install 1 abc\nc install 1 abc\na sent a1 1\na deliver a1\n"
    expected = "member 2 delivers message 1 of sender 1"
    late = start + "b sent b1 1\nb deliver a1\nb deliver b1\nc deliver b1\nc deliver a1"
    assert broken(causal_order, late) == []
    early = start + "b deliver a1\nb sent b1 1\nb deliver b1\nc deliver b1\nc deliver a1"
    assert [message.split(" (")[0] for message in broken(causal_order, early)] == [expected]


def test_past_reaches_across_views_and_state_transfer() -> None:
    start = "a install 1 a\na sent a1 1\na deliver a1\na install 2 ab\n"
    good = start + "b restore a1 v2\nb install 2 ab\nb sent b1 2\nb deliver b1\na deliver b1"
    assert broken(causal_order, good) == []
    assert len(broken(causal_order, start + "b install 2 ab\na sent a2 2\na deliver a2\nb deliver a2")) == 1


def test_stability_is_of_the_view_and_a_member_that_is_down_counts() -> None:
    start = "a install 1 abc\nb install 1 abc\nc install 1 abc\na sent a1 1\na deliver a1\nb deliver a1\nc crash\n"
    assert len(broken(premature_stability, start + "a stable a1")) == 1
    assert broken(premature_stability, start + "a install 2 ab\na stable a1") == []


def test_a_newcomer_counts_as_having_what_came_before_its_view() -> None:
    start = "a install 1 a\na sent a1 1\na deliver a1\na install 2 ab\na stable a1\na sent a2 2\na deliver a2\n"
    assert broken(premature_stability, start) == []
    assert len(broken(premature_stability, start + "a stable a2")) == 1
    assert broken(premature_stability, start + "b hold a2\na stable a2") == []


def test_a_restarted_member_may_learn_again_what_is_stable() -> None:
    start = "a install 1 a\na sent a1 1\na deliver a1\na stable a1\n"
    assert len(broken(stable_never_decreases, start + "a stable a0")) == 1
    assert broken(stable_never_decreases, start + "a crash\na restart\na restarted\na stable a0") == []


def test_a_newcomer_may_get_the_state_of_a_later_view() -> None:
    transcript = """
    a install 1 a
    a install 2 ab
    b install 2 ab
    a sent a1 2
    a deliver a1
    a install 3 ab
    b install 3 ab
    b restore a1 v3
    a sent a2 3
    a deliver a2
    b deliver a2
    """
    report = check_all(trace_of(transcript, unfinished_allowed=True))
    assert report.ok, report.lines()
    assert len(broken(same_state, transcript.replace("restore a1", "restore a0"))) == 1


def test_a_newcomer_may_deliver_what_it_held_in_several_views_when_its_state_comes() -> None:
    transcript = """
    a install 1 a
    a install 2 ab
    b install 2 ab
    a sent a1 2
    a deliver a1
    b hold a1
    a stable a1
    a install 3 ab
    b install 3 ab
    a sent a2 3
    a deliver a2
    b hold a2
    a install 4 ab
    b install 4 ab
    b restore a0 v2
    b deliver a1
    b deliver a2
    """
    report = check_all(trace_of(transcript, unfinished_allowed=True))
    assert report.ok, report.lines()
    late = transcript.replace("b hold a2\n", "\n")
    assert len(broken(sending_view, late)) == 1
    assert len(broken(virtual_synchrony, late)) == 1


def test_a_message_delivered_for_the_first_time_may_follow_a_replay() -> None:
    transcript = """
    a install 1 ab
    b install 1 ab
    b sent b1 1
    b sent b2 1
    a deliver b1
    a crash
    a restart
    a install 1 ab
    a deliver b1
    a deliver b2
    a restarted
    b deliver b1
    b deliver b2
    """
    report = check_all(trace_of(transcript, unfinished_allowed=True))
    assert report.ok, report.lines()
    forgets = transcript.replace("a restart\n", "a restart\n a restore b0\n").replace(
        "a deliver b1\n    a deliver b2", "a deliver b2"
    )
    assert len(broken(restart_replay, forgets)) == 1


def test_a_sent_row_that_a_kill_took_is_made_good_by_the_replay() -> None:
    lost = "a install 1 ab\nb install 1 ab\nb sent b1 1\nb deliver b1\na crash\na restart\na deliver a1\n"
    for checker in (exactly_once, causal_order, sending_view):
        assert broken(checker, lost + "a restarted\nb deliver a1") == []
    assert len(broken(exactly_once, lost.replace("a restart\n", "a restart\na restarted\n"))) == 1


def test_members_that_left_crashed_or_wait_need_not_agree() -> None:
    start = "a install 1 ab\nb install 1 ab\na sent a1 1\na deliver a1\n"
    assert len(broken(agreement, start)) == 1
    for fate in ("leave", "crash", "excluded", "blocked", "restart"):
        assert broken(agreement, f"{start}b {fate}") == []
    assert len(broken(agreement, f"{start}a leave\nb leave", left_settled=True)) == 1
    assert broken(agreement, f"{start}b leave\na install 2 a\na leave", left_settled=True) == []
    assert agreement.not_promised(trace_of(start, settled=False)) == "messages were in transit when the trace ended"


def test_a_member_that_never_installs_the_last_view_lacks_its_messages() -> None:
    transcript = "a install 1 ab\nb install 1 ab\na install 2 ab\na sent a1 2\na deliver a1"
    assert [message.split(",")[0] for message in broken(agreement, transcript)] == [
        "member 1 stays up and never delivers message 1 of sender 0"
    ]


def test_what_was_returned_by_its_serial_is_known_by_its_number() -> None:
    start = "a install 1 ab\nb install 1 ab\na multicast 5\na sent a5 1\na deliver a5\nb deliver a5\na excluded\n"
    trace = trace_of(start + "a returned a0\nb install 2 b")
    assert check_by(returned_is_returned, trace) == []
    trace.events["message"][trace.events["event"] == Event.RETURNED] = 5
    assert len(check_by(returned_is_returned, trace)) == 1

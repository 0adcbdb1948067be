"""Each checker bites: a hand-made trace that breaks its promise is caught by name, and its good twin passes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from cubecast.errors import LocalProtocolError
from cubecast.trace.checkers import (
    CHECKERS,
    causal_stability,
    check_all,
    counts,
    fifo,
    in_order_delivery,
    premature_stability,
    rounds_end,
    stable_never_decreases,
)
from cubecast.trace.checkers.rows import LISTED_MAX
from cubecast.trace.files import Trace
from cubecast.trace.schema import CONTROL, DATA, EVERYONE, Event, Events, blank_events
from tests.support.checkers import check_by
from tests.support.counted import counted

Row = dict[str, int]


def row(event: Event, member: int = -1, **columns: int) -> Row:
    return {"event": event, "member": member, **columns}


def deliver(member: int, sender: int, sequence: int, **columns: int) -> Row:
    return row(Event.DELIVER, member, sender=sender, sequence=sequence, **columns)


def stable(member: int, sender: int, sequence: int) -> Row:
    return row(Event.STABLE, member, sender=sender, sequence=sequence, round=1)


def trace_of(*rows: Row, metrics: dict[str, Any] | None = None, members: int = 3, **scenario: Any) -> Trace:
    """Rows come one nanosecond apart, the first at 0, unless they say otherwise."""
    events = blank_events(len(rows))
    events["time_ns"] = events["entered_ns"] = np.arange(len(rows))
    for index, columns in enumerate(rows):
        for column, value in columns.items():
            events[column][index] = value
    return Trace(events=events, scenario={"members": members, **scenario}, metrics=metrics or {})


def initial(*held: int) -> list[Row]:
    return [deliver(member, 0, sequence, time_ns=0) for member, sequence in enumerate(held)]


# No premature stability


def test_stable_before_a_member_holds_it_is_caught() -> None:
    trace = trace_of(*initial(5, 5, 4), stable(0, 0, 4), stable(1, 0, 5))
    (violation,) = check_by(premature_stability, trace)
    assert violation.rows == (4, 2)
    assert violation.time_ns == 4
    assert violation.message == (
        "member 1 calls sender 0 stable up to 5 in round 1 (row 4, 0.000004 ms), "
        "but member 2 holds only up to 4 (row 2, 0.000000 ms)"
    )


def test_stable_after_every_member_holds_it_is_fine() -> None:
    assert check_by(premature_stability, trace_of(*initial(5, 5, 4), deliver(2, 0, 5), stable(1, 0, 5))) == []


def test_a_member_that_never_delivered_holds_none() -> None:
    (violation,) = check_by(premature_stability, trace_of(*initial(1, 1), stable(0, 0, 1)))
    assert violation.rows == (2,)
    assert violation.message.endswith("but member 2 holds none")


def test_a_crashed_member_is_not_waited_for() -> None:
    assert check_by(premature_stability, trace_of(*initial(5, 5, 4), row(Event.CRASH, 2), stable(1, 0, 5))) == []


def test_a_crash_after_the_claim_does_not_excuse_it() -> None:
    trace = trace_of(*initial(5, 5, 4), stable(1, 0, 5), row(Event.CRASH, 2))
    assert [violation.rows[0] for violation in check_by(premature_stability, trace)] == [3]


def test_a_recovered_member_counts_again() -> None:
    rows = [*initial(5, 5, 4), row(Event.CRASH, 2), stable(1, 0, 5), row(Event.RECOVER, 2), stable(0, 0, 5)]
    assert [violation.rows for violation in check_by(premature_stability, trace_of(*rows))] == [(6, 2)]


def test_excluding_a_member_that_is_up_does_not_excuse_a_claim() -> None:
    trace = trace_of(*initial(5, 5, 4), row(Event.EXCLUDE, 1, peer=2), stable(1, 0, 5))
    assert [violation.rows[0] for violation in check_by(premature_stability, trace)] == [4]


def test_senders_are_judged_apart() -> None:
    rows = [*initial(5, 5, 5), *(deliver(member, 1, 2, time_ns=0) for member in range(3))]
    assert check_by(premature_stability, trace_of(*rows, stable(0, 0, 5), stable(0, 1, 2))) == []
    assert len(check_by(premature_stability, trace_of(*rows, stable(0, 1, 3)))) == 1


def test_stability_rows_of_a_crashed_group_break_no_promise() -> None:
    crashes = [row(Event.CRASH, member) for member in range(3)]
    assert check_by(premature_stability, trace_of(*initial(1, 1, 1), *crashes, stable(0, 0, 9))) == []


# Stability never decreases


def test_stability_that_decreases_is_caught() -> None:
    (violation,) = check_by(stable_never_decreases, trace_of(stable(0, 0, 3), stable(1, 0, 2), stable(0, 0, 2)))
    assert violation.rows == (2, 0)
    assert "stable up to 2" in violation.message
    assert "stable up to 3" in violation.message


def test_stability_that_stays_or_grows_is_fine() -> None:
    trace = trace_of(stable(0, 0, 2), stable(0, 0, 2), stable(0, 1, 1), stable(0, 0, 3), stable(1, 0, 0))
    assert check_by(stable_never_decreases, trace) == []


# Every round ends


def begin(member: int, number: int) -> Row:
    return row(Event.ROUND, member, round=number)


def done(member: int, number: int) -> Row:
    return row(Event.DONE, member, round=number)


def test_a_member_that_never_ends_a_round_is_caught() -> None:
    (violation,) = check_by(rounds_end, trace_of(begin(0, 1), done(0, 1), done(2, 1), rounds=1))
    assert violation.rows == (0,)
    assert violation.message == (
        "member 1 is up at the end and done with no round; round 1 was begun by member 0 (row 0, 0.000000 ms)"
    )


def test_a_later_round_covers_a_skipped_one() -> None:
    rows = [begin(0, 1), done(0, 1), done(1, 1), begin(0, 2), *(done(member, 2) for member in range(3))]
    assert check_by(rounds_end, trace_of(*rows, rounds=2)) == []


def test_an_earlier_round_does_not_cover_the_last_one() -> None:
    rows = [begin(0, 1), *(done(member, 1) for member in range(3)), begin(0, 2), done(0, 2), done(1, 2)]
    (violation,) = check_by(rounds_end, trace_of(*rows, rounds=2))
    assert "member 2 is up at the end and done only up to round 1; round 2" in violation.message


def test_a_round_begun_by_any_member_must_end() -> None:
    rows = [begin(0, 1), *(done(member, 1) for member in range(3)), begin(2, 2)]
    assert len(check_by(rounds_end, trace_of(*rows, rounds=2))) == 3
    assert len(check_by(rounds_end, trace_of(*rows))) == 3


def test_a_run_may_stop_in_a_round_that_was_not_requested() -> None:
    rows = [begin(0, 1), *(done(member, 1) for member in range(3)), begin(2, 2), done(1, 2)]
    assert check_by(rounds_end, trace_of(*rows, rounds=1)) == []
    (violation,) = check_by(rounds_end, trace_of(rows[0], *rows[2:], rounds=1))
    assert violation.message.startswith("member 0 is up at the end and done with no round; round 1 was begun")


def test_a_crashed_member_need_not_end_but_a_recovered_one_must() -> None:
    rows = [begin(0, 1), row(Event.CRASH, 1), done(0, 1), done(2, 1)]
    assert check_by(rounds_end, trace_of(*rows, rounds=1)) == []
    (violation,) = check_by(rounds_end, trace_of(*rows, row(Event.RECOVER, 1), rounds=1))
    assert violation.message.startswith("member 1 is up at the end")


@pytest.mark.parametrize("first", [0, 1, 7])
def test_rounds_that_never_began_are_caught(first: int) -> None:
    rows = [begin(0, first), *(done(member, first) for member in range(3))]
    assert check_by(rounds_end, trace_of(*rows, rounds=1)) == []
    (violation,) = check_by(rounds_end, trace_of(*rows, rounds=2))
    assert violation.message.startswith(f"2 rounds were requested, but the last begun is round {first}")


def test_a_run_without_any_round_is_caught() -> None:
    (violation,) = check_by(rounds_end, trace_of(*initial(1, 1, 1), rounds=1))
    assert violation.message == "1 rounds were requested, but none began"


def test_nobody_is_left_to_end_a_round() -> None:
    assert (
        check_by(rounds_end, trace_of(begin(0, 1), *(row(Event.CRASH, member) for member in range(3)), rounds=5)) == []
    )


@pytest.mark.parametrize("scenario", [{"partitions": [[1, 2]]}, {"unfinished_allowed": True}])
def test_liveness_is_not_promised_under_partitions_or_when_a_run_may_stop_early(scenario: dict[str, Any]) -> None:
    verdict = next(
        verdict
        for verdict in check_all(trace_of(begin(0, 1), rounds=1, **scenario)).verdicts
        if verdict.checker == rounds_end.NAME
    )
    assert verdict.status == "not promised"
    assert verdict.violations == ()


# In-order delivery


@pytest.mark.parametrize(
    ("sequences", "bad", "fault"),
    [([4, 5, 7], 2, "too early"), ([4, 5, 5], 2, "again"), ([4, 5, 4], 2, "again"), ([4, 6], 1, "too early")],
)
def test_gap_and_duplicate_are_caught(sequences: list[int], bad: int, fault: str) -> None:
    (violation,) = check_by(in_order_delivery, trace_of(*(deliver(1, 0, sequence) for sequence in sequences)))
    assert violation.rows == (bad, bad - 1)
    assert fault in violation.message


def test_any_state_may_be_the_first_but_only_at_time_zero() -> None:
    assert check_by(in_order_delivery, trace_of(deliver(0, 0, 9), deliver(0, 0, 10))) == []
    (violation,) = check_by(in_order_delivery, trace_of(begin(0, 1), deliver(0, 0, 2)))
    assert violation.rows == (1,)
    assert violation.message.endswith("the last one it delivered was nothing")


def test_members_and_senders_count_apart() -> None:
    rows = [deliver(0, 0, 3), deliver(1, 0, 1), deliver(0, 1, 1), deliver(0, 0, 4), deliver(1, 0, 2), deliver(0, 1, 2)]
    assert check_by(in_order_delivery, trace_of(*rows)) == []


# FIFO


def hop(link: int, entered_ns: int, message: int = 0) -> Row:
    return row(Event.HOP, link=link, entered_ns=entered_ns, message=message)


def receive(member: int, peer: int, message: int, layer: int = CONTROL) -> Row:
    return row(Event.RECEIVE, member, peer=peer, message=message, layer=layer)


def test_overtaking_on_a_link_is_caught() -> None:
    (violation,) = check_by(fifo, trace_of(hop(3, 10, 7), hop(4, 2), hop(3, 9, 6)))
    assert violation.rows == (2, 0)
    assert violation.message.startswith("message 7 overtook message 6 on link 3")


def test_copies_that_entered_together_and_other_links_are_fine() -> None:
    assert check_by(fifo, trace_of(hop(3, 10), hop(4, 2), hop(3, 10), hop(4, 3), hop(2_000_000_000, 0))) == []


def test_overtaking_between_two_members_is_caught() -> None:
    (violation,) = check_by(fifo, trace_of(receive(1, 0, 8), receive(1, 2, 5), receive(1, 0, 7)))
    assert violation.rows == (2, 0)
    assert violation.message.startswith("control message 8 from member 0 overtook message 7 on the route to member 1")


def test_layers_and_directions_are_ordered_apart() -> None:
    rows = [receive(1, 0, 8), receive(1, 0, 7, layer=DATA), receive(0, 1, 6), receive(2, 0, 5)]
    assert check_by(fifo, trace_of(*rows)) == []


def test_a_tree_multicast_may_overtake_a_unicast() -> None:
    rows = [row(Event.SEND, 0, peer=EVERYONE, message=7), receive(1, 0, 8), receive(1, 0, 7), receive(1, 0, 9)]
    assert check_by(fifo, trace_of(*rows)) == []
    assert len(check_by(fifo, trace_of(*rows[1:]))) == 1


def test_fifo_is_not_promised_by_a_network_that_reorders() -> None:
    report = check_all(trace_of(hop(3, 10), hop(3, 9), reorder=0.1))
    assert "FIFO per link: not promised (the scenario reorders messages with probability 0.1)" in report.lines()
    assert report.ok
    assert not check_all(trace_of(hop(3, 10), hop(3, 9), reorder=0.0)).ok


def test_fifo_is_not_promised_by_a_network_without_links() -> None:
    overtaken = [receive(1, 0, 8), receive(1, 0, 7)]
    assert check_all(trace_of(*overtaken, links=0)).ok
    assert not check_all(trace_of(*overtaken, links=2)).ok


# Counts

COUNTED_ROWS = [
    {**row(Event.CRASH, 2), "time_ns": 0},
    {**begin(0, 1), "time_ns": 0},
    row(Event.SEND, 0, peer=1, message=1, size=100),
    row(Event.SEND, 0, peer=EVERYONE, message=2, size=10),
    row(Event.SEND, 1, peer=0, message=3, size=7, layer=DATA),
    row(Event.HOP, link=0, message=1),
    row(Event.HOP, link=1, message=2),
    row(Event.HOP, link=2, message=3, layer=DATA),
    row(Event.DROP, link=3, message=2),
    {**done(0, 1), "time_ns": 2_000_000},
    {**done(1, 1), "time_ns": 5_000_000},
    {**begin(0, 2), "time_ns": 6_000_000},
    {**begin(1, 2), "time_ns": 7_000_000},
    {**done(1, 2), "time_ns": 10_000_000},
    {**done(0, 2), "time_ns": 11_000_000},
    {**begin(0, 3), "time_ns": 12_000_000},
]
COUNTED_METRICS: dict[str, Any] = {
    "messages": 3,  # one unicast, one tree multicast to two others
    "bytes": 120,
    "hops": 2,
    "drops": 1,
    "data_messages": 1,
    "data_bytes": 7,
    "data_hops": 1,
    "rtt_first_ms": 3.0,  # rounds 1 and 2: 2 and 4 ms; round 3 did not end
    "rtt_last_ms": 5.0,
    "load_mean": 12.5,  # not in the trace, not judged
}


def test_counts_that_agree_are_fine() -> None:
    assert check_by(counts, trace_of(*COUNTED_ROWS, metrics=COUNTED_METRICS)) == []


@pytest.mark.parametrize("name", [name for name in COUNTED_METRICS if name != "load_mean"])
def test_each_wrong_metric_is_caught(name: str) -> None:
    wrong = {**COUNTED_METRICS, name: COUNTED_METRICS[name] + 1}
    (violation,) = check_by(counts, trace_of(*COUNTED_ROWS, metrics=wrong))
    assert violation.message == f"the metrics say {name} = {wrong[name]}, the trace says {COUNTED_METRICS[name]}"


@pytest.mark.parametrize("wrong", [None, float("nan"), 3.00001])
def test_a_round_time_that_is_missing_or_off_is_caught(wrong: float | None) -> None:
    assert len(check_by(counts, trace_of(*COUNTED_ROWS, metrics={"rtt_first_ms": wrong}))) == 1


def test_a_round_is_timed_once_everyone_who_is_up_is_done_with_it() -> None:
    rows = [begin(0, 1), done(0, 1), done(1, 1)]
    assert check_by(counts, trace_of(*rows, metrics={"rtt_last_ms": None})) == []
    crashed = trace_of(*rows, row(Event.CRASH, 2), metrics={"rtt_last_ms": 2e-6, "rtt_first_ms": 1e-6})
    assert counted(crashed.events, 3)["rtt_last_ms"] == pytest.approx(2e-6)
    skipped = trace_of(*rows, done(2, 2))
    assert counted(skipped.events, 3)["rtt_last_ms"] == pytest.approx(3e-6)


def test_in_a_network_without_links_a_message_makes_one_hop() -> None:
    rows = [row(Event.SEND, 0, peer=1), row(Event.SEND, 0, peer=2), row(Event.SEND, 1, peer=2, layer=DATA)]
    assert check_by(counts, trace_of(*rows, metrics={"hops": 2, "data_hops": 1}, links=0)) == []
    assert len(check_by(counts, trace_of(*rows, metrics={"hops": 2, "data_hops": 1}, links=4))) == 2


def test_no_round_time_is_expected_when_no_round_ended() -> None:
    assert check_by(counts, trace_of(begin(0, 1), metrics={"rtt_first_ms": None, "rtt_last_ms": float("nan")})) == []
    assert len(check_by(counts, trace_of(begin(0, 1), metrics={"rtt_first_ms": 0.0}))) == 1


def test_counts_are_not_promised_without_metrics() -> None:
    report = check_all(trace_of(*COUNTED_ROWS, metrics={"load_mean": 1.0}))
    assert "counts agree with the metrics: not promised (the trace carries no metrics)" in report.lines()


# All of them


def test_the_report_tells_each_promise_and_is_plain_data() -> None:
    report = check_all(trace_of(*initial(5, 5, 4), stable(1, 0, 5), stable(1, 0, 4)))
    data = json.loads(json.dumps(report.to_dict()))
    assert not report.ok
    assert data["ok"] is False
    assert data["events"] == 5
    assert [verdict["checker"] for verdict in data["verdicts"]] == [checker.NAME for checker in CHECKERS]
    assert [verdict["status"] for verdict in data["verdicts"]][:3] == ["broken", "broken", "kept"]
    assert {violation.checker for violation in report.violations} == {
        premature_stability.NAME,
        stable_never_decreases.NAME,
    }


def test_an_empty_trace_breaks_nothing() -> None:
    assert check_all(trace_of()).ok


def test_a_flood_of_violations_is_listed_in_part_and_counted_in_full() -> None:
    violations = check_by(premature_stability, trace_of(*(stable(0, 0, 1) for _ in range(LISTED_MAX + 23))))
    assert len(violations) == LISTED_MAX + 1
    assert violations[-1].message == f"… and 23 more after row {LISTED_MAX - 1}"
    exactly = check_by(premature_stability, trace_of(*(stable(0, 0, 1) for _ in range(LISTED_MAX))))
    assert len(exactly) == LISTED_MAX


@pytest.mark.parametrize(
    ("bad", "column"),
    [
        ({"event": len(Event)}, "event"),
        ({"event": Event.DELIVER, "member": 3, "sender": 0}, "member"),
        ({"event": Event.CRASH, "member": -1}, "member"),
        ({"event": Event.DELIVER, "member": 0, "sender": -1}, "sender"),
        ({"event": Event.STABLE, "member": 0, "sender": 3}, "sender"),
        ({"event": Event.DELIVER, "member": 0, "sender": 0, "sequence": -1}, "sequence"),
        ({"event": Event.RECEIVE, "member": 0, "peer": EVERYONE}, "peer"),
        ({"event": Event.SEND, "member": 0, "peer": -1}, "peer"),
        ({"event": Event.SEND, "member": 0, "peer": 3}, "peer"),
        ({"event": Event.HOP, "link": -1}, "link"),
        ({"event": Event.DONE, "member": 0}, "round"),
        ({"event": Event.DROP, "size": -1}, "size"),
        ({"event": Event.DROP, "layer": 3}, "layer"),
        ({"event": Event.INSTALL, "member": 0}, "round"),
        ({"event": Event.INSTALL, "member": -1, "round": 1}, "member"),
        ({"event": Event.VIEW, "round": 1}, "peer"),
        ({"event": Event.VIEW, "round": 1, "peer": 0, "message": -2}, "message"),
        ({"event": Event.RESTORE, "member": 0}, "sender"),
        ({"event": Event.HOLD, "member": 0}, "sender"),
        ({"event": Event.SENT, "member": 0, "sender": 1, "sequence": 1}, "sender"),
        ({"event": Event.SENT, "member": 0, "sender": 0}, "sequence"),
        ({"event": Event.RETURNED, "member": 0, "sender": 1}, "sender"),
        ({"event": Event.MULTICAST, "member": 0}, "message"),
        ({"event": Event.RESTART, "member": 3}, "member"),
    ],
)
@pytest.mark.parametrize("checker", CHECKERS, ids=lambda checker: checker.NAME)
def test_a_row_that_cannot_be_is_refused_by_every_checker(checker: Any, bad: Row, column: str) -> None:
    with pytest.raises(LocalProtocolError, match=f"row 1 of the trace .* has {column} = .*, which is impossible"):
        check_by(checker, trace_of(deliver(0, 0, 1), bad))


@pytest.mark.parametrize("members", [0, -1, None, "3", 2.5, True])
def test_a_scenario_without_members_is_refused(members: Any) -> None:
    with pytest.raises(LocalProtocolError, match=f"members = {members!r}"):
        check_all(trace_of(members=members))


def test_checkers_run_as_ordinary_python_too(broken_events: Events) -> None:
    """The same verdicts come from the compiled scans and from the plain functions."""
    program = (
        "import sys, json, numpy as np\n"
        "from cubecast.trace.files import Trace\n"
        "from cubecast.trace.schema import EVENT_DTYPE\n"
        "from cubecast.trace.checkers import check_all\n"
        "events = np.frombuffer(sys.stdin.buffer.read(), EVENT_DTYPE)\n"
        "SCENARIO = {'members': 3, 'family': 'causal'}\n"
        "print(json.dumps(check_all(Trace(events=events, scenario=SCENARIO, metrics={'hops': 1})).to_dict()))\n"
        "assert 'numba' not in sys.modules\n"
    )
    environment = {**os.environ, "CUBECAST_JIT": "off"}
    plain = subprocess.run(
        [sys.executable, "-c", program], input=broken_events.tobytes(), env=environment, capture_output=True, check=True
    )
    scenario = {"members": 3, "family": "causal"}
    compiled = check_all(Trace(events=broken_events, scenario=scenario, metrics={"hops": 1}))
    assert json.loads(plain.stdout) == json.loads(json.dumps(compiled.to_dict()))
    promised = [verdict for verdict in compiled.verdicts if verdict.not_promised != "the run has no views"]
    assert [verdict.checker for verdict in promised if verdict.status != "broken"] == []


@pytest.fixture
def broken_events() -> Events:
    rows = [*initial(5, 5, 4), begin(0, 1), stable(1, 0, 5), stable(1, 0, 4), deliver(1, 0, 9), hop(3, 10), hop(3, 9)]
    rows.append(causal(2, 0, 5))
    return trace_of(*rows).events


# Causal stability


def multicast(member: int, serial: int) -> Row:
    return row(Event.MULTICAST, member, message=serial)


def sent(member: int, sequence: int, serial: int = -1) -> Row:
    return row(Event.SENT, member, sender=member, sequence=sequence, message=serial, round=1)


def causal(member: int, sender: int, sequence: int) -> Row:
    return row(Event.CAUSAL, member, sender=sender, sequence=sequence)


def causal_faults(*rows: Row) -> list[str]:
    return [violation.message for violation in check_by(causal_stability, trace_of(*rows, family="causal"))]


def test_a_message_that_follows_a_causally_stable_one_may_come() -> None:
    rows = [sent(0, 1), deliver(0, 0, 1), deliver(1, 0, 1), causal(0, 0, 1), sent(1, 1), deliver(1, 1, 1)]
    assert causal_faults(*rows, deliver(0, 1, 1)) == []


def test_a_message_that_is_concurrent_with_a_causally_stable_one_is_caught() -> None:
    rows = [sent(0, 1), deliver(0, 0, 1), sent(1, 1), deliver(1, 1, 1), deliver(1, 0, 1), causal(0, 0, 1)]
    (message,) = causal_faults(*rows, deliver(0, 1, 1))
    assert "delivers message 1 of sender 1" in message
    assert "does not follow message 1 of sender 0" in message


def test_what_counts_is_the_call_of_multicast_not_when_the_message_got_its_number() -> None:
    """It waited for the window while the other one was delivered."""
    rows = [sent(0, 1), deliver(0, 0, 1), multicast(1, 7), deliver(1, 0, 1), sent(1, 1, 7), causal(0, 0, 1)]
    assert len(causal_faults(*rows, deliver(0, 1, 1))) == 1
    late = [sent(0, 1), deliver(0, 0, 1), deliver(1, 0, 1), multicast(1, 7), sent(1, 1, 7), causal(0, 0, 1)]
    assert causal_faults(*late, deliver(0, 1, 1)) == []


def test_what_is_multicast_before_the_state_is_there_counts_as_made_when_it_is_sent() -> None:
    rows = [sent(0, 1), deliver(0, 0, 1), causal(0, 0, 1), multicast(1, 7)]
    restored = row(Event.RESTORE, 1, sender=0, sequence=1, round=2)
    assert causal_faults(*rows, restored, sent(1, 1, 7), deliver(0, 1, 1)) == []
    assert len(causal_faults(*rows, sent(1, 1, 7), deliver(0, 1, 1))) == 1


def test_a_message_is_not_causally_stable_where_it_was_not_delivered() -> None:
    (message,) = causal_faults(sent(0, 1), deliver(0, 0, 1), causal(1, 0, 1))
    assert "calls message 1 of sender 0 causally stable" in message
    assert "has delivered up to 0" in message


def test_a_run_that_reports_no_causal_stability_promises_none() -> None:
    assert causal_stability.not_promised(trace_of(deliver(0, 0, 1))) == "the run reports no causal stability"

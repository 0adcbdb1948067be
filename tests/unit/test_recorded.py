"""Histories of live processes, as the judge reads them: a good one passes, and each kind of damage is seen."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cubecast.core.membership import MemberId
from cubecast.live.changing.recording import DeliveredLog, HistoryRecorder
from cubecast.sim.churn.promises import Judge
from cubecast.sim.churn.recorded import Converter, Line, pauses_ns, read_lines

A, B = MemberId("a:1", 10), MemberId("b:1", 20)
LIVES = [list(A), list(B)]
ONE = [1, [A], [], [list(A)], 0]
TWO = [2, [A, B], [B], LIVES, 5_000_000]
SENT_BEFORE = DeliveredLog([(1, A, 1)]).dump()


def story() -> list[Line]:
    """One founds, sends, is joined by another that gets the state; both send; one is killed and goes on."""
    rows: list[tuple[MemberId, str, Any]] = [
        (A, "install", ONE),
        (A, "multicast", 1),
        (A, "sent", [1, 1, 1]),
        (A, "deliver", [1, A, 1]),
        (A, "install", TWO),
        (B, "restore", SENT_BEFORE),
        (B, "install", TWO),
        (B, "multicast", 1),
        (B, "sent", [2, 1, 1]),
        (B, "deliver", [2, B, 1]),
        (A, "deliver", [2, B, 1]),
        (A, "multicast", 2),
        (A, "sent", [2, 1, 2]),
        (A, "deliver", [2, A, 1]),
        (B, "deliver", [2, A, 1]),
        (B, "stable", [2, [1, 1]]),
        (B, "multicast", 2),
    ]
    lines = [[time, *who, event, data] for time, (who, event, data) in enumerate(rows)]
    again: list[Line] = [
        [100, "b:1", None, "stop", None],
        [101, *B, "resume", None],
        [102, *B, "restore", SENT_BEFORE],
        [103, *B, "sent", [2, 1, 9001]],
        [104, *B, "deliver", [2, B, 1]],
        [105, *B, "deliver", [2, A, 1]],
        [106, *B, "sent", [2, 2, 9002]],
        [107, *B, "deliver", [2, B, 2]],
        [108, *B, "resumed", None],
        [109, *A, "deliver", [2, B, 2]],
    ]
    return json.loads(json.dumps(lines + again))  # type: ignore[no-any-return]


def judged(lines: list[Line]) -> list[str]:
    history = Converter().history(lines)
    judge = Judge()
    judge.read(history)
    judge.judge_end(history, [A, B])
    return judge.broken


def test_a_good_history_passes_and_its_pauses_are_found() -> None:
    assert judged(story()) == []
    assert pauses_ns(story()) == [5_000_000, 5_000_000]


def drop(place: int) -> Callable[[list[Line]], None]:
    return lambda lines: lines.__delitem__(place)


def change(place: int, data: Any) -> Callable[[list[Line]], None]:
    return lambda lines: lines[place].__setitem__(4, data)


@pytest.mark.parametrize(
    ("damage", "promise"),
    [
        (change(6, [2, [B, A], [B], LIVES, 0]), "view agreement"),
        (change(5, DeliveredLog().dump()), "same state"),
        (drop(9), "causal order"),
        (drop(14), "stability"),
        (lambda lines: lines.insert(11, [10, *lines[10][1:]]), "exactly once"),
        (change(10, [1, list(B), 1]), "sending view"),
        (drop(26), "nothing lost"),
        (drop(21), "restart"),
        (lambda lines: lines.append([200, "a:1", 10, "deliver", [2, list(B), 7]]), "sending view"),
    ],
)
def test_damage_of_every_kind_is_seen(damage: Callable[[list[Line]], None], promise: str) -> None:
    lines = story()
    damage(lines)
    assert promise in {complaint.split(":")[0] for complaint in judged(lines)}


def test_a_message_that_waited_for_a_restart_is_the_same_message() -> None:
    """Message 2 of b was multicast before the kill and sent after it, under another serial."""
    rows = Converter().history(story())
    multicast = [row.data for row in rows if row.event == "multicast" and row.who == B]
    sent = [row.data[2] for row in rows if row.event == "sent" and row.who == B]
    assert sent == [multicast[0], multicast[0], multicast[1]]


def test_one_that_is_killed_twice_before_it_wrote_anything_is_down_once() -> None:
    lines = [*story(), [200, "b:1", None, "stop", None], [201, "b:1", None, "stop", None]]
    assert [row.event for row in Converter().history(lines)].count("stop") == 2
    assert judged(lines) == []


def test_lines_come_back_in_order_and_one_that_was_cut_short_is_left_out(tmp_path: Path) -> None:
    recorder = HistoryRecorder(tmp_path / "a.rows")
    recorder.note(A, "multicast", 1)
    recorder.note(A, "sent", [1, 1, 1])
    recorder.close()
    with (tmp_path / "a.rows").open("a") as file:
        file.write('[5, "a:1", 10, "deliv')
    recorder = HistoryRecorder(tmp_path / "a.rows")
    recorder.note(A, "left")
    recorder.close()
    lines = read_lines([tmp_path / "a.rows"])
    assert [line[3] for line in lines] == ["multicast", "sent", "left"]
    assert [line[0] for line in lines] == sorted(line[0] for line in lines)
    assert DeliveredLog.load(json.loads(json.dumps(SENT_BEFORE))).dump() == SENT_BEFORE

"""The trace of a live process: blocks that survive kills and restarts, and one trace of all processes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from cubecast.cli import main
from cubecast.errors import LocalProtocolError
from cubecast.live.trace_writer import (
    MAGIC,
    MemberTraceWriter,
    is_member_trace,
    merge_traces,
    merged_trace,
    read_member_trace,
)
from cubecast.trace.checkers import check_all
from cubecast.trace.files import read_trace
from cubecast.trace.schema import EVENT_DTYPE, NOBODY, Event

TAG = 1 << 62


class Process:
    """A writer that knows the time and its own name."""

    def __init__(self, folder: Path, name: str, incarnation: int = 0) -> None:
        self.writer = MemberTraceWriter(folder / f"{name}.trace")
        self.me = self.writer.member_id(name, incarnation)

    def install(self, now: int, number: int, *members: tuple[str, int]) -> None:
        ids = [self.writer.member_id(*member) for member in members]
        self.writer.install(now, self.me, number, TAG + number, ids)

    def send(self, now: int, number: int, sequence: int) -> None:
        self.writer.row(now, Event.MULTICAST, self.me, message=sequence)
        columns = {"sender": self.me, "sequence": sequence, "round": number, "message": sequence}
        self.writer.row(now, Event.SENT, self.me, **columns)

    def deliver(self, now: int, *messages: tuple[str, int, int]) -> None:
        senders = [self.writer.member_id(name, incarnation) for name, incarnation, _ in messages]
        self.writer.deliveries(now, self.me, senders, [sequence for *_, sequence in messages])


A, B, C = ("a", 0), ("b", 0), ("c", 0)


def small_group(folder: Path, *, forget: bool = False) -> None:
    """Two founders; b is killed, restarts and delivers again; c joins; a leaves."""
    a, b = Process(folder, "a"), Process(folder, "b")
    for process in (b, a):
        process.install(10, 1, A, B)
    a.send(20, 1, 1)
    a.deliver(21, ("a", 0, 1))
    b.deliver(30, ("a", 0, 1))
    b.writer.close()
    b = Process(folder, "b")
    b.writer.row(50, Event.RESTART, b.me)
    b.deliver(51, ("a", 0, 1))
    b.writer.row(52, Event.RESTARTED, b.me)
    b.send(55, 1, 1)
    b.deliver(56, ("b", 0, 1))
    if not forget:
        a.deliver(57, ("b", 0, 1))
    c = Process(folder, "c")
    for process, now in ((a, 60), (b, 61)):
        process.install(now, 2, A, B, C)
    senders = [c.writer.member_id("b", 0), c.writer.member_id("a", 0)]
    c.writer.restore(65, c.me, 2, TAG + 2, senders, [1, 1])
    c.install(66, 2, A, B, C)
    a.writer.stable(67, a.me, [a.me], [1])
    a.writer.row(70, Event.LEAVE, a.me)
    for process in (b, c):
        process.install(80, 3, C, B)
    for process in (a, b, c):
        process.writer.close()


def paths(folder: Path) -> list[Path]:
    return [folder / f"{name}.trace" for name in "cba"]


def test_files_of_all_processes_make_one_trace_that_keeps_every_promise(tmp_path: Path) -> None:
    small_group(tmp_path)
    rows = merge_traces(paths(tmp_path), tmp_path / "run.parquet", crashes=[("b", 40)], scenario={"test": "x"})
    trace = read_trace(tmp_path / "run.parquet")
    assert len(trace.events) == rows
    assert trace.scenario["names"] == [["a", 0], ["b", 0], ["c", 0]]
    assert trace.scenario["members"] == 3
    assert trace.scenario["test"] == "x"
    report = check_all(trace)
    assert report.ok, report.lines()
    promised = {verdict.checker for verdict in report.verdicts if verdict.not_promised is None}
    assert promised >= {"virtual synchrony", "agreement", "restart", "same state", "causal order"}
    assert trace.events["time_ns"].tolist() == sorted(trace.events["time_ns"].tolist())
    assert trace.events["time_ns"][0] == 1


def test_view_rows_of_several_members_appear_once(tmp_path: Path) -> None:
    small_group(tmp_path)
    events = merged_trace(paths(tmp_path)).events
    views = events[events["event"] == Event.VIEW]
    assert len(views) == 2 + 3 + 2
    assert set(views["message"].tolist()) == {TAG + 1, TAG + 2, TAG + 3}
    installs = events[events["event"] == Event.INSTALL]
    assert installs["sequence"].tolist() == [2, 2, 3, 3, 3, 2, 2]


def test_a_broken_promise_is_found_in_the_files_themselves(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small_group(tmp_path, forget=True)
    with pytest.raises(SystemExit) as left:
        main(["check", str(tmp_path)])
    assert left.value.code == 1
    printed = capsys.readouterr().out
    assert "member 1 leaves view 1" in printed
    assert "members by name (incarnation): 0 is a (0), 1 is b (0), 2 is c (0)" in printed


def test_check_takes_folders_members_and_finished_traces(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small_group(tmp_path)
    merge_traces(paths(tmp_path), tmp_path / "run.parquet")
    for arguments, traces in (([str(tmp_path)], 2), ([str(path) for path in paths(tmp_path)], 1)):
        with pytest.raises(SystemExit) as left:
            main(["check", *arguments, "--crashed", "nobody", "--json"])
        assert left.value.code in (0, None)
        printed = json.loads(capsys.readouterr().out)
        assert printed["ok"] is True
        assert len(printed.get("traces", [printed])) == traces


def test_a_restarted_process_appends_and_its_ids_are_its_own(tmp_path: Path) -> None:
    path = tmp_path / "a.trace"
    writer = MemberTraceWriter(path)
    assert [writer.member_id("a", 0), writer.member_id("b", 0), writer.member_id("a", 0)] == [0, 1, 0]
    writer.deliveries(1, 0, [1], [7])
    writer.close()
    writer = MemberTraceWriter(path)
    assert [writer.member_id("b", 0), writer.member_id("a", 1)] == [0, 1]
    writer.deliveries(2, 1, [0], [8])
    writer.close()
    trace = read_member_trace(path)
    assert trace.names == [("a", 0), ("b", 0), ("a", 1)]
    assert trace.events["member"].tolist() == [0, 2]
    assert trace.events["sender"].tolist() == [1, 1]
    assert trace.events["sequence"].tolist() == [7, 8]


@pytest.mark.parametrize("cut", range(1, 100, 7))
def test_a_block_cut_short_is_ignored_and_later_ones_are_found(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "a.trace"
    writer = MemberTraceWriter(path)
    me = writer.member_id("a", 0)
    for now in (1, 2):
        writer.row(now, Event.BLOCKED, me)
        writer.flush()
    writer.close()
    path.write_bytes(path.read_bytes()[:-cut])
    writer = MemberTraceWriter(path)
    writer.row(3, Event.UNBLOCKED, writer.member_id("a", 0))
    writer.close()
    assert read_member_trace(path).events["time_ns"].tolist() == ([1, 3] if cut <= 92 else [3])


@pytest.mark.parametrize("cut", [3, 8, 20, 40])
def test_a_first_block_cut_short_leaves_a_trace(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "a.trace"
    for now in (1, 2):
        process = Process(tmp_path, "a")
        process.writer.row(now, Event.BLOCKED, process.me)
        process.writer.close()
        if now == 1:
            path.write_bytes(path.read_bytes()[:cut])
            assert is_member_trace(path)
            assert len(read_member_trace(path).events) == 0
    assert is_member_trace(path)
    assert read_member_trace(path).events["time_ns"].tolist() == [2]


def test_large_batches_and_small_ones_write_the_same_rows(tmp_path: Path) -> None:
    for name, size in (("small", 1), ("large", 500)):
        writer = MemberTraceWriter(tmp_path / name)
        writer.member_id("a", 0)
        for start in range(0, 1000, size):
            sequences = np.arange(start, start + size)
            writer.deliveries(9, 0, np.zeros(size, np.int32), sequences)
        writer.close()
    small, large = (read_member_trace(tmp_path / name).events for name in ("small", "large"))
    assert small.dtype == large.dtype == EVENT_DTYPE
    for column in EVENT_DTYPE.names or ():
        assert small[column].tolist() == large[column].tolist(), column
    assert large["peer"].tolist() == [NOBODY] * 1000


def test_a_crash_is_of_the_newest_incarnation_before_it(tmp_path: Path) -> None:
    for incarnation, now in ((0, 10), (1, 30)):
        process = Process(tmp_path, "a", incarnation)
        process.install(now, incarnation + 1, ("a", incarnation))
        process.writer.close()
    crashes = [("a", 20), ("a", 5), ("b", 50), ("a", 1 << 62)]
    trace = merged_trace([tmp_path / "a.trace"], crashes=crashes)
    rows = trace.events[trace.events["event"] == Event.CRASH]
    named = [trace.scenario["names"][member] for member in rows["member"].tolist()]
    assert named == [["a", 0], ["a", 1]]
    assert rows["time_ns"].tolist() == [11, 22]


def test_a_newcomers_state_holds_the_messages_of_senders_that_are_gone(tmp_path: Path) -> None:
    a, b, c = (Process(tmp_path, name) for name in "abc")
    for process in (a, b):
        process.install(10, 1, A, B)
    b.send(20, 1, 1)
    for process in (a, b):
        process.deliver(21, ("b", 0, 1))
    b.writer.row(30, Event.LEAVE, b.me)
    a.install(40, 2, A)
    a.install(50, 3, A, C)
    c.install(51, 3, A, C)
    c.writer.restore(60, c.me, 3, TAG + 3, [c.writer.member_id("a", 0), c.me], [0, 0])
    a.send(70, 3, 1)
    for process in (a, c):
        process.deliver(71, ("a", 0, 1))
    for process in (a, b, c):
        process.writer.close()
    trace = merged_trace(paths(tmp_path))
    report = check_all(trace)
    assert report.ok, report.lines()
    restored = trace.events[trace.events["event"] == Event.RESTORE]
    assert sorted(zip(restored["sender"].tolist(), restored["sequence"].tolist(), strict=True)) == [
        (0, 0),
        (1, 1),
        (2, 0),
    ]


def test_an_empty_state_is_one_row(tmp_path: Path) -> None:
    process = Process(tmp_path, "a")
    process.writer.restore(1, process.me, 4, 9, [], [])
    process.writer.close()
    (row,) = read_member_trace(tmp_path / "a.trace").events
    assert (row["event"], row["sender"], row["sequence"], row["round"], row["message"]) == (Event.RESTORE, 0, 0, 4, 9)


def test_rows_without_a_name_and_files_of_another_kind_are_refused(tmp_path: Path) -> None:
    writer = MemberTraceWriter(tmp_path / "a.trace")
    writer.row(1, Event.LEAVE, 3)
    writer.close()
    with pytest.raises(LocalProtocolError, match="whose name is missing"):
        read_member_trace(tmp_path / "a.trace")
    (tmp_path / "b.trace").write_bytes(b"nothing of ours")
    assert not is_member_trace(tmp_path / "b.trace")
    with pytest.raises(LocalProtocolError, match=f"does not start with {MAGIC.decode()}"):
        read_member_trace(tmp_path / "b.trace")
    with pytest.raises(LocalProtocolError, match="cannot write the trace"):
        MemberTraceWriter(tmp_path / "none" / "c.trace")


def test_nothing_is_written_before_the_flush(tmp_path: Path) -> None:
    process = Process(tmp_path, "a")
    process.install(1, 1, A)
    path = tmp_path / "a.trace"
    assert path.stat().st_size == 0
    assert is_member_trace(path)
    assert len(read_member_trace(path).events) == 0
    process.writer.flush()
    assert len(read_member_trace(path).events) == 2
    process.writer.close()


def test_a_member_writes_its_trace_without_pyarrow() -> None:
    program = (
        "import sys\n"
        "import cubecast.live.trace_writer\n"
        "heavy = {'pyarrow', 'numba', 'pandas'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)

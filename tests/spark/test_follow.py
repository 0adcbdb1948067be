"""A folder of live traces is followed as it grows: lag, slowest member and buffers per window, by member name."""

from __future__ import annotations

import json
import math
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cubecast.cli import main
from cubecast.errors import LocalProtocolError
from cubecast.live.trace_writer import MemberTraceWriter
from cubecast.trace.schema import (
    DELIVER,
    LEAVE,
    RESTART,
    RESTARTED,
    SENT,
    STABLE,
)

pytestmark = [pytest.mark.spark]

SECOND = 1_000_000_000
SECONDS_MAX = 120.0
A, B, C = ("a", 0), ("b", 0), ("c", 0)
Member = tuple[str, int]
Row = dict[str, Any]
Step = Callable[[], None]


class Process:
    """A live process as its trace tells: times are seconds, members are names."""

    def __init__(self, folder: Path, me: Member) -> None:
        """Open its file, or go on with it."""
        self.writer = MemberTraceWriter(folder / f"{me[0]}.trace")
        self.writer.member_id("nobody", 7)  # ids of two files differ
        self.me = self.writer.member_id(*me)

    def install(self, at: float, number: int, *members: Member) -> None:
        self.writer.install(_ns(at), self.me, number, 70 + number, [self.writer.member_id(*who) for who in members])

    def deliver(self, at: float, sender: Member, *sequences: int) -> None:
        for sequence in sequences:
            self.row(at, DELIVER, sender, sequence)

    def row(self, at: float, event: int, sender: Member | None = None, sequence: int = 0) -> None:
        columns = {} if sender is None else {"sender": self.writer.member_id(*sender), "sequence": sequence}
        self.writer.row(_ns(at), event, self.me, **columns)

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        self.writer.close()


def _ns(seconds: float) -> int:
    return round(seconds * SECOND)


def _write_early(folder: Path) -> None:
    """Member a sends 4 messages; b is two behind; nothing is stable yet."""
    for me, upto in ((A, 4), (B, 2), (C, 4)):
        with Process(folder, me) as process:
            process.install(0.05, 1, A, B, C)
            if me == A:
                process.row(0.09, SENT, A, 4)
            process.deliver(0.1, A, *range(1, upto + 1))


def _write_late(folder: Path) -> None:
    """In the third second b catches up and all know 3 messages stable."""
    for me in (A, B, C):
        with Process(folder, me) as process:
            if me == B:
                process.deliver(2.1, A, 3, 4)
            process.row(2.5, STABLE, A, 3)


def _follow(spark: Any, tmp_path: Path, *steps: tuple[int, Step]) -> list[Row]:
    """Follow the folder; when the table has so many windows, take the next step. It ends after the last one."""
    from cubecast.lab.spark.follow import follow

    left, enough = list(steps), threading.Event()

    def show(table: list[Row]) -> None:
        while left and len(table) >= left[0][0]:
            left.pop(0)[1]()
        if not left:
            enough.set()

    last = follow(
        spark,
        tmp_path / "traces",
        window_s=1.0,
        seconds=SECONDS_MAX,
        show=show,
        checkpoint=tmp_path / "place",
        enough=enough,
    )
    assert not left, last
    return last


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "traces"
    made.mkdir()
    return made


def test_windows_follow_the_files_as_they_grow(tmp_path: Path, folder: Path, spark: Any) -> None:
    _write_early(folder)
    (folder / "notes.txt").write_text("not a trace")
    last = _follow(spark, tmp_path, (1, lambda: _write_late(folder)), (3, lambda: None))
    first, _, third = last
    assert (first["window_s"], first["lag_messages"], first["slowest"], first["behind"]) == (1.0, 4, "b (0)", 2)
    assert (first["buffer_mean"], first["buffer_max"], first["members"]) == (pytest.approx(10 / 3), 4, 3)
    assert (third["window_s"], third["lag_messages"], third["behind"], third["buffer_max"]) == (3.0, 1, 0, 1)
    assert (third["lag_s"], third["view"]) == (3.0, 1)


def test_files_may_appear_after_the_follower_began(tmp_path: Path, folder: Path, spark: Any) -> None:
    later = threading.Timer(3.0, _write_early, [folder])
    later.start()
    (last,) = _follow(spark, tmp_path, (1, later.join))
    assert (last["window_s"], last["members"], last["slowest"], last["behind"]) == (1.0, 3, "b (0)", 2)


def test_a_kill_in_the_middle_of_a_block_and_a_restart_that_appends(tmp_path: Path, folder: Path, spark: Any) -> None:
    """The half block is never read, and the blocks of the restarted process are, with ids of their own."""
    _write_early(folder)

    def kill() -> None:
        program = (
            "import os, signal, sys\n"
            "from cubecast.live.trace_writer import MemberTraceWriter\n"
            "class Dying(MemberTraceWriter):\n"
            "    def _write(self, data):\n"
            "        os.write(self._file, data[:-20])\n"
            "        os.kill(os.getpid(), signal.SIGKILL)\n"
            f"writer = Dying({str(folder / 'b.trace')!r})\n"
            "me, sender = writer.member_id('b', 0), writer.member_id('a', 0)\n"
            f"writer.deliveries({_ns(1.5)}, me, [sender], [99])\n"
            "writer.flush()\n"
        )
        done = subprocess.run([sys.executable, "-c", program], check=False)
        assert done.returncode == -signal.SIGKILL
        with Process(folder, C) as process:  # something that the next batch shows
            process.deliver(1.6, A, 4)

    def restart() -> None:
        with Process(folder, B) as process:
            process.row(3.1, RESTART)
            process.install(3.1, 1, A, B, C)
            process.deliver(3.2, A, 1, 2)
            process.row(3.3, RESTARTED)
            process.deliver(3.4, A, 3)

    last = _follow(spark, tmp_path, (1, kill), (2, restart), (4, lambda: None))
    assert [row["behind"] for row in last] == [2, 2, 2, 1]
    assert {row["slowest"] for row in last} == {"b (0)"}
    assert max(row["lag_messages"] for row in last) == 4


def test_the_group_is_the_newest_view(tmp_path: Path, folder: Path, spark: Any) -> None:
    """A member that is excluded holds nobody back; its successor counts under its incarnation; a view makes stable."""
    _write_early(folder)
    again = ("b", 1)
    with Process(folder, A) as a, Process(folder, C) as c:
        for process in (a, c):
            process.install(1.5, 2, A, C)
            process.install(2.5, 3, A, C, again)
            process.deliver(2.7, A, 5)
    with Process(folder, again) as b:
        b.install(2.6, 3, A, C, again)
        b.writer.restore(_ns(2.6), b.me, 3, 73, [b.writer.member_id(*who) for who in (A, C, again)], [4, 0, 0])
    with Process(folder, C) as c:
        c.row(3.5, LEAVE)
    last = _follow(spark, tmp_path, (4, lambda: None))
    told = [(row["view"], row["members"], row["slowest"], row["behind"], row["lag_messages"]) for row in last]
    assert told == [(1, 3, "b (0)", 2, 4), (2, 2, "a (0)", 0, 0), (3, 3, "b (1)", 1, 1), (3, 2, "b (1)", 1, 1)]
    assert [row["buffer_max"] for row in last] == [4, 0, 1, 1]


def test_a_stream_goes_on_from_its_checkpoint(tmp_path: Path, folder: Path, spark: Any) -> None:
    from cubecast.lab.spark.follow import follow

    _write_early(folder)
    how: dict[str, Any] = {"window_s": 1.0, "seconds": 0.5, "show": lambda _: None, "checkpoint": tmp_path / "place"}
    assert len(follow(spark, folder, **how)) == 1
    with (folder / "b.trace").open("ab") as file:
        file.write(b"CUBETRC2 half a block")
    _write_late(folder)
    restarted = follow(spark, folder, **how)
    undisturbed = follow(spark, folder, **how | {"checkpoint": tmp_path / "another place"})
    assert restarted == undisturbed
    assert [row["window_s"] for row in restarted] == [1.0, 2.0, 3.0]
    assert (restarted[-1]["members"], restarted[-1]["behind"], restarted[-1]["lag_s"]) == (3, 0, 3.0)


def test_a_batch_that_is_done_again_after_a_kill_is_counted_once(tmp_path: Path, folder: Path, spark: Any) -> None:
    """Killed after the windows were written and before Spark noted that the batch was done."""
    from cubecast.lab.spark.follow import follow

    _write_early(folder)
    how: dict[str, Any] = {"window_s": 1.0, "seconds": 0.5, "show": lambda _: None, "checkpoint": tmp_path / "place"}
    first = follow(spark, folder, **how)
    noted = [one for one in (tmp_path / "place" / "commits").iterdir() if one.name.lstrip(".").startswith("0")]
    assert noted
    for one in noted:
        one.unlink()
    assert follow(spark, folder, **how) == first


def test_the_command_shows_names(tmp_path: Path, folder: Path, spark: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert spark is not None
    _write_early(folder)
    for more in ([], ["--json"]):
        with pytest.raises(SystemExit) as left:
            main(["study", "follow", str(folder), "--seconds", "0.5", *more])
        assert left.value.code in (0, None)
        said = capsys.readouterr().out
        if more:
            assert json.loads(said)[0]["slowest"] == "b (0)"
        else:
            assert re.search(r"^ *1 +1 +3 +4 +1 +b +2 ", said, re.MULTILINE), said


def test_a_group_that_never_stops_writing_is_left(tmp_path: Path, folder: Path, spark: Any) -> None:
    from cubecast.lab.spark.follow import follow

    over = threading.Event()
    written: list[int] = []

    def write() -> None:
        with Process(folder, A) as process:
            while not over.wait(0.002):
                written.append(len(written) + 1)
                process.deliver(time.monotonic(), A, written[-1])
                process.writer.flush()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        rows = follow(spark, folder, window_s=1.0, seconds=3.0, show=lambda _: None, checkpoint=tmp_path / "place")
    finally:
        over.set()
        writer.join()
    assert 0 < rows[-1]["buffer_max"] < written[-1]


def test_a_file_that_became_shorter_is_one_line(tmp_path: Path, folder: Path, spark: Any) -> None:
    _write_early(folder)

    def shorten() -> None:
        (folder / "a.trace").write_bytes((folder / "a.trace").read_bytes()[:200])

    with pytest.raises(LocalProtocolError, match=r"a\.trace became shorter: follow the folder again") as failed:
        _follow(spark, tmp_path, (1, shorten), (2, lambda: None))
    assert "\n" not in str(failed.value)


def test_a_damaged_file_is_one_line(tmp_path: Path, folder: Path, spark: Any) -> None:
    with Process(folder, A) as process:
        process.writer.row(1, LEAVE, 9)
    with pytest.raises(LocalProtocolError, match=r"a\.trace has rows of a member whose name is missing") as failed:
        _follow(spark, tmp_path, (1, lambda: None))
    assert "\n" not in str(failed.value)


def test_a_folder_that_is_not_there_is_one_line(tmp_path: Path, spark: Any) -> None:
    from cubecast.lab.spark.follow import follow

    with pytest.raises(LocalProtocolError, match="is not a folder"):
        follow(spark, tmp_path / "x", window_s=1.0, seconds=1.0, show=lambda _: None, checkpoint=tmp_path / "place")


@pytest.mark.parametrize(
    ("window_s", "seconds", "message"),
    [
        (0.0, 1.0, "window of 0 s: choose from 0.001 to 86400"),
        (math.nan, 1.0, "window of nan s"),
        (math.inf, 1.0, "window of inf s"),
        (1.0, math.nan, "seconds = nan: choose at least 0"),
        (1.0, -1.0, "seconds = -1: choose at least 0"),
    ],
)
def test_an_impossible_window_is_one_line(tmp_path: Path, window_s: float, seconds: float, message: str) -> None:
    from cubecast.lab.spark.follow import follow

    unused: Any = None
    with pytest.raises(LocalProtocolError, match=message):
        follow(unused, tmp_path, window_s=window_s, seconds=seconds, show=lambda _: None, checkpoint=tmp_path / "place")


@pytest.mark.parametrize("content", ["", "[]", '{"batch": 1}', '{"batch": 1, "windows": {}}', '{"batch": {}}', "\0"])
def test_a_damaged_checkpoint_is_one_line(tmp_path: Path, content: str) -> None:
    from cubecast.lab.spark.follow import follow

    (tmp_path / "windows.json").write_text(content)
    unused: Any = None
    with pytest.raises(LocalProtocolError, match=r"windows\.json cannot be read .*: use a new checkpoint"):
        follow(unused, tmp_path, window_s=1.0, seconds=1.0, show=lambda _: None, checkpoint=tmp_path)

"""The journal on the disk: one user at a time, torn ends, checkpoints, syncs in a thread, and disks that fail."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import random
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cubecast.errors import JournalError
from cubecast.live import journal as journal_module
from cubecast.live.journal import Journal, SyncPolicy
from cubecast.live.sync_thread import SyncThread
from cubecast.wire.journal import BATCH_HEADER_BYTES, FORMAT, MAGIC, encode_header, read_journal

GROUP, MEMBER = "orders", "10.0.0.7:7000"
KILLS = 20

HOLD = """
import sys
from cubecast.live.journal import Journal
journal = Journal(sys.argv[1], group="orders", member="10.0.0.7:7000", sync="never")
print("locked", flush=True)
sys.stdin.read()
"""

COUNT = """
import sys
from cubecast.live.journal import Journal
journal = Journal(sys.argv[1], group="orders", member="10.0.0.7:7000", sync="interval")
number = int((journal.read() or [b"-1"])[-1].split()[0])
while True:
    for _ in range(3):
        number += 1
        payload = b"%d " % number + b"x" * 20_000
        journal.append(payload) if number % 3 else journal.replace(payload)
        if number % 2:
            journal.write()
            print(number, flush=True)
"""


def open_journal(path: Path, *, group: str = GROUP, member: str = MEMBER, sync: SyncPolicy = "always") -> Journal:
    return Journal(path, group=group, member=member, sync=sync)


def read_file(path: Path) -> list[bytes]:
    journal = open_journal(path)
    try:
        return journal.read()
    finally:
        journal.close()


def write_file(path: Path, *payloads: bytes) -> None:
    journal = open_journal(path)
    journal.read()
    for payload in payloads:
        journal.append(payload)
    journal.close()


def torn_copies(path: Path) -> list[bytes]:
    return [copy.read_bytes() for copy in sorted(path.parent.glob(f"{path.name}.torn-*"))]


def is_synced(journal: Journal) -> bool:
    """Not the property itself: the type checker takes its first value for good."""
    return journal.is_synced


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def failing(error: int) -> Callable[..., int]:
    def fail(*_: Any) -> int:
        raise OSError(error, os.strerror(error))

    return fail


def assert_refuses_all(journal: Journal) -> None:
    uses: list[Callable[[], None]] = [
        lambda: journal.append(b"x"),
        lambda: journal.replace(b"x"),
        journal.write,
        journal.sync,
    ]
    for use in uses:
        with pytest.raises(JournalError):
            use()
    journal.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "member.journal"


class SlowDisk:
    """An fsync that waits until it is released."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.entered = threading.Event()
        self.release = threading.Event()
        self.error: OSError | None = None
        self.files: list[int] = []
        monkeypatch.setattr(journal_module, "_flush", self._flush)

    def _flush(self, file: int) -> None:
        if threading.current_thread() is threading.main_thread():
            return
        self.files.append(file)
        self.entered.set()
        assert self.release.wait(20)
        os.fstat(file)  # still open, or this raises
        if self.error is not None:
            raise self.error


@pytest.mark.parametrize("sync", ["always", "interval", "never"])
def test_batches_are_there_after_a_restart(path: Path, sync: SyncPolicy) -> None:
    journal = open_journal(path, sync=sync)
    assert journal.read() == []
    journal.append(b"one")
    journal.append([b"t", b"w", b"o"])
    journal.write()
    journal.append(b"three")
    journal.close()
    assert read_file(path) == [b"one", b"two", b"three"]


def test_more_batches_than_one_call_of_the_system_takes(path: Path) -> None:
    payloads = [b"%d" % n for n in range(3000)]
    write_file(path, *payloads)
    assert read_file(path) == payloads


def test_a_short_write_is_continued(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real_writev, real_write = os.writev, os.write
    monkeypatch.setattr(os, "writev", lambda file, pieces: real_writev(file, [b"".join(pieces)[:5]]))
    monkeypatch.setattr(os, "write", lambda file, rest: real_write(file, rest[:7]))
    write_file(path, b"one" * 10, b"two" * 10)
    monkeypatch.undo()
    assert read_file(path) == [b"one" * 10, b"two" * 10]


def test_all_batches_go_to_the_system_in_one_call(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = open_journal(path)
    journal.read()
    calls: list[int] = []
    real = os.writev

    def note(file: int, pieces: list[bytes]) -> int:
        calls.append(len(pieces))
        return real(file, pieces)

    monkeypatch.setattr(os, "writev", note)
    for _ in range(100):
        journal.append(b"x")
    journal.write()
    journal.write()
    assert calls == [100]
    journal.close()


def test_nothing_is_in_the_file_before_write(path: Path) -> None:
    journal = open_journal(path)
    journal.read()
    journal.append(b"one")
    assert path.stat().st_size == journal.bytes == len(encode_header(GROUP, MEMBER))
    journal.write()
    assert path.stat().st_size == journal.bytes == len(encode_header(GROUP, MEMBER)) + BATCH_HEADER_BYTES + 3
    journal.close()


def test_every_file_is_for_its_owner_only(path: Path) -> None:
    before = os.umask(0)
    try:
        journal = open_journal(path)
        assert mode(path) == 0o600
        journal.close()
        write_file(path, b"one")
        assert mode(path) == 0o600
        with path.open("ab") as file:
            file.write(b"torn")
        path.with_name(path.name + ".new").touch(0o666)
        journal = open_journal(path)
        journal.read()
        journal.replace(b"two")
        journal.close()
    finally:
        os.umask(before)
    files = list(path.parent.iterdir())
    assert sorted(file.suffix[:6] for file in files) == [".journ", ".lock", ".torn-"]
    assert {mode(file) for file in files} == {0o600}


def test_a_second_journal_in_this_process_is_refused(path: Path) -> None:
    journal = open_journal(path)
    with pytest.raises(JournalError, match=r"member\.journal is in use by another process: stop"):
        open_journal(path)
    journal.close()
    open_journal(path).close()


def test_a_journal_that_another_process_uses_is_refused(path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"locked\n"
        with pytest.raises(JournalError, match="in use by another process"):
            open_journal(path)
        process.kill()
    open_journal(path).close()


def test_the_lock_survives_a_checkpoint(path: Path) -> None:
    journal = open_journal(path)
    journal.read()
    for _ in range(2):
        journal.replace(b"checkpoint")
        journal.write()
        with pytest.raises(JournalError, match="in use"):
            open_journal(path)
    journal.close()


def test_a_link_to_a_journal_in_use_is_refused(path: Path) -> None:
    journal = open_journal(path)
    link = path.with_name("link")
    link.symlink_to(path)
    with pytest.raises(JournalError, match="in use"):
        open_journal(link)
    journal.close()


def test_a_refused_open_leaves_the_file_of_the_other_alone(path: Path) -> None:
    journal = open_journal(path)
    journal.read()
    new = path.with_name(path.name + ".new")
    new.write_bytes(b"a checkpoint on its way")
    with pytest.raises(JournalError):
        open_journal(path)
    assert new.exists()
    new.unlink()
    journal.close()


def test_a_torn_end_is_copied_and_cut_off(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_file(path, b"one", b"two")
    whole = path.read_bytes()
    torn = whole[-BATCH_HEADER_BYTES - 3 : -1]
    for round_ in range(3):
        path.write_bytes(whole[:-1])
        with caplog.at_level(logging.WARNING, "cubecast.live"):
            assert read_file(path) == [b"one"]
        assert torn_copies(path) == [torn] * (round_ + 1)
        assert path.read_bytes() == whole[: -len(torn) - 1]
        assert f"bytes={len(torn)}" in caplog.messages[-1]


def test_the_journal_continues_after_a_torn_end(path: Path) -> None:
    write_file(path, b"one", b"two")
    path.write_bytes(path.read_bytes()[:-1])
    write_file(path, b"three")
    write_file(path, b"four")
    assert read_file(path) == [b"one", b"three", b"four"]


def test_the_copy_of_a_torn_end_is_on_the_disk_before_the_cut(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_file(path, b"one", b"two")
    path.write_bytes(path.read_bytes()[:-1])
    order: list[str] = []

    def note(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*given: Any) -> Any:
            order.append(name)
            return real(*given)

        return noted

    monkeypatch.setattr(journal_module, "_flush", note("flush", journal_module._flush))
    monkeypatch.setattr(journal_module, "_flush_folder", note("folder", journal_module._flush_folder))
    monkeypatch.setattr(os, "ftruncate", note("cut", os.ftruncate))
    read_file(path)
    assert order == ["flush", "folder", "cut", "flush"]


def test_nothing_is_cut_off_if_the_copy_fails(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_file(path, b"one", b"two")
    path.write_bytes(path.read_bytes()[:-1])
    before = path.read_bytes()
    journal = open_journal(path)
    monkeypatch.setattr(os, "writev", failing(errno.ENOSPC))
    with pytest.raises(JournalError, match=r"cannot copy the torn end of the journal .*: No space left on device"):
        journal.read()
    assert_refuses_all(journal)
    assert path.read_bytes() == before


@pytest.mark.parametrize("size", [0, 5, 20])
def test_a_torn_creation_is_an_empty_journal(path: Path, size: int) -> None:
    path.write_bytes(encode_header(GROUP, MEMBER)[:size])
    write_file(path, b"one")
    assert read_file(path) == [b"one"]


def test_a_damaged_journal_is_refused_and_left_alone(path: Path) -> None:
    write_file(path, b"one", b"two", b"three")
    data = bytearray(path.read_bytes())
    data[len(encode_header(GROUP, MEMBER)) + BATCH_HEADER_BYTES] ^= 1
    path.write_bytes(data)
    journal = open_journal(path)
    with pytest.raises(JournalError, match=r"member\.journal: the journal is damaged at byte \d+: .*move it away"):
        journal.read()
    assert_refuses_all(journal)
    assert path.read_bytes() == data


def test_a_journal_of_another_group_member_or_version_is_refused(path: Path) -> None:
    write_file(path, b"one")
    for journal_of, message in (
        (("bills", MEMBER), "group 'orders', not to 'bills'"),
        ((GROUP, "10.0.0.8:7000"), "member '10.0.0.7:7000', not to '10.0.0.8:7000'"),
    ):
        journal = open_journal(path, group=journal_of[0], member=journal_of[1])
        with pytest.raises(JournalError, match=message):
            journal.read()
        journal.close()
    data = bytearray(path.read_bytes())
    data[len(MAGIC)] = FORMAT + 1
    path.write_bytes(data)
    with pytest.raises(JournalError, match="format 2, this program reads format 1"):
        read_file(path)
    assert path.read_bytes() == data


@pytest.mark.parametrize("sync", ["always", "interval", "never"])
def test_a_checkpoint_takes_the_place_of_all_before(path: Path, sync: SyncPolicy) -> None:
    journal = open_journal(path, sync=sync)
    journal.read()
    journal.append(b"one")
    journal.write()
    journal.append(b"obsolete")
    journal.replace(b"checkpoint")
    journal.append(b"two")
    journal.write()
    assert journal.bytes == path.stat().st_size
    journal.append(b"three")
    journal.close()
    assert read_file(path) == [b"checkpoint", b"two", b"three"]
    write_file(path, b"four")
    assert read_file(path) == [b"checkpoint", b"two", b"three", b"four"]


def test_sequence_numbers_and_the_journal_number_continue_after_a_checkpoint(path: Path) -> None:
    write_file(path, b"one", b"two", b"three")
    before = read_journal(path.read_bytes(), group=GROUP, member=MEMBER)
    journal = open_journal(path)
    journal.read()
    journal.replace(b"checkpoint")
    journal.close()
    after = read_journal(path.read_bytes(), group=GROUP, member=MEMBER)
    assert (before.next_sequence, after.next_sequence) == (3, 4)
    assert before.journal_number == after.journal_number


def test_every_journal_has_another_number(tmp_path: Path) -> None:
    numbers = set()
    for name in ("one", "two"):
        write_file(tmp_path / name)
        numbers.add(read_journal((tmp_path / name).read_bytes(), group=GROUP, member=MEMBER).journal_number)
    assert len(numbers) == 2


def test_a_first_sector_of_the_file_before_the_checkpoint_is_refused(path: Path) -> None:
    write_file(path, b"old" * 1000)
    old = path.read_bytes()
    journal = open_journal(path)
    journal.read()
    journal.replace(b"new" * 300)
    journal.append(b"more")
    journal.close()
    path.write_bytes(old[:512] + path.read_bytes()[512:])
    with pytest.raises(JournalError, match="damaged"):
        read_file(path)


def test_a_checkpoint_that_lost_its_first_batch_is_refused(path: Path) -> None:
    journal = open_journal(path)
    journal.read()
    journal.replace(b"checkpoint")
    journal.close()
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(JournalError, match="damaged"):
        read_file(path)


def test_a_checkpoint_is_on_the_disk_before_it_gets_its_name(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = open_journal(path)
    journal.read()
    journal.replace(b"checkpoint")
    order: list[str] = []
    real = Path.replace

    def rename(self: Path, target: Path) -> Path:
        order.append("rename")
        return real(self, target)

    monkeypatch.setattr(journal_module, "_flush", lambda file: order.append("flush"))
    monkeypatch.setattr(journal_module, "_flush_folder", lambda folder: order.append("folder"))
    monkeypatch.setattr(Path, "replace", rename)
    journal.write()
    assert order == ["flush", "rename", "folder"]
    assert is_synced(journal)
    journal.close()


def test_never_forces_nothing_to_the_disk(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", failing(errno.EIO))
    journal = open_journal(path, sync="never")
    journal.read()
    journal.append(b"one")
    journal.write()
    journal.replace(b"two")
    journal.close()
    assert open_journal(path, sync="never").read() == [b"two"]


def test_a_checkpoint_left_behind_by_a_crash_is_removed(path: Path) -> None:
    write_file(path, b"one")
    new = path.with_name(path.name + ".new")
    new.write_bytes(b"half a checkpoint")
    assert read_file(path) == [b"one"]
    assert not new.exists()


def test_a_kill_leaves_the_old_file_or_the_new_one(path: Path) -> None:
    """What was written is there after kill -9, at any moment of an append or a checkpoint."""
    chance = random.Random(1)
    written = -1
    for _ in range(KILLS):
        with subprocess.Popen([sys.executable, "-c", COUNT, str(path)], stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            first = process.stdout.readline()
            time.sleep(chance.random() * 0.02)
            process.send_signal(signal.SIGKILL)
            lines = [first, *process.stdout.read().splitlines(keepends=True)]
        written = max([written, *(int(line) for line in lines if line.endswith(b"\n"))])
        numbers = [int(payload.split()[0]) for payload in read_file(path)]
        assert numbers == list(range(numbers[0], numbers[-1] + 1))
        assert numbers[0] % 3 == 0
        assert numbers[-1] >= written
    assert written > KILLS


def test_a_full_disk_is_named(small_disk: Path) -> None:
    path = small_disk / "member.journal"
    journal = open_journal(path)
    journal.read()
    journal.append(b"one")
    journal.write()
    journal.append(bytes(100_000))
    with pytest.raises(JournalError, match=rf"^cannot write the journal {path}: No space left on device: check"):
        journal.write()
    assert_refuses_all(journal)
    elsewhere = small_disk.parent / "member.journal"  # the copy of the torn end takes space too
    elsewhere.write_bytes(path.read_bytes())
    assert read_file(elsewhere) == [b"one"]


def test_a_checkpoint_on_a_full_disk_leaves_the_old_file(small_disk: Path) -> None:
    path = small_disk / "member.journal"
    write_file(path, b"one")
    journal = open_journal(path)
    journal.read()
    journal.replace(bytes(100_000))
    with pytest.raises(JournalError, match="No space left on device"):
        journal.write()
    assert_refuses_all(journal)
    assert not path.with_name(path.name + ".new").exists()
    assert read_file(path) == [b"one"]


def test_a_failed_write_is_final(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = open_journal(path)
    journal.read()
    journal.append(b"one")
    real = os.writev
    monkeypatch.setattr(os, "writev", lambda file, pieces: real(file, [b"".join(pieces)[:9]]))
    monkeypatch.setattr(os, "write", failing(errno.ENOSPC))
    with pytest.raises(JournalError, match="No space left on device") as raised:
        journal.write()
    assert "\n" not in str(raised.value)
    monkeypatch.undo()
    assert_refuses_all(journal)
    assert read_file(path) == []
    assert len(torn_copies(path)) == 1


def test_an_interrupted_write_is_final(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody knows how much of it is in the file."""
    journal = open_journal(path)
    journal.read()
    journal.append(b"one")

    def interrupt(*_: Any) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "writev", interrupt)
    with pytest.raises(KeyboardInterrupt):
        journal.write()
    monkeypatch.undo()
    assert_refuses_all(journal)


def test_a_failed_sync_is_final(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = open_journal(path)
    journal.read()
    journal.append(b"one")
    journal.write()
    monkeypatch.setattr(os, "fsync", failing(errno.EIO))
    with pytest.raises(JournalError, match=r"^cannot sync the journal .*member\.journal: Input/output error: check"):
        journal.sync()
    monkeypatch.undo()
    assert not is_synced(journal)
    assert_refuses_all(journal)
    assert not is_synced(journal)


@pytest.mark.parametrize("failure", ["_flush", "_flush_folder"])
def test_a_failed_sync_of_a_checkpoint_is_final(path: Path, monkeypatch: pytest.MonkeyPatch, failure: str) -> None:
    write_file(path, b"one")
    journal = open_journal(path)
    journal.read()
    journal.replace(b"two")
    monkeypatch.setattr(journal_module, failure, failing(errno.EIO))
    with pytest.raises(JournalError, match=r"cannot replace the journal .*: Input/output error"):
        journal.write()
    monkeypatch.undo()
    assert_refuses_all(journal)
    assert read_file(path) in ([b"one"], [b"two"])


def test_close_reports_what_it_cannot_write_and_lets_go(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = open_journal(path)
    journal.read()
    journal.append(b"one")
    monkeypatch.setattr(os, "fsync", failing(errno.EIO))
    with pytest.raises(JournalError, match="Input/output error"):
        journal.close()
    monkeypatch.undo()
    journal.close()
    open_journal(path).close()


def test_a_closed_journal_is_refused(path: Path) -> None:
    journal = open_journal(path)
    journal.read()
    journal.close()
    assert_refuses_all(journal)


@pytest.mark.parametrize("name", ["no folder/member.journal", "."])
def test_a_path_that_cannot_be_opened_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(JournalError, match=r"cannot open the journal .*: (No such file|Is a directory)"):
        open_journal(tmp_path / name)


@pytest.mark.timeout(20)
def test_a_device_is_not_a_journal_and_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "endless").symlink_to("/dev/zero")
    with pytest.raises(JournalError, match="it is not a regular file: choose another file"):
        open_journal(tmp_path / "endless")


def test_a_failed_open_releases_the_lock(path: Path) -> None:
    path.mkdir()
    with pytest.raises(JournalError, match="Is a directory") as held:  # and its traceback, with the journal in it
        open_journal(path)
    path.rmdir()
    open_journal(path).close()
    assert held.value.__traceback__ is not None


def test_what_read_returns_is_on_the_disk(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A member that was killed had perhaps not synced it, and this one acts on it."""
    write_file(path, b"one")
    journal = open_journal(path)
    monkeypatch.setattr(os, "fsync", failing(errno.EIO))
    with pytest.raises(JournalError, match="Input/output error"):
        journal.read()
    journal.close()


def test_effects_wait_with_always_only(path: Path) -> None:
    for sync, holds in (("always", True), ("interval", False), ("never", False)):
        journal = open_journal(path, sync=sync)  # type: ignore[arg-type]
        assert journal.holds_effects is holds
        journal.close()


def test_data_written_during_a_sync_is_not_counted_as_synced(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = open_journal(path)
    journal.read()
    disk = SlowDisk(monkeypatch)
    journal.append(b"one")
    journal.write()
    thread = threading.Thread(target=journal.sync)
    thread.start()
    assert disk.entered.wait(20)
    assert not is_synced(journal)
    journal.append(b"two")
    journal.write()
    disk.release.set()
    thread.join()
    assert not is_synced(journal)
    journal.sync()
    assert is_synced(journal)
    journal.close()


@pytest.mark.parametrize("more", [[], [b"three"]])
def test_a_file_is_not_closed_under_a_sync(path: Path, monkeypatch: pytest.MonkeyPatch, more: list[bytes]) -> None:
    journal = open_journal(path)
    journal.read()
    disk = SlowDisk(monkeypatch)
    journal.append(b"one")
    journal.write()
    errors: list[JournalError | None] = []
    thread = threading.Thread(target=lambda: errors.append(sync_error(journal)))
    thread.start()
    assert disk.entered.wait(20)
    journal.replace(b"two")
    journal.write()
    assert is_synced(journal)
    for payload in more:
        journal.append(payload)
    journal.write()
    disk.release.set()
    thread.join()
    assert errors == [None]
    assert is_synced(journal) == (not more)  # of the new file, the old sync says nothing
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(disk.files[0])
    journal.close()
    assert read_file(path) == [b"two", *more]


def sync_error(journal: Journal) -> JournalError | None:
    try:
        journal.sync()
    except JournalError as error:
        return error
    return None


def test_close_waits_for_a_running_sync_and_its_error_counts(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system reports an error of the disk to one fsync only: a second one would succeed."""
    journal = open_journal(path)
    journal.read()
    disk = SlowDisk(monkeypatch)
    disk.error = OSError(errno.EIO, os.strerror(errno.EIO))
    journal.append(b"one")
    journal.write()
    thread = threading.Thread(target=sync_error, args=(journal,))
    thread.start()
    assert disk.entered.wait(20)
    threading.Timer(0.2, disk.release.set).start()
    with pytest.raises(JournalError, match="Input/output error"):
        journal.close()
    thread.join()


def test_close_does_not_wait_for_ever(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = open_journal(path)
    journal.read()
    disk = SlowDisk(monkeypatch)
    journal.append(b"one")
    journal.write()
    thread = threading.Thread(target=sync_error, args=(journal,))
    thread.start()
    assert disk.entered.wait(20)
    with pytest.raises(JournalError, match=r"did not respond within 0\.05 s"):
        journal.close(timeout_s=0.05)
    open_journal(path).close()
    disk.release.set()
    thread.join()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(disk.files[0])


def test_syncs_while_the_loop_writes_lose_nothing(path: Path) -> None:
    journal = open_journal(path)
    journal.read()
    is_over = threading.Event()
    errors: list[JournalError | None] = []

    def sync() -> None:
        while not is_over.is_set():
            errors.append(sync_error(journal))

    thread = threading.Thread(target=sync)
    thread.start()
    for n in range(300):
        journal.replace(b"%d" % n) if n % 10 == 0 else journal.append(b"%d" % n)
        journal.write()
    is_over.set()
    thread.join()
    journal.close()
    assert not any(errors)
    assert read_file(path) == [b"%d" % n for n in range(290, 300)]


def run_with_thread(path: Path, act: Callable[[Journal, SyncThread, list[Any]], Any]) -> list[Any]:
    """What the callbacks got in the loop."""
    results: list[Any] = []

    async def run() -> None:
        journal = open_journal(path)
        journal.read()
        thread = SyncThread(journal, asyncio.get_running_loop())
        try:
            await act(journal, thread, results)
        finally:
            thread.close()
            await asyncio.sleep(0)
            journal.close()

    asyncio.run(asyncio.wait_for(run(), 30))
    return results


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(2000):
        if condition():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("it did not happen")


def test_the_thread_calls_back_in_the_loop(path: Path) -> None:
    async def act(journal: Journal, thread: SyncThread, results: list[Any]) -> None:
        for n in range(5):
            journal.append(b"%d" % n)
            journal.write()
            thread.submit(lambda error: results.append((error, journal.is_synced, threading.current_thread().name)))
            await until(lambda n=n: len(results) == n + 1)  # type: ignore[misc]

    assert run_with_thread(path, act) == [(None, True, threading.current_thread().name)] * 5


def test_the_thread_serves_what_waits_with_one_sync(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def act(journal: Journal, thread: SyncThread, results: list[Any]) -> None:
        disk = SlowDisk(monkeypatch)
        for n in range(5):
            journal.append(b"%d" % n)
            journal.write()
            thread.submit(lambda error, n=n: results.append((n, error)))  # type: ignore[misc]
            await asyncio.to_thread(disk.entered.wait, 20)
        assert results == []
        disk.release.set()
        await until(lambda: len(results) == 5)
        assert len(disk.files) == 2
        assert is_synced(journal)

    assert run_with_thread(path, act) == [(n, None) for n in range(5)]


def test_the_thread_reports_a_failed_sync(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def act(journal: Journal, thread: SyncThread, results: list[Any]) -> None:
        journal.append(b"one")
        journal.write()
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", failing(errno.EIO))
            thread.submit(results.append)
            await until(lambda: len(results) == 1)
        thread.submit(results.append)
        await until(lambda: len(results) == 2)

    results = run_with_thread(path, act)
    assert len(results) == 2
    for result in results:
        assert isinstance(result, JournalError)
        assert "Input/output error" in str(result)


def test_the_thread_reports_a_bug_too(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def act(journal: Journal, thread: SyncThread, results: list[Any]) -> None:
        monkeypatch.setattr(journal, "sync", lambda: 1 / 0)
        thread.submit(results.append)
        await until(lambda: bool(results))
        monkeypatch.undo()

    (result,) = run_with_thread(path, act)
    assert isinstance(result, JournalError)
    assert "ZeroDivisionError" in str(result)


def test_closing_the_thread_finishes_what_was_submitted(path: Path) -> None:
    async def act(journal: Journal, thread: SyncThread, results: list[Any]) -> None:
        journal.append(b"one")
        journal.write()
        thread.submit(results.append)
        assert thread.close()
        assert is_synced(journal)
        with pytest.raises(JournalError, match="is closed"):
            thread.submit(results.append)

    assert run_with_thread(path, act) == [None]


def test_closing_the_thread_does_not_wait_for_ever(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def act(journal: Journal, thread: SyncThread, results: list[Any]) -> None:
        disk = SlowDisk(monkeypatch)
        journal.append(b"one")
        journal.write()
        thread.submit(results.append)
        assert disk.entered.wait(20)
        assert not thread.close(0.05)
        disk.release.set()
        assert thread.close()

    assert run_with_thread(path, act) == [None]


def test_a_loop_that_has_ended_does_not_disturb_the_thread(path: Path) -> None:
    journal = open_journal(path)
    journal.read()
    loop = asyncio.new_event_loop()
    thread = SyncThread(journal, loop)
    loop.close()
    for payload in (b"one", b"two"):
        journal.append(payload)
        journal.write()
        thread.submit(lambda error: None)
        asyncio.run(until(lambda: is_synced(journal)))
    assert thread.close()
    journal.close()

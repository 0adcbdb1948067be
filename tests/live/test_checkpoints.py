"""Long checkpoints, written by a thread while the journal is in use: kills, full disks and failures meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from cubecast.errors import JournalError
from cubecast.live import checkpoint_file as checkpoint_module
from cubecast.live import journal as journal_module
from cubecast.live.group import Group
from cubecast.live.journal import CHECKPOINT_STRIDE, COPIES_BYTES, Journal, SyncPolicy
from cubecast.live.local import free_addresses
from cubecast.live.sync_thread import SyncThread
from cubecast.protocols.membership.records import Delivered, Incarnation, Over
from cubecast.wire.journal import read_journal
from cubecast.wire.records import decode_records
from tests.live.members import WAIT_S, drain, enter, groups_of, one, quick, take, until, vanish
from tests.live.test_journal_file import (
    GROUP,
    MEMBER,
    SlowDisk,
    failing,
    is_synced,
    open_journal,
    read_file,
    run_with_thread,
)

pytestmark = pytest.mark.live
KILLS = 15

COUNT = """
import sys, threading
from cubecast.live.journal import Journal
journal = Journal(sys.argv[1], group="orders", member="10.0.0.7:7000", sync="interval")
number = int((journal.read() or [b"-1"])[-1].split()[0])
def carry_out():
    while not journal.step_checkpoint():
        pass
while True:
    number += 1
    journal.append(b"%d " % number + b"x" * 2_000)
    journal.write()
    while journal.is_gathering:
        journal.write()
    print(number, flush=True)
    if number % 7 == 0 and not journal.is_checkpointing:
        print("begin", flush=True)
        journal.begin_checkpoint([b"%d " % number, b"y" * 5_000_000])
        threading.Thread(target=carry_out, daemon=True).start()
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "member.journal"


def ready(path: Path, sync: SyncPolicy = "always") -> Journal:
    journal = open_journal(path, sync=sync)
    journal.read()
    return journal


def put(journal: Journal, *payloads: bytes) -> None:
    for payload in payloads:
        journal.append(payload)
        journal.write()


def carry_out(journal: Journal) -> int:
    """All steps of a checkpoint; returns how many."""
    steps = 1
    while not journal.step_checkpoint():
        steps += 1
        assert steps < 1000
    return steps


def is_gathering(journal: Journal) -> bool:
    """Not the property itself: the type checker takes its first value for good."""
    return journal.is_gathering


def leftover(path: Path) -> Path:
    return path.with_name(path.name + ".new")


# The file.


@pytest.mark.parametrize("sync", ["always", "interval", "never"])
def test_what_is_written_meanwhile_follows_the_checkpoint(path: Path, sync: SyncPolicy) -> None:
    journal = ready(path, sync)
    put(journal, b"one", b"two")
    state = [b"state ", os.urandom(3 << 20), b"", b"end"]
    journal.begin_checkpoint(state)
    put(journal, b"three")
    for number in range(3):
        assert not journal.step_checkpoint()
        put(journal, b"meanwhile %d" % number)
    carry_out(journal)
    assert not journal.is_checkpointing
    assert journal.bytes == path.stat().st_size
    assert is_synced(journal) == (sync != "never")
    put(journal, b"after")
    journal.close()
    meanwhile = [b"three", *(b"meanwhile %d" % number for number in range(3))]
    assert read_file(path) == [b"".join(state), *meanwhile, b"after"]
    assert not leftover(path).exists()


def test_until_the_checkpoint_is_over_the_journal_is_the_one_that_counts(path: Path) -> None:
    journal = ready(path)
    put(journal, b"one")
    journal.begin_checkpoint([bytes(3 << 20)])
    for number in range(3):
        put(journal, b"%d" % number)
        assert not journal.step_checkpoint()
        contents = read_journal(path.read_bytes(), group=GROUP, member=MEMBER)
        assert contents.batches == [b"one", *(b"%d" % earlier for earlier in range(number + 1))]
    journal.close()
    assert read_file(path) == [b"one", b"0", b"1", b"2"], "closed in the midst of it"
    assert not leftover(path).exists()


def test_batches_of_the_new_file_have_higher_numbers_than_all_of_the_old_one(path: Path) -> None:
    """Old sectors that a power failure leaves in the new file must not look like later batches."""
    journal = ready(path)
    put(journal, b"one")
    journal.begin_checkpoint([b"state"])
    put(journal, b"two", b"three")
    before = read_journal(path.read_bytes(), group=GROUP, member=MEMBER)
    carry_out(journal)
    after = read_journal(path.read_bytes(), group=GROUP, member=MEMBER)
    assert after.next_sequence - len(after.batches) == CHECKPOINT_STRIDE + 1 > before.next_sequence
    assert after.journal_number == before.journal_number
    journal.close()


def test_every_slice_and_the_copies_are_on_the_disk_before_the_name(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = ready(path)
    journal.begin_checkpoint([bytes(2 << 20)])
    put(journal, b"meanwhile")
    order: list[str] = []
    real = Path.replace

    def rename(self: Path, target: Path) -> Path:
        order.append("rename")
        return real(self, target)

    monkeypatch.setattr(journal_module, "_flush", lambda file: order.append("flush"))
    monkeypatch.setattr(journal_module, "_flush_folder", lambda folder: order.append("folder"))
    monkeypatch.setattr(Path, "replace", rename)
    carry_out(journal)
    assert order == ["flush", "flush", "flush", "flush", "rename", "folder"]  # two slices, the header, the copies
    journal.close()


def test_much_that_is_written_meanwhile_is_copied_before_the_last_moment(path: Path) -> None:
    journal = ready(path, "never")
    journal.begin_checkpoint([b"state"])
    large = bytes(COPIES_BYTES)
    put(journal, large, large, b"small")
    assert not journal.step_checkpoint()
    assert not journal.step_checkpoint()
    assert not journal.step_checkpoint()
    put(journal, b"last")
    assert journal.step_checkpoint()
    journal.close()
    assert read_file(path) == [b"state", large, large, b"small", b"last"]


def test_a_kill_leaves_the_journal_or_the_checkpoint(path: Path) -> None:
    """What was written is there after kill -9, at any moment of a checkpoint that a thread writes."""
    chance = random.Random(1)
    written, checkpoints, halves = -1, 0, 0
    for _ in range(KILLS):
        with subprocess.Popen([sys.executable, "-c", COUNT, str(path)], stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            lines: list[bytes] = []
            begun = chance.choice([1, 2, 3])
            while lines.count(b"begin\n") < begun:
                lines.append(process.stdout.readline())
                assert lines[-1]
            time.sleep(chance.choice([0.0, 0.02]) * chance.random())
            process.send_signal(signal.SIGKILL)
            lines += process.stdout.read().splitlines(keepends=True)
        written = max([written, *(int(line) for line in lines if line[:-1].isdigit() and line.endswith(b"\n"))])
        halves += leftover(path).exists()
        payloads = read_file(path)
        numbers = [int(payload.split()[0]) for payload in payloads]
        checkpoints += payloads[0].endswith(b"y")
        first = 1 if payloads[0].endswith(b"y") else 0
        assert numbers[first:] == list(range(numbers[0] + first, numbers[-1] + 1))
        assert numbers[-1] >= written
    assert checkpoints > 3, "a second checkpoint begins when the first is in place"
    assert halves > 0, "no kill in the midst of a checkpoint"


@pytest.mark.parametrize("size", [200_000, 30_000], ids=["slice", "copies"])
def test_a_checkpoint_for_which_the_disk_has_no_room_is_given_up(
    small_disk: Path, size: int, caplog: pytest.LogCaptureFixture
) -> None:
    path = small_disk / "member.journal"
    journal = ready(path)
    put(journal, b"one")
    journal.begin_checkpoint([os.urandom(size)])
    payloads = [bytes(20_000)] if size < 60_000 else []
    put(journal, *payloads)
    carry_out(journal)
    assert "checkpoint abandoned" in caplog.text
    assert "No space left" in caplog.text
    assert not leftover(path).exists()
    put(journal, b"two")
    journal.sync()
    journal.begin_checkpoint([b"small"])
    put(journal, b"three")
    carry_out(journal)
    journal.close()
    assert read_file(path) == [b"small", b"three"]


def test_a_checkpoint_whose_fsync_fails_is_given_up(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = ready(path)
    put(journal, b"one")
    journal.begin_checkpoint([b"state"])
    with monkeypatch.context() as patch:
        patch.setattr(journal_module, "_flush", failing(errno.EIO))
        assert journal.step_checkpoint()
    put(journal, b"two")
    journal.close()
    assert read_file(path) == [b"one", b"two"]
    assert not leftover(path).exists()


def test_a_failure_after_the_new_file_has_its_name_is_final(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not known which of the two files a restart would find."""
    journal = ready(path)
    put(journal, b"one")
    journal.begin_checkpoint([b"state"])
    with monkeypatch.context() as patch:
        patch.setattr(journal_module, "_flush_folder", failing(errno.EIO))
        with pytest.raises(JournalError, match="Input/output error"):
            carry_out(journal)
    with pytest.raises(JournalError):
        journal.append(b"two")
    journal.close()
    assert read_file(path) in ([b"one"], [b"state"])


def test_a_failed_journal_ends_its_checkpoint(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = ready(path)
    journal.begin_checkpoint([bytes(3 << 20)])
    assert not journal.step_checkpoint()
    put(journal, b"one")
    with monkeypatch.context() as patch:
        patch.setattr(journal_module, "_flush", failing(errno.EIO))
        with pytest.raises(JournalError):
            journal.sync()
    with pytest.raises(JournalError):
        journal.step_checkpoint()
    assert not leftover(path).exists()
    journal.close()


def test_what_replaces_the_journal_at_once_ends_a_checkpoint(path: Path) -> None:
    journal = ready(path)
    put(journal, b"one")
    journal.begin_checkpoint([bytes(3 << 20)])
    assert not journal.step_checkpoint()
    journal.replace(b"another incarnation")
    journal.write()
    assert journal.step_checkpoint()
    put(journal, b"two")
    journal.close()
    assert read_file(path) == [b"another incarnation", b"two"]


def test_a_checkpoint_that_cannot_keep_up_is_given_up(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint_module, "COPIES_BYTES_MAX", 10_000)
    journal = ready(path, "never")
    journal.begin_checkpoint([bytes(3 << 20)])
    assert not journal.step_checkpoint()
    put(journal, *(bytes(3000) for _ in range(4)))
    assert journal.step_checkpoint()
    assert not leftover(path).exists()
    journal.close()
    assert read_file(path) == [bytes(3000)] * 4


def test_in_the_last_moment_the_journal_gathers(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = ready(path)
    journal.begin_checkpoint([b"state"])
    put(journal, b"one")
    for _ in range(2):
        assert not journal.step_checkpoint()
    disk = SlowDisk(monkeypatch)
    thread = threading.Thread(target=journal.step_checkpoint)
    thread.start()
    assert disk.entered.wait(20)
    put(journal, b"two")
    assert is_gathering(journal)
    disk.release.set()
    thread.join()
    assert read_journal(path.read_bytes(), group=GROUP, member=MEMBER).batches == [b"state", b"one"]
    journal.write()
    assert not is_gathering(journal)
    journal.close()
    assert read_file(path) == [b"state", b"one", b"two"]


def test_a_journal_that_was_closed_does_not_take_the_name_from_the_next_one(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk hangs in the last moment of a checkpoint; meanwhile the member is closed and started again."""
    journal = ready(path)
    journal.begin_checkpoint([b"state"])
    put(journal, b"one")
    for _ in range(2):
        assert not journal.step_checkpoint()
    disk = SlowDisk(monkeypatch)

    def go_on() -> None:
        with contextlib.suppress(JournalError):
            carry_out(journal)

    thread = threading.Thread(target=go_on)
    thread.start()
    assert disk.entered.wait(20)
    with pytest.raises(JournalError, match=r"did not respond within 0\.05 s"):
        journal.close(timeout_s=0.05)
    after = ready(path)
    put(after, b"of the next one")
    after.begin_checkpoint([bytes(3 << 20)])
    assert not after.step_checkpoint()
    disk.release.set()
    thread.join()
    assert read_journal(path.read_bytes(), group=GROUP, member=MEMBER).batches == [b"one", b"of the next one"]
    carry_out(after)
    after.close()
    assert read_file(path) == [bytes(3 << 20)]


# The thread.


def test_a_sync_does_not_wait_for_the_end_of_a_checkpoint(path: Path) -> None:
    async def act(journal: Journal, thread: SyncThread, results: list[Any]) -> None:
        journal.begin_checkpoint([bytes(30 << 20)])
        thread.submit_checkpoint(lambda error: results.append(("checkpoint", error)))
        for number in range(3):
            put(journal, b"%d" % number)
            thread.submit(lambda error, number=number: results.append((number, error)))  # type: ignore[misc]
            await until(lambda number=number: len(results) > number)  # type: ignore[misc]
        await until(lambda: len(results) == 4)

    assert run_with_thread(path, act) == [(0, None), (1, None), (2, None), ("checkpoint", None)]
    assert read_file(path) == [bytes(30 << 20), b"0", b"1", b"2"]


def test_closing_the_thread_gives_a_checkpoint_up(path: Path) -> None:
    async def act(journal: Journal, thread: SyncThread, results: list[Any]) -> None:
        put(journal, b"one")
        journal.begin_checkpoint([bytes(200 << 20)])
        thread.submit_checkpoint(results.append)
        thread.submit(results.append)
        await until(lambda: leftover(path).exists())
        assert thread.close()

    assert run_with_thread(path, act) == [None]
    assert read_file(path) == [b"one"]
    assert not leftover(path).exists()


# The member.


class Replica:
    """A group whose application is a list of its messages, with a filling that makes its state large."""

    def __init__(self, journal: Path, *, filling: int = 0, **settings: Any) -> None:
        """Not started."""
        self.log: list[bytes] = []
        self.options: dict[str, Any] = {
            "snapshot": lambda: b"\n".join(self.log) + b"|" + bytes(filling),
            "restore": self._restore,
            "journal": journal,
            "settings": quick(journal_bytes=95_000, **settings),
        }
        self.group: Group

    def _restore(self, state: bytes) -> None:
        self.log = state.partition(b"|")[0].split(b"\n")

    async def start(self, **way: Any) -> Group:
        """Be a member."""
        self.group = await enter(**self.options, **way)
        return self.group

    async def restart(self) -> None:
        """Continue from the journal, as if the process had been killed."""
        await vanish(self.group)
        self.log = []
        await self.start(listen=self.group.address)

    async def send(self, *payloads: bytes) -> None:
        """Multicast, and take what is delivered."""
        for payload in payloads:
            await self.group.multicast(payload)
        await self.take(len(payloads))

    async def take(self, count: int) -> None:
        """Take this many deliveries."""
        self.log += [got.payload for got in await take(self.group, count)]

    async def look(self) -> None:
        """Everything is taken: a moment for a checkpoint."""
        with pytest.raises(TimeoutError):
            await self.group.receive(0.05)

    @property
    def checkpoints(self) -> int:
        """How many replaced the journal, or were abandoned."""
        return int(self.group._state._checkpoint_bytes > 0)

    @property
    def journal(self) -> Journal:
        """The journal of the present process."""
        journal = self.group._entered().journal
        assert journal is not None
        return journal


def numbered(count: int) -> list[bytes]:
    return [b"%06d" % number + b"x" * 10_000 for number in range(count)]


def test_what_waits_for_the_disk_is_not_lost_by_a_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`sync="always"`: the journal has a message that the application, and so its snapshot, does not have yet."""

    async def run() -> None:
        replica = Replica(tmp_path / "journal")
        await replica.start(found=True)
        await replica.send(*numbered(10))
        disk = SlowDisk(monkeypatch)
        await replica.group.multicast(b"held")
        assert await asyncio.to_thread(disk.entered.wait, WAIT_S)
        await replica.look()
        disk.release.set()
        await until(lambda: replica.checkpoints == 1)
        await replica.restart()
        await replica.take(1)
        assert replica.log == [*numbered(10), b"held"]
        await replica.group.leave()

    asyncio.run(run())


@pytest.mark.parametrize("sync", ["interval", "always"])
def test_a_member_continues_while_a_large_checkpoint_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sync: str
) -> None:
    """The disk takes no slice of the checkpoint for a while: messages are delivered, and survive a kill before it."""

    async def run() -> None:
        path, is_held = tmp_path / "journal", threading.Event()
        real = checkpoint_module.CheckpointFile.write_slice

        def write_slice(self: checkpoint_module.CheckpointFile) -> None:
            if is_held.is_set():
                time.sleep(0.002)  # as a disk that writes a little now and then
            else:
                real(self)

        monkeypatch.setattr(checkpoint_module.CheckpointFile, "write_slice", write_slice)
        replica = Replica(path, filling=5 << 20, sync=sync, suspect_after_s=10.0)
        addresses = free_addresses(2)
        states: dict[str, Any] = {"snapshot": lambda: b"", "restore": lambda _: None}
        other = one(listen=addresses[1], peers=addresses, settings=replica.options["settings"], **states)
        await asyncio.gather(other.__aenter__(), replica.start(listen=addresses[0], peers=addresses))
        await replica.send(*numbered(10))
        is_held.set()
        await replica.look()
        assert replica.journal.is_checkpointing
        for number in range(20):
            await (await other.multicast(b"during %d" % number)).stable(WAIT_S)
        await replica.take(20)
        assert replica.journal.is_checkpointing
        expected = list(replica.log)
        await replica.restart()
        assert replica.log == [], "no checkpoint was there"
        await replica.take(len(expected))
        assert replica.log == expected, "a kill in the midst of it"
        is_held.clear()
        await replica.send(b"after")
        await replica.look()
        await until(lambda: replica.checkpoints == 1)
        assert path.stat().st_size > 5 << 20
        await replica.send(b"behind it")
        expected = list(replica.log)
        await replica.restart()
        await replica.take(len(expected) - len(replica.log))
        assert replica.log == expected, "a kill behind it"
        await replica.group.leave()
        await other.leave()

    asyncio.run(run())


def test_leaving_in_the_midst_of_a_checkpoint(tmp_path: Path) -> None:
    async def run() -> None:
        path = tmp_path / "journal"
        replica = Replica(path, filling=100 << 20)
        await replica.start(found=True)
        await replica.send(*numbered(10))
        await replica.look()
        assert replica.journal.is_checkpointing
        await replica.group.leave()
        assert not leftover(path).exists()
        records = decode_records(read_member(path, replica.group.address))
        assert isinstance(records[-1], Over)
        delivered = b"".join([record.records for record in records if isinstance(record, Delivered)])
        assert all(payload in delivered for payload in numbered(10))

    asyncio.run(run())


def test_a_checkpoint_on_a_full_disk_does_not_end_the_member(
    small_disk: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        replica = Replica(small_disk / "journal", filling=60_000)
        replica.options["settings"] = quick(journal_bytes=2_000)
        await replica.start(found=True)
        payloads = [b"%d" % number * 100 for number in range(30)]
        await replica.send(*payloads)
        await replica.look()
        await until(lambda: "checkpoint abandoned" in caplog.text)
        await replica.send(b"after")
        await replica.restart()
        await replica.take(31)
        assert replica.log == [*payloads, b"after"]
        await replica.group.leave()

    asyncio.run(run())


def test_a_member_that_is_excluded_in_the_midst_of_a_checkpoint_begins_another_incarnation(tmp_path: Path) -> None:
    """The journal of the new incarnation replaces both the old journal and the checkpoint."""

    async def run() -> None:
        def durable(place: int) -> dict[str, Any]:
            states = {"snapshot": lambda: bytes(50 << 20) if place == 2 else b"", "restore": lambda _: None}
            return {**states, "journal": tmp_path / f"{place}.journal"}

        async with groups_of(3, each=durable, journal_bytes=5_000) as groups:
            for number in range(30):
                await groups[2].multicast(b"%d" % number * 200)
            for group in groups:
                await take(group, 30)
            draining = [asyncio.create_task(drain(group)) for group in groups[:2]]
            before = groups[2].me
            driver = groups[2]._entered()
            assert driver.journal is not None
            with pytest.raises(TimeoutError):
                await groups[2].receive(0.01)
            assert driver.journal.is_checkpointing
            driver.call(lambda _: driver.member._go_out("a test says so"))
            await until(lambda: groups[2].me != before and driver.member.phase in ("member", "fetching"))
            receiving = asyncio.create_task(groups[2].receive(WAIT_S))
            await (await groups[0].multicast(b"again")).stable(WAIT_S)
            assert (await receiving).payload == b"again"
            assert driver.journal.bytes < 50 << 20
            for task in draining:
                task.cancel()
        records = decode_records(read_member(tmp_path / "2.journal", groups[2].address))
        assert isinstance(records[0], Incarnation)
        assert records[0].me != before

    asyncio.run(run())


def read_member(path: Path, member: str) -> list[bytes]:
    journal = Journal(path, group="g", member=member, sync="never")
    try:
        return journal.read()
    finally:
        journal.close()


def test_nobody_takes_a_delivery_while_a_checkpoint_copies_the_state(tmp_path: Path) -> None:
    """A second consumer that took one then would have it in neither the checkpoint nor the journal behind it."""
    state: list[bytes] = []
    back: list[bytes] = []

    async def work() -> None:
        (address,) = free_addresses(1)
        began, gate = asyncio.Event(), asyncio.Event()

        async def snapshot() -> bytes:
            copy = b",".join(state)
            began.set()
            await gate.wait()
            return copy

        way: dict[str, Any] = {"listen": address, "journal": tmp_path / "journal"}
        settings = quick(sync="never", journal_bytes=2000)
        group = await enter(**way, found=True, snapshot=snapshot, restore=lambda _: None, settings=settings)

        async def consume() -> None:
            async for delivery in group:
                state.append(delivery.payload)

        consumers = [asyncio.ensure_future(consume())]
        for place in range(100):
            await group.multicast(b"%03d" % place)
        await asyncio.wait_for(began.wait(), WAIT_S)
        consumers.append(asyncio.ensure_future(consume()))
        await group.multicast(b"late")
        await asyncio.sleep(0.2)
        gate.set()
        await until(lambda: b"late" in state)
        await asyncio.sleep(0.3)  # the checkpoint is written
        for consumer in consumers:
            consumer.cancel()
        await vanish(group)
        again = await enter(
            **way, snapshot=lambda: b"", restore=lambda text: back.extend(text.split(b",")), settings=settings
        )
        with contextlib.suppress(TimeoutError):
            while True:
                back.append((await again.receive(0.5)).payload)
        await again.leave()

    asyncio.run(asyncio.wait_for(work(), 2 * WAIT_S))
    assert back == state

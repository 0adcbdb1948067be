"""The trace of a member with a journal: it has no event that the journal lacks, whenever the process is killed."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from cubecast.errors import JournalError
from cubecast.live.group import Group
from cubecast.live.trace_adapter import TraceAdapter
from cubecast.live.trace_writer import read_member_trace
from cubecast.member.durable import read_back
from cubecast.member.effects import Delivery, Effects
from cubecast.protocols.membership.views import MemberId
from cubecast.trace.schema import DELIVER
from cubecast.wire.journal import read_journal
from tests.live.members import groups_of, until

pytestmark = pytest.mark.live


def traced(file: Path) -> list[int]:
    """The sequence numbers of the deliveries in a trace."""
    events = read_member_trace(file).events
    return [int(row["sequence"]) for row in events if row["event"] == DELIVER]


def durable(file: Path, group: Group) -> list[int]:
    """The sequence numbers of the deliveries in a journal."""
    batches = read_journal(file.read_bytes(), group=group.name, member=group.address).batches
    return [entry.sequence for entry in read_back(batches, group.settings).replay if isinstance(entry, Delivery)]


def test_a_delivery_that_waits_for_the_disk_is_not_in_the_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal, trace = tmp_path / "journal", tmp_path / "trace"

    def files(place: int) -> dict[str, Any]:
        return {"journal": journal, "trace": trace} if place == 1 else {}

    async def run() -> None:
        async with groups_of(2, each=files, suspect_after_s=30.0) as groups:
            driver = groups[1]._entered()
            assert driver.journal is not None
            disk_works = threading.Event()
            sync, carry_out = driver.journal.sync, driver._do
            seen: list[tuple[list[int], list[int]]] = []

            def slow_sync() -> None:
                disk_works.wait(20)
                sync()

            def do(effects: Effects) -> None:
                carry_out(effects)
                seen.append((traced(trace), durable(journal, groups[1])))  # as if it were killed here

            await until(lambda: driver._held is None)
            monkeypatch.setattr(driver.journal, "sync", slow_sync)
            monkeypatch.setattr(driver, "_do", do)
            await groups[0].multicast(b"one")
            await until(lambda: driver._held is not None and driver.member.log.delivered()[groups[0].rank] == 1)
            await groups[0].multicast(b"two")
            await until(lambda: driver.member.log.delivered()[groups[0].rank] == 2)
            disk_works.set()
            await until(lambda: traced(trace) == [1, 2])
            assert all(rows == kept[: len(rows)] for rows, kept in seen), seen

    asyncio.run(run())


def test_many_deliveries_that_wait_for_the_disk_are_not_in_the_trace(tmp_path: Path) -> None:
    me, count = MemberId("127.0.0.1:7000", 1), 30_000
    trace = TraceAdapter(tmp_path / "trace")
    trace.deliveries(0, me, [me], [1])
    position = trace.position
    trace.deliveries(0, me, [me] * count, list(range(2, count + 2)))
    trace.flush(position)
    assert traced(tmp_path / "trace") == [1]
    trace.close()
    assert traced(tmp_path / "trace") == list(range(1, count + 2))


def test_a_delivery_that_the_journal_cannot_take_is_not_in_the_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal, trace = tmp_path / "journal", tmp_path / "trace"

    def files(place: int) -> dict[str, Any]:
        return {"journal": journal, "trace": trace} if place == 1 else {}

    def full(_: object) -> None:
        raise JournalError("the disk is full")

    async def run() -> None:
        async with groups_of(2, each=files, suspect_after_s=30.0) as groups:
            driver = groups[1]._entered()
            await groups[0].multicast(b"one")
            await until(lambda: traced(trace) == [1])
            monkeypatch.setattr(driver.journal, "append", full)
            await groups[0].multicast(b"two")
            await until(lambda: driver.failure is not None)
            await groups[1].leave()
            assert traced(trace) == durable(journal, groups[1]) == [1]

    asyncio.run(run())

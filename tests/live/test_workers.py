"""Workers that start with the same configuration find each other on one machine."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cubecast.errors import LocalProtocolError
from cubecast.live.local import free_ports
from cubecast.live.workers import join_workers
from tests.live.members import quick, until

pytestmark = pytest.mark.live

WORKER = """
import asyncio, sys
from cubecast.live.workers import join_workers
from cubecast.errors import CubecastError
from tests.live.members import quick, until

async def main():
    group = await join_workers("g", sys.argv[1], count=3, plaintext=True, settings=quick(quorum="any"))
    print(group.address, flush=True)
    async for event in group.events():
        if hasattr(event, "view") and hasattr(event.view, "members"):
            print(len(event.view.members), flush=True)

try:
    asyncio.run(main())
except CubecastError as error:
    sys.exit(str(error))
"""


class Worker:
    """A worker process, and what it says."""

    def __init__(self, first: str, folder: Path) -> None:
        environment = {**os.environ, "TMPDIR": str(folder), "CUBECAST_JIT": "off"}
        pipe = subprocess.PIPE
        command = [sys.executable, "-c", WORKER, first]
        self.process = subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=environment)

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def until_view_of(self, members: int) -> None:
        while (said := self.line()) != str(members):
            assert said, "the worker ended"

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.mark.timeout(120)
def test_workers_that_start_at_once_are_one_group_and_a_new_one_gets_the_address_of_a_dead_one(tmp_path: Path) -> None:
    first = f"127.0.0.1:{free_ports(1)[0]}"
    workers = [Worker(first, tmp_path) for _ in range(3)]
    try:
        addresses = [worker.line() for worker in workers]
        assert first in addresses
        assert len(set(addresses)) == 3
        for worker in workers:
            worker.until_view_of(3)
        refused = Worker(first, tmp_path)
        assert "raise count=" in refused.process.communicate(timeout=60)[1]
        assert refused.process.returncode == 1
        workers[0].kill()
        workers.append(Worker(first, tmp_path))
        assert workers[3].line() == addresses[0]
        for worker in workers[1:]:
            worker.until_view_of(3)
    finally:
        for worker in workers:
            worker.kill()


def test_one_worker_of_many_is_a_group_and_its_address_is_free_again_when_it_has_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        first = f"127.0.0.1:{free_ports(1)[0]}"
        for _ in range(2):
            group = await join_workers("g", first, count=4, plaintext=True, settings=quick())
            assert group.address == first
            await group.leave()

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    asyncio.run(run())


def test_a_worker_that_cannot_enter_gives_its_address_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        first = f"127.0.0.1:{free_ports(1)[0]}"
        for _ in range(2):
            with pytest.raises(LocalProtocolError, match="plaintext"):
                await join_workers("g", first, count=1)

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    asyncio.run(run())


def test_a_worker_whose_contacts_all_leave_before_it_has_joined_founds_the_group_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("cubecast.live.workers.GONE_S", 0.3)
    first = f"127.0.0.1:{free_ports(1)[0]}"

    async def run() -> None:
        old = await join_workers("g", first, count=2, plaintext=True, settings=quick(quorum="any"))
        new = asyncio.create_task(
            join_workers("g", first, count=2, plaintext=True, settings=quick(quorum="any", join_timeout_s=60.0))
        )
        await asyncio.sleep(0)
        await old.leave(drain=False)
        async with asyncio.timeout(20):
            group = await new
        assert first in {group.address, *(member.name for member in group.view.members)}
        await group.leave()
        assert not new.cancelled()

    asyncio.run(run())


def test_a_worker_that_is_cancelled_while_it_joins_leaves_its_address_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    first = f"127.0.0.1:{free_ports(1)[0]}"

    async def run() -> None:
        for steps in range(0, 60, 3):
            joining = asyncio.create_task(
                join_workers("g", first, count=1, plaintext=True, settings=quick(quorum="any"))
            )
            for _ in range(steps):
                await asyncio.sleep(0.001)
            joining.cancel()
            (result,) = await asyncio.gather(joining, return_exceptions=True)
            if not isinstance(result, BaseException):
                await result.leave()
        group = await join_workers("g", first, count=1, plaintext=True, settings=quick(quorum="any"))
        assert group.address == first
        await group.leave()

    asyncio.run(run())


@pytest.mark.parametrize("count", [0, -1, 257, "4"])
def test_a_wrong_number_of_workers_is_refused(count: int) -> None:
    with pytest.raises(LocalProtocolError, match="count="):
        asyncio.run(join_workers("g", "127.0.0.1:7100", count=count, plaintext=True))


def test_a_program_that_listens_at_an_address_of_the_workers_keeps_none_of_them_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        port = free_ports(1)[0]
        foreign = await asyncio.start_server(lambda *_: None, "127.0.0.1", port)
        first = f"127.0.0.1:{port}"
        options: dict[str, Any] = {"count": 3, "plaintext": True, "settings": quick(quorum="any")}
        one, two = [await join_workers("g", first, **options) for _ in range(2)]
        assert [one.address, two.address] == [f"127.0.0.1:{port + 1}", f"127.0.0.1:{port + 2}"]
        await until(lambda: len(one.view.members) == 2)
        with pytest.raises(LocalProtocolError, match=f"taken, 1 of them by other programs \\({first}\\): raise count="):
            await join_workers("g", first, **options)
        await asyncio.gather(one.leave(), two.leave())
        foreign.close()

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    asyncio.run(run())
    assert "in use by other programs" in caplog.text


def test_workers_of_two_groups_share_a_range_of_ports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker joins through those of its own group, not through whoever is at an address of the range."""

    async def run() -> None:
        port = free_ports(1)[0]
        first = f"127.0.0.1:{port}"
        options: dict[str, Any] = {"count": 4, "plaintext": True, "settings": quick(quorum="any", join_timeout_s=5.0)}
        groups = [await join_workers(name, first, **options) for name in ("shop", "chat", "shop", "chat")]
        assert [group.address for group in groups] == [f"127.0.0.1:{port + place}" for place in range(4)]
        await until(lambda: all(len(group.view.members) == 2 for group in groups))
        with pytest.raises(LocalProtocolError, match=r"all 4 addresses from .* taken, 2 of them by other programs"):
            await join_workers("shop", first, **options)
        await asyncio.gather(*(group.leave() for group in groups))

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    asyncio.run(run())


def test_a_worker_of_another_group_that_cannot_enter_keeps_nobody_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        first = f"127.0.0.1:{free_ports(1)[0]}"
        options: dict[str, Any] = {"count": 2, "plaintext": True}
        other = await join_workers("shop", first, **options, settings=quick(keep="all"))
        stuck = asyncio.create_task(join_workers("shop", first, **options, settings=quick(join_timeout_s=60.0)))
        await asyncio.sleep(0.5)
        with pytest.raises(LocalProtocolError, match="all 2 addresses"):  # at once: the stuck worker has the second
            await asyncio.wait_for(join_workers("chat", first, **options, settings=quick()), 10)
        stuck.cancel()
        await asyncio.gather(stuck, return_exceptions=True)
        await other.leave()

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    asyncio.run(run())


@pytest.mark.parametrize("name", ["", 5, None])
def test_a_wrong_name_of_the_group_is_refused_in_one_line(name: Any) -> None:
    with pytest.raises(LocalProtocolError, match="group name"):
        asyncio.run(join_workers(name, "127.0.0.1:7100", count=1, plaintext=True))

"""The kept history at a newcomer: nothing is sent before the application has taken it, and a kill loses none of it."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cubecast.errors import LocalProtocolError
from cubecast.live.group import Group
from cubecast.live.local import free_addresses
from cubecast.live.sync import join_sync
from tests.live.members import QUICK, WAIT_S, drain, enter, quick, take, until
from tests.support.processes import LineProcess

pytestmark = pytest.mark.live
ROOT = Path(__file__).resolve().parents[2]
COUNT = 700

MEMBER = """
import asyncio, json, sys
import cubecast

async def main(task):
    settings = cubecast.Settings(**task["settings"])
    options = {"contact": task["contact"], "journal": task["journal"]}
    async with cubecast.join("g", listen=task["listen"], plaintext=True, settings=settings, **options) as group:
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        payloads = [(await group.receive(20)).payload.decode() for _ in range(task["count"])]
        await (await group.multicast(b"read")).stable(20)
        print(json.dumps(payloads), flush=True)

asyncio.run(main(json.loads(sys.argv[1])))
"""


async def founder_with_history(count: int = COUNT, **settings: Any) -> tuple[Group, asyncio.Task[None]]:
    """A founder that has multicast this many messages, and whose application takes everything."""
    founder = await enter(found=True, settings=quick(keep="all", suspect_after_s=5.0, **settings))
    draining = asyncio.create_task(drain(founder))
    for number in range(count):
        await founder.multicast(b"%d" % number)
    return founder, draining


@pytest.mark.parametrize("count", [1, 256, COUNT, 1024])
def test_nothing_is_sent_before_the_application_has_taken_the_history(count: int) -> None:
    async def run() -> None:
        founder, draining = await founder_with_history(count)
        newcomer = await enter(contact=founder.address, settings=founder.settings)
        message = await newcomer.multicast(b"mine")
        await take(newcomer, count - 1)
        with pytest.raises(TimeoutError):
            await message.stable(0.3)
        assert message.sequence == 0, "it was sent"
        (last,) = await take(newcomer, 1)
        assert (last.payload, last.is_history) == (b"%d" % (count - 1), True)
        await message.stable(WAIT_S)
        assert (await newcomer.receive(WAIT_S)).payload == b"mine"
        draining.cancel()
        await newcomer.leave()
        await founder.leave()

    asyncio.run(run())


def test_an_application_that_has_all_of_the_history_from_before_may_send_at_once() -> None:
    """After an exclusion the history comes again; messages that the application took before are skipped."""

    async def run() -> None:
        founder, draining = await founder_with_history()
        newcomer = await enter(contact=founder.address, settings=founder.settings)
        await take(newcomer, COUNT)
        before = newcomer.me
        driver = newcomer._entered()
        driver.call(lambda _: driver.member._go_out("a test says so"))
        await until(lambda: newcomer.me != before and driver.member.phase == "member")
        receiving = asyncio.create_task(newcomer.receive(WAIT_S))
        await (await newcomer.multicast(b"again")).stable(WAIT_S)
        assert (await receiving).payload == b"again"
        draining.cancel()
        await newcomer.leave()
        await founder.leave()

    asyncio.run(run())


def test_a_task_that_takes_the_history_gets_an_error_when_it_multicasts_too_much() -> None:
    """It would wait for room for ever; another task that waits for room gets it when the history is taken."""

    async def run() -> None:
        founder, draining = await founder_with_history(window_messages=50)
        newcomer = await enter(contact=founder.address, settings=founder.settings)
        answered = 0

        async def answer_all() -> None:
            nonlocal answered
            async for _ in newcomer:
                await newcomer.multicast(b"answer")
                answered += 1

        with pytest.raises(LocalProtocolError, match="has taken the history"):
            await answer_all()
        assert answered >= 50
        waiting = asyncio.create_task(newcomer.multicast(b"from another task"))
        await asyncio.sleep(0)
        await take(newcomer, COUNT - answered - 1)
        await (await waiting).stable(WAIT_S)
        draining.cancel()
        await newcomer.leave()
        await founder.leave()

    asyncio.run(run())


def test_without_asyncio_too_the_last_message_counts() -> None:
    """Deliveries cross from the loop's thread many at a time; those that only crossed are not taken."""
    first, second = free_addresses(2)
    options: dict[str, Any] = {"plaintext": True, "settings": quick(keep="all", suspect_after_s=5.0)}
    with join_sync("sync", listen=first, found=True, **options) as founder:
        for number in range(COUNT):
            founder.multicast(b"%d" % number)
        for _ in range(COUNT):
            founder.receive(WAIT_S)
        with join_sync("sync", listen=second, contact=first, **options) as newcomer:
            message = newcomer.multicast(b"mine")
            for _ in range(COUNT - 1):
                newcomer.receive(WAIT_S)
            with pytest.raises(TimeoutError):
                message.stable(0.3)
            assert newcomer.receive(WAIT_S).payload == b"%d" % (COUNT - 1)
            assert founder.receive(WAIT_S).payload == b"mine"
            assert newcomer.receive(WAIT_S).payload == b"mine"


def test_a_newcomer_that_is_killed_before_it_has_read_the_history_reads_it_after_the_restart(tmp_path: Path) -> None:
    async def run() -> None:
        founder, draining = await founder_with_history()
        (listen,) = free_addresses(1)
        task = {
            "listen": listen,
            "contact": founder.address,
            "journal": str(tmp_path / "journal"),
            "count": COUNT,
            "settings": {**QUICK, "keep": "all", "suspect_after_s": 5.0},
        }
        command = [sys.executable, "-c", MEMBER, json.dumps(task)]
        first = LineProcess(command, folder=ROOT, errors=subprocess.DEVNULL)
        assert await asyncio.to_thread(first.read_line) == "ready"
        first.close()  # kill -9: it has the history, and its application has read none of it
        second = LineProcess(command, folder=ROOT)
        try:
            assert await asyncio.to_thread(second.read_line) == "ready"
            second.write_line("read")
            payloads = json.loads(await asyncio.to_thread(second.read_line))
            assert payloads == [str(number) for number in range(COUNT)]
            assert await asyncio.to_thread(second.process.wait, WAIT_S) == 0
        finally:
            second.close()
        draining.cancel()
        await founder.leave()

    asyncio.run(run())

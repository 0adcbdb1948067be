"""One member of a live benchmark in its own process; it reports one JSON line on standard output."""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import time
from typing import Any

from cubecast.live.credentials import Credentials
from cubecast.live.group import Group, join
from cubecast.live.loop import run
from cubecast.member.settings import Settings


async def throughput(group: Group, task: dict[str, Any]) -> dict[str, float]:
    """Senders multicast as fast as allowed; all members count deliveries in the middle of the run."""
    payload = bytes(task["payload"])
    begin = task["start"] + task["warm_s"]
    end = begin + task["seconds"]
    counted, cpu_us = 0, 0.0

    async def send() -> None:
        await asyncio.sleep(max(0.0, task["start"] - time.time()))
        while time.time() < end + 0.2:
            for _ in range(64):
                await group.multicast(payload)

    async def read() -> None:
        nonlocal counted, cpu_us
        total = 0
        at_begin = at_end = None
        async for _ in group:
            total += 1
            if total & 63 == 0:
                now = time.time()
                if at_begin is None and now >= begin:
                    at_begin = (total, now, time.process_time())
                if now >= end:
                    at_end = (total, now, time.process_time())
                    break
        if at_begin and at_end:
            counted = int((at_end[0] - at_begin[0]) / (at_end[1] - at_begin[1]))
            cpu_us = 1e6 * (at_end[2] - at_begin[2]) / (at_end[0] - at_begin[0])
        async for _ in group:
            pass

    reading = asyncio.create_task(read())
    if group.rank < task["senders"]:
        await send()
    else:
        await asyncio.sleep(max(0.0, end + 0.2 - time.time()))
    stats = group.stats
    await asyncio.sleep(max(0.0, end + 1.5 - time.time()))
    reading.cancel()
    return {
        "rate": counted,
        "cpu_us": cpu_us,
        "round_ms": 1e3 * stats["round_seconds"],
        "unstable": stats["unstable_messages"],
    }


async def latency(group: Group, task: dict[str, Any]) -> dict[str, Any]:
    """One member multicasts its clock from time to time; all members note the age of each message at delivery."""
    ages: list[tuple[int, float]] = []
    stable: list[float] = []

    async def read() -> None:
        async for delivery in group:
            ages.append((delivery.sequence, time.time() - float(delivery.payload)))

    reading = asyncio.create_task(read())
    await asyncio.sleep(max(0.0, task["start"] - time.time()))
    if group.rank == task["sender"]:
        for _ in range(task["messages"]):
            sent = time.time()
            message = await group.multicast(repr(sent).encode())
            await message.stable(10, hurry=task["hurry"])
            stable.append(time.time() - sent)
            await asyncio.sleep(task["pause_s"])
    else:
        await asyncio.sleep(task["seconds"])
    await asyncio.sleep(1.0)
    reading.cancel()
    return {"ages": ages, "stable": stable}


async def steady(group: Group, task: dict[str, Any]) -> dict[str, Any]:
    """Senders multicast at a fixed rate and note when each message becomes stable; all members count bytes."""
    stable: list[float] = []

    async def read() -> None:
        async for _ in group:
            pass

    async def settle(sent: float) -> None:
        message = await group.multicast(bytes(task["payload"]))
        await message.stable(30)
        stable.append(time.time() - sent)

    reading = asyncio.create_task(read())
    await asyncio.sleep(max(0.0, task["start"] - time.time()))
    before, cpu_before = _bytes_out(group), time.process_time()
    if group.rank < task["senders"]:
        async with asyncio.TaskGroup() as sending:
            for number in range(int(task["seconds"] * task["rate"])):
                due = task["start"] + number / task["rate"]
                await asyncio.sleep(max(0.0, due - time.time()))
                sending.create_task(settle(time.time()))
    await asyncio.sleep(max(0.0, task["start"] + task["seconds"] - time.time()))
    after, cpu_after = _bytes_out(group), time.process_time()
    await asyncio.sleep(1.0)
    reading.cancel()
    return {"stable": stable, "bytes": after - before, "cpu": cpu_after - cpu_before}


def _bytes_out(group: Group) -> int:
    return sum(link["bytes_out"] for link in group.stats["links"].values())


async def main() -> None:
    """Run the task given as the first argument."""
    task = json.loads(sys.argv[1])
    credentials = Credentials.load(task["certificate"], ca=task["ca"]) if task.get("ca") else None
    settings = Settings(suspect_after_s=30, **task.get("settings", {}))
    group = join(
        "bench",
        listen=task["listen"],
        peers=task["peers"],
        credentials=credentials,
        plaintext=credentials is None,
        settings=settings,
        journal=task.get("journal"),
    )
    async with group:
        print("ready", flush=True)
        task["start"] = float(await asyncio.to_thread(sys.stdin.readline))
        result = await {"throughput": throughput, "latency": latency, "steady": steady}[task["what"]](group, task)
        usage = resource.getrusage(resource.RUSAGE_SELF)
        result |= {"cpu_s": usage.ru_utime + usage.ru_stime, "peak_mib": usage.ru_maxrss / 1024}
        print(json.dumps(result), flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        await group.leave(drain=False)


if __name__ == "__main__":
    run(main())

"""One NATS client in its own process, measured as bench/live/worker.py measures a cubecast member.

All clients subscribe to one subject; senders publish to it and wait for the server from time to time. NATS core makes
no promises: no causal order between senders, no stability, and a subscriber that is too slow loses messages.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any

import nats  # type: ignore[import-not-found] # beside the project, not in it
import uvloop


async def main() -> None:
    """Run the task of the first argument."""
    task = json.loads(sys.argv[1])
    client = await nats.connect(task["server"], pending_size=64 << 20, max_reconnect_attempts=0)
    begin = end = float("inf")
    total = 0
    marks: list[tuple[int, float, float]] = []

    async def count(_: Any) -> None:
        nonlocal total
        total += 1
        if total & 63 == 0 and len(marks) < 2 and time.time() >= (end if marks else begin):
            marks.append((total, time.time(), time.process_time()))

    await client.subscribe("bench", cb=count, pending_msgs_limit=1 << 22, pending_bytes_limit=1 << 30)
    await client.flush()
    print("ready", flush=True)
    start = float(await asyncio.to_thread(sys.stdin.readline))
    begin = start + task["warm_s"]
    end = begin + task["seconds"]
    payload = bytes(task["payload"])
    await asyncio.sleep(max(0.0, start - time.time()))
    while task["rank"] < task["senders"] and time.time() < end + 0.2:
        for _ in range(256):
            await client.publish("bench", payload)
        await client.flush(60)
    await asyncio.sleep(max(0.0, end + 1.5 - time.time()))
    report = {"rate": 0.0, "cpu_us": 0.0}
    if len(marks) == 2:
        (count_0, time_0, cpu_0), (count_1, time_1, cpu_1) = marks
        delivered = count_1 - count_0
        report = {"rate": delivered / (time_1 - time_0), "cpu_us": 1e6 * (cpu_1 - cpu_0) / delivered}
    print(json.dumps(report), flush=True)
    await asyncio.to_thread(sys.stdin.readline)


if __name__ == "__main__":
    uvloop.run(main())

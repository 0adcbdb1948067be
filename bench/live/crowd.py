"""Large groups on one machine: time to form, memory per member, and whether messages become stable.

python -m bench.live.crowd --members 2 --processes 2              # an idle pair: memory of a member, compiled
python -m bench.live.crowd --members 64 --processes 64 --light
python -m bench.live.crowd --members 200 --processes 4 --light
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from bench.live.processes import run_commands
from cubecast.live.group import Group, join
from cubecast.live.local import free_addresses
from cubecast.live.loop import run
from cubecast.member.settings import Settings


async def part(task: dict[str, Any]) -> None:
    """Run some of the members in this process."""
    began = task["began"]
    settings = Settings(suspect_after_s=60, heartbeat_s=2.0, join_timeout_s=300)
    groups = [
        join("crowd", listen=address, peers=task["peers"], plaintext=True, settings=settings)
        for address in task["listen"]
    ]
    async with AsyncExitStack() as stack:
        await asyncio.gather(*(stack.enter_async_context(group) for group in groups))
        formed_s = time.time() - began
        await asyncio.sleep(2)
        report: dict[str, Any] = {"formed_s": formed_s, "idle_mib": resident_mib(), "stable": []}
        print("ready", flush=True)
        start = float(await asyncio.to_thread(sys.stdin.readline))
        await asyncio.sleep(max(0.0, start - time.time()))
        if task["speaks"]:
            report["stable"] = await speak(groups[0], task["messages"])
        while any(group.stats["delivered"] < task["messages"] for group in groups):
            await asyncio.sleep(0.1)
        report["links"] = max(len(group.stats["links"]) for group in groups)
        print(json.dumps(report), flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        await asyncio.gather(*(group.leave(drain=False) for group in groups))


async def speak(group: Group, messages: int) -> list[float]:
    """Multicast some messages; return the seconds until each is stable."""
    found = []
    for _ in range(messages):
        sent = time.time()
        await (await group.multicast(bytes(100))).stable(120, hurry=True)
        found.append(time.time() - sent)
    return found


def resident_mib() -> float:
    """The resident memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE") / (1 << 20)


def main() -> None:
    """Print one line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--members", type=int, default=64)
    parser.add_argument("--processes", type=int, default=64)
    parser.add_argument("--messages", type=int, default=20)
    parser.add_argument("--light", action="store_true", help="members without the compiler")
    parser.add_argument("--part", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.part:
        run(part(json.loads(chosen.part)))
        return
    os.environ["CUBECAST_JIT"] = "off" if chosen.light else "on"
    addresses = free_addresses(chosen.members)
    task = {"peers": addresses, "messages": chosen.messages, "began": time.time()}
    commands = []
    for place in range(chosen.processes):
        own = {**task, "listen": addresses[place :: chosen.processes], "speaks": place == 0}
        commands.append([sys.executable, "-m", "bench.live.crowd", "--part", json.dumps(own)])
    reports = run_commands(commands)
    stable = reports[0]["stable"]
    row = {
        "members": chosen.members,
        "processes": chosen.processes,
        "light": chosen.light,
        "formed_s": round(max(report["formed_s"] for report in reports), 1),
        "idle_mib": round(max(report["idle_mib"] for report in reports), 1),
        "links": max(report["links"] for report in reports),
        "stable_p50_ms": round(1e3 * statistics.median(stable), 1),
        "stable_max_ms": round(1e3 * max(stable), 1),
    }
    print(json.dumps(row))


if __name__ == "__main__":
    main()

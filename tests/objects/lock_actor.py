"""One process of the lock's test: it takes the lock again and again, and writes one line per event to its log.

Lines are `called`, `granted VIEW GRANT`, `released`, `failed`, each with the time of the machine's monotonic clock.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from pathlib import Path
from typing import Any

from cubecast.errors import CubecastError
from cubecast.member.settings import Settings
from cubecast.objects import Space


async def main(task: dict[str, Any]) -> None:
    """Take the lock until standard input ends."""
    draw = random.Random(task["listen"])
    space = Space()
    settings = Settings(heartbeat_s=0.05, suspect_after_s=0.5, round_every_s=0.02, patience_s=0.3, takeover_s=0.5)
    ended = asyncio.create_task(asyncio.to_thread(sys.stdin.read))
    with Path(task["log"]).open("a", buffering=1) as log:

        def note(what: str) -> None:
            log.write(f"{time.monotonic_ns()} {what}\n")

        way = {"contact": task["contact"]} if "contact" in task else {"peers": task["peers"]}
        async with space.join("lock", listen=task["listen"], plaintext=True, settings=settings, **way):
            print("ready", flush=True)
            while not ended.done():
                note("called")
                try:
                    token = await space.lock("l").acquire(5)
                    note(f"granted {token.view} {token.grant}")
                    await asyncio.sleep(draw.random() * 0.01)
                    note("released")  # before the call: from now on another may have it
                    await space.lock("l").release()
                except (CubecastError, TimeoutError):
                    note("failed")


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1])))

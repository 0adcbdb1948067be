"""One process of the convergence test: it edits a document at random, and answers `show` with a digest of it.

`stop` ends the edits; then `show` answers with the number of the epoch and a digest of the content.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import zlib
from typing import Any

import msgspec

from cubecast.contrib.pycrdt import Documents
from cubecast.contrib.pycrdt_document import Document
from cubecast.errors import CubecastError
from cubecast.member.settings import Settings
from tests.contrib.test_pycrdt import content_of, random_change


async def _edit(page: Document, draw: random.Random) -> None:
    while True:
        try:
            await page.edit(random_change(draw))
        except CubecastError:
            await asyncio.sleep(0.05)
        await asyncio.sleep(draw.random() * 0.02)


async def main(task: dict[str, Any]) -> None:
    """Edit until `stop`; end with the input."""
    settings = Settings(heartbeat_s=0.1, suspect_after_s=1.5, round_every_s=0.05)
    documents = Documents(squash_bytes=2000)
    way = {"contact": task["contact"]} if "contact" in task else {"peers": task["peers"]}
    async with documents.join("pages", listen=task["listen"], plaintext=True, settings=settings, **way):
        page = documents.document("page")
        editing = asyncio.create_task(_edit(page, random.Random(task["listen"])))
        print("ready", flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            if line == "stop\n":
                editing.cancel()
            digest = zlib.crc32(msgspec.msgpack.encode(content_of(page)))
            print(json.dumps([page.epoch, page.is_ending_epoch, digest]), flush=True)


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1])))

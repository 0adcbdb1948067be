"""Memory of a pycrdt document that several processes edit, with its history squashed or kept.

python -m bench.documents                                     # 10⁵ edits of 3 processes, both variants at the same time
python -m bench.documents --plot docs/images/documents.svg

Each process inserts words and deletes others at random places, so that the text stays at about `--characters`. After
every hundredth part of the edits the first process reports the growth of its resident memory, and the size of the state
that a newcomer would fetch.
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import json
import os
import random
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from pycrdt import Doc, Text

from cubecast.contrib.pycrdt import SQUASH_BYTES, Documents
from cubecast.live.local import free_addresses
from cubecast.live.loop import run
from tests.support.processes import LineProcess

ROOT = Path(__file__).parents[1]
WORDS = ("a ", "causal ", "stable ", "frontier ", "of messages ")
MEGABYTE = 1 << 20


def resident_bytes() -> int:
    """The resident memory of this process, after the allocator returned unused memory."""
    ctypes.CDLL(None).malloc_trim(0)
    pages = int(Path("/proc/self/statm").read_text("utf-8").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


async def work(task: dict[str, Any]) -> None:
    """One process: edit, and report if it is the first."""
    draw = random.Random(task["place"])
    documents = Documents(squash_bytes=SQUASH_BYTES if task["squash"] else None)
    async with documents.join(
        "bench", listen=task["addresses"][task["place"]], peers=task["addresses"], plaintext=True
    ):
        page = documents.document("page")

        def change(doc: Doc[Any]) -> None:
            text = doc.get("text", type=Text)
            length = len(text)
            if draw.random() * 2 * task["characters"] < length:
                at = draw.randrange(length)
                del text[at : min(length, at + draw.randrange(1, 14))]
            else:
                text.insert(draw.randrange(length + 1), draw.choice(WORDS))

        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        before, began_s = resident_bytes(), time.process_time()
        every = task["edits"] // 100
        for done in range(1, task["edits"] + 1):
            await page.edit(change)
            if done % every == 0 and task["place"] == 0:
                row = {
                    "edits": done * len(task["addresses"]),
                    "resident_mb": round((resident_bytes() - before) / MEGABYTE, 2),
                    "state_kb": round(len(documents.snapshot()) / 1024, 1),
                    "characters": len(page.doc["text"]),
                    "epoch": page.epoch,
                    "cpu_s": round(time.process_time() - began_s, 2),
                }
                print(json.dumps(row), flush=True)
        print("done", flush=True)
        await asyncio.to_thread(sys.stdin.readline)


def measure(chosen: argparse.Namespace, *, squash: bool) -> list[dict[str, Any]]:
    """The reports of one run."""
    addresses = free_addresses(chosen.processes)
    tasks = [
        {
            "addresses": addresses,
            "place": place,
            "edits": chosen.edits // chosen.processes,
            "characters": chosen.characters,
            "squash": squash,
        }
        for place in range(chosen.processes)
    ]
    command = [sys.executable, "-m", "bench.documents", "--task"]
    workers = [LineProcess([*command, json.dumps(task)], folder=ROOT) for task in tasks]
    rows: list[dict[str, Any]] = []
    try:
        for worker in workers:
            assert worker.read_line() == "ready"
        for worker in workers:
            worker.write_line("go")
        while (line := workers[0].read_line()) != "done":
            rows.append({"history": "squashed" if squash else "kept", **json.loads(line)})
        for worker in workers[1:]:
            assert worker.read_line() == "done"
    finally:
        for worker in workers:
            worker.close()
    return rows


def draw_plot(rows: list[dict[str, Any]], path: Path) -> None:
    """Memory and state over the number of edits."""
    import altair as alt

    from cubecast.lab.plots import COLOURS, write_chart

    titles = {"resident_mb": "Memory of a process, growth (MB)", "state_kb": "State for a newcomer (KB)"}
    panels = [
        alt.Chart(alt.Data(values=rows))
        .mark_line()
        .encode(
            x=alt.X("edits:Q", title="Edits"),
            y=alt.Y(f"{name}:Q", title=title),
            color=alt.Color(
                "history:N", title="History", scale=alt.Scale(domain=["kept", "squashed"], range=[*COLOURS[:2]])
            ),
        )
        .properties(width=320, height=200)
        for name, title in titles.items()
    ]
    write_chart(alt.concat(*panels, columns=2), path, lambda inside: inside)


def main() -> None:
    """Measure, or be a process of a measurement."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--edits", type=int, default=100_000)
    parser.add_argument("--processes", type=int, default=3)
    parser.add_argument("--characters", type=int, default=2000)
    parser.add_argument("--plot", type=Path, help="draw a picture into this file (.svg, .png, .pdf, .html)")
    parser.add_argument("--task", type=json.loads, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.task is not None:
        run(work(chosen.task))
        return
    with ThreadPoolExecutor() as both:
        parts = list(both.map(lambda squash: measure(chosen, squash=squash), (True, False)))
    rows = [row for part in parts for row in part]
    for row in rows[9::10]:
        print(json.dumps(row))
    if chosen.plot is not None:
        draw_plot(rows, chosen.plot)


if __name__ == "__main__":
    main()

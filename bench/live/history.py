"""A newcomer joins a group whose state is large, under load: a history of many messages, or a large snapshot.

python -m bench.live.history --messages 1000000
python -m bench.live.history --state 200
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.live.processes import ROOT, hear
from cubecast.live.local import free_addresses
from tests.support.processes import LineProcess

PHASE_S = 5.0
READ_S = 600.0


class Bench:
    """The processes of one measurement."""

    def __init__(self, chosen: argparse.Namespace, folder: Path) -> None:
        """Start nothing yet."""
        self.chosen = chosen
        self.addresses = free_addresses(chosen.members + 1)
        self.members: list[LineProcess] = []
        self._folder = folder
        settings: dict[str, Any] = {"suspect_after_s": chosen.suspect_after}
        if chosen.messages:
            settings["keep"] = "all"
        if chosen.sync:
            settings |= {"sync": chosen.sync, "journal_bytes": chosen.journal_mib << 20}
        self._common = {"settings": settings, "state_bytes": chosen.state << 20}

    def start(self, place: int, **way: Any) -> LineProcess:
        """Start one process."""
        task = {**self._common, "listen": self.addresses[place], **way}
        if self.chosen.sync:
            task["journal"] = str(self._folder / f"{place}.journal")
        self.members.append(
            LineProcess([sys.executable, "-m", "bench.live.history_member", json.dumps(task)], folder=ROOT)
        )
        return self.members[-1]

    def mark(self, what: str, members: list[LineProcess]) -> list[dict[str, Any]]:
        """Request what happened since the last mark, and print it."""
        for member in members:
            member.write_line("mark")
        found = [json.loads(hear(member, "{")) for member in members]
        for place, one in enumerate(found):
            print(json.dumps({"phase": what, "member": place, **one}), flush=True)
        return found

    def run(self) -> None:
        """Fill, load, join, read, leave."""
        founders = self.addresses[:-1]
        old = [self.start(place, peers=founders) for place in range(len(founders))]
        for member in old:
            hear(member, "{")
        began = time.time()
        for member in old:
            member.write_line(f"fill {self.chosen.messages // len(old)}")
        for member in old:
            hear(member, "filled")
        print(json.dumps({"phase": "filled", "seconds": round(time.time() - began, 1)}), flush=True)
        for member in old:
            member.write_line(f"load {self.chosen.load / len(old)}")
        time.sleep(1)
        self.mark("fill", old)
        time.sleep(PHASE_S)
        self.mark("before", old)
        began = time.time()
        newcomer = self.start(len(founders), contact=founders[0])
        print(hear(newcomer, "{"), round(time.time() - began, 2), flush=True)
        self.mark("join", [*old, newcomer])
        while time.time() - began < READ_S:
            newcomer.write_line("mark")
            found = json.loads(hear(newcomer, "{"))
            is_there = found["restored_bytes"] if self.chosen.state else found["history"] >= self.chosen.messages
            if is_there and not found["inbox"]:
                break
            time.sleep(0.5)
        print(json.dumps({"phase": "newcomer has read", "seconds": round(time.time() - began, 1), **found}), flush=True)
        self.mark("read", [*old, newcomer])
        time.sleep(PHASE_S)
        self.mark("after", [*old, newcomer])
        for member in self.members:
            member.write_line("leave")
        for member in self.members:
            member.process.wait(60)


def main() -> None:
    """Print one line per phase and member."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--members", type=int, default=2, help="in the group before the newcomer")
    parser.add_argument("--messages", type=int, default=0, help='keep="all", with a history of this many messages')
    parser.add_argument("--state", type=int, default=0, help="a snapshot() of this many MiB instead")
    parser.add_argument("--load", type=float, default=5000, help="messages per second meanwhile")
    parser.add_argument("--sync", choices=["always", "interval", "never"], help="with journals")
    parser.add_argument("--journal-mib", type=int, default=64, help="length at which a checkpoint replaces the journal")
    parser.add_argument("--suspect-after", type=float, default=3.0)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(chosen, Path(folder))
        try:
            bench.run()
        finally:
            for member in bench.members:
                member.close()


if __name__ == "__main__":
    main()

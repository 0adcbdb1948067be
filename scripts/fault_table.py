"""Hurt groups of real processes in every way, and print what came of it: `python -m scripts.fault_table`.

Each row is one group that talks all the time, one fault or attack, and the judgement of all trace checkers after it:
causal order, no duplicate, no loss among survivors, no premature stability.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from tests.live.attacks import knock, stranger_hello
from tests.live.bad_network import BadNetwork, is_possible
from tests.live.harness import ROOT, Troupe

SUSPECT: dict[str, Any] = {"gossip_every_s": 0.2, "suspect_after_s": 3.0}
PATIENT: dict[str, Any] = {"gossip_every_s": 0.5, "suspect_after_s": 40.0, "join_timeout_s": 60.0}
Row = dict[str, Any]


def kill(folder: Path, members: int, victims: tuple[int, ...], causal: str) -> Row:
    """kill -9 of several members at once."""
    with closing(Troupe(folder, members, causal=causal, **SUSPECT)) as group:
        time.sleep(2)
        group.kill(*victims)
        time.sleep(1)
        return end(group)


def freeze(folder: Path, seconds: float, suspect_after_s: float) -> Row:
    """SIGSTOP for a while; whoever was stopped for too long is excluded and does not count from then on."""
    with closing(Troupe(folder, 8, gossip_every_s=0.2, suspect_after_s=suspect_after_s)) as group:
        time.sleep(2)
        group.freeze(3)
        began_ns = time.monotonic_ns()
        time.sleep(seconds)
        group.thaw(3)
        time.sleep(1)
        return end(group, {3: began_ns})


def bad_links(folder: Path, seconds: float, ranks: set[int], causal: str = "auto", **state: Any) -> Row:
    """Some members' links are bad for a while, then good again."""
    settings = {**PATIENT, "causal": causal}
    with closing(BadNetwork(6)) as network, closing(Troupe(folder, 6, network=network, **settings)) as group:
        time.sleep(2)
        for link in network.between(ranks, set(range(6)) - ranks):
            vars(link).update(state)
        time.sleep(seconds)
        for link in network.links.values():
            vars(link).update(loss=0.0, delay_s=0.0, jitter_s=0.0, cut=False)
        time.sleep(2)
        row = end(group)
        counts = f"{network.passed} packets passed, {network.lost} lost, {network.overtaken} overtaken"
        return row | {"note": counts}


def one_link(folder: Path, seconds: float) -> Row:
    """Two neighbours cannot reach each other, while everybody else vouches for both."""
    settings = {**PATIENT, "suspect_after_s": 5.0}
    with closing(BadNetwork(6)) as network, closing(Troupe(folder, 6, network=network, **settings)) as group:
        time.sleep(2)
        for link in network.between({0}, {1}):
            link.cut = True
        time.sleep(seconds)
        for link in network.links.values():
            link.cut = False
        time.sleep(2)
        return end(group)


def attack(folder: Path, name: str) -> Row:
    """Strangers at the door of every member."""
    with closing(Troupe(folder, 4, greeting_timeout_s=3.0)) as group:
        time.sleep(1)
        command = [sys.executable, "-m", "tests.live.attacks", name, *group.addresses]
        welcomed = int(subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout)
        time.sleep(1)
        return end(group) | {"welcomed": welcomed}


def replay(folder: Path) -> Row:
    """An eavesdropper repeats a whole connection of rank 0 with rank 1, from a host of its own."""
    with closing(BadNetwork(5)) as network, closing(Troupe(folder, 4, network=network, **PATIENT)) as group:
        time.sleep(2)
        heard = folder / "heard"
        heard.write_bytes(network.heard(0, 1))
        command = [*network.enter(4), sys.executable, "-m", "tests.live.attacks", "replay", *group.addresses]
        done = subprocess.run([*command, "--", str(heard)], cwd=ROOT, capture_output=True, text=True, check=True)
        time.sleep(1)
        row = end(group)
        return row | {"welcomed": int(done.stdout), "note": f"{heard.stat().st_size} bytes, 5 times to each of 4"}


def certificate(folder: Path, fault: str) -> Row:
    """A certificate that does not count, at the door of every member."""
    import asyncio
    import ssl

    from cubecast.live.credentials import Credentials
    from cubecast.live.keys import init, issue

    with closing(Troupe(folder, 4, tls=True)) as group:
        time.sleep(1)
        other = folder / "other"
        init(other)
        if fault == "expired":
            held, ca = issue(folder, group.addresses[1], name="expired", days=0), folder / "group.pem"
        elif fault == "other group":
            held, ca = issue(other, group.addresses[1]), other / "group.pem"
        else:
            held, ca = issue(folder, "127.0.0.1:9", name="stranger"), folder / "group.pem"
        context = Credentials.load(held, ca=ca).client
        context.verify_mode = ssl.CERT_NONE

        async def knock_often() -> int:
            tries = [
                knock(address, stranger_hello(1, towards), wait_s=5, context=context)
                for towards, address in enumerate(group.addresses)
                for _ in range(25)
            ]
            return sum(await asyncio.gather(*tries))

        welcomed = asyncio.run(knock_often())
        time.sleep(1)
        return end(group) | {"welcomed": welcomed}


def end(group: Troupe, stopped: dict[int, int] | None = None) -> Row:
    """Finish, judge, count."""
    reports = group.finish()
    group.crashes |= {rank: when for rank, when in (stopped or {}).items() if reports[rank]["excluded"]}
    living = [reports[rank] for rank in reports if not reports[rank]["excluded"]]
    judged = group.judge()
    agreed = len({report["delivered"] for report in living}) == 1 and len({str(r["frontier"]) for r in living}) == 1
    return {
        "members": group.members,
        "left": len(living),
        "published": sum(report["published"] for report in living),
        "delivered": living[0]["delivered"],
        "reconnections": sum(report["reconnections"] for report in living),
        "refused": sum(report["refused"] for report in living),
        "welcomed": 0,
        "unstable": max(report["unstable"] for report in living),
        "mib": max(report["mib"] for report in living),
        "agree": agreed,
        "violations": len(judged.violations),
        "note": "; ".join(map(str, judged.violations[:2])),
    }


def faults() -> dict[str, Callable[[Path], Row]]:
    """Everything that is tried, by name."""
    table: dict[str, Callable[[Path], Row]] = {
        "kill -9, 2 of 8, timestamp": lambda folder: kill(folder, 8, (1, 5), "timestamp"),
        "kill -9, 3 of 16, timestamp": lambda folder: kill(folder, 16, (0, 6, 9), "timestamp"),
        "kill -9, 2 of 8, plumtree": lambda folder: kill(folder, 8, (0, 3), "plumtree"),
        "kill -9, 3 of 16, plumtree": lambda folder: kill(folder, 16, (0, 6, 9), "plumtree"),
        "kill -9, 2 of 8, rasm": lambda folder: kill(folder, 8, (0, 3), "rasm"),
        "kill -9, 3 of 16, rasm": lambda folder: kill(folder, 16, (0, 6, 9), "rasm"),
        "kill -9, 2 of 8, star": lambda folder: kill(folder, 8, (1, 5), "star"),
        "kill -9, 2 of 8 with the centre, star": lambda folder: kill(folder, 8, (0, 1), "star"),
        "kill -9, 2 of 8, tree": lambda folder: kill(folder, 8, (1, 5), "tree"),
        "kill -9, 2 of 8 with the root, tree": lambda folder: kill(folder, 8, (0, 1), "tree"),
        "kill -9, 2 of 8, overlay": lambda folder: kill(folder, 8, (2, 3), "overlay"),
        "kill -9, 3 of 16, overlay": lambda folder: kill(folder, 16, (0, 6, 9), "overlay"),
        "SIGSTOP 2 s, suspected after 8 s": lambda folder: freeze(folder, 2.0, 8.0),
        "SIGSTOP 15 s, suspected after 3 s": lambda folder: freeze(folder, 15.0, 3.0),
    }
    if is_possible():
        table |= {
            "one link cut 15 s, healed": lambda folder: one_link(folder, 15),
            "one member cut off 4 s, healed": lambda folder: bad_links(folder, 4, {2}, cut=True),
            "group cut in halves 4 s, healed": lambda folder: bad_links(folder, 4, {0, 1, 2}, cut=True),
            "20 % loss for 10 s": lambda folder: bad_links(folder, 10, {1, 4}, loss=0.2),
            "20 % loss for 10 s, tree": lambda folder: bad_links(folder, 10, {1, 4}, "tree", loss=0.2),
            "20 % loss for 10 s, rasm": lambda folder: bad_links(folder, 10, {1, 4}, "rasm", loss=0.2),
            "200 ms delay for 10 s, plumtree": lambda folder: bad_links(folder, 10, {1, 4}, "plumtree", delay_s=0.2),
            "200 ms delay for 10 s": lambda folder: bad_links(folder, 10, {1, 4}, delay_s=0.2),
            "reordering within 50 ms for 10 s": lambda folder: bad_links(folder, 10, {1, 4}, jitter_s=0.05),
            "loss, delay and reordering for 10 s": lambda folder: bad_links(
                folder, 10, {1, 4}, loss=0.2, delay_s=0.2, jitter_s=0.05
            ),
            "replay": replay,
        }
    for name in ("garbage", "half_open", "slow_loris", "liars"):
        table[name.replace("_", " ")] = partial(attack, name=name)
    for fault in ("another member's", "expired", "other group"):
        table[f"certificate: {fault}"] = partial(certificate, fault=fault)
    return table


COLUMNS = (
    *("members", "left", "published", "delivered", "reconnections", "refused", "welcomed", "unstable", "mib"),
    *("agree", "violations", "note"),
)


def main() -> None:
    """Print one row a fault; the exit code says whether all went well."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="faults whose name contains this")
    chosen = parser.parse_args()
    print("| fault | " + " | ".join(COLUMNS) + " |\n|---|" + "---|" * len(COLUMNS), flush=True)
    bad = 0
    for name, run in faults().items():
        if chosen.only not in name:
            continue
        with tempfile.TemporaryDirectory() as folder:
            row = run(Path(folder))
        print(f"| {name} | " + " | ".join(str(row[column]) for column in COLUMNS) + " |", flush=True)
        bad += row["violations"] + (not row["agree"]) + row["welcomed"] + row["unstable"]
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()

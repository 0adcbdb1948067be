"""Inject every fault into groups of real processes, and print the outcome: `python -m scripts.fault_table`.

Each row is one group at load, one fault or attack, and the verdict of all checkers on the merged trace after it: causal
order, no duplicates, no loss among the members that stay, no premature stability, agreement on views. `left`
counts the members at the end, `excluded` how often members learned that they were excluded (and rejoined).
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from cubecast.live.credentials import Credentials
from cubecast.live.keys import init, issue
from tests.live.attacks import knock, stranger_hello
from tests.live.bad_network import BadNetwork, is_possible
from tests.live.cast import ROOT, Cast

QUICK: dict[str, Any] = {"heartbeat_s": 0.2, "suspect_after_s": 3.0, "sync": "never"}
PATIENT: dict[str, Any] = {"heartbeat_s": 0.5, "suspect_after_s": 40.0, "join_timeout_s": 60.0, "sync": "never"}
HEALTHY: dict[str, Any] = {"loss": 0.0, "delay_s": 0.0, "jitter_s": 0.0, "cut": False}
SETTLE_S = 90.0
Row = dict[str, Any]


def formed(folder: Path, members: int, *, network: BadNetwork | None = None, **options: Any) -> Cast:
    """A group of this many members, two seconds old."""
    cast = Cast(folder, members, network=network, **options)
    cast.form(*range(members), wait_s=90.0)
    time.sleep(2)
    return cast


def end(cast: Cast, members: int) -> Row:
    """Let the group settle, judge, count."""
    reports = list(cast.settle(SETTLE_S).values())
    judged = cast.judge()
    return {
        "members": members,
        "left": len(reports),
        "views": max(report["view"] for report in reports),
        "excluded": sum(report["notices"]["excluded"] for report in reports),
        "delivered": max(report["delivered"] for report in reports),
        "reconnections": sum(report["reconnections"] for report in reports),
        "accepted": 0,
        "mib": max(report["mib"] for report in reports),
        "agree": len({report["digest"] for report in reports}) == 1,
        "rows": judged.events,
        "violations": len(judged.violations),
        "note": "; ".join(map(str, judged.violations[:2])),
    }


# Processes.


def kill(folder: Path, members: int, victims: tuple[int, ...], data: str) -> Row:
    """kill -9 of several members at once."""
    with closing(formed(folder, members, data=data, **QUICK)) as cast:
        cast.kill(*victims)
        time.sleep(1)
        return end(cast, members)


def restart(folder: Path, pause_s: float, *, keep_journal: bool) -> Row:
    """kill -9 of one member, which comes back before or after the others exclude it."""
    with closing(formed(folder, 5, durable=True, **QUICK)) as cast:
        cast.kill(3, keep_journal=keep_journal)
        time.sleep(pause_s)
        cast.start(3, 0, wait_s=60.0)
        time.sleep(1)
        return end(cast, 5)


def restart_all(folder: Path) -> Row:
    """kill -9 of all members; all continue from their journals."""
    with closing(formed(folder, 5, durable=True, **QUICK)) as cast:
        cast.kill(*range(5), keep_journal=True)
        for place in range(5):
            cast.start_soon(place, (place + 1) % 5)
        time.sleep(1)
        return end(cast, 5)


def leave(folder: Path) -> Row:
    """Two members leave at load, one joins."""
    with closing(Cast(folder, 7, **QUICK)) as cast:
        cast.form(*range(6), wait_s=90.0)
        time.sleep(2)
        cast.leave(1)
        cast.start(6, 0)
        cast.leave(0)
        return end(cast, 7)


def stop(folder: Path, seconds: float, suspect_after_s: float) -> Row:
    """SIGSTOP for a while; a member that was stopped for too long is excluded, learns of it and rejoins."""
    with closing(formed(folder, 8, **{**QUICK, "suspect_after_s": suspect_after_s})) as cast:
        cast.freeze(3)
        time.sleep(seconds)
        cast.thaw(3)
        time.sleep(1)
        return end(cast, 8)


# The network.


def reset(folder: Path) -> Row:
    """Connections are reset again and again, at load."""
    with closing(formed(folder, 5, **PATIENT)) as cast:
        for turn in range(20):
            port = cast.addresses[turn % 5].rpartition(":")[2]
            subprocess.run(["ss", "-K", "-t", "dport", "=", f":{port}"], capture_output=True, check=True)
            time.sleep(0.3)
        return end(cast, 5)


def bad_links(
    folder: Path,
    seconds: float,
    places: set[int],
    data: str = "auto",
    settings: dict[str, Any] | None = None,
    **state: Any,
) -> Row:
    """The links of some members are bad for a while, then good again."""
    with closing(BadNetwork(6)) as network:
        with closing(formed(folder, 6, network=network, **{**PATIENT, "data": data, **(settings or {})})) as cast:
            for link in network.between(places, set(range(6)) - places):
                vars(link).update(state)
            time.sleep(seconds)
            for link in network.links.values():
                vars(link).update(HEALTHY)
            time.sleep(2)
            row = end(cast, 6)
        counts = f"{network.passed} packets passed, {network.lost} lost, {network.overtaken} overtaken"
        return row | {"note": "; ".join(filter(None, (row["note"], counts)))}


def one_link(folder: Path, seconds: float) -> Row:
    """Two members cannot reach each other, while all others reach both."""
    settings = {**PATIENT, "suspect_after_s": 5.0}
    with closing(BadNetwork(6)) as network, closing(formed(folder, 6, network=network, **settings)) as cast:
        for link in network.between({0}, {1}):
            link.cut = True
        time.sleep(seconds)
        for link in network.links.values():
            link.cut = False
        time.sleep(2)
        return end(cast, 6)


# Attacks.


def attack(folder: Path, name: str) -> Row:
    """Strangers dial every member."""
    with closing(formed(folder, 4, handshake_timeout_s=3.0, **QUICK)) as cast:
        command = [sys.executable, "-m", "tests.live.attacks", name, *cast.addresses]
        accepted = int(subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout)
        time.sleep(1)
        return end(cast, 4) | {"accepted": accepted}


def replay(folder: Path) -> Row:
    """An eavesdropper repeats a whole connection between places 0 and 1, from a host of its own, over TLS."""
    with closing(BadNetwork(5)) as network:
        with closing(formed(folder, 4, network=network, tls=True, **PATIENT)) as cast:
            heard = folder / "heard"
            said = network.heard(0, 1) or network.heard(1, 0)  # either of the two may have dialled
            assert said, "nothing was overheard, so nothing can be repeated"
            heard.write_bytes(said)
            command = [*network.enter(4), sys.executable, "-m", "tests.live.attacks", "replay", *cast.addresses]
            done = subprocess.run([*command, "--", str(heard)], cwd=ROOT, capture_output=True, text=True, check=True)
            time.sleep(1)
            row = end(cast, 4)
        return row | {"accepted": int(done.stdout), "note": f"{heard.stat().st_size} bytes, 5 times to each of 4"}


def certificate(folder: Path, fault: str) -> Row:
    """An invalid certificate, shown to every member."""
    with closing(formed(folder, 4, tls=True, **QUICK)) as cast:
        context = _client_context(folder, cast.addresses[1], fault)

        async def knock_often() -> int:
            tries = [
                knock(towards, stranger_hello(cast.addresses[1], towards), wait_s=5, context=context)
                for towards in cast.addresses
                for _ in range(25)
            ]
            return sum(await asyncio.gather(*tries))

        accepted = asyncio.run(knock_often())
        time.sleep(1)
        return end(cast, 4) | {"accepted": accepted}


def _client_context(folder: Path, address: str, fault: str) -> ssl.SSLContext:
    other = folder / "other"
    init(other)
    if fault == "expired":
        held, ca = issue(folder, address, name="expired", days=0), folder / "group.pem"
    elif fault == "other group":
        held, ca = issue(other, address), other / "group.pem"
    else:
        held, ca = issue(folder, "127.0.0.1:9", name="stranger"), folder / "group.pem"
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.load_cert_chain(held)
    if fault == "other group":
        Credentials.load(held, ca=ca)  # raises unless it is a valid certificate of its own group
    return context


# The table.


def faults() -> dict[str, Callable[[Path], Row]]:
    """All faults and attacks, by name."""
    table: dict[str, Callable[[Path], Row]] = {
        f"kill -9, {len(victims)} of {members}, {data}": partial(kill, members=members, victims=victims, data=data)
        for members, victims in ((8, (0, 3)), (16, (0, 6, 9)))
        for data in ("timestamp", "causal_plumtree", "causal_rasm", "overlay", "tree", "star")
    }
    table |= {
        "kill -9, back after 0.5 s, journal kept": partial(restart, pause_s=0.5, keep_journal=True),
        "kill -9, back after 6 s, journal kept": partial(restart, pause_s=6.0, keep_journal=True),
        "kill -9, back after 0.5 s, journal lost": partial(restart, pause_s=0.5, keep_journal=False),
        "kill -9, back after 6 s, journal lost": partial(restart, pause_s=6.0, keep_journal=False),
        "kill -9 of all, journals kept": restart_all,
        "two leave, one joins": leave,
        "SIGSTOP 2 s, suspected after 8 s": partial(stop, seconds=2.0, suspect_after_s=8.0),
        "SIGSTOP 15 s, suspected after 3 s": partial(stop, seconds=15.0, suspect_after_s=3.0),
    }
    if shutil.which("ss") and os.geteuid() == 0:
        table["connections reset 20 times"] = reset
    if is_possible():
        table |= _of_networks()
    for name in ("garbage", "half_open", "slow_loris", "liars"):
        table[name.replace("_", " ")] = partial(attack, name=name)
    for fault in ("another member's", "expired", "other group"):
        table[f"certificate: {fault}"] = partial(certificate, fault=fault)
    return table


def _of_networks() -> dict[str, Callable[[Path], Row]]:
    bad = partial(bad_links, seconds=10.0, places={1, 4})
    return {
        "one link cut 15 s, healed": partial(one_link, seconds=15.0),
        "one member cut off 4 s, healed": partial(bad_links, seconds=4.0, places={2}, cut=True),
        "two of six cut off 12 s, excluded, healed": partial(
            bad_links, seconds=12.0, places={2, 3}, settings=QUICK, cut=True
        ),
        "group cut in halves 4 s, healed": partial(bad_links, seconds=4.0, places={0, 1, 2}, cut=True),
        "20 % loss for 10 s": partial(bad, loss=0.2),
        "20 % loss for 10 s, tree": partial(bad, data="tree", loss=0.2),
        "20 % loss for 10 s, causal_rasm": partial(bad, data="causal_rasm", loss=0.2),
        "200 ms delay for 10 s, causal_plumtree": partial(bad, data="causal_plumtree", delay_s=0.2),
        "200 ms delay for 10 s": partial(bad, delay_s=0.2),
        "reordering within 50 ms for 10 s": partial(bad, jitter_s=0.05),
        "loss, delay and reordering for 10 s": partial(bad, loss=0.2, delay_s=0.2, jitter_s=0.05),
        "replay": replay,
    }


COLUMNS = (
    *("members", "left", "views", "excluded", "delivered", "reconnections", "accepted", "mib", "agree", "rows"),
    *("violations", "note"),
)


def main() -> None:
    """Print one row per fault; the exit code says whether all passed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="faults whose name contains this")
    chosen = parser.parse_args()
    print("| fault | " + " | ".join(COLUMNS) + " |\n|---|" + "---|" * len(COLUMNS), flush=True)
    bad = 0
    for name, run in faults().items():
        if chosen.only not in name:
            continue
        with tempfile.TemporaryDirectory() as folder:
            try:
                row = run(Path(folder))
            except AssertionError as error:
                row = dict.fromkeys(COLUMNS, "") | {"agree": False, "violations": 1, "accepted": 0}
                row["note"] = " ".join(str(error).split())[:300]
        print(f"| {name} | " + " | ".join(str(row[column]) for column in COLUMNS) + " |", flush=True)
        bad += row["violations"] + (not row["agree"]) + row["accepted"]
    print(f"verdict: {'FAILED' if bad else 'passed'}")
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()

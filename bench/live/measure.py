"""Measurements of a live group: rate, latency and memory; for the rate also of JGroups and NATS."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.live.processes import ROOT, NoReportError, run_commands, run_members
from cubecast.live.local import free_ports

SENDERS = 4
WARM_S = 3.0
JGROUPS = Path("/usr/share/java/jgroups.jar")
JGROUPS_STARTS = 3
PEERS = ROOT / ".venv" / "peers"


def throughput(
    members: int,
    *,
    payload: int,
    seconds: float,
    tls: bool = False,
    journal: bool = False,
    settings: dict[str, Any] | None = None,
) -> dict[str, float]:
    """Delivered multicasts per second of the slowest member, and processor time per delivery, which varies less."""
    task = {"what": "throughput", **_load(payload, seconds), "settings": settings or {}}
    reports = run_members(members, task, tls=tls, journal=journal)
    return {
        **_rate(reports),
        "round_ms": statistics.median(report["round_ms"] for report in reports),
        "peak_mib": max(report["peak_mib"] for report in reports),
    }


def jgroups(members: int, *, payload: int, seconds: float) -> dict[str, float]:
    """The same for JGroups: its TCP stack with NAKACK and STABLE, first-in-first-out order per sender."""
    ports = free_ports(members)
    hosts = ",".join(f"127.0.0.1[{port}]" for port in ports)
    classes = f"{JGROUPS}:{PEERS / 'classes'}"
    options = ["-Xmx512m", "-XX:-UsePerfData", "-Djava.net.preferIPv4Stack=true", f"-Djgroups.hosts={hosts}"]
    load = [str(SENDERS), str(payload), str(WARM_S), str(seconds)]
    stack = str(ROOT / "bench" / "live" / "peers" / "jgroups.xml")
    commands = []
    for rank, port in enumerate(ports):
        java = ["java", *options, f"-Djgroups.port={port}", "-cp", classes]
        commands.append([*java, "JGroupsMember", stack, str(rank), str(members), *load])
    # The first must be the coordinator before the others ask for one, or there are several groups that merge later.
    # On a busy machine that happens all the same, and merging can take minutes: such a group is started again.
    for _ in range(JGROUPS_STARTS - 1):
        try:
            return _rate(run_commands(commands, pause_s=2.0, quiet=True))
        except NoReportError as error:
            print(f"JGroups is started again: {error}", file=sys.stderr)
    return _rate(run_commands(commands, pause_s=2.0, quiet=True))


def nats(members: int, *, payload: int, seconds: float) -> dict[str, float]:
    """The same for NATS core with nats-py, with the processor time of the server."""
    (port,) = free_ports(1)
    path = os.environ["PATH"] + os.pathsep + "/usr/sbin"
    with tempfile.TemporaryFile() as log:
        server = subprocess.Popen(
            ["nats-server", "-a", "127.0.0.1", "-p", str(port)], env={**os.environ, "PATH": path}, stderr=log
        )
        try:
            time.sleep(1.0)
            commands = []
            for rank in range(members):
                task = {**_load(payload, seconds), "rank": rank, "server": f"nats://127.0.0.1:{port}"}
                commands.append([str(PEERS / "bin" / "python"), "bench/live/peers/nats_member.py", json.dumps(task)])
            found = _rate(run_commands(commands))
            busy_s = _processor_seconds(server.pid)
        finally:
            server.terminate()
            server.wait()
    if found["rate"]:
        found["cpu_us"] += 1e6 * busy_s / (found["rate"] * members * (seconds + WARM_S))
    return found


def latency(
    members: int, *, sender: int, hurry: bool, messages: int, pause_s: float, settings: dict[str, Any]
) -> dict[str, float]:
    """Milliseconds from a send to the last delivery, and to `stable()`; the next send is `pause_s` after that."""
    seconds = messages * (pause_s + (0.04 if hurry else 0.18)) + 2
    load = {"messages": messages, "pause_s": pause_s, "hurry": hurry, "seconds": seconds}
    task = {"what": "latency", "sender": sender, **load, "settings": settings}
    reports = run_members(members, task)
    last: dict[int, float] = {}
    for report in reports:
        for sequence, age in report["ages"]:
            last[sequence] = max(age, last.get(sequence, 0.0))
    ages = sorted(last.values())
    stable = sorted(reports[sender]["stable"])
    return {
        "delivery_p50_ms": 1e3 * ages[len(ages) // 2],
        "delivery_p99_ms": 1e3 * ages[int(0.99 * len(ages))],
        "stable_p50_ms": 1e3 * stable[len(stable) // 2],
        "stable_p99_ms": 1e3 * stable[int(0.99 * len(stable))],
    }


def steady(members: int, *, rate: float, payload: int, seconds: float, settings: dict[str, Any]) -> dict[str, float]:
    """Milliseconds until messages sent at a fixed rate are stable; bytes and processor time for each of them."""
    task = {"what": "steady", **_load(payload, seconds), "rate": rate, "settings": settings}
    reports = run_members(members, task)
    stable = sorted(age for report in reports for age in report["stable"])
    return {
        "stable_p50_ms": 1e3 * stable[len(stable) // 2],
        "stable_p99_ms": 1e3 * stable[int(0.99 * len(stable))],
        "bytes_a_message": sum(report["bytes"] for report in reports) / len(stable),
        "cpu_us_a_message": 1e6 * sum(report["cpu"] for report in reports) / len(stable),
    }


def _load(payload: int, seconds: float) -> dict[str, Any]:
    return {"senders": SENDERS, "payload": payload, "warm_s": WARM_S, "seconds": seconds}


def _rate(reports: list[dict[str, Any]]) -> dict[str, float]:
    return {
        "rate": min(report["rate"] for report in reports),
        "cpu_us": statistics.mean(report["cpu_us"] for report in reports),
    }


def _processor_seconds(process: int) -> float:
    """The processor time of a process."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

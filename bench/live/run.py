"""Measure the live runtime on this machine's loopback: one process a member.

python -m bench.live.run                          # rate at n = 8 and 16, latency at n = 8
python -m bench.live.run --members 8 --payload 1000 --tls
"""

from __future__ import annotations

import argparse
import json
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


def free_addresses(count: int) -> list[str]:
    """Addresses of ports that are free now."""
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    addresses = sorted((one.getsockname() for one in sockets), key=lambda address: address[1])
    for one in sockets:
        one.close()
    return [f"{host}:{port}" for host, port in addresses]


def run_members(members: int, task: dict[str, Any], *, tls: bool = False) -> list[dict[str, Any]]:
    """Start the members, let them run, and give their reports in the order of their ranks."""
    addresses = free_addresses(members)
    with tempfile.TemporaryDirectory() as folder:
        processes = []
        for address in addresses:
            own = {**task, "listen": address, "peers": addresses}
            if tls:
                own |= _credentials(Path(folder), address)
            processes.append(_start(own))
        try:
            for process in processes:
                _line(process, "ready")
            for process in processes:
                _write(process, f"{time.time() + 1.0}\n")
            reports = [json.loads(_line(process, "{")) for process in processes]
            for process in processes:
                _write(process, "leave\n")
            for process in processes:
                process.wait(30)
        finally:
            for process in processes:
                process.kill()
    return reports


def _start(task: dict[str, Any]) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "bench.live.worker", json.dumps(task)]
    return subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def _line(process: subprocess.Popen[str], beginning: str) -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line.startswith(beginning):
        raise SystemExit(f"a member of the benchmark failed: {line!r}")
    return line


def _write(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdin is not None
    process.stdin.write(line)
    process.stdin.flush()


def _credentials(folder: Path, address: str) -> dict[str, str]:
    from cubecast.live.keys import init, issue

    if not (folder / "group.pem").exists():
        init(folder)
    return {"certificate": str(issue(folder, address)), "ca": str(folder / "group.pem")}


def throughput(members: int, *, payload: int, seconds: float, tls: bool, settings: dict[str, Any]) -> dict[str, float]:
    """Delivered multicasts a second, the slowest member's; processor time a delivery, which other work hardly sways."""
    task = {
        "what": "throughput",
        "senders": 4,
        "payload": payload,
        "warm_s": 2.0,
        "seconds": seconds,
        "settings": settings,
    }
    reports = run_members(members, task, tls=tls)
    return {
        "rate": min(report["rate"] for report in reports),
        "cpu_us": statistics.mean(report["cpu_us"] for report in reports),
        "round_ms": statistics.median(report["round_ms"] for report in reports),
        "peak_mib": max(report["peak_mib"] for report in reports),
    }


def latency(members: int, *, hurry: bool, messages: int) -> dict[str, float]:
    """Milliseconds from a send to the last delivery, and to `stable()`."""
    seconds = messages * (0.06 if hurry else 0.2) + 2
    task = {"what": "latency", "messages": messages, "pause_s": 0.02, "hurry": hurry, "seconds": seconds}
    reports = run_members(members, task)
    last: dict[int, float] = {}
    for report in reports:
        for sequence, age in report["ages"]:
            last[sequence] = max(age, last.get(sequence, 0.0))
    ages = sorted(last.values())
    stable = sorted(reports[0]["stable"])
    return {
        "delivery_p50_ms": 1e3 * ages[len(ages) // 2],
        "delivery_p99_ms": 1e3 * ages[int(0.99 * len(ages))],
        "stable_p50_ms": 1e3 * stable[len(stable) // 2],
        "stable_p99_ms": 1e3 * stable[int(0.99 * len(stable))],
    }


def main() -> None:
    """Print one line a measurement."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--members", type=int, nargs="*", default=[8, 16])
    parser.add_argument("--payload", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--tls", action="store_true")
    parser.add_argument("--causal", default="auto")
    parser.add_argument("--latency", action="store_true", help="measure latency in place of the rate")
    chosen = parser.parse_args()
    for members in chosen.members:
        if chosen.latency:
            for hurry in (True, False):
                found = latency(members, hurry=hurry, messages=200)
                print(json.dumps({"members": members, "hurry": hurry, **found}))
        else:
            rate = throughput(
                members,
                payload=chosen.payload,
                seconds=chosen.seconds,
                tls=chosen.tls,
                settings={"causal": chosen.causal},
            )
            print(json.dumps({"members": members, "payload": chosen.payload, "tls": chosen.tls, **rate}), flush=True)


if __name__ == "__main__":
    main()

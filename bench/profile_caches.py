"""Count instructions, cache misses and mispredicted branches per packet-hop of the storm, with Valgrind.

    python bench/profile_caches.py                                  200 and 1000 members, a few minutes
    python bench/profile_caches.py --members 1000 --instructions    with the counts of each instruction

Needs `valgrind` with its headers, `gcc`, and `objdump` for `--instructions`. Callgrind simulates 32 KiB of L1 for code
and 48 KiB for data, `--l2-kib` of L2, and a simple branch predictor. Prefetches count as nothing, so it shows what
would miss without them. Only the event loop is counted: set-up runs without instrumentation. `--instructions` lists
the machine code of the loop; the address of each read shows which array it reads.

Valgrind knows no AVX-512, so both processes compile for an older processor ("haswell"), into a cache of their own in
`--work`, which the first run fills.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

CPU = "haswell"
COUNTING = """#include <valgrind/callgrind.h>
void begin(void) { CALLGRIND_START_INSTRUMENTATION; }
void end(void) { CALLGRIND_STOP_INSTRUMENTATION; }
"""
BURSTS = 20
CODE_BYTES_MAX = 200_000
COLUMNS = {
    "instructions": ("Ir",),
    "reads and writes": ("Dr", "Dw"),
    "L1 misses": ("D1mr", "D1mw"),
    "L2 misses": ("DLmr", "DLmw"),
    "branches": ("Bc", "Bi"),
    "mispredicted": ("Bcm", "Bim"),
}


def storm(members: int, work: Path, *, count: bool) -> None:
    """Run the storm in this process; print the address of the event loop, and how many hops were made."""
    import llvmlite.binding

    llvmlite.binding.get_host_cpu_name = lambda: CPU  # the same cache with and without Valgrind
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
    from bench.peers.make_storm import make_storm
    from bench.profile_kernel import entry_points
    from bench.storm import EDGE_PROBABILITY
    from bench.storm_protocol import add_storm
    from cubecast.networks.spec import build_network
    from cubecast.sim import kernel
    from cubecast.sim.build import build_simulation
    from cubecast.sim.runner import runner
    from cubecast.sim.scenario import Scenario

    network_file = work / f"storm-{members}.net"
    if not network_file.exists():
        pairs_file = work / f"storm-{members}.pairs"
        make_storm(
            members=members, probability=EDGE_PROBABILITY, seed=1, network_file=network_file, pairs_file=pairs_file
        )
    add_storm(BURSTS)
    network = build_network(f"file:{network_file}", members=members, seed=0)
    scenario = Scenario(protocol="storm", members=members, senders=1, network=network.name, routing="delay")
    simulation = build_simulation(scenario, network, tracing=False)
    run = runner(simulation)
    loop = min(place for place, name in entry_points().items() if name == "cubecast.sim.kernel.run")
    counting = ctypes.CDLL(str(work / "counting.so"))
    counting.begin()
    status = run(1 << 62, 1 << 40)
    counting.end()
    assert status == kernel.FINISHED, status
    print(loop, int(simulation.world.scalars[0].hops))
    if not count:
        (work / "loop.bin").write_bytes(ctypes.string_at(loop, mapped_bytes(loop)))


def mapped_bytes(address: int) -> int:
    """How much memory follows an address without a gap, at most the size of the event loop."""
    for line in Path("/proc/self/maps").read_text("utf-8").splitlines():
        start, end = (int(word, 16) for word in line.split()[0].split("-"))
        if start <= address < end:
            return min(end - address, CODE_BYTES_MAX)
    raise AssertionError("the address of a compiled function is mapped")


def counted(members: int, work: Path, l2_kib: int) -> tuple[int, int, dict[int, list[int]], list[str]]:
    """Run the storm under Callgrind: the address of the loop, the hops, and the counts of each instruction."""
    counts_file = work / f"storm-{members}.callgrind"
    valgrind = [
        *("valgrind", "--tool=callgrind", "--instr-atstart=no", "--dump-instr=yes", "--cache-sim=yes"),
        *("--branch-sim=yes", "--I1=32768,8,64", "--D1=49152,12,64", f"--LL={l2_kib * 1024},16,64"),
        f"--callgrind-out-file={counts_file}",
    ]
    said = _run([*valgrind, *_storm_command(members, work, "--counted")], work)
    loop, hops = (int(word) for word in said.split()[-2:])
    return loop, hops, *read_counts(counts_file)


def read_counts(path: Path) -> tuple[dict[int, list[int]], list[str]]:
    """The counts per address of a Callgrind file, and the names of the counts; calls are not counted twice."""
    found: dict[int, list[int]] = {}
    names: list[str] = []
    address, is_call = 0, False
    for line in path.read_text("utf-8").splitlines():
        if line.startswith("events:"):
            names = line.split()[1:]
        elif line.startswith("calls="):
            is_call = True
        elif matched := re.match(r"(0x[0-9a-f]+|\+\d+|-\d+|\*) \S+ ?(.*)", line):
            where = matched[1]
            address = int(where, 16) if where.startswith("0x") else address + int(where.replace("*", "0"))
            if not is_call:
                values = [int(word) for word in matched[2].split()]
                sums = found.setdefault(address, [0] * len(names))
                for place, value in enumerate(values):
                    sums[place] += value
            is_call = False
    return found, names


def print_counts(members: int, hops: int, counts: dict[int, list[int]], names: list[str]) -> None:
    total = defaultdict(
        float, zip(names, (sum(column) / hops for column in zip(*counts.values(), strict=True)), strict=True)
    )
    said = ", ".join(f"{sum(total[one] for one in ones):.2f} {title}" for title, ones in COLUMNS.items())
    print(f"{members} members, {hops} packet-hops; per packet-hop: {said}", flush=True)


def print_instructions(
    work: Path, members: int, loop: int, hops: int, counts: dict[int, list[int]], names: list[str]
) -> None:
    """The instructions of the loop that are executed in at least every tenth hop, with their counts per hop."""
    _run(_storm_command(members, work, "--code"), work)
    objdump = ["objdump", "-D", "-b", "binary", "-m", "i386:x86-64", "-M", "intel", str(work / "loop.bin")]
    for line in _run(objdump, work).splitlines():
        matched = re.match(r"\s*([0-9a-f]+):\t[0-9a-f ]+\t(.*)", line)
        own = counts.get(loop + int(matched[1], 16)) if matched else None
        if matched and own is not None and own[0] >= hops / 10:
            value = defaultdict(float, {name: one / hops for name, one in zip(names, own, strict=True)})
            said = "  ".join(f"{sum(value[one] for one in COLUMNS[title]):5.2f}" for title in _LISTED)
            print(f"{matched[1]:>6}  {said}  {matched[2]}")
    print(f"columns: {', '.join(_LISTED)}, per packet-hop")


_LISTED = ("instructions", "L1 misses", "L2 misses", "mispredicted")


def _storm_command(members: int, work: Path, how: str) -> list[str]:
    return [sys.executable, __file__, "--members", str(members), "--work", str(work), how]


def _run(command: list[str], work: Path) -> str:
    own = {"NUMBA_CPU_NAME": CPU, "NUMBA_CPU_FEATURES": "", "CUBECAST_CACHE_DIR": str(work / "cache")}
    return subprocess.run(command, env=os.environ | own, stdout=subprocess.PIPE, text=True, check=True).stdout


def prepare(work: Path, members: int) -> None:
    """Compile what starts and stops the counting, and fill the cache of compiled code."""
    work.mkdir(parents=True, exist_ok=True)
    source = work / "counting.c"
    source.write_text(COUNTING, "utf-8")
    _run(["gcc", "-shared", "-fPIC", "-o", str(work / "counting.so"), str(source)], work)
    _run(_storm_command(members, work, "--code"), work)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--members", type=int, nargs="+", default=[200, 1000])
    parser.add_argument("--l2-kib", type=int, default=1024)
    parser.add_argument("--instructions", action="store_true", help="list the machine code with its counts")
    parser.add_argument("--work", type=Path, default=Path("/tmp/cubecast-profile-caches"), help="a directory for files")
    parser.add_argument("--counted", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--code", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.counted or options.code:
        storm(options.members[0], options.work, count=options.counted)
        return
    prepare(options.work, options.members[0])
    for members in options.members:
        loop, hops, counts, names = counted(members, options.work, options.l2_kib)
        print_counts(members, hops, counts, names)
        if options.instructions:
            print_instructions(options.work, members, loop, hops, counts, names)


if __name__ == "__main__":
    main()

"""The counts that `bench/profile_caches.py` reads from a file of Callgrind."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.profile_caches import mapped_bytes, read_counts

FILE = """# callgrind format
positions: instr line
events: Ir Dr Dw
fn=(1) run
0x1000 0 4 1
+4 0 4 0 2
calls=4 0x2000 0
* 0 400 100 100
+4 0 4
fn=(2)
0x2000 0 8
0x1000 0 1
"""


def test_counts_are_summed_by_address_and_calls_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "storm.callgrind"
    path.write_text(FILE, "utf-8")
    counts, names = read_counts(path)
    assert names == ["Ir", "Dr", "Dw"]
    assert counts == {0x1000: [5, 1, 0], 0x1004: [4, 0, 2], 0x1008: [4, 0, 0], 0x2000: [8, 0, 0]}


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="the list of mapped memory is of Linux")
def test_memory_that_is_not_mapped_is_not_read() -> None:
    maps = Path("/proc/self/maps").read_text("utf-8").splitlines()
    start, end = (int(word, 16) for word in maps[0].split()[0].split("-"))
    assert mapped_bytes(end - 1) == 1
    assert mapped_bytes(start) == min(end - start, 200_000)

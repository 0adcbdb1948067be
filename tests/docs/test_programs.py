"""Every Python block and query of the pages is run, is an excerpt of a file that is, or is listed with the reason."""

from __future__ import annotations

import os
import re
import sqlite3
import subprocess
import sys
import tomllib
from contextlib import closing
from pathlib import Path
from textwrap import indent
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow.dataset import dataset

from cubecast.lab.spark.analysis import VALUES_DDL
from cubecast.live.keys import init, issue
from cubecast.live.local import free_addresses, free_ports
from cubecast.sim.simulate import simulate
from tests.docs.pages import PAGES, ROOT, blocks, place_of
from tests.support.own_protocols import restored_catalogue

LIVE = {
    ("index.md", 0): r"127\.0\.0\.1:\d+ 1 b'order 7'\n",
    ("opentelemetry.md", 0): r"b'order 7'\n\['deliver', 'multicast', 'stable'\]\n",
    ("objects.md", 0): r"billing with Token\(.*\) \{'apples': 7\} 1\n",
    ("tutorial.md", 1): r"b'hello'\n",
    ("protocols.md", 5): r"",
}
"""Programs of one member: what they print."""

SIMULATED = {
    ("README.md", 1): r"(\w+ [\d.]+ [\d.]+ \d+\n){4}",
    ("getting-started.md", 0): r"",
    ("protocols.md", 4): r"(.*\n)+",
    ("trace.md", 0): r"",
    ("trace.md", 1): r"",
    ("trace.md", 2): r"",
}
"""Programs without a network: what they print. They find `run.parquet`, the trace of a small run."""

OF_THREE = {
    ("tutorial.md", 0): r"(127\.0\.0\.1:\d+ 1 b'hello'\n){3}",
    ("running.md", 0): r"now with \[.*\]\n(.*\n)*127\.0\.0\.\d:\d+ 1 (True|False)\n(.*\n)*",
}
"""Programs of one of three founders: what each of the three prints."""

EXCERPTS = {
    ("protocols.md", 0): "examples/ring.py",
    ("protocols.md", 1): "examples/doubling.py",
    ("protocols.md", 2): "examples/doubling.py",
    ("protocols.md", 3): "examples/ring.py",
}
"""Parts of a file that a test runs."""

ELSEWHERE = {
    ("README.md", 0): "tests/project/test_readme.py::test_the_first_program_is_ten_lines_and_prints_what_is_shown",
    ("bus.md", 0): "tests/project/test_readme.py::test_the_program_of_the_bus_runs",
    ("pycrdt.md", 0): "tests/project/test_readme.py::test_the_program_of_the_documents_runs",
    ("advise.md", 0): "tests/lab/test_advisor.py::test_the_command_prints_ranking_front_cost_and_evidence",
    ("trace.md", 3): "tests/docs/test_programs.py::test_traces_of_members_are_written_and_merged",
    ("guarantees.md", 0): "tests/docs/test_programs.py::test_the_fragment_of_atomic_delivery_runs",
    ("results.md", 0): "tests/docs/test_programs.py::test_the_tables_of_a_study_are_read_with_pandas",
}

NOT_RUN = {
    ("results.md", 1): "a study on Spark; tests/spark/test_python_api.py runs a small one",
}

PYTHON = {(place_of(page), number): text for page in PAGES for number, text in enumerate(blocks(page, "python"))}
TABLES = (LIVE, SIMULATED, OF_THREE, EXCERPTS, ELSEWHERE, NOT_RUN)


def test_every_block_is_in_exactly_one_table() -> None:
    listed = [block for table in TABLES for block in table]
    assert sorted(listed) == sorted(PYTHON)
    for test in ELSEWHERE.values():
        file, name = test.split("::")
        assert f"def {name}(" in (ROOT / file).read_text("utf-8"), test


def started(program: str, folder: Path) -> subprocess.Popen[str]:
    """The program in a process of its own, without the compiler."""
    environment = {**os.environ, "CUBECAST_JIT": "off", "PYTHONUNBUFFERED": "1"}
    return subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env=environment,
    )


@pytest.mark.live
@pytest.mark.parametrize("block", LIVE, ids=str)
def test_the_program_of_one_member_prints_what_it_should(block: tuple[str, int], tmp_path: Path) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    program = re.sub(r"127\.0\.0\.1:700\d", f"127.0.0.1:{free_ports(1)[0]}", PYTHON[block])
    running = started(program, tmp_path)
    try:
        output, errors = running.communicate(timeout=120)
    finally:
        running.kill()
    assert re.fullmatch(LIVE[block], output), errors
    assert running.returncode == 0


@pytest.mark.parametrize("block", SIMULATED, ids=str)
def test_the_program_without_a_network_prints_what_it_should(
    block: tuple[str, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    simulate("coord", members=8, network="random:degree=3", seed=1, trace="run.parquet")
    with restored_catalogue():
        exec(compile(PYTHON[block], str(block), "exec"), {"__name__": "__main__"})
    assert re.fullmatch(SIMULATED[block], capsys.readouterr().out)


@pytest.mark.live
@pytest.mark.parametrize("block", OF_THREE, ids=str)
def test_the_program_of_three_founders_runs_at_each_of_them(block: tuple[str, int], tmp_path: Path) -> None:
    ports, status = free_ports(3), free_ports(3)
    init(tmp_path / "keys")
    running = []
    for place in range(3):
        program = PYTHON[block]
        own = next(iter(re.findall(r'listen="([\d.]+:\d+)"', program)))
        founders = re.search(r"\[(\"[\d.]+:\d+\", )+\"[\d.]+:\d+\"\]", program)
        assert founders is not None
        addresses = re.findall(r"[\d.]+:\d+", founders[0])
        mine = dict(zip(addresses, [f"127.0.0.{1 + k}:{port}" for k, port in enumerate(ports)], strict=True))
        if block == ("tutorial.md", 0):
            mine = {old: f"127.0.0.1:{port}" for old, port in zip(addresses, ports, strict=True)}
        program = program.replace(f'listen="{own}"', f'listen="{addresses[place]}"')
        for old, new in mine.items():
            program = program.replace(f'"{old}"', f'"{new}"')
        issue(tmp_path / "keys", mine[addresses[place]], name=f"m{place}")
        program = program.replace("keys/two.pem", f"keys/m{place}.pem").replace(":9001", f":{status[place]}")
        program = program.replace("orders.journal", f"{place}.journal").replace("timeout=5", "timeout=60")
        running.append(started(program, tmp_path))
    try:
        for process in running:
            output = ""
            while not re.fullmatch(OF_THREE[block], output):
                assert process.stdout is not None
                line = process.stdout.readline()
                assert line, (output, process.communicate()[1])
                output += line
    finally:
        for process in running:
            process.kill()
            process.communicate()


@pytest.mark.parametrize("block", EXCERPTS, ids=str)
def test_an_excerpt_is_in_its_file(block: tuple[str, int]) -> None:
    def lines(text: str) -> list[str]:
        plain = [line.split("  #")[0].removesuffix(" ...").strip() for line in text.splitlines()]
        return [line for line in plain if line not in ("", "...")]

    whole = lines((ROOT / EXCERPTS[block]).read_text("utf-8"))
    assert [line for line in lines(PYTHON[block]) if line not in whole] == []


def test_traces_of_members_are_written_and_merged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("traces").mkdir()
    program = PYTHON["trace.md", 3]
    writing, merging = program.split("# Process b")
    other = (
        writing.replace("traces/a.trace", "traces/b.trace").replace(", a, ", ", b, ").replace("sender=a", "sender=b")
    )
    names: dict[str, object] = {}
    exec(compile(other, "process b", "exec"), names)
    exec(compile(f"{writing}# {merging}", "process a", "exec"), names)
    assert Path("run.parquet").stat().st_size > 0


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "toml")], ids=lambda page: page.name)
def test_every_toml_block_is_toml(page: Path) -> None:
    for text in blocks(page, "toml"):
        assert tomllib.loads(text)


def small_tables(folder: Path) -> None:
    """Tables of a study as `cubecast study run` leaves them: two points, two seeds."""
    values = {"point": [0, 0, 1, 1], "seed": [1, 2, 1, 2], "metric": ["rtt_last_ms"] * 4, "value": [1.0, 3.0, 5.0, 7.0]}
    points = {"point": [0, 1], "protocol": ["coord", "s_coord"], "members": [8, 8]}
    assert [*values, "study"] == [column.split()[0] for column in VALUES_DDL.split(", ")]
    for name, columns in (("values", values), ("points", points)):
        place = folder / "results" / "tables" / name / "study=cube-scaling"
        place.mkdir(parents=True)
        pq.write_table(pa.table(columns), place / "part.parquet")


def test_the_tables_of_a_study_are_read_with_pandas(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    small_tables(tmp_path)
    program = re.sub(r"^(rtt\.groupby)", r"means = \1", PYTHON["results.md", 0], flags=re.MULTILINE)
    names: dict[str, Any] = {}
    exec(compile(program, "results.md", "exec"), names)
    assert dict(names["means"]) == {("coord", 8): 2.0, ("s_coord", 8): 6.0}


@pytest.mark.live
def test_the_fragment_of_atomic_delivery_runs(tmp_path: Path) -> None:
    addresses = free_addresses(2)
    init(tmp_path)
    for address in addresses:
        issue(tmp_path, address, name=address)
    program = f"""
import asyncio
from cubecast import Credentials
from cubecast.live.atomic import AtomicDelivery

async def main(address):
    take, put_back, peers = (lambda: b""), (lambda state: None), {addresses}
    credentials = Credentials.load(address + ".pem", ca="group.pem")
{indent(PYTHON["guarantees.md", 0], "    ").replace('"10.0.0.2:7001"', "address").replace("...", "break")}
    return len(event.view.members)

async def both():
    print(await asyncio.gather(*map(main, {addresses})))

asyncio.run(both())
"""
    running = started(program, tmp_path)
    try:
        output, errors = running.communicate(timeout=60)
    finally:
        running.kill()
    assert output == "[2, 2]\n", errors


SQL = {
    ("trace.md", 0): lambda rows: len(rows) > 0 and all(0 < first <= last for _, first, last in rows),
    ("trace.md", 1): lambda rows: len(rows) == 10 and all(hops > 0 and longest > 0 for _, hops, longest in rows),
    ("results.md", 0): lambda rows: sorted(rows) == [("coord", 8, 2.0), ("s_coord", 8, 6.0)],
}
"""The queries, and what is true of their answers."""


def test_every_query_is_in_the_table() -> None:
    found = [(place_of(page), number) for page in PAGES for number, _ in enumerate(blocks(page, "sql"))]
    assert sorted(found) == sorted(SQL)
    used = {found for page in PAGES for found in re.findall(r"^```(\w+)$", page.read_text("utf-8"), re.MULTILINE)}
    assert used == {"sh", "python", "toml", "sql"}


@pytest.mark.parametrize("block", SQL, ids=str)
def test_a_query_has_the_answer_it_should(
    block: tuple[str, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite runs them, with the files as tables: DuckDB, which reads Parquet itself, is no dependency."""
    monkeypatch.chdir(tmp_path)
    simulate("coord", members=8, network="random:degree=3", seed=1, trace="run.parquet")
    small_tables(tmp_path)
    query = next(blocks(page, "sql")[block[1]] for page in PAGES if place_of(page) == block[0])
    query = re.sub(r"read_parquet\(('.*?'), hive_partitioning = true\)", r"\1", query)
    with closing(sqlite3.connect(":memory:")) as database:
        for pattern in re.findall(r"'([^']+\.parquet)'", query):
            (file,) = tmp_path.glob(pattern)
            table = dataset(str(file.relative_to(tmp_path)), partitioning="hive").to_table()
            marks = ", ".join("?" * table.num_columns)
            database.execute(f"CREATE TABLE '{pattern}' ({', '.join(table.column_names)})")
            rows = zip(*(column.to_pylist() for column in table.columns), strict=True)
            database.executemany(f"INSERT INTO '{pattern}' VALUES ({marks})", rows)
        answer = database.execute(query).fetchall()
    assert SQL[block](answer), answer

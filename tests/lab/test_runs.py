"""Batches, packing, the hash of sources and the store: what a study is made of, without Spark."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cubecast.errors import LocalProtocolError
from cubecast.lab.batch import run_row, run_rows
from cubecast.lab.experiments import experiment_named, scenario_of
from cubecast.lab.packing import TASK_SECONDS_MAX, pack
from cubecast.lab.runs import Run, canonical
from cubecast.lab.schema import FAILED, OK, RUNS
from cubecast.lab.source_hash import program_of, source_hash
from cubecast.lab.store import Store
from cubecast.sim.simulate import simulate

SETTINGS = {"protocol": "coord", "members": 8, "network": "random:degree=3", "seed": 3}


def _row(settings: dict[str, object], experiment: str = "simulate") -> dict[str, object]:
    return {"run_id": "r", "code": "c", "experiment": experiment, "settings": canonical(settings)}


def test_a_batch_gives_what_the_simulator_gives() -> None:
    done = run_rows([_row(SETTINGS)])
    assert done.schema == RUNS
    [row] = done.to_pylist()
    result = simulate("coord", members=8, network="random:degree=3", seed=3)
    metrics = dict(row["metrics"])
    assert (row["status"], row["seed"]) == (OK, 3)
    assert metrics["rtt_last_ms"] == result.rtt_last_ms
    assert metrics["hops"] == result.hops
    assert not {"wall_seconds", "packet_hops_per_second"} & set(metrics)


def test_a_run_that_fails_is_a_row_and_the_others_go_on() -> None:
    impossible = {**SETTINGS, "packets_max": 1}
    rows = [run_row(_row(one)) for one in (SETTINGS, impossible, SETTINGS)]
    assert [row["status"] for row in rows] == [OK, FAILED, OK]
    assert "seed 3" in rows[1]["error"]
    assert rows[1]["metrics"] == []


def test_a_bug_in_a_run_is_a_row_too() -> None:
    row = run_row(_row({"members": "many", "seed": 0}, "gossip_chain"))
    assert row["status"] == FAILED
    assert row["error"]


def test_crashed_neighbours_are_neighbours_of_member_0_drawn_by_the_seed() -> None:
    drawn = set()
    for seed in range(20):
        [fault] = scenario_of({**SETTINGS, "members": 32, "seed": seed, "crashed_neighbours": 2}).crashes
        assert fault.at_ns == 0
        assert len(fault.members) == 2
        assert set(fault.members) <= {1, 2, 4, 8, 16}
        drawn.add(fault.members)
    assert len(drawn) > 3
    with pytest.raises(LocalProtocolError, match="member 0 of 8 has 3"):
        scenario_of({**SETTINGS, "crashed_neighbours": 4})


def _runs(sizes: list[int]) -> list[Run]:
    return [
        Run(
            study="x",
            experiment="simulate",
            common={**SETTINGS, "members": size, "rounds": 20},
            seed=seed,
            point={},
        )
        for size in sizes
        for seed in range(30)
    ]


def test_tasks_hold_every_run_once_and_the_longest_start_first() -> None:
    runs = _runs([8, 50, 1000, 1900])
    tasks = pack(runs, 2)
    assert sorted(run.id for task in tasks for run in task) == sorted(run.id for run in runs)
    cost = experiment_named("simulate").cost
    totals = [sum(cost(run.settings) for run in task) for task in tasks]
    assert totals == sorted(totals, reverse=True)
    assert max(totals) <= TASK_SECONDS_MAX
    # Each core takes the next task when it is free: both are busy to the end.
    busy = [0.0, 0.0]
    for total in totals:
        busy[busy.index(min(busy))] += total
    assert max(busy) < 1.03 * sum(totals) / 2


def test_networks_without_a_table_of_routes_are_not_charged_for_one() -> None:
    cost = experiment_named("simulate").cost

    def seconds(network: str, members: int) -> float:
        return cost({**SETTINGS, "network": network, "members": members, "rounds": 1})

    assert seconds("star", 10_000) - seconds("flat", 10_000) == pytest.approx(1e-7 * 10_000**2)
    # A table of 10¹² routes is never built.
    assert seconds("flat", 1_000_000) == seconds("star", 1_000_000) < 60


def test_comments_do_not_change_the_program_and_code_does() -> None:
    plain = "def f(x):\n    return x + 1\n"
    assert program_of(plain) == program_of('"""Doc."""\ndef f(x):\n    """More."""\n    # why\n    return (x + 1)\n')
    assert program_of(plain) != program_of(plain.replace("1", "2"))


def test_protocols_have_hashes_of_their_own() -> None:
    hashes = {name: source_hash({"protocol": name}) for name in ("coord", "full_dist", "s_coord")}
    assert len(set(hashes.values())) == 3


def test_a_network_file_counts_by_its_content(tmp_path: Path) -> None:
    """Also where the file is a swept parameter; settings, and so the name of the run, hold its path only."""

    def key(text: str, name: str = "net.edges") -> tuple[str, str]:
        (tmp_path / name).write_text(text)
        run = Run(
            study="x",
            experiment="simulate",
            common={**SETTINGS, "network": f"file:{tmp_path}/{{which}}", "which": name},
            seed=0,
            point={},
        )
        return run.id, run.code

    first = key("0 1\n1 2\n")
    assert key("0 1\n1 2\n") == first
    edited = key("0 1\n1 2\n0 2\n")
    assert edited[0] == first[0]
    assert edited[1] != first[1]
    assert key("0 1\n1 2\n", "copy.edges")[1] == first[1]


def test_a_network_file_that_was_edited_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "net.edges"
    settings = {**SETTINGS, "members": 3, "network": f"file:{path}"}
    hops = []
    for text in ("0 1\n1 2\n", "0 1\n1 2\n0 2\n"):
        path.write_text(text)
        hops.append(dict(run_row(_row(settings))["metrics"])["hops"])
    assert hops[0] > hops[1]


def test_a_damaged_file_is_set_aside_and_the_others_stay(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.make()
    table = pa.Table.from_pylist([run_row(_row(SETTINGS))], schema=RUNS)
    for name in ("good", "cut", "flipped", "other"):
        pq.write_table(table, store.runs / f"{name}.parquet", write_page_checksum=True)
    cut = store.runs / "cut.parquet"
    cut.write_bytes(cut.read_bytes()[:-20])
    flipped = store.runs / "flipped.parquet"
    content = bytearray(flipped.read_bytes())
    content[content.index(b"random:degree") + 3] ^= 0xFF
    flipped.write_bytes(bytes(content))
    pq.write_table(pa.table({"a": [1]}), store.runs / "other.parquet")
    (store.runs / "empty.parquet").write_bytes(b"")
    (store.runs / "folder.parquet").mkdir()
    text = table.column("seed").cast(pa.string())
    typed = table.set_column(table.schema.get_field_index("seed"), "seed", text)
    pq.write_table(typed, store.runs / "typed.parquet")
    aside = {path.name for path in store.set_aside_unreadable()}
    assert aside == {f"{name}.parquet" for name in ("cut", "flipped", "other", "empty", "folder", "typed")}
    assert [path.name for path in store.runs.glob("*.parquet")] == ["good.parquet"]


def test_two_studies_do_not_write_into_one_folder(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.make()
    with store.alone(), pytest.raises(LocalProtocolError, match="another study is writing here"), store.alone():
        pass


def test_settings_have_one_spelling() -> None:
    assert canonical({"b": 1, "a": [1.5, "x"]}) == '{"a":[1.5,"x"],"b":1}'
    assert json.loads(canonical(SETTINGS)) == SETTINGS

"""The table of pending runs: workers read their tasks from it, and notice when they cannot serve this study."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cubecast.errors import LocalProtocolError
from cubecast.lab.runs import Run
from cubecast.lab.store import Store
from cubecast.lab.task_file import pending_row, read_task, task_file


def _runs(count: int, network: str = "star") -> list[Run]:
    return [
        Run(
            study="x",
            experiment="simulate",
            common={"protocol": "coord", "members": 3, "network": network},
            seed=seed,
            point={},
        )
        for seed in range(count)
    ]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    made = Store(tmp_path / "out")
    made.make()
    return made


def test_each_task_is_read_by_itself_and_the_table_is_gone_at_the_end(store: Store) -> None:
    runs = _runs(7)
    tasks = [runs[:4], runs[4:5], runs[5:]]
    with task_file(store, tasks) as table:
        for number, task in enumerate(tasks):
            assert read_task(table, number) == [pending_row(run) for run in task]
        assert Path(table.path).parent == store.root.resolve()
    assert not Path(table.path).exists()


def test_a_killed_study_leaves_no_table_behind(store: Store) -> None:
    store.tasks("of-a-killed-study").write_bytes(b"half")
    (store.root / ".rows-x").mkdir()
    (store.root / ".rows-x" / "rows.parquet").write_bytes(b"half")
    store.clear_unfinished()
    assert [path.name for path in store.root.glob(".*")] == []


def test_an_error_while_the_tasks_are_done_is_not_taken_for_one_of_the_table(store: Store) -> None:
    with pytest.raises(ConnectionRefusedError), task_file(store, [_runs(1)]):
        raise ConnectionRefusedError
    assert list(store.root.glob(".tasks-*")) == []


def test_a_table_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(LocalProtocolError, match="cannot write into"), task_file(Store(tmp_path / "x"), [_runs(1)]):
        pass


def test_a_worker_that_does_not_share_the_folder_says_so(store: Store, tmp_path: Path) -> None:
    runs = _runs(2)
    with task_file(store, [runs]) as table:
        Path(table.path).rename(tmp_path / "elsewhere")
        with pytest.raises(LocalProtocolError, match=r"does not share .* with the driver: choose a folder"):
            read_task(table, 0)
        with task_file(store, [runs]) as other:
            Path(other.path).replace(table.path)
            with pytest.raises(LocalProtocolError, match="does not share"):
                read_task(table, 0)


def test_a_worker_with_another_network_file_says_so(store: Store, tmp_path: Path) -> None:
    network = tmp_path / "net.edges"
    network.write_text("0 1\n1 2\n")
    with task_file(store, [_runs(1, f"file:{network}")]) as table:
        assert json.loads(read_task(table, 0)[0]["settings"])["seed"] == 0
        network.write_text("0 1\n0 2\n")
        with pytest.raises(LocalProtocolError, match="differ from those of the driver"):
            read_task(table, 0)

"""The trace: one schema, files that are whole or absent, and one clear line for everything that is not a trace."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cubecast.errors import LocalProtocolError
from cubecast.trace import files as trace_files
from cubecast.trace.files import METADATA_KEY, SCHEMA, Trace, TraceWriter, read_trace, to_table
from cubecast.trace.schema import EVENT_DTYPE, EVENT_NAMES, Event, Events, blank_events

SCENARIO = {"protocol": "coord", "members": 5, "partitions": []}
METRICS = {"messages": 12, "rtt_first_ms": 1.25}


def random_events(count: int, seed: int = 0) -> Events:
    generator = np.random.default_rng(seed)
    events = np.zeros(count, EVENT_DTYPE)
    for name in EVENT_DTYPE.names or ():
        limits = np.iinfo(EVENT_DTYPE[name])
        events[name] = generator.integers(limits.min, limits.max, count, EVENT_DTYPE[name], endpoint=True)
    events["event"] = generator.integers(0, len(EVENT_NAMES), count)
    events["layer"] = generator.integers(0, 2, count)
    return events


def write(path: Path, events: Events, chunk: int = 100) -> Path:
    with TraceWriter(path, SCENARIO) as writer:
        for start in range(0, len(events), chunk):
            writer.append(events[start : start + chunk])
        writer.finish(METRICS)
    return path


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# One schema


def test_codes_names_and_columns_are_the_documented_ones() -> None:
    assert [event.name.lower() for event in Event] == list(EVENT_NAMES)
    assert " ".join(EVENT_NAMES[:11]) == "send hop drop receive deliver stable crash recover exclude round done"
    assert " ".join(EVENT_NAMES[11:]) == (
        "install view restore hold multicast sent returned leave excluded blocked unblocked restart restarted causal"
    )
    assert SCHEMA.names == list(EVENT_DTYPE.names or ())
    assert EVENT_DTYPE.isalignedstruct
    assert EVENT_DTYPE.itemsize == 64
    assert SCHEMA.field("event").type == SCHEMA.field("layer").type == pa.dictionary(pa.int8(), pa.string())


def test_documentation_names_every_event_and_column() -> None:
    text = (Path(__file__).parents[2] / "docs" / "trace.md").read_text()
    for name in (*EVENT_NAMES, *SCHEMA.names):
        assert f"`{name}`" in text, name


def test_a_dictionary_index_is_the_event_code() -> None:
    events = blank_events(len(EVENT_NAMES))
    events["event"] = np.arange(len(EVENT_NAMES))
    column = to_table(events).column("event").combine_chunks()
    assert column.indices.to_pylist() == list(Event)
    assert column.to_pylist() == list(EVENT_NAMES)


def test_blank_rows_concern_nobody() -> None:
    (row,) = blank_events(1)
    assert {name: int(row[name]) for name in EVENT_DTYPE.names or ()} == {
        **dict.fromkeys(("member", "peer", "message", "sender", "round", "link"), -1),
        **dict.fromkeys(("time_ns", "event", "sequence", "entered_ns", "size", "layer"), 0),
    }


# Writing and reading


@pytest.mark.parametrize("count", [0, 1, 99, 1000])
def test_a_trace_read_back_is_the_trace_written(tmp_path: Path, count: int) -> None:
    events = random_events(count)
    trace = read_trace(write(tmp_path / "run.parquet", events))
    assert np.array_equal(trace.events, events)
    assert trace.table.schema == SCHEMA
    assert trace.scenario == SCENARIO
    assert trace.metrics == METRICS
    assert files(tmp_path) == ["run.parquet"]


def test_chunks_fill_row_groups_whatever_their_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_files, "ROW_GROUP_ROWS", 64)
    events = random_events(1000)
    for chunk in (1, 63, 64, 65, 500, 1000):
        path = write(tmp_path / f"{chunk}.parquet", events, chunk)
        assert pq.ParquetFile(path).num_row_groups == 16
        assert np.array_equal(read_trace(path).events, events)


def test_a_chunk_may_be_used_again_after_append(tmp_path: Path) -> None:
    chunk = random_events(10)
    kept = chunk.copy()
    with TraceWriter(tmp_path / "run.parquet", SCENARIO) as writer:
        writer.append(chunk)
        chunk[:] = 0
        writer.finish(METRICS)
    assert np.array_equal(read_trace(tmp_path / "run.parquet").events, kept)


def test_numpy_values_and_missing_numbers_become_plain_json(tmp_path: Path) -> None:
    with TraceWriter(tmp_path / "run.parquet", {"members": np.int64(3), "crashes": [(1, np.float32(0.5))]}) as writer:
        writer.finish({"messages": np.int64(7), "rtt_first_ms": float("nan"), "per_round": np.arange(2)})
    trace = read_trace(tmp_path / "run.parquet")
    assert trace.scenario == {"members": 3, "crashes": [[1, 0.5]]}
    assert trace.metrics == {"messages": 7, "rtt_first_ms": None, "per_round": [0, 1]}


def test_a_trace_rewritten_with_plain_strings_is_still_a_trace(tmp_path: Path) -> None:
    """Other engines keep no Arrow dictionary and may reorder the columns."""
    events = random_events(50)
    trace = read_trace(write(tmp_path / "run.parquet", events))
    table = trace.table
    for name in ("event", "layer"):
        index = table.schema.get_field_index(name)
        table = table.set_column(index, name, table.column(name).cast(pa.string()))
    metadata = {METADATA_KEY: json.dumps({"format": 1, "scenario": {}, "metrics": {}})}
    table = table.select(sorted(table.column_names)).replace_schema_metadata(metadata)
    pq.write_table(table, tmp_path / "again.parquet")
    pq.write_table(table, tmp_path / "plain.parquet", use_dictionary=False)
    for name in ("again", "plain"):
        assert np.array_equal(read_trace(tmp_path / f"{name}.parquet").events, events)


# Whole or absent


def test_a_failure_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), TraceWriter(tmp_path / "run.parquet", SCENARIO) as writer:  # noqa: PT012
        writer.append(random_events(10))
        assert len(files(tmp_path)) == 1
        raise KeyboardInterrupt
    assert files(tmp_path) == []


def test_a_failure_leaves_an_older_trace_as_it_was(tmp_path: Path) -> None:
    path = write(tmp_path / "run.parquet", random_events(10))
    before = path.read_bytes()
    with pytest.raises(RuntimeError), TraceWriter(path, SCENARIO) as writer:  # noqa: PT012
        writer.append(random_events(10, seed=1))
        raise RuntimeError
    assert path.read_bytes() == before
    assert files(tmp_path) == ["run.parquet"]


def test_a_trace_that_was_not_finished_is_not_kept_silently(tmp_path: Path) -> None:
    with pytest.raises(LocalProtocolError, match="call finish"), TraceWriter(tmp_path / "run.parquet", SCENARIO):
        pass
    assert files(tmp_path) == []


def test_a_finished_trace_takes_no_more(tmp_path: Path) -> None:
    with TraceWriter(tmp_path / "run.parquet", SCENARIO) as writer:
        writer.finish(METRICS)
        with pytest.raises(LocalProtocolError, match="is closed"):
            writer.append(random_events(1))
        with pytest.raises(LocalProtocolError, match="is closed"):
            writer.finish(METRICS)
    assert files(tmp_path) == ["run.parquet"]


def test_the_file_appears_only_when_finished(tmp_path: Path) -> None:
    with TraceWriter(tmp_path / "run.parquet", SCENARIO) as writer:
        writer.append(random_events(10))
        assert not (tmp_path / "run.parquet").exists()
        assert all(name.startswith(".") for name in files(tmp_path))
        writer.finish(METRICS)
        assert files(tmp_path) == ["run.parquet"]


def test_a_missing_folder_is_named_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(LocalProtocolError, match=r"cannot write trace .*run\.parquet: No such file") as caught:
        TraceWriter(tmp_path / "nowhere" / "run.parquet", SCENARIO)
    assert "\n" not in str(caught.value)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_is_a_one_line_error_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "open", lambda *_: open("/dev/full", "r+b"))  # noqa: PTH123, SIM115
    with (  # noqa: PT012
        pytest.raises(LocalProtocolError, match=r"cannot write trace .*: .*No space left") as caught,
        TraceWriter(tmp_path / "run.parquet", SCENARIO) as writer,
    ):
        writer.append(random_events(20_000))
        writer.finish(METRICS)
    assert "\n" not in str(caught.value)
    assert files(tmp_path) == []


def test_rows_of_another_kind_are_refused(tmp_path: Path) -> None:
    with (
        pytest.raises(LocalProtocolError, match="EVENT_DTYPE"),
        TraceWriter(tmp_path / "a.parquet", SCENARIO) as writer,
    ):
        writer.append(np.zeros(3, [("time_ns", np.int64)]))
    wrong = blank_events(3)
    wrong["event"][1] = len(EVENT_NAMES)
    with (  # noqa: PT012
        pytest.raises(LocalProtocolError, match=f"event code {len(EVENT_NAMES)} "),
        TraceWriter(tmp_path / "a.parquet", SCENARIO) as writer,
    ):
        writer.append(wrong)
        writer.finish(METRICS)
    assert files(tmp_path) == []


def test_metrics_that_are_no_json_are_refused(tmp_path: Path) -> None:
    with pytest.raises(LocalProtocolError, match="not JSON"), TraceWriter(tmp_path / "a.parquet", SCENARIO) as writer:
        writer.finish({"messages": object()})
    assert files(tmp_path) == []


# Not a trace


def refused(path: Path, match: str) -> None:
    with pytest.raises(LocalProtocolError, match=match) as caught:
        read_trace(path)
    assert "\n" not in str(caught.value)
    assert path.name in str(caught.value)


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    refused(tmp_path / "none.parquet", "cannot read trace")
    refused(tmp_path, "cannot read trace")


@pytest.mark.parametrize("content", [b"", b"PAR1", b"time,event\n1,send\n", b"\0" * 1000])
def test_another_kind_of_file_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "other.parquet").write_bytes(content)
    refused(tmp_path / "other.parquet", "is not a whole Parquet file")


def test_every_truncation_is_refused(tmp_path: Path) -> None:
    content = write(tmp_path / "run.parquet", random_events(20)).read_bytes()
    for length in range(0, len(content), 97):
        (tmp_path / "cut.parquet").write_bytes(content[:length])
        refused(tmp_path / "cut.parquet", "is not a whole Parquet file")


def test_a_flipped_bit_in_the_data_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "run.parquet", random_events(2000))
    content = bytearray(path.read_bytes())
    content[len(content) // 3] ^= 1
    path.write_bytes(content)
    with pytest.raises(LocalProtocolError, match=r"run\.parquet"):
        read_trace(path)


def store(path: Path, table: pa.Table, metadata: Any = None) -> Path:
    described = {"format": 1, "scenario": {}, "metrics": {}} if metadata is None else metadata
    text = described if isinstance(described, str) else json.dumps(described)
    pq.write_table(table.replace_schema_metadata({METADATA_KEY: text}), path)
    return path


def test_a_foreign_parquet_file_is_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": [1, 2]}), tmp_path / "x.parquet")
    refused(tmp_path / "x.parquet", "is a Parquet file but not a cubecast trace")


@pytest.mark.parametrize(
    ("metadata", "match"),
    [
        ("{", "unreadable 'cubecast' metadata"),
        ([1], "not a cubecast trace of format 1 or 2"),
        ({"format": 3, "scenario": {}, "metrics": {}}, "not a cubecast trace of format 1 or 2"),
        ({"format": 1, "metrics": {}}, "has no 'scenario'"),
        ({"format": 1, "scenario": {}, "metrics": 3}, "has no 'metrics'"),
    ],
)
def test_broken_metadata_is_refused(tmp_path: Path, metadata: Any, match: str) -> None:
    refused(store(tmp_path / "x.parquet", to_table(blank_events(1)), metadata), match)


def with_column(name: str, values: pa.Array) -> Callable[[pa.Table], pa.Table]:
    return lambda table: table.set_column(table.schema.get_field_index(name), pa.field(name, values.type), values)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda table: table.drop_columns(["peer"]), "lacks the trace column 'peer'"),
        (with_column("member", pa.array([1, 2], pa.int64())), "column 'member' of .* is int64, but a trace has int32"),
        (with_column("event", pa.array([1, 2], pa.int8())), "column 'event' of .* is int8"),
        (with_column("event", pa.array(["send", "shout"])), "column 'event' of .* holds 'shout', not one of send, hop"),
        (with_column("sender", pa.array([1, None], pa.int32())), "column 'sender' of .* has 1 missing"),
        (with_column("layer", pa.array(["data", None])), "column 'layer' of .* has 1 missing"),
        (lambda table: table.append_column("colour", pa.array(["red", "blue"])), "column 'colour' that no trace has"),
    ],
)
def test_a_schema_mismatch_names_the_column(tmp_path: Path, change: Callable[[Any], Any], match: str) -> None:
    refused(store(tmp_path / "x.parquet", change(to_table(blank_events(2)))), match)


def test_a_trace_in_memory_is_also_an_arrow_table() -> None:
    events = random_events(10)
    trace = Trace(events=events, scenario=SCENARIO, metrics=METRICS)
    assert trace.table.column("event").to_pylist() == [EVENT_NAMES[code] for code in events["event"]]

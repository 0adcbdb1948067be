"""Addresses of stores, and files in one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cubecast.errors import LocalProtocolError
from cubecast.lab.remote import RemotePath, dataset_of, path_of, sink, source
from cubecast.lab.store import Store
from cubecast.lab.whole_file import check_folder, write_whole
from tests.support.s3_server import own_bucket


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("results", Path("results")),
        ("/a/b c", Path("/a/b c")),
        ("file:///a/b%20c", Path("/a/b c")),
        ("s3://bucket/x/", RemotePath("s3", "bucket/x")),
        ("s3a://bucket/x?region=eu-west-1", RemotePath("s3", "bucket/x", "region=eu-west-1")),
        (Path("s3a://bucket/x"), RemotePath("s3", "bucket/x")),
        ("hdfs://host:9000/x", RemotePath("hdfs", "host:9000/x")),
    ],
)
def test_an_address_is_a_folder_or_a_place_in_a_store(address: str | Path, expected: object) -> None:
    assert path_of(address) == expected
    assert Store(address).root == expected  # type: ignore[arg-type]


def test_an_address_is_whole_again_as_text() -> None:
    path = path_of("s3a://bucket/x?region=eu-west-1") / "runs" / "a.parquet"
    assert str(path) == "s3://bucket/x/runs/a.parquet?region=eu-west-1"
    assert path_of(str(path)) == path
    assert (path.name, path.parent.name) == ("a.parquet", "runs")
    assert path.with_name("b").name == "b"


def test_an_unknown_scheme_is_one_line() -> None:
    with pytest.raises(LocalProtocolError, match="starts with one of file://, s3://, s3a://, hdfs://"):
        path_of("ftp://host/x")


@pytest.mark.parametrize("address", ["s3://", Path("s3://"), "s3a:", "file://", "hdfs:///"])
def test_an_address_without_a_place_is_one_line(address: str | Path) -> None:
    with pytest.raises(LocalProtocolError, match="the address names no bucket or host; write "):
        path_of(address)


def test_a_command_that_writes_here_refuses_an_address() -> None:
    with pytest.raises(LocalProtocolError, match="give a folder of this machine"):
        check_folder(Path("s3://bucket/x"))


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with own_bucket(tmp_path_factory.mktemp("s3")) as address:
        yield address


def test_files_in_a_store_are_written_listed_moved_and_removed(bucket: str) -> None:
    root = path_of(bucket.format("/files"))
    assert isinstance(root, RemotePath)
    assert not root.exists()
    assert list(root.glob("*")) == []
    write_whole(root / "a" / "one.txt", "one")
    write_whole(root / "a" / "two.csv", b"2")
    assert [path.name for path in (root / "a").glob("*.txt")] == ["one.txt"]
    assert (root / "a").is_dir()
    moved = (root / "a" / "one.txt").replace(root / "b" / "one.txt")
    assert moved.read_text() == "one"
    assert not (root / "a" / "one.txt").exists()
    assert (age := moved.age_s(0.0)) is not None
    assert age < 0
    (root / "a").remove_tree()
    assert not (root / "a" / "two.csv").exists()
    (root / "nothing").unlink(missing_ok=True)
    with pytest.raises(FileNotFoundError):
        (root / "nothing").read_bytes()


def test_a_file_of_several_parts_is_whole(bucket: str) -> None:
    content = bytes(range(256)) * 50_000
    path = path_of(bucket.format("/large")) / "file"
    path.write_bytes(content)
    assert path.read_bytes() == content


def test_tables_in_a_store_are_read_as_they_were_written(bucket: str) -> None:
    path = path_of(bucket.format("/tables")) / "study=x" / "one.parquet"
    table = pa.table({"n": [1, 2, 3]})
    with sink(path) as file:
        pq.write_table(table, file)
    assert pq.read_table(source(path)).equals(table)
    assert dataset_of(path.parent).to_table().equals(table)


def test_a_bucket_that_is_not_there_is_one_line(bucket: str) -> None:
    path = path_of(bucket.format("x").replace("lab", "nobody-s", 1))
    with pytest.raises(LocalProtocolError, match="nobody-s"):
        write_whole(path / "a", "b")

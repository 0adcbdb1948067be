"""Blocks of a trace file, read from any place and in pieces of any size."""

from __future__ import annotations

import io
import json
import random

import numpy as np
import pytest

from cubecast.errors import LocalProtocolError
from cubecast.trace import blocks as trace_blocks
from cubecast.trace.blocks import (
    NAMES,
    ROWS,
    Names,
    blocks,
    make_block,
    read_blocks,
    rows_of,
)
from cubecast.trace.schema import LEAVE, blank_events


def _rows(*members: int) -> bytes:
    events = blank_events(len(members))
    events["event"], events["member"] = LEAVE, members
    return events.tobytes()


def _file(cut: int = 0) -> tuple[bytes, list[int]]:
    """Two sessions, the first cut short; gives the ends of the whole blocks."""
    whole = [
        make_block(NAMES, 1, json.dumps([[0, "a", 0], [1, "b", 0]]).encode()),
        make_block(ROWS, 1, _rows(0, 1)),
    ]
    cut_short = make_block(ROWS, 1, _rows(*[0] * 50))
    restarted = [
        make_block(NAMES, 2, json.dumps([[0, ["b", 1], 3], [1, "a", 0]]).encode()),
        make_block(ROWS, 2, _rows(1, 0)),
    ]
    data, ends = b"", []
    for block in (*whole, None, *restarted):
        data += cut_short[:cut] if block is None else block
        if block is not None:
            ends.append(len(data))
    return data, ends


@pytest.mark.parametrize("size", [1, 30, 100, 150, 1 << 20])
@pytest.mark.parametrize("cut", [0, 5, 27, 28, 100, 3000])
def test_pieces_of_any_size_give_the_same_blocks(monkeypatch: pytest.MonkeyPatch, size: int, cut: int) -> None:
    monkeypatch.setattr(trace_blocks, "READ_BYTES", size)
    data, ends = _file(cut)
    found = [block for some in read_blocks(io.BytesIO(data), 0, len(data)) for block in some]
    assert [block.end for block in found] == ends
    assert found == list(blocks(data))


@pytest.mark.parametrize("cut", [0, 5, 28, 3000])
def test_a_file_read_as_it_grows_gives_every_block_once(cut: int) -> None:
    """A reader that continues after the last whole block need not know of kills and restarts."""
    data, ends = _file(cut)
    draw = random.Random(cut)
    place, grown, found = 0, 0, []
    while grown < len(data):
        grown = min(len(data), grown + draw.randrange(1, 60))
        for some in read_blocks(io.BytesIO(data[:grown]), place, grown):
            found += some
            place = some[-1].end
    assert [block.end for block in found] == ends


def test_ids_are_those_of_their_session() -> None:
    data, ends = _file(100)
    names = Names()
    events = np.concatenate(rows_of("x", blocks(data), names))
    members = list(names.members)
    assert members == [("a", 0), ("b", 0), (("b", 1), 3)]
    assert [members[member] for member in events["member"].tolist()] == [("a", 0), ("b", 0), ("a", 0), (("b", 1), 3)]
    later = rows_of("x", blocks(data[ends[2] :]), names)
    assert later[0]["member"].tolist() == [0, 2], "names of before are known"
    with pytest.raises(LocalProtocolError, match="whose name is missing"):
        rows_of("x", blocks(data[ends[2] :]), Names())

"""The log of a live member: what was written comes back, a torn end is cut off, damage is refused."""

from __future__ import annotations

import logging
import random
from contextlib import suppress
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cubecast.core.membership import records as r
from cubecast.core.membership.messages import Excluded, Left
from cubecast.errors import LocalProtocolError, RemoteProtocolError
from cubecast.live.changing.journal import HEAD, Journal
from cubecast.wire.records import KINDS, decode_records, encode_records
from tests.wire.frames import damage
from tests.wire.membership_messages import draw_data, draw_member, draw_record

LIFE = r.Life(draw_member(random.Random(1)))


def journal(path: Path, sync: Any = "never") -> Journal:
    return Journal(path, sync=sync, interval_s=0.1)


def written(path: Path, *batches: tuple[r.Record, ...]) -> Path:
    log = journal(path)
    log.read()
    for batch in batches:
        log.append(batch)
        log.write()
    log.close()
    return path


def batches(seed: int, count: int) -> list[tuple[r.Record, ...]]:
    chance = random.Random(seed)
    later = [kind for kind in KINDS if kind not in (r.Life, r.Whole)]
    return [(LIFE,), *((draw_record(chance, chance.choice(later)), draw_data(chance)) for _ in range(count - 1))]


def test_every_record_of_the_core_has_a_form() -> None:
    assert set(KINDS) == set(get_args(r.Record))


@given(st.integers(0, 1 << 60))
@settings(deadline=None, max_examples=300)
def test_records_come_back_as_they_were_written(seed: int) -> None:
    chance = random.Random(seed)
    records = [draw_record(chance, chance.choice(list(KINDS))) for _ in range(4)]
    read = decode_records(encode_records(records))
    assert read == records
    assert [type(one) for one in read] == [type(one) for one in records]


@given(st.integers(0, 1 << 60))
@settings(deadline=None, max_examples=500)
def test_damaged_records_are_refused_or_read_and_nothing_else(seed: int) -> None:
    chance = random.Random(seed)
    octets = damage(chance, encode_records([draw_record(chance, chance.choice(list(KINDS))) for _ in range(2)]))
    with suppress(RemoteProtocolError):
        decode_records(octets)


@pytest.mark.parametrize("end", [None, Left(), Excluded("they went on", (b"a", b""), certain=True)])
def test_an_end_comes_back_with_what_was_returned(end: Any) -> None:
    assert decode_records(encode_records([r.Over(None, end)])) == [r.Over(None, end)]


@pytest.mark.parametrize("sync", ["always", "interval", "never"])
def test_a_log_is_read_back_and_gone_on_with(tmp_path: Path, sync: Any) -> None:
    first = batches(1, 3)
    path = written(tmp_path / "log", *first)
    log = journal(path, sync)
    assert log.read() == [record for batch in first for record in batch]
    log.append((r.Delivered(1),))
    log.write()
    if log.is_sync_due():
        log.sync()
    log.close()
    assert journal(path).read() == [*(record for batch in first for record in batch), r.Delivered(1)]


def test_wherever_a_write_was_cut_the_whole_batches_before_it_are_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    every = batches(2, 6)
    ends = [written(tmp_path / f"{count}", *every[:count]).stat().st_size for count in range(1, 7)]
    whole = (tmp_path / "6").read_bytes()
    for length in range(ends[3], ends[4]):
        torn = tmp_path / "torn"
        torn.write_bytes(whole[:length])
        with caplog.at_level(logging.WARNING):
            log = journal(torn)
            assert log.read() == [record for batch in every[:4] for record in batch]
        log.append((r.Delivered(7),))
        log.close()
        assert journal(torn).read()[-1] == r.Delivered(7)
    assert "not written completely" in caplog.text


def test_garbage_at_the_end_is_cut_off(tmp_path: Path) -> None:
    every = batches(3, 4)
    path = written(tmp_path / "log", *every)
    for tail in (bytes(64), b"\xff" * 64, path.read_bytes()[-20:]):
        damaged = tmp_path / "damaged"
        damaged.write_bytes(path.read_bytes() + tail)
        assert journal(damaged).read() == [record for batch in every for record in batch]


def test_damage_before_the_end_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "log", *batches(4, 5))
    octets = bytearray(path.read_bytes())
    octets[len(HEAD) + 12] ^= 1
    path.write_bytes(octets)
    with pytest.raises(LocalProtocolError, match="damaged at byte 16"):
        journal(path).read()


def test_a_file_that_is_no_log_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "letter"
    path.write_bytes(b"Dear reader, this is not a log.")
    with pytest.raises(LocalProtocolError, match="not a log of format 2"):
        journal(path).read()
    assert path.read_bytes().startswith(b"Dear")


def test_a_checkpoint_takes_the_place_of_all_before_it(tmp_path: Path) -> None:
    whole = draw_record(random.Random(5), r.Whole)
    path = written(tmp_path / "log", *batches(5, 200), (whole,), (r.Delivered(2),))
    assert journal(path).read() == [whole, r.Delivered(2)]
    assert not path.with_name("log.new").exists()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_a_full_disk_is_one_clear_line(tmp_path: Path) -> None:
    log = journal(Path("/dev/full"))
    log.append((r.Delivered(1),))
    with pytest.raises(LocalProtocolError, match="cannot write the log /dev/full"):
        log.write()
    with pytest.raises(LocalProtocolError, match="cannot write the log"):
        journal(tmp_path / "missing" / "log")

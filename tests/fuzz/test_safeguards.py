"""Each safeguard of a member, taken out, is shown by a random history: the fuzzer sees what it is to see.

`FIRST` has a seed that shows each; `python -m tests.fuzz.safeguards` searches for others when the code changes.
"""

from __future__ import annotations

import pytest

from tests.fuzz.broken_members import BROKEN, caught

FIRST: dict[str, int] = {
    "anybody decides alone": 6,
    "a promise does not freeze": 1,
    "the cut is the coordinator's": 0,
    "nothing is flushed": 1,
    "flushed is said too early": 0,
    "messages are sent while the view changes": 1,
    "messages are sent before the restore": 0,
    "data of the next view is dropped": 150,
    "a former member is taken for a new one": 25,
    "recovered messages are not written": 17,
    "nothing is missing": 0,
    "a link forgets what was not acknowledged": 4,
    "certificates are not compared": 24,
    "records are written last": 94,
    "what waits is not read back": 14,
    "what waits is queued twice": 14,
    "deliveries are not read back": 14,
    "recovered messages are not read back": 81,
    "the restored state is not read back": 14,
    "a return is called certain": 203,
    "what is returned is lost": 2,
    "snapshots are not kept": 0,
    "a member of an older view is not told": 102,
    "an excluded member is not told": 25,
}
AROUND = 60
"""A change of the code moves what a seed shows: as many seeds from the one found are tried, and then those from 0."""


@pytest.mark.parametrize("name", FIRST)
def test_a_missing_safeguard_is_shown(name: str) -> None:
    first = FIRST[name]
    found = caught(name, [*range(first, first + AROUND), *range(AROUND)])
    assert found is not None, f"python -m tests.fuzz.safeguards --budget 2000 {name!r}"


def test_the_table_names_known_safeguards() -> None:
    assert set(FIRST) <= set(BROKEN)

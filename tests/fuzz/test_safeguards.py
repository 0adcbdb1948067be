"""Each removed safeguard of a member is exposed by a random history: the fuzzer finds what it must find.

`FIRST` has a seed that exposes each; `python -m tests.fuzz.safeguards` searches for others when the code changes.
"""

from __future__ import annotations

from functools import partial

import pytest

from cubecast.fuzz.histories import run_history
from cubecast.fuzz.themes import AGREEMENT, BRANCHES, LATE_HANDSHAKES, LATE_VIEWS, Theme
from tests.fuzz.broken_members import BROKEN, caught

FIRST: dict[str, int] = {
    "anybody decides alone": 1,
    "a promise does not freeze": 7,
    "the cut is the coordinator's": 3,
    "nothing is flushed": 3,
    "flushed is said too early": 3,
    "an accepted proposal is forgotten": 25,
    "a promise is forgotten": 581,
    "messages are sent while the view changes": 7,
    "messages are sent before the restore": 3,
    "data of the next view is dropped": 7,
    "data of another view is taken": 101,
    "a former member is taken for a new one": 25,
    "recovered messages are not written": 181,
    "nothing is missing": 3,
    "a frame is accepted twice, and its messages": 178,
    "a link forgets what was not acknowledged": 34,
    "certificates are not compared": 274,
    "records are written last": 44,
    "an accepted proposal is not read back": 13,
    "what waits is not read back": 4,
    "what waits is queued twice": 4,
    "deliveries are not read back": 32,
    "recovered messages are not read back": 214,
    "the restored state is not read back": 175,
    "pieces of two holders are mixed": 191,
    "pieces of two runs of a holder are mixed": 755,
    "a return is called certain": 299,
    "what is returned is lost": 7,
    "snapshots are not kept": 2,
    "a member of an older view does not get the decision": 935,
    "an excluded member is not informed": 25,
    "what was sent is not waited for": 0,
    "waiting multicasts are not counted": 0,
    "what is delivered counts as processed": 0,
    "earlier views count as processed": 11,
    "an answer does not wait for the message": 0,
}
FIRST_OF_THEMES: dict[str, tuple[Theme, int]] = {
    "a link continues although frames were lost": (LATE_VIEWS, 439),
    "a promise is not read back": (AGREEMENT, 2945),
    "branches that share members do not settle": (BRANCHES, 489),
    "an earlier session replaces a later one": (LATE_HANDSHAKES, 1529),
}
"""Seeds of histories of one theme, for what is rare in all of them."""
AROUND = 60
"""A change of the code moves what a seed shows: as many seeds from the one found are tried, and then those from 0."""


@pytest.mark.parametrize("name", FIRST)
def test_a_missing_safeguard_is_shown(name: str) -> None:
    first = FIRST[name]
    found = caught(name, [*range(first, first + AROUND), *range(AROUND)])
    assert found is not None, f"python -m tests.fuzz.safeguards --budget 2000 {name!r}"
    assert not run_history(found[0]).violations, "the history breaks a promise with the safeguard too"


@pytest.mark.parametrize("name", FIRST_OF_THEMES)
def test_a_missing_safeguard_is_shown_by_a_theme(name: str) -> None:
    theme, first = FIRST_OF_THEMES[name]
    run = partial(run_history, theme=theme)
    found = caught(name, range(first, first + 4 * AROUND, 2), run)
    assert found is not None
    assert not run(found[0]).violations, "the history breaks a promise with the safeguard too"


def test_the_table_has_every_safeguard() -> None:
    assert set(FIRST) | set(FIRST_OF_THEMES) == set(BROKEN)

"""Shared objects under the whole-member fuzzer: crashes, restarts, partitions, exclusions, slow programs.

`CASES` has histories that once went wrong; each missing safeguard is exposed by the seeds from the one that is named.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from cubecast.fuzz.histories import is_settled, run_history
from cubecast.objects.dictionary import ReplicatedDict, Stamp
from cubecast.objects.lock import Lock
from cubecast.objects.space import Space
from cubecast.objects.total_order import Key, TotalOrder
from tests.objects.fuzzed_space import ObjectsWorld


def violations(seed: int) -> list[str]:
    """What one history with shared objects violates."""
    outcome = run_history(seed, make_world=ObjectsWorld)
    found = list(outcome.violations)
    assert isinstance(outcome.world, ObjectsWorld)
    if not found and not outcome.is_lost and is_settled(outcome.world):
        found = outcome.world.judge()
    return found


CASES = {
    4: "a request that a process made before its restart is granted to nobody",
    41: "a program writes while its member is out of the group",
    64: "a restarted process is granted the lock",
    1019: "a member orders a message of its own that the others continue without",
    507: "an operator lets one branch continue",
}


@pytest.mark.parametrize("seed", [*range(1000, 1015), *CASES])
def test_objects_keep_their_promises(seed: int) -> None:
    assert violations(seed) == [], f"replay: violations({seed}) in tests/objects/test_fuzz.py"


# Removed safeguards.


def _all_at_once(self: TotalOrder[Any], _is_causally_stable: Any) -> list[Any]:
    return self._take(len(self.waiting))


def _is_latest_by_clock(self: ReplicatedDict, key: str, stamp: Stamp) -> bool:
    """As if what was written out of the group had a clock like any other."""
    known = [*self._writes.get(key, ()), *([self._tombstones[key]] if key in self._tombstones else [])]
    return all(stamp[1:] > other[1:] for other in known)


def _forget_all(self: ReplicatedDict) -> None:
    self._tombstones.clear()


def _nothing(*_: Any) -> None:
    pass


def _with_smaller(self: TotalOrder[Any], is_causally_stable: Callable[[Key], bool]) -> list[Any]:
    stable = [place for place, (key, _) in enumerate(self.waiting, 1) if is_causally_stable(key)]
    return self._take(max(stable, default=0))


BROKEN = {
    "the order does not wait for causal stability": (TotalOrder, "stable", _all_at_once),
    "smaller keys need not be causally stable": (TotalOrder, "stable", _with_smaller),
    "a request of an earlier run stays": (Lock, "_withdraw_if_forgotten", _nothing),
    "members that are gone keep the lock": (Lock, "begin_view", _nothing),
    "deletions are forgotten early": (ReplicatedDict, "forget", _forget_all),
    "a write is ordered by its clock alone": (ReplicatedDict, "_is_latest", _is_latest_by_clock),
    "waiting operations are not given to newcomers": (TotalOrder, "put_back", _nothing),
    "an exclusion leaves the lock held": (Space, "_lost", _nothing),
}
FIRST = {
    "the order does not wait for causal stability": 0,
    "smaller keys need not be causally stable": 2018,
    "a request of an earlier run stays": 4,
    "members that are gone keep the lock": 21,
    "deletions are forgotten early": 0,
    "a write is ordered by its clock alone": 8,
    "waiting operations are not given to newcomers": 3,
    "an exclusion leaves the lock held": 37,
}
AROUND = 20


@pytest.mark.parametrize("name", BROKEN)
def test_a_missing_safeguard_is_shown(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    first = FIRST[name]
    monkeypatch.setattr(*BROKEN[name])
    found = next((seed for seed in range(first, first + AROUND) if violations(seed)), None)
    assert found is not None, f"without its safeguard ({name}) no history goes wrong"
    monkeypatch.undo()
    assert violations(found) == []

"""How likely a tree reaches every member (rasm §3.3, Eq 1 and Eq 2), with one message per link or with a quota.

A tree is given by parents: `parents[j]` is the member from which j gets its messages, −1 for the source. `failure[j]`
is the probability that a message from parents[j] does not reach j: 1 − (1 − P_parent)(1 − L_j)(1 − P_j).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from cubecast.errors import NoTreeError
from cubecast.models.checks import require
from cubecast.models.quota import share_quota


def reachability(failure: NDArray[np.float64]) -> float:
    """R(T), Eq 1: the one message on every link of the tree arrives. `failure` has one entry per link."""
    return math.exp(math.fsum(np.log1p(-np.asarray(failure, np.float64))))


def reachability_with_copies(failure: NDArray[np.float64], copies: NDArray[np.int64]) -> float:
    """R'(T, m), Eq 2: on every link at least one of its copies arrives."""
    return math.exp(math.fsum(np.log1p(-(np.asarray(failure, np.float64) ** copies))))


def shared_quota(failure: NDArray[np.float64], quota: int) -> NDArray[np.int64]:
    """How many copies each link of one sender gets: one, and the rest of `quota` where the gain of Eq 2 is largest."""
    require(quota >= len(failure), f"quota = {quota}: it must reach all {len(failure)} receivers once")
    copies = np.zeros(len(failure), np.int64)
    share_quota(np.asarray(failure, np.float64), copies, len(failure), quota)
    return copies


def tree_failures(parents: NDArray[np.int64], failure_between: NDArray[np.float64]) -> NDArray[np.float64]:
    """The failure probabilities of the links of a tree, taken from a table of all pairs of members."""
    children = np.flatnonzero(parents >= 0)
    _require_tree(parents)
    return failure_between[parents[children], children]


def tree_reachability(parents: NDArray[np.int64], failure_between: NDArray[np.float64]) -> float:
    """R(T), Eq 1, for a tree given by parents."""
    return reachability(tree_failures(parents, failure_between))


def expected_share(parents: NDArray[np.int64], failure_between: NDArray[np.float64]) -> float:
    """The mean share of the other members that a message reaches: the mean over members of ∏ over the path to each."""
    _require_tree(parents)
    reached = np.where(parents < 0, 1.0, 0.0)
    waiting = [int(member) for member in np.flatnonzero(parents >= 0)]
    while waiting:
        ready = [member for member in waiting if reached[parents[member]] > 0]
        for member in ready:
            reached[member] = reached[parents[member]] * (1 - failure_between[parents[member], member])
        if not ready or min(reached[ready]) == 0:
            break
        waiting = [member for member in waiting if member not in ready]
    return float(reached[parents >= 0].mean())


def tree_reachability_with_quota(parents: NDArray[np.int64], failure_between: NDArray[np.float64], quota: int) -> float:
    """Eq 2 for a tree in which every inner member shares its own quota among its children."""
    _require_tree(parents)
    total = 0.0
    for parent in np.unique(parents[parents >= 0]):
        failure = failure_between[parent, np.flatnonzero(parents == parent)]
        reached = reachability_with_copies(failure, shared_quota(failure, quota))
        if reached == 0:
            return 0.0
        total += math.log(reached)
    return math.exp(total)


def _require_tree(parents: NDArray[np.int64]) -> None:
    """Require one source, to which the parents of every member lead."""
    sources = np.flatnonzero(parents < 0)
    require(len(sources) == 1, f"{len(sources)} members without a parent: a tree has exactly one source")
    reached = parents < 0
    for _ in range(len(parents)):
        if reached.all():
            return
        reached = reached | reached[parents]
    raise NoTreeError(f"member {int(np.argmin(reached))} has no path from the source: its parents form a circle")

"""Local groups as arrays: the ranks of each group, and the group of each rank."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


class LocalGroups(NamedTuple):
    """A division of all ranks."""

    order: np.ndarray
    """The ranks, one local group after the other …"""
    first: np.ndarray
    """… of which local group k has order[first[k] : first[k + 1]]."""
    of_rank: np.ndarray
    """The local group of each rank."""
    lengths: np.ndarray
    """The number of members of each group."""


def as_arrays(divided: Sequence[np.ndarray]) -> LocalGroups:
    """The arrays of a division; every rank is in one local group."""
    lengths = np.array([len(one) for one in divided])
    order = np.concatenate(divided)
    of_rank = np.empty_like(order)
    of_rank[order] = np.repeat(np.arange(len(divided)), lengths)
    return LocalGroups(order=order, first=np.concatenate([[0], np.cumsum(lengths)]), of_rank=of_rank, lengths=lengths)

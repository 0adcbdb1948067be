"""Sets of ranks as rows of 64-bit words: the ranks heard (G, W), the members."""

import numpy as np

from cubecast.jit.decorators import entry_point
from cubecast.protocol.random import mix

_ONE = np.uint64(1)
_ZERO = np.uint64(0)


def words_for(members: int) -> int:
    """How many words a set of that many ranks takes."""
    return (members + 63) // 64


@entry_point
def bit(rank):
    """The word with only this rank's bit."""
    return _ONE << np.uint64(rank & 63)


@entry_point
def add(words, rank):
    """Put a rank into the set."""
    words[rank >> 6] |= bit(rank)


@entry_point
def discard(words, rank):
    """Take a rank out of the set."""
    words[rank >> 6] &= ~bit(rank)


@entry_point
def contains(words, rank):
    """Is the rank in the set?"""
    return (words[rank >> 6] & bit(rank)) != _ZERO


@entry_point
def clear(words):
    """Make the set empty."""
    for k in range(words.shape[0]):
        words[k] = _ZERO


@entry_point
def only(words, rank):
    """Make the set hold this rank alone."""
    clear(words)
    add(words, rank)


@entry_point
def copy(words, other):
    """Make the set equal to another."""
    for k in range(words.shape[0]):
        words[k] = other[k]


@entry_point
def merge(words, other):
    """Put every rank of another set into this one."""
    for k in range(words.shape[0]):
        words[k] |= other[k]


@entry_point
def covers(words, wanted):
    """Does the set hold every rank of `wanted`?"""
    for k in range(words.shape[0]):
        if (wanted[k] & ~words[k]) != _ZERO:
            return False
    return True


@entry_point
def lowest(words):
    """The smallest rank of the set, or −1 when it is empty."""
    for k in range(words.shape[0]):
        if words[k] != _ZERO:
            for place in range(64):
                if (words[k] >> np.uint64(place)) & _ONE != _ZERO:
                    return k * 64 + place
    return -1


@entry_point
def following(words, rank):
    """The next rank of the set after `rank`, going round; `rank` itself when no other is in it."""
    size = words.shape[0] * 64
    for step in range(1, size):
        other = rank + step if rank + step < size else rank + step - size
        if contains(words, other):
            return other
    return rank


@entry_point
def count(words):
    """How many ranks the set holds."""
    held = 0
    for k in range(words.shape[0]):
        word = words[k]
        while word != _ZERO:
            word &= word - _ONE
            held += 1
    return held


@entry_point
def place(words, rank):
    """How many ranks of the set are below this one: its position, if it is in the set."""
    below = 0
    for other in range(rank):
        if contains(words, other):
            below += 1
    return below


@entry_point
def at(words, place):
    """The rank of the set with `place` others below it, or −1 when the set is too small."""
    below = 0
    for rank in range(words.shape[0] * 64):
        if contains(words, rank):
            if below == place:
                return rank
            below += 1
    return -1


@entry_point
def fingerprint(words):
    """A hash of the set in 31 bits: equal sets have the same, and different sets almost always differ."""
    word = _ONE
    for k in range(words.shape[0]):
        word = mix(word ^ words[k])
    return np.int64(word >> np.uint64(33))


def full(rows: int, members: int) -> np.ndarray:
    """One set per row, each holding all ranks 0 … members−1."""
    words = np.zeros((rows, words_for(members)), np.uint64)
    words[:, : members >> 6] = ~_ZERO
    if members & 63:
        words[:, -1] = (_ONE << np.uint64(members & 63)) - _ONE
    return words


def empty(rows: int, members: int) -> np.ndarray:
    """One set per row for ranks 0 … members−1, each empty."""
    return np.zeros((rows, words_for(members)), np.uint64)

"""Random numbers from a seed and a counter (SplitMix64; Steele, Lea and Flood 2014).

A stream is an array of two 64-bit words: a key and how many numbers were drawn. The i-th number depends on the key
and i alone, so a run is the same on one core, on two workers and on a cluster, and a stream can be handed to compiled
code.
"""

import numpy as np

from cubecast.jit.decorators import entry_point, wrapping

_STEP = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_TO_UNIT = 1.0 / (1 << 53)
_S27, _S30, _S31, _S11 = np.uint64(27), np.uint64(30), np.uint64(31), np.uint64(11)
_ONE = np.uint64(1)


@entry_point
@wrapping
def mix(word):
    """Spread the bits of a 64-bit word over all 64 bits."""
    word = (word ^ (word >> _S30)) * _MIX_1
    word = (word ^ (word >> _S27)) * _MIX_2
    return word ^ (word >> _S31)


@entry_point
@wrapping
def draw(stream):
    """The next 64 random bits of a stream."""
    stream[1] += _ONE
    return mix(stream[0] + stream[1] * _STEP)


@entry_point
def uniform(stream):
    """A number in [0, 1)."""
    return np.float64(draw(stream) >> _S11) * _TO_UNIT


@entry_point
def below(stream, limit):
    """A whole number in 0 … limit−1."""
    return int(uniform(stream) * limit)


def new_stream(seed: int, purpose: str, rank: int = 0) -> np.ndarray:
    """A stream of its own for each purpose (and member), all from one seed."""
    stream: np.ndarray = new_streams(seed, purpose, np.array([rank]))[0]
    return stream


def new_streams(seed: int, purpose: str, ranks: np.ndarray) -> np.ndarray:
    """The streams of several members, one per row."""
    words = np.frombuffer(purpose.encode().ljust(-(-len(purpose) // 8) * 8, b"\0"), np.uint64)
    streams = np.zeros((len(ranks), 2), np.uint64)
    streams[:, 0] = seed & 0xFFFFFFFFFFFFFFFF
    for rank, stream in zip(ranks, streams, strict=True):
        for word in [*words, np.uint64(rank)]:
            stream[0] = draw(stream) ^ mix(word)
    return streams

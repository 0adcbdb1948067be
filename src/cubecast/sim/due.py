"""The queue of due links: a tournament of all links.

A link that carries packets plays with the key `arrival << shift | its own` of its first packet, an idle link with a key
of at least `IDLE`. Eight adjacent places of a cache line play each other, and the smallest key moves one level up: the
eight places below place i are 8i … 8i + 7, the winner of all is in place `WINNER`, and link l begins in place
`leaves + l`. The last bits of a link's keys, which contain the link, break ties: by default the lower link wins.

A heap would move fewer keys, but each of its comparisons is an unpredictable branch. Here every step is the
minimum of eight numbers, without a branch, and the number of steps is the same for all links.
"""

import numpy as np
from numpy.typing import NDArray

from cubecast.jit.decorators import linked
from cubecast.sim.world import aligned

WINNER = 1
IDLE = np.int64(1) << 62
_PLAYERS = 8
_LEVEL = 3  # 8 = 1 << 3


def leaves_for(links: int) -> int:
    """The place of the first link: a power of eight, at least as large as the number of links."""
    leaves = _PLAYERS
    while leaves < links:
        leaves *= _PLAYERS
    return leaves


def part_shift_for(links: int) -> int:
    """How far to shift the place of a link to get the winner of its part of 512, or −1 if parts are tiny."""
    up = leaves_for(links).bit_length() - (512).bit_length()
    return up if up > _LEVEL else -1


def new_due(links: int) -> NDArray[np.int64]:
    """A tournament of this many links, all of them idle."""
    places = leaves_for(links) + -(-links // _PLAYERS) * _PLAYERS
    due = aligned(places, np.dtype(np.int64))
    due[:] = IDLE
    return due


@linked
def play_again(due, leaves, link, key):
    """The link is due at another time, or is idle now: replay its matches up to the top.

    Its opponents at all levels are known at once; only the last match of a level waits for the level below. Reading
    back the winner that was just written would make every level wait for memory.
    """
    place = np.uint64(leaves + link)
    while place > np.uint64(WINNER):
        due[place] = key
        one = min(due[place ^ np.uint64(1)], due[place ^ np.uint64(2)])
        two = min(due[place ^ np.uint64(3)], due[place ^ np.uint64(4)])
        three = min(due[place ^ np.uint64(5)], due[place ^ np.uint64(6)])
        key = min(key, min(min(one, two), min(three, due[place ^ np.uint64(7)])))
        place >>= np.uint64(_LEVEL)
    due[place] = key


@linked
def challenge(due, leaves, link, key):
    """An idle link is due now: move it up for as long as it wins."""
    place = np.uint64(leaves + link)
    while place >= np.uint64(WINNER) and key < due[place]:
        due[place] = key
        place >>= np.uint64(_LEVEL)

"""The tournament of links against the slow way to find the next one: look at all of them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cubecast.sim.due import IDLE, WINNER, challenge, leaves_for, new_due, play_again

SHIFT = 10
change = getattr(play_again, "py_func", play_again)
become_busy = getattr(challenge, "py_func", challenge)


@given(st.data(), st.sampled_from([1, 2, 7, 8, 9, 64, 65, 200, 513]))
def test_the_winner_is_the_link_with_the_smallest_key(data: st.DataObject, links: int) -> None:
    """Few arrival times, so that ties are common."""
    due, leaves = new_due(links), leaves_for(links)
    keys: dict[int, int] = {}
    for link, arrival in data.draw(st.lists(st.tuples(st.integers(0, links - 1), st.integers(0, 7)), max_size=60)):
        key = arrival << SHIFT | link
        if link not in keys:
            keys[link] = key
            become_busy(due, leaves, link, key)
        elif arrival == 0:
            del keys[link]
            change(due, leaves, link, int(IDLE) | link)
        else:
            keys[link] = key
            change(due, leaves, link, key)
        if keys:
            assert due[WINNER] == min(keys.values())
        else:
            assert due[WINNER] >= IDLE


def test_a_tournament_begins_idle_on_a_cache_line() -> None:
    for links in (1, 8, 9, 4096, 4097):
        due = new_due(links)
        assert due.ctypes.data % 64 == 0
        assert (due >= IDLE).all()
        assert due.size >= leaves_for(links) + links

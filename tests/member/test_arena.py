"""Memory that one view uses after the other."""

import numpy as np

from cubecast.member.arena import Arena


def test_arrays_of_one_view_do_not_overlap() -> None:
    arena = Arena()
    for _ in range(3):
        arena.reset()
        arrays = [arena.empty(3, np.uint8), arena.empty((5, 2), np.int64), arena.empty((4, 1), np.int32)]
        for number, array in enumerate(arrays):
            array.fill(number)
            assert array.flags.c_contiguous
            assert array.flags.aligned
        assert [set(array.ravel().tolist()) for array in arrays] == [{0}, {1}, {2}]


def test_the_next_view_uses_the_same_memory() -> None:
    arena = Arena()
    arena.empty(1000, np.int64)
    arena.reset()
    first = arena.empty(1000, np.int64)
    arena.reset()
    assert np.shares_memory(first, arena.empty((250, 4), np.int64))


def test_a_larger_view_gets_more() -> None:
    arena = Arena()
    arena.empty(10, np.int64)
    arena.reset()
    large = arena.empty(10_000, np.int64)
    assert large.shape == (10_000,)
    arena.reset()
    assert np.shares_memory(arena.empty(9_000, np.int64), arena.empty(0, np.int64)) is False
    assert len(arena._block) >= 80_000

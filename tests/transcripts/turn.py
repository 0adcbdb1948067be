"""One call of a core, compiled for its state as in a driver."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from cubecast.core.compiled import compiled_for
from cubecast.core.dispatch import call_core

SLOT = 1
"""Where a driver of these tests puts a message before a core receives it."""


def _turn(state, row, now_ns, mail, what, a, b):  # type: ignore[no-untyped-def]
    call_core(state, row, now_ns, mail, what, a, b)


@cache
def turn_for(state: type) -> Callable[..., None]:
    """`call_core` for states of this class."""
    return compiled_for(_turn, [state])

"""A core as its driver calls it, and a driver as Python calls it: by integers, whatever the protocol.

`bind(state, mail)` makes both, and `call_bound` calls the core. Compiled, the code at the address takes the arrays of
the state and of the mail out of the table; the driver needs not know their types, so a driver is compiled once for all
protocols, and a core once for all drivers. In plain Python a function that holds the state stands for the address.

The table is a row of 64-bit words, for every array in the order of the fields: two null pointers, the number of
elements, the size of one, the address of the first, the shape and the strides, as Numba lays an array out; for a
number the number itself.

`hold` makes a handle of a tuple of arrays, for functions that Python calls often. Compiled, the handle is the address
of such a table, and `held_at` is the tuple again. Handing over the arrays themselves has Numba look at each, which is
little work in a loop, but not for a member that sleeps between two messages: every object it looks at is then out of
the processor's caches.

Invariant: arrays and table live as long as the `Bound` or `Held` that holds them.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cubecast.core.compiled import COMPILED, address_of, arrays_in, call_at, compiled_for, internal, lay_out
from cubecast.core.dispatch import call_core
from cubecast.core.mail import Mail
from cubecast.errors import LocalProtocolError

ACT, TABLE = range(2)

_ACTS: dict[type, Callable[..., None]] = {}
"""`act`, compiled for each class of state that was bound."""


class Bound(NamedTuple):
    """Cores with their states and their mail, one a row."""

    cores: NDArray[Any]
    tables: list[NDArray[np.int64]]
    held: tuple[Any, ...]


def bind(states: tuple[Any, ...], mail: Mail) -> Bound:
    """The cores of these states, ready to be called."""
    tables = [np.array(list(_words_of((state, mail))) if COMPILED else [], np.int64) for state in states]
    acts = [_act_at(state, mail) if COMPILED else _plain(state, mail) for state in states]
    rows = [[act, table.ctypes.data] for act, table in zip(acts, tables, strict=True)]
    return Bound(np.array(rows, np.int64 if COMPILED else object), tables, (*states, mail))


class Held(NamedTuple):
    """A tuple of arrays as compiled functions take it from Python."""

    handle: Any
    table: NDArray[np.int64]
    value: tuple[Any, ...]


def hold(value: tuple[Any, ...]) -> Held:
    """A handle for `held_at`."""
    lay_out(value)
    table = np.array(list(_words_of(value)) if COMPILED else [], np.int64)
    return Held(table.ctypes.data if COMPILED else value, table, value)


def nothing_bound(count: int) -> Bound:
    """What stands for cores that are not called."""
    return Bound(np.zeros((count, 2), np.int64), [], ())


@internal
def call_bound(cores, which, row, now_ns, what, a, b):
    """Call one of the cores; see `call_core`."""
    call_at(cores[which, ACT], cores[which, TABLE], row, now_ns, what, a, b)


def act(table, row, now_ns, what, a, b):
    """Call the core whose arrays stand in the table. Plain here: it is compiled for given states."""
    both = arrays_in(table)
    call_core(both[0], row, now_ns, both[1], what, a, b)


def _act_at(state: Any, mail: Mail) -> int:
    kind = type(state)
    if kind not in _ACTS:
        _ACTS[kind] = compiled_for(act, kind)
    return address_of(_ACTS[kind], (state, mail))


def _plain(state: Any, mail: Mail) -> Callable[..., None]:
    def act(table: int, row: int, now_ns: int, what: int, a: int, b: int) -> None:
        call_core(state, row, now_ns, mail, what, a, b)

    return act


def _words_of(value: Any) -> Iterator[int]:
    if isinstance(value, tuple):
        for field in value:
            yield from _words_of(field)
    elif isinstance(value, np.ndarray):
        yield from (0, 0, value.size, value.itemsize, value.ctypes.data, *value.shape, *value.strides)
    elif isinstance(value, int | np.int64) and not isinstance(value, bool):
        yield int(value)
    elif isinstance(value, float):
        yield int(np.float64(value).view(np.int64))
    else:
        raise LocalProtocolError(
            f"a state holds {value!r} of type {type(value).__name__}: use arrays, int, float and tuples of these"
        )

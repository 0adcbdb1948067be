"""A bound core, which its driver calls, and a bound driver, which Python calls: by integers, whatever the protocol.

`bind(state, mail)` makes both, and `call_bound` calls the core. Compiled, the code at the address reads the arrays of
the state and of the mail from the table; the driver need not know their types, so a driver is compiled once for all
protocols, and a core once for all drivers. In plain Python a function that holds the state stands for the address.

Invariant: arrays and tables live as long as the `Bound` that holds them.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cubecast.jit.backend import COMPILED
from cubecast.jit.decorators import compiled_for, linked
from cubecast.jit.tables import address_of, arrays_in, call_at, table_of
from cubecast.protocol.handlers import call_core
from cubecast.protocol.mail import Mail

ACT, TABLE = range(2)

_ACTS: dict[type, Callable[..., None]] = {}
"""`act`, compiled for each class of state that was bound."""


class Bound(NamedTuple):
    """Cores with their states and their mail, one per row."""

    cores: NDArray[Any]
    tables: list[NDArray[np.int64]]
    held: tuple[Any, ...]


def bind(states: tuple[Any, ...], mail: Mail) -> Bound:
    """The cores of these states, ready to be called."""
    tables = [table_of((state, mail)) for state in states]
    acts = [_act_at(state, mail) if COMPILED else _plain(state, mail) for state in states]
    rows = [[act, table.ctypes.data] for act, table in zip(acts, tables, strict=True)]
    return Bound(np.array(rows, np.int64 if COMPILED else object), tables, (*states, mail))


def nothing_bound(count: int) -> Bound:
    """A placeholder for cores that are not called."""
    return Bound(np.zeros((count, 2), np.int64), [], ())


@linked
def call_bound(cores, which, row, now_ns, what, a, b):
    """Call one of the cores; see `call_core`."""
    call_at(cores[which, ACT], cores[which, TABLE], row, now_ns, what, a, b)


def act(table, row, now_ns, what, a, b):
    """Call the core whose arrays are in the table. Plain here: it is compiled for given states."""
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

"""Drivers and cores are compiled apart: what crosses the table between them arrives as it was."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import numpy as np
import pytest

from cubecast.errors import LocalProtocolError
from cubecast.jit.backend import COMPILED
from cubecast.jit.decorators import entry_point, linked
from cubecast.jit.tables import held_at, hold
from cubecast.protocol import handlers
from cubecast.protocol.bound import bind, call_bound
from cubecast.protocol.handlers import TIMER
from cubecast.protocol.mail import Mail, new_mail


class Inner(NamedTuple):
    matrix: np.ndarray
    factor: float


class NotedState(NamedTuple):
    offset: int
    inner: Inner
    notes: np.ndarray
    flags: np.ndarray


@linked
def _note(state, row, now_ns, mail, timer, tag):  # type: ignore[no-untyped-def]
    state.notes[row, 0] = now_ns + state.offset
    state.notes[row, 1] = state.inner.matrix[row, timer] * state.inner.factor
    state.notes[row, 2] = state.notes.shape[0] * 100 + state.inner.matrix.shape[1]
    state.flags[row] = tag
    mail.counts[0] += 1


@entry_point
def call_twice(cores, which):  # type: ignore[no-untyped-def]
    call_bound(cores, which, 1, 40, TIMER, 2, -5)
    call_bound(cores, which, 0, 50, TIMER, 0, 7)


@entry_point
def note_by_handle(handle, now_ns):  # type: ignore[no-untyped-def]
    state = held_at(handle, NotedState)
    state.notes[1, 0] = now_ns + state.offset
    state.notes[1, 1] = state.inner.matrix[1, 2] * state.inner.factor
    return state.flags.shape[0]


@linked
def add(a, b):  # type: ignore[no-untyped-def]
    return a + b


@entry_point
def sums(small):  # type: ignore[no-untyped-def]
    return add(1, 2) + add(small[0], 3) + add(small.shape[0], 4)


def noted(offset: int) -> NotedState:
    inner = Inner(matrix=np.arange(6, dtype=np.int32).reshape(2, 3), factor=2.5)
    return NotedState(offset=offset, inner=inner, notes=np.zeros((2, 3)), flags=np.zeros(2, np.int8))


def mail() -> Mail:
    return new_mail(slots=4, width=2, words=1, room=4)


handlers.register(NotedState, SimpleNamespace(on_timer=_note))


def test_a_bound_core_sees_its_own_arrays_and_numbers() -> None:
    states = noted(1), noted(1000)
    shared = mail()
    bound = bind(states, shared)
    call_twice(bound.cores, 1)
    assert states[0].notes.tolist() == [[0, 0, 0], [0, 0, 0]], "the other core was called"
    assert states[1].notes.tolist() == [[1050, 0, 203], [1040, 12.5, 203]]
    assert states[1].flags.tolist() == [7, -5]
    assert shared.counts[0] == 2


def test_a_handle_stands_for_the_arrays_and_numbers_of_one_tuple() -> None:
    first, second = hold(noted(1)), hold(noted(1000))
    assert note_by_handle(second.handle, 40) == 2
    assert note_by_handle(first.handle, 50) == 2
    assert cast(NotedState, first.value).notes.tolist() == [[0, 0, 0], [51, 12.5, 0]]
    assert cast(NotedState, second.value).notes.tolist() == [[0, 0, 0], [1040, 12.5, 0]]


@pytest.mark.skipif(not COMPILED, reason="there are no tables with CUBECAST_JIT=off")
def test_a_tuple_whose_arrays_are_of_other_types_gets_no_handle() -> None:
    """Compiled code reads the table as that of the first tuple of the class."""
    state = noted(1)
    hold(state)
    with pytest.raises(LocalProtocolError, match="a NotedState with arrays of other types"):
        hold(state._replace(notes=state.notes.astype(np.float32)))


@pytest.mark.skipif(not COMPILED, reason="there are no tables with CUBECAST_JIT=off")
@pytest.mark.parametrize("offset", [True, np.int32(3), "three", None])
def test_what_has_no_place_in_a_table_is_refused_by_name(offset: Any) -> None:
    with pytest.raises(LocalProtocolError, match=f"a state holds {offset!r}".replace("(", r"\(").replace(")", r"\)")):
        bind((noted(offset),), mail())


@pytest.mark.skipif(not COMPILED, reason="nothing is compiled with CUBECAST_JIT=off")
def test_a_function_is_compiled_once_whatever_integers_it_is_given() -> None:
    assert sums(np.array([10], np.int32)) == 21
    cast(Any, sums).recompile()  # it may have been loaded, with what it calls
    assert len(cast(Any, add).overloads) == 1

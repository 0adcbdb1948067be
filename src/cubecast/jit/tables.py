"""Tuples of arrays by address: how Python calls compiled code cheaply, and compiled code calls code unknown to it.

A *table* is a row of 64-bit words that holds the arrays of a tuple as Numba lays them out in memory, in the order of
the fields: for every array two null pointers, the number of elements, the size of one, the address of the first, the
shape and the strides; for a number the number itself. `self_test` tries the layout.

- `hold` makes a *handle* of a tuple, for functions that Python calls often, and `held_at` returns the tuple. Compiled,
  the handle is the address of the table. When the arrays themselves are passed, Numba inspects each one: little work in
  a loop, but not for a member that sleeps between two messages, when every object it inspects has left the processor's
  caches.
- `address_of` returns the address of a function's code, `call_at` calls it with a table and five integers, and
  `arrays_in` returns the tuple there. So a caller is compiled once for all functions it may call.

In plain Python a tuple is its own handle and a function its own address.

Invariant: arrays and table live as long as the `Held` (or other object) that holds them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from cubecast.errors import LocalProtocolError
from cubecast.jit.backend import COMPILED


class Held(NamedTuple):
    """A tuple of arrays as compiled functions take it from Python."""

    handle: Any
    table: NDArray[np.int64]
    value: tuple[Any, ...]


def table_of(value: tuple[Any, ...]) -> NDArray[np.int64]:
    """The table of a tuple; empty in plain Python."""
    words: list[int] = []
    if COMPILED:
        _add_words(words, value)
    return np.array(words, np.int64)


def hold(value: tuple[Any, ...]) -> Held:
    """A handle for `held_at`."""
    lay_out(value)
    table = table_of(value)
    return Held(table.ctypes.data if COMPILED else value, table, value)


def _add_words(words: list[int], value: Any) -> None:
    if isinstance(value, tuple):
        for field in value:
            _add_words(words, field)
    elif isinstance(value, np.ndarray):
        words += (0, 0, value.size, value.itemsize, value.ctypes.data, *value.shape, *value.strides)
    elif isinstance(value, int | np.int64) and not isinstance(value, bool):
        words.append(int(value))
    elif isinstance(value, float):
        words.append(int(np.float64(value).view(np.int64)))
    else:
        raise LocalProtocolError(
            f"a state holds {value!r} of type {type(value).__name__}: use arrays, int, float and tuples of these"
        )


if COMPILED:
    import numba
    from llvmlite import ir
    from numba.core import types
    from numba.extending import intrinsic

    def _kind_of(value: Any) -> Any:
        """Everything that Numba's type of a value depends on; a hundred times faster to compute than the type."""
        if isinstance(value, tuple):
            return type(value), *[_kind_of(field) for field in value]
        if isinstance(value, np.ndarray):
            flags = value.flags
            return type(value), value.dtype, value.ndim, flags.c_contiguous, flags.f_contiguous, flags.writeable
        return type(value)

    _ADDRESSES: dict[Any, int] = {}

    def address_of(function: Callable[..., Any], held: tuple[Any, ...]) -> int:
        """The address of the code of a function made by `compiled_for`, for a table of such arrays."""
        key = (function, _kind_of(held))
        if key not in _ADDRESSES:
            _ADDRESSES[key] = _find_address(function, held)
        return _ADDRESSES[key]

    def _find_address(function: Callable[..., Any], held: tuple[Any, ...]) -> int:
        dispatcher = cast(Any, function)
        signature = (types.CPointer(numba.typeof(held)), *[types.int64] * 5)
        if signature not in dispatcher.overloads:
            dispatcher.compile(signature)
        made = dispatcher.overloads[signature]
        return cast(int, made.library.get_pointer_to_function(made.fndesc.llvm_cfunc_wrapper_name))

    def _call_at(typing: Any, address: Any, table: Any, row: Any, now_ns: Any, what: Any, a: Any, b: Any) -> Any:
        """Call the code at an address with a table and five integers."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            function = ir.FunctionType(ir.VoidType(), [ir.IntType(64)] * 6)
            builder.call(builder.inttoptr(arguments[0], function.as_pointer()), arguments[1:])
            return context.get_dummy_value()

        return types.void(*[types.int64] * 7), generate

    def _arrays_in(typing: Any, table: Any) -> Any:
        """The arrays in a table."""
        held = table.dtype

        def load(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return context.data_model_manager[held].load_from_data_pointer(builder, arguments[0])

        return held(table), load

    _LAYOUTS: dict[type, Any] = {}
    _LAID_OUT: set[Any] = set()

    def lay_out(sample: tuple[Any, ...]) -> None:
        """Record for `held_at` the fields of a class of tuples, the same for every tuple of that class."""
        kind = _kind_of(sample)
        if kind in _LAID_OUT:
            return
        _LAID_OUT.add(kind)
        layout = numba.typeof(sample)
        if _LAYOUTS.setdefault(type(sample), layout) != layout:
            raise LocalProtocolError(f"a {type(sample).__name__} with arrays of other types than the one before it")

    def _held_at(typing: Any, address: Any, kind: Any) -> Any:
        """The tuple of class `kind` whose table is at an address; `lay_out` recorded its layout."""
        held = _LAYOUTS[kind.instance_class]

        def load(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            model = context.data_model_manager[held]
            table = builder.inttoptr(arguments[0], model.get_data_type().as_pointer())
            return model.load_from_data_pointer(builder, table)

        return held(types.int64, kind), load

    call_at: Callable[..., None] = intrinsic(_call_at)
    arrays_in: Callable[..., Any] = intrinsic(_arrays_in)
    held_at: Callable[..., Any] = intrinsic(_held_at)

else:

    def address_of(function: Callable[..., Any], held: tuple[Any, ...]) -> int:
        """Plain Python has no addresses and no tables."""
        raise NotImplementedError("plain Python has no addresses")

    def _call(function: Callable[..., None], *arguments: int) -> None:
        """Call a function: it is its own address."""
        function(*arguments)

    arrays_in, call_at = address_of, _call

    def lay_out(sample: tuple[Any, ...]) -> None:
        """Nothing to record in plain Python."""

    def held_at(handle: Any, kind: type) -> Any:
        """The tuple itself: it is its own handle."""
        return handle

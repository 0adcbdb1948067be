"""A hint to the processor: this element will be needed soon."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cubecast.jit.backend import COMPILED

if COMPILED:
    from llvmlite import ir
    from numba.core import cgutils, types
    from numba.extending import intrinsic

    _NUMBER, _POINTER = ir.IntType(32), ir.IntType(8).as_pointer()
    _TO_READ, _INTO_ALL_CACHES, _DATA = _NUMBER(0), _NUMBER(3), _NUMBER(1)

    def _fetch(typing: Any, array: Any, place: Any) -> Any:
        """Request the cache line of `array[place]` without waiting for it; places are not negative."""
        is_tuple = isinstance(place, types.BaseTuple)

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            held = context.make_array(array)(context, builder, arguments[0])
            indexes = cgutils.unpack_tuple(builder, arguments[1]) if is_tuple else arguments[1:]
            element = cgutils.get_item_pointer(context, builder, array, held, indexes)
            hint = ir.FunctionType(ir.VoidType(), [_POINTER, _NUMBER, _NUMBER, _NUMBER])
            prefetch = cgutils.get_or_insert_function(builder.module, hint, "llvm.prefetch.p0")
            builder.call(prefetch, [builder.bitcast(element, _POINTER), _TO_READ, _INTO_ALL_CACHES, _DATA])
            return context.get_dummy_value()

        indexes = types.UniTuple(types.uint64, len(place)) if is_tuple else types.uint64
        return types.void(array, indexes), generate

    fetch: Callable[..., None] = intrinsic(_fetch)

else:

    def fetch(array: Any, place: Any) -> None:
        """Nothing: plain Python gains nothing by a hint."""

"""Tuples of arrays that are indexed like an array whose rows are shared: `value[i]` is `value.sets[value.which[i]]`.

A function would do in plain Python. In compiled code, which borrows arrays and owns none, a function cannot return a
row of an array, so the expression itself is given a type and an implementation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from cubecast.jit.backend import COMPILED

Kind = TypeVar("Kind", bound=type)

_THROUGH: dict[type, tuple[int, int]] = {}
"""Classes of tuples, and the places of their fields: the rows, and which of them each index stands for."""


def indexed_through(which: str, rows: str) -> Callable[[Kind], Kind]:
    """Decorate a NamedTuple: an index is looked up in the field `which`, and names a row of the field `rows`."""

    def decorate(kind: Kind) -> Kind:
        fields = cast(Any, kind)._fields
        _THROUGH[kind] = fields.index(rows), fields.index(which)
        cast(Any, kind).__getitem__ = lambda value, index: getattr(value, rows)[getattr(value, which)[index]]
        return kind

    return decorate


if COMPILED:
    import operator

    from numba.core import types
    from numba.core.typing.templates import AbstractTemplate, infer_global, signature
    from numba.extending import lower_builtin

    def _row_type(typing: Any, rows: Any) -> Any:
        return typing.resolve_function_type(operator.getitem, (rows, types.intp), {}).return_type

    @infer_global(operator.getitem)
    class _TypeOfRow(AbstractTemplate):
        """The type of `value[i]`."""

        def generic(self, args: Any, _kws: Any) -> Any:
            value, index = args
            through = _THROUGH.get(getattr(value, "instance_class", type(None)))
            if through is None or not isinstance(index, types.Integer):
                return None
            return signature(_row_type(self.context, value.types[through[0]]), value, types.intp)

    @lower_builtin(operator.getitem, types.NamedTuple, types.Integer)  # type: ignore[untyped-decorator]
    def _take_row(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        """The code of `value[i]`: of the two look-ups, as Numba does each."""
        kind = sig.args[0]
        rows, which = _THROUGH[kind.instance_class]
        found = types.int64(kind.types[which], types.intp)
        place = context.get_function(operator.getitem, found)(builder, (builder.extract_value(args[0], which), args[1]))
        taken = sig.return_type(kind.types[rows], types.intp)
        return context.get_function(operator.getitem, taken)(builder, (builder.extract_value(args[0], rows), place))

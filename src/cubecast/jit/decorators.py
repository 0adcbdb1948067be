"""The decorators of compiled functions.

| decorator     | called by                | result                                                                  |
|---------------|--------------------------|-------------------------------------------------------------------------|
| `entry_point` | Python and compiled code | machine code, cached on disk                                            |
| `allocating`  | the same                 | the same, for a function that allocates arrays or dictionaries          |
| `linked`      | compiled code only       | LLVM code that is linked into its callers and inlined there (`linking`) |
| `inlined`     | compiled code only       | its statements are copied into each caller before types are inferred    |

Numba compiles a function when it is first called and caches the machine code on disk (`sources`), so that a second
process compiles nothing. With `CUBECAST_JIT=off` the decorators do nothing, Numba is never imported, and the same
functions run as ordinary Python on NumPy arrays: a light live member, a debugger.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np

from cubecast.jit.backend import COMPILED, LINKS_CODE
from cubecast.jit.sources import code_directory, sources_of, sources_of_class

Function = TypeVar("Function", bound=Callable[..., Any])

if COMPILED:
    import numba
    from numba.core import event
    from numba.extending import overload

    from cubecast.jit.code_cache import keep_in
    from cubecast.jit.linking import EntryCompiler, LinkedCompiler, take_any_integer

    # No reference counts: compiled code only borrows arrays that Python owns, and allocates none. This halves both the
    # time to compile and the size of the code.
    _OPTIONS: dict[str, Any] = {"error_model": "numpy", "_nrt": False, "no_cfunc_wrapper": True}
    _LINKED: dict[str, Any] = {"forceinline": True}
    if LINKS_CODE:
        _OPTIONS |= {"pipeline_class": EntryCompiler}
        _LINKED |= {"pipeline_class": LinkedCompiler, "no_cpython_wrapper": True}

    def _compile(function: Function, sources: Iterable[Path], **options: Any) -> Function:
        dispatcher = numba.njit(**(_OPTIONS | options))(function)
        keep_in(code_directory(sources), dispatcher)
        take_any_integer(dispatcher)
        return cast(Function, dispatcher)

    def entry_point(function: Function) -> Function:
        """Compile `function` on its first call, or load what an earlier process compiled."""
        return _compile(function, sources_of(Path(function.__code__.co_filename)))

    def allocating(function: Function) -> Function:
        """Like `entry_point`, for a function that allocates arrays or dictionaries: a checker, a formula."""
        sources = sources_of(Path(function.__code__.co_filename))
        return _compile(function, sources, _nrt=True, pipeline_class=None)

    def linked(function: Function) -> Function:
        """Like `entry_point`, for a function that only compiled code calls: it is inlined there and not cached.

        A call would pass every field of every array on the stack.
        """
        dispatcher = numba.njit(**(_OPTIONS | _LINKED))(function)
        take_any_integer(dispatcher)
        return cast(Function, dispatcher)

    def inlined(function: Function) -> Function:
        """Copy `function` into each compiled caller; it is never cached by itself.

        For functions that take any state: what they contain depends on the protocol, and an entry of their own in the
        cache could not be read by a process that does not know the protocol.
        """
        return cast(Function, numba.njit(**(_OPTIONS | {"inline": "always"}))(function))

    def wrapping(function: Function) -> Function:
        """64-bit integers wrap around by themselves in compiled code."""
        return function

    def compiled_for(function: Function, state: type) -> Function:
        """A copy of `function`, called by its address and cached with the code of the protocol of the state."""
        sources = sources_of_class(state) | sources_of(Path(function.__code__.co_filename))
        return _compile(function, sources, no_cpython_wrapper=True, no_cfunc_wrapper=False)

    @contextmanager
    def watch_compiler() -> Iterator[list[str]]:
        """A list that names each function compiled inside the block; it stays empty when the cache had them all."""
        names: list[str] = []
        with event.install_recorder("numba:compile") as recorder:
            try:
                yield names
            finally:
                names += [str(one.data["dispatcher"].py_func.__name__) for _, one in recorder.buffer if one.is_start]

else:

    def entry_point(function: Function) -> Function:
        """Leave `function` as ordinary Python."""
        return function

    allocating = linked = inlined = entry_point

    def wrapping(function: Function) -> Function:
        """Let 64-bit integers wrap around in `function` without a warning from NumPy."""

        @wraps(function)
        def quiet(*arguments: Any) -> Any:
            with np.errstate(over="ignore"):
                return function(*arguments)

        return cast(Function, quiet)

    def compiled_for(function: Function, state: type) -> Function:
        """The function itself: nothing is compiled, so nothing can be stale."""
        return function

    @contextmanager
    def watch_compiler() -> Iterator[list[str]]:
        """A list that stays empty: nothing is ever compiled."""
        yield []


def chosen_by_state(handlers: dict[type, Callable[..., Any]]) -> Callable[[Function], Function]:
    """Decorate a function whose first argument is a state: calls go to the handler of the state's class.

    The table may grow after the decoration: a protocol adds itself by one assignment. Compiled callers read the table
    at compile time and inline the handler. (Passing the handler as an argument instead would defeat the disk cache.)
    """

    def decorate(stub: Function) -> Function:
        def plain(state: Any, *rest: Any) -> Any:
            return handlers[type(state)](state, *rest)

        plain.__name__ = stub.__name__
        plain.__doc__ = stub.__doc__
        if COMPILED:
            _compile_choice(plain, stub, handlers)
        return cast(Function, plain)

    return decorate


def _compile_choice(
    plain: Callable[..., Any], stub: Callable[..., Any], handlers: dict[type, Callable[..., Any]]
) -> None:
    names = ", ".join(stub.__code__.co_varnames[: stub.__code__.co_argcount])
    # Numba wants the typing function and the implementation to have the stub's own argument names.
    source = (
        f"def typing({names}):\n"
        f"    handler = handlers.get(getattr(state, 'instance_class', None))\n"
        f"    if handler is not None:\n"
        f"        return lambda {names}: handler({names})\n"
    )
    namespace: dict[str, Any] = {"handlers": handlers}
    exec(source, namespace)
    overload(plain, jit_options=cast(Any, _OPTIONS | _LINKED))(namespace["typing"])

"""The one door to the compiler: `jit`, and the choice of a handler by the class of a state.

Protocol cores and the simulator's loops are plain Python functions decorated with `jit` (or `internal`). Numba
compiles them and keeps the machine code on disk, so that a second process compiles nothing. With `CUBECAST_JIT=off`
the decorators do nothing, Numba is never imported, and the same functions run as ordinary Python on NumPy arrays (a
light live member, a debugger).

**Stale code.** Numba looks only at the file of the function it compiles, not at the files of the functions it calls.
So compiled code is kept in a directory named by a hash of everything it may contain: the *base* (every source that
any protocol may call) and, for a protocol (or any other file outside the folders of the base), its own file and the
files outside the base that one imports. Editing a protocol compiles that protocol again and nothing else; editing the
base compiles everything again. `CUBECAST_CACHE_DIR` says
where the cache lives.
"""

from __future__ import annotations

import ast
import gc
import hashlib
import os
import sys
import sysconfig
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache, wraps
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np

from cubecast.errors import LocalProtocolError

Function = TypeVar("Function", bound=Callable[..., Any])

COMPILED = os.environ.get("CUBECAST_JIT", "on").lower() not in {"off", "0", "no", "false"}
"""Whether `jit` compiles. Read once, before the first decorator runs."""

_PACKAGE = Path(__file__).resolve().parent.parent
_BASE = ("trace.py", "core/*.py", "models/*.py", "networks/*.py", "sim/*.py", "sim/checkers/*.py")
TOOLS = {
    "benchmark.py",
    "compare.py",
    "compile_apart.py",
    "estimate.py",
    "page.py",
    "plots.py",
    "warm.py",
    "whole_file.py",
}
"""Files that no result of a run depends on."""
_NEVER_COMPILED = TOOLS | {
    *("from_setup.py", "layers.py", "registry.py", "build.py", "choose_trigger.py", "detectors.py", "faults.py"),
    *("paths.py", "result.py", "runner.py", "scenario.py", "settle.py", "simulate.py", "tune.py"),
}
"""Files of the base that no compiled code contains, so that a new protocol's line in the registry costs nothing."""
_BASE_FOLDERS = {(_PACKAGE / pattern).parent for pattern in _BASE}
_LIBRARIES = {Path(sysconfig.get_path(place)) for place in ("stdlib", "platstdlib", "purelib", "platlib")}


def cache_directory(sources: Iterable[Path] = ()) -> Path:
    """Where compiled code is kept that contains the base and these protocol files."""
    digest = hashlib.sha256(_base_hash().encode())
    for source in sorted(set(sources)):
        digest.update(source.read_bytes())
    default = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "cubecast"
    return Path(os.environ.get("CUBECAST_CACHE_DIR", default)) / "compiled" / digest.hexdigest()[:16]


@cache
def _base_hash() -> str:
    digest = hashlib.sha256()
    for pattern in _BASE:
        for path in sorted(set(_PACKAGE.glob(pattern))):
            if path.name in _NEVER_COMPILED:
                continue
            digest.update(path.name.encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()


@cache
def protocol_sources(path: Path) -> frozenset[Path]:
    """The protocol file `path` and the files it imports, directly or not; empty for a file of the base."""
    found: set[Path] = set()
    unread = [path]
    while unread:
        source = unread.pop()
        if source not in found and not _is_base(source):
            found.add(source)
            unread += _imported_files(source)
    return frozenset(found)


def state_sources(state: type) -> frozenset[Path]:
    """The sources of the protocol of a state."""
    return protocol_sources(Path(str(sys.modules[state.__module__].__file__)))


def _is_base(path: Path) -> bool:
    return path.parent in _BASE_FOLDERS


def _parsed(path: Path) -> ast.Module:
    """The syntax tree of a file. CPython 3.11 can fail at it when a garbage collection runs finalizers meanwhile."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return ast.parse(path.read_bytes())
    finally:
        if was_enabled:
            gc.enable()


def _imported_files(path: Path) -> Iterator[Path]:
    """Files of ours, and of the author of a protocol outside the package. Libraries have versions of their own."""
    for node in ast.walk(_parsed(path)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or "", *(f"{node.module or ''}.{alias.name}".strip(".") for alias in node.names)]
        else:
            continue
        level = getattr(node, "level", 0)
        files = (_file_near(path.parents[level - 1], name) if level else _file_loaded(name) for name in names)
        yield from (file for file in files if file is not None and _is_written_here(file, beside=path))


def _file_loaded(name: str) -> Path | None:
    """What a file imports at its head is loaded before its first function is decorated."""
    file = getattr(sys.modules.get(name), "__file__", None)
    return None if file is None else Path(file)


def _file_near(folder: Path, name: str) -> Path | None:
    place = folder.joinpath(*name.split("."))
    return next((file for file in (place.with_suffix(".py"), place / "__init__.py") if file.is_file()), None)


def _is_written_here(file: Path, *, beside: Path) -> bool:
    if file.suffix != ".py":
        return False
    if _PACKAGE in file.parents or beside.parent in file.parents:
        return True
    return not any(library in file.parents for library in _LIBRARIES)


if COMPILED:
    import numba
    from llvmlite import ir
    from llvmlite.binding import get_host_cpu_name
    from numba.core import event, types
    from numba.extending import intrinsic, overload

    from cubecast.core.linking import LinkedCompiler, WholeCompiler, take_any_integer

    # No reference counts: compiled code only borrows arrays that Python owns, and allocates none. This halves both the
    # time to compile and the size of the code.
    _OPTIONS: dict[str, Any] = {
        "cache": True,
        "error_model": "numpy",
        "_nrt": False,
        "no_cfunc_wrapper": True,
        "pipeline_class": WholeCompiler,
    }
    _INLINED = {
        "cache": False,
        "forceinline": True,
        "no_cpython_wrapper": True,
        "pipeline_class": LinkedCompiler,
    }

    @contextmanager
    def _cached_in(directory: Path) -> Iterator[None]:
        before = numba.config.CACHE_DIR  # type: ignore[attr-defined]
        numba.config.CACHE_DIR = str(directory)  # type: ignore[attr-defined]
        try:
            yield
        finally:
            numba.config.CACHE_DIR = before  # type: ignore[attr-defined]

    def _compile(function: Function, sources: Iterable[Path], **options: Any) -> Function:
        with _cached_in(cache_directory(sources)):
            dispatcher = numba.njit(**(_OPTIONS | options))(function)
        take_any_integer(dispatcher)
        return cast(Function, dispatcher)

    def jit(function: Function) -> Function:
        """Compile `function` on its first call, or load what an earlier process compiled."""
        return _compile(function, protocol_sources(Path(function.__code__.co_filename)))

    def allocating(function: Function) -> Function:
        """Like `jit`, for a function that makes arrays or dictionaries of its own: a checker, a formula."""
        return _compile(function, protocol_sources(Path(function.__code__.co_filename)), _nrt=True, pipeline_class=None)

    def internal(function: Function) -> Function:
        """Like `jit`, for a function that only compiled code calls: it is inlined there, and kept nowhere else.

        A call would pass every field of every array on the stack.
        """
        dispatcher = numba.njit(**(_OPTIONS | _INLINED))(function)
        take_any_integer(dispatcher)
        return cast(Function, dispatcher)

    def pasted(function: Function) -> Function:
        """Paste `function` into each compiled caller; it is never cached by itself.

        For functions of the base that take a state: what they contain depends on the protocol, and an entry for it in
        the base's cache could not be read by a process that does not know the protocol.
        """
        return cast(Function, numba.njit(**(_OPTIONS | {"cache": False, "inline": "always"}))(function))

    def wrapping(function: Function) -> Function:
        """64-bit integers wrap around by themselves in compiled code."""
        return function

    def compiled_for(function: Function, state: type) -> Function:
        """A twin of `function`, a plain one, called by its address and cached with the protocol of the state."""
        return _compile(function, state_sources(state), no_cpython_wrapper=True, no_cfunc_wrapper=False)

    def _kind_of(value: Any) -> Any:
        """All that Numba's type of a value depends on; a hundred times faster to find than the type."""
        if isinstance(value, tuple):
            return type(value), *[_kind_of(field) for field in value]
        if isinstance(value, np.ndarray):
            flags = value.flags
            return type(value), value.dtype, value.ndim, flags.c_contiguous, flags.f_contiguous, flags.writeable
        return type(value)

    _ADDRESSES: dict[Any, int] = {}

    def address_of(function: Callable[..., Any], held: tuple[Any, ...]) -> int:
        """Where the code is of a function made by `compiled_for`, for a table of such arrays."""
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
        """Call what is at an address with a table and five integers."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            function = ir.FunctionType(ir.VoidType(), [ir.IntType(64)] * 6)
            builder.call(builder.inttoptr(arguments[0], function.as_pointer()), arguments[1:])
            return context.get_dummy_value()

        return types.void(*[types.int64] * 7), generate

    def _arrays_in(typing: Any, table: Any) -> Any:
        """The arrays that stand in a table."""
        held = table.dtype

        def load(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return context.data_model_manager[held].load_from_data_pointer(builder, arguments[0])

        return held(table), load

    _LAYOUTS: dict[type, Any] = {}
    _LAID_OUT: set[Any] = set()

    def lay_out(sample: tuple[Any, ...]) -> None:
        """Tell `held_at` what the fields of a class of tuples are: the same for every tuple of that class."""
        kind = _kind_of(sample)
        if kind in _LAID_OUT:
            return
        _LAID_OUT.add(kind)
        layout = numba.typeof(sample)
        if _LAYOUTS.setdefault(type(sample), layout) != layout:
            raise LocalProtocolError(f"a {type(sample).__name__} with arrays of other types than the one before it")

    def _held_at(typing: Any, address: Any, kind: Any) -> Any:
        """The tuple of class `kind` whose table is at an address; its layout was told by `lay_out`."""
        held = _LAYOUTS[kind.instance_class]

        def load(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            model = context.data_model_manager[held]
            table = builder.inttoptr(arguments[0], model.get_data_type().as_pointer())
            return model.load_from_data_pointer(builder, table)

        return held(types.int64, kind), load

    call_at: Callable[..., None] = intrinsic(_call_at)
    arrays_in: Callable[..., Any] = intrinsic(_arrays_in)
    held_at: Callable[..., Any] = intrinsic(_held_at)

    def compiler() -> str:
        """What makes machine code here and for which processor; another one cannot use what this one compiled."""
        return f"{sys.implementation.cache_tag}-numba-{numba.__version__}-{get_host_cpu_name()}"

    def compilations(function: Callable[..., Any]) -> tuple[int, int]:
        """How often this function was loaded from the cache, and how often it had to be compiled."""
        stats = cast(Any, function).stats
        return sum(stats.cache_hits.values()), sum(stats.cache_misses.values())

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

    def jit(function: Function) -> Function:
        """Leave `function` as ordinary Python."""
        return function

    allocating = internal = pasted = jit

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

    def address_of(function: Callable[..., Any], held: tuple[Any, ...]) -> int:
        """Nothing has an address, and nobody has a table."""
        raise NotImplementedError("plain Python has no addresses")

    def _call(act: Callable[..., None], *arguments: int) -> None:
        """Call a function: there are no addresses."""
        act(*arguments)

    arrays_in, call_at = address_of, _call

    def lay_out(sample: tuple[Any, ...]) -> None:
        """Plain Python sees for itself."""

    def held_at(handle: Any, kind: type) -> Any:
        """The tuple itself: it is its own handle."""
        return handle

    def compiler() -> str:
        """None."""
        return f"{sys.implementation.cache_tag}-plain"

    def compilations(function: Callable[..., Any]) -> tuple[int, int]:
        """Nothing is ever compiled."""
        return 0, 0

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
    overload(plain, jit_options=cast(Any, _OPTIONS | _INLINED))(namespace["typing"])

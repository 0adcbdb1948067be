"""How functions that only compiled code calls are compiled: typed and lowered once, without machine code of their own.

By default Numba optimises every function, generates machine code and caches both, although a function that is inlined
into its callers needs neither: the same code would be optimised again at every level of calls. Here a *linked*
function ends as plain LLVM code that its callers link in, and is not cached on disk. An *entry point*, which is called
from outside, is optimised once, with all that is linked into it. docs/jit.md has measurements of what that saves.

An argument of such a function is an `int64` whatever integer its caller has. Numba would compile a function once for
every constant that a caller passes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import llvmlite.binding as llvm
from numba.core import types
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import LoweringPass, PassManager, register_pass
from numba.core.typed_passes import NativeLowering

_ENVIRONMENT = "_ZN08NumbaEnv"
"""Prefix of the variables in which Numba stores what a function needs of Python."""


class EntryLibrary(JITCodeLibrary):
    """The code of a function and of all it calls, made into machine code."""

    def _optimize_final_module(self) -> None:
        """Optimise in one pass. Numba's first, cheap pass combines reference counts, and there are none."""
        passes, builder = self._codegen._module_pass_manager()
        passes.run(self._final_module, builder)


class LinkedLibrary(JITCodeLibrary):
    """The code of one function, to be linked into others."""

    def _optimize_final_module(self) -> None:
        """Left to the entry points that link it in."""

    def _finalize_final_module(self) -> None:
        """Define the variables that Numba looks for after it has compiled a function; there is no machine code."""
        lines = [f'target triple = "{llvm.get_process_triple()}"']
        names = [variable.name for variable in self._final_module.global_variables]
        lines += [f'@"{name}" = common global i8* null' for name in names if name.startswith(_ENVIRONMENT)]
        variables = llvm.parse_assembly("\n".join(lines))
        variables.name = f"{self.name}.variables"
        self._codegen._engine.add_module(variables)
        self._codegen._engine.finalize_object()
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:  # noqa: ARG002
        """None: Python cannot call it."""
        self._ensure_finalized()
        return 0


class _ChooseLibrary(LoweringPass):
    library: type[JITCodeLibrary]

    def __init__(self) -> None:
        LoweringPass.__init__(self)

    def run_pass(self, state: Any) -> bool:
        state.library = self.library(state.targetctx.codegen(), state.func_id.func_qualname)
        state.library.enable_object_caching()
        return False


@register_pass(mutates_CFG=False, analysis_only=False)
class _MakeEntry(_ChooseLibrary):
    _name = "make_entry"
    library = EntryLibrary


@register_pass(mutates_CFG=False, analysis_only=False)
class _MakeLinked(_ChooseLibrary):
    _name = "make_linked"
    library = LinkedLibrary


class EntryCompiler(CompilerBase):
    """Numba's own pipeline, but for what comes out of it."""

    choice: type[_ChooseLibrary] = _MakeEntry

    def define_pipelines(self) -> list[PassManager]:
        """One pipeline, with our library put in before the code is made."""
        default = DefaultPassBuilder.define_nopython_pipeline(self.state)
        pipeline = PassManager("cubecast")
        for stage, description in default.passes:
            if stage is NativeLowering:
                pipeline.add_pass(self.choice, "choose what becomes of the code")
            pipeline.add_pass(stage, description)
        pipeline.finalize()
        return [pipeline]


class LinkedCompiler(EntryCompiler):
    """The same for a function that is linked into others."""

    choice = _MakeLinked


def take_any_integer(dispatcher: Any) -> None:
    """Let compiled callers of a function pass every kind of integer as `int64`."""
    original: Callable[..., Any] = dispatcher.get_call_template

    def get_call_template(args: Any, kws: Any) -> Any:
        return original([_widened(arg) for arg in args], {name: _widened(arg) for name, arg in kws.items()})

    dispatcher.get_call_template = get_call_template


def _widened(argument: Any) -> Any:
    plain = types.unliteral(argument)
    return types.int64 if isinstance(plain, types.Integer) and plain not in (types.int64, types.uint64) else plain

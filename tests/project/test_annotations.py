"""Every function that is not compiled is fully annotated.

mypy cannot distinguish a jitted function by its decorator, so pyproject.toml exempts some packages from annotations,
and this test requires them for all but the compiled functions.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "src" / "cubecast"

COMPILED_BY = {"entry_point", "linked", "inlined", "allocating", "chosen_by_state"}

# Written plainly, and compiled for given states by `compiled_for`.
COMPILED_LATER = {
    "jit/self_test.py": ["_act"],
    "protocol/bound.py": ["act"],
}


def unannotated(source: str) -> list[str]:
    """Names of the functions of a source that are neither compiled nor fully annotated."""
    functions = [
        node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    return [function.name for function in functions if not _is_compiled(function) and not _is_annotated(function)]


def _is_compiled(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    called = (decorator.func if isinstance(decorator, ast.Call) else decorator for decorator in function.decorator_list)
    return any(isinstance(name, ast.Name) and name.id in COMPILED_BY for name in called)


def _is_annotated(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    given = function.args
    arguments = [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]
    missing = [argument.arg for argument in arguments if argument is not None and argument.annotation is None]
    return function.returns is not None and set(missing) <= {"self", "cls"}


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_functions_that_are_not_compiled_are_annotated(path: Path) -> None:
    later = COMPILED_LATER.get(path.relative_to(PACKAGE).as_posix(), [])
    assert unannotated(path.read_text("utf-8")) == later


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("def f(a): ...", ["f"]),
        ("def f(a) -> int: ...", ["f"]),
        ("def f(a: int): ...", ["f"]),
        ("def f(*a, **b) -> int: ...", ["f"]),
        ("@other\ndef f(a): ...", ["f"]),
        ("class C:\n    def f(self, a): ...", ["f"]),
        ("class C:\n    def f(self, a: int) -> None: ...", []),
        ("def f(a: int, *, b: int) -> None: ...", []),
        ("@entry_point\ndef f(a): ...", []),
        ("@chosen_by_state(HANDLERS)\ndef f(a): ...", []),
    ],
)
def test_the_rule_bites_on_what_is_not_compiled_only(source: str, found: list[str]) -> None:
    assert unannotated(source) == found

"""Execute a notebook without Jupyter: cell by cell in one namespace, the last expression of a cell is its output.

`python -m tests.support.notebooks NOTEBOOK` executes it and writes the outputs into it.
"""

from __future__ import annotations

import ast
import base64
import contextlib
import io
import json
import sys
from pathlib import Path
from typing import Any

Output = dict[str, Any]


def code_cells(notebook: dict[str, Any]) -> list[dict[str, Any]]:
    """The cells of a notebook that have code."""
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def execute(notebook: dict[str, Any]) -> list[list[Output]]:
    """The outputs of each code cell; an error in one is raised."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    return [_run("".join(cell["source"]), namespace) for cell in code_cells(notebook)]


def _run(source: str, namespace: dict[str, Any]) -> list[Output]:
    tree = ast.parse(source)
    last = tree.body[-1] if tree.body else None
    shown = ast.Expression(last.value) if isinstance(last, ast.Expr) else None
    if shown is not None:
        tree.body.pop()
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, "cell", "exec"), namespace)
        value = eval(compile(shown, "cell", "eval"), namespace) if shown is not None else None
    streams = [{"output_type": "stream", "name": "stdout", "text": _lines(printed.getvalue())}]
    return (streams if printed.getvalue() else []) + ([_shown(value)] if value is not None else [])


def _shown(value: Any) -> Output:
    data: dict[str, Any]
    if (hasattr(value, "to_json") and hasattr(value, "mark_line")) or type(value).__module__.startswith("altair"):
        import vl_convert

        data = {
            "image/png": base64.b64encode(vl_convert.vegalite_to_png(value.to_json())).decode(),
            "text/plain": ["a chart"],
        }
    else:
        data = {"text/plain": _lines(repr(value))}
        if hasattr(value, "_repr_html_"):
            data["text/html"] = _lines(value._repr_html_())
    return {"output_type": "execute_result", "execution_count": None, "metadata": {}, "data": data}


def texts(outputs: list[list[Output]]) -> list[list[str]]:
    """What the cells print and return, as text."""
    return [["".join(one.get("text", one.get("data", {}).get("text/plain", []))) for one in cell] for cell in outputs]


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def main(path: Path) -> None:
    """Execute the notebook and keep its outputs in it."""
    notebook = json.loads(path.read_text("utf-8"))
    for cell, outputs in zip(code_cells(notebook), execute(notebook), strict=True):
        cell["outputs"] = outputs
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", "utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))

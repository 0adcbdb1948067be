"""The output of the commands: tables for people, JSON for programs, a progress bar for long runs."""

from __future__ import annotations

import json
import math
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.table import Table

PATIENCE_SECONDS = 2.0
"""How long a command may be silent before a progress bar appears."""

Step = Callable[[int, int, str], None]

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


def print_json(value: object) -> None:
    """Print a value as indented JSON."""
    print(json.dumps(_plain(value), indent=2, allow_nan=False, ensure_ascii=False))


def _plain(value: Any) -> Any:
    """The value as JSON can represent it: NaN becomes null."""
    if isinstance(value, Mapping):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def new_table(*columns: str, left: int = 1, title: str | None = None) -> Table:
    """A table whose first `left` columns are text, and whose other columns are numbers."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", pad_edge=False)
    for place, column in enumerate(columns):
        table.add_column(column, justify="left" if place < left else "right", no_wrap=place == 0)
    return table


def print_table(table: Table) -> None:
    """Print a table as wide as the terminal, or, in a file or a pipe, as wide as it needs."""
    from rich.console import Console
    from rich.measure import Measurement

    console = Console(highlight=False, markup=False)
    if not console.is_terminal:
        wanted = Measurement.get(console, console.options.update(max_width=10_000), table).maximum
        console = Console(highlight=False, markup=False, width=max(wanted, 40))
    console.print(table)


@contextmanager
def waiting(what: str) -> Iterator[Step]:
    """Show a progress bar on stderr once the block has taken two seconds; yields a function of (done, total, next)."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    bar = Progress(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    task = bar.add_task(what, total=None)
    timer = threading.Timer(PATIENCE_SECONDS, bar.start)
    timer.daemon = True
    if not sys.stderr.isatty():
        timer.cancel()
    timer.start()
    try:
        yield lambda done, total, text: bar.update(task, completed=done, total=total, description=text)
    finally:
        timer.cancel()
        timer.join()
        if bar.live.is_started:
            bar.stop()

"""Phase diagrams: who wins a cell, by how much, and where an order holds."""

from __future__ import annotations

from typing import Any

from cubecast.lab.phase_diagrams import orders, winners
from cubecast.lab.plan import Figure

NAMES = {"a": "A", "b": "B", "c": "C"}
FIGURE = Figure(id="1", title="", x="n", y=("rtt",), kind="order", rows="degree", first="a", second="b")


def _row(protocol: str, mean: float, reach: float = 0.1, *, n: int = 8) -> dict[str, Any]:
    return {"protocol": protocol, "n": n, "degree": 3, "mean": mean, "ci_low": mean - reach, "ci_high": mean + reach}


def test_the_smallest_wins_and_the_margin_is_that_of_the_second() -> None:
    [cell] = winners(FIGURE, [_row("a", 3.0), _row("b", 2.0), _row("c", 9.0)], NAMES)
    assert (cell["winner"], cell["second"], cell["margin"], cell["clear"]) == ("B", "A", 1.5, True)


def test_overlapping_intervals_are_not_clear() -> None:
    [cell] = winners(FIGURE, [_row("a", 2.1), _row("b", 2.0)], NAMES)
    assert not cell["clear"]


def test_nothing_beats_zero_by_any_factor() -> None:
    [cell] = winners(FIGURE, [_row("a", 0.0), _row("b", 2.0)], NAMES)
    assert (cell["winner"], cell["margin"]) == ("A", None)


def test_an_order_holds_fails_or_is_open() -> None:
    rows = [_row("a", 1.0), _row("b", 2.0)]
    rows += [_row("a", 3.0, n=16), _row("b", 2.0, n=16), _row("a", 2.05, n=32), _row("b", 2.0, n=32)]
    assert [(cell["x"], cell["holds"]) for cell in orders(FIGURE, rows, NAMES)] == [
        (8, "yes"),
        (16, "no"),
        (32, "open"),
    ]

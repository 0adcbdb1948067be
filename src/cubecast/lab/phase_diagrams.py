"""Phase diagrams: which protocol wins where, and where an order holds."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Any

import altair as alt

from cubecast.lab.metric_titles import title_of
from cubecast.lab.palette import colours
from cubecast.lab.plan import Figure
from cubecast.lab.tables import Row

ORDER_COLOURS = {"yes": "#009E73", "open": "#BBBBBB", "no": "#D55E00"}


def winner_map(figure: Figure, values: list[Row], names: dict[Any, str]) -> list[alt.Chart]:
    """Coloured by the series with the smallest value; faint where the intervals of the first two overlap."""
    base = _cells(figure, values)
    field = base.mark_rect(stroke="white").encode(
        color=alt.Color("winner:N", scale=colours(names), legend=alt.Legend(title=None)),
        opacity=alt.condition("datum.clear", alt.value(0.95), alt.value(0.45)),
        tooltip=[
            *_places(figure),
            alt.Tooltip("winner:N"),
            alt.Tooltip("second:N"),
            alt.Tooltip("margin:Q", format=".3~g", title="second / winner"),
            alt.Tooltip("least:Q", format=",.4~g", title="smallest value"),
        ],
    )
    return [field, _numbers(base, "margin")]


def order_map(figure: Figure, values: list[Row], names: dict[Any, str]) -> list[alt.Chart]:
    """Green where `first` is below `second`, red where it is above, grey where the intervals overlap."""
    base = _cells(figure, values)
    first, second = names[figure.first], names[figure.second]
    relation = {"yes": f"{first} below {second}", "open": "intervals overlap", "no": f"{first} above {second}"}
    scale = alt.Scale(domain=[*relation.values()], range=[*ORDER_COLOURS.values()])
    field = base.transform_calculate(relation=f"{json_of(relation)}[datum.holds]").mark_rect(stroke="white")
    field = field.encode(
        color=alt.Color("relation:N", scale=scale, legend=alt.Legend(title=None)),
        tooltip=[
            *_places(figure),
            alt.Tooltip("ratio:Q", format=".3~g", title=f"{first} / {second}"),
            alt.Tooltip("relation:N"),
        ],
    )
    return [field, _numbers(base, "ratio")]


def _cells(figure: Figure, values: list[Row]) -> alt.Chart:
    chart: alt.Chart = alt.Chart().encode(
        x=alt.X("x:O", title=title_of(figure.x), axis=alt.Axis(labelAngle=0)),
        y=alt.Y("row:O", title=title_of(figure.rows or ""), sort="descending", axis=_row_axis(values)),
    )
    return chart


def _row_axis(values: list[Row]) -> alt.Axis:
    """Large numbers as 100k and 10M."""
    rows = [value["row"] for value in values]
    if all(isinstance(row, int | float) for row in rows) and max(rows, default=0) >= 20_000:
        return alt.Axis(formatType="number", format="~s")
    return alt.Axis()


def _places(figure: Figure) -> list[alt.Tooltip]:
    return [alt.Tooltip("x:O", title=title_of(figure.x)), alt.Tooltip("row:O", title=title_of(figure.rows or ""))]


def _numbers(base: alt.Chart, name: str) -> alt.Chart:
    shown = f"datum.{name} == null ? '∞' : format(datum.{name}, '.3~r')"
    numbers: alt.Chart = (
        base.transform_calculate(shown=shown).mark_text(fontSize=11, color="#111").encode(text=alt.Text("shown:N"))
    )
    return numbers


def json_of(values: dict[str, str]) -> str:
    """A table of texts as a Vega expression."""
    return "{" + ", ".join(f"'{key}': '{value}'" for key, value in values.items()) + "}"


def winners(figure: Figure, rows: list[Row], names: dict[Any, str]) -> list[Row]:
    """For each cell the winner, the second, and the ratio of their values."""
    found = []
    for (x, other), entries in _by_cell(figure, rows).items():
        ranked = sorted(entries, key=lambda row: float(row["mean"]))
        if len(ranked) < 2 or ranked[1]["mean"] <= 0:
            continue
        first, second = ranked[:2]
        found.append(
            {
                "x": x,
                "row": other,
                "winner": names[first[figure.series]],
                "second": names[second[figure.series]],
                "least": first["mean"],
                "margin": second["mean"] / first["mean"] if first["mean"] > 0 else None,
                "clear": _high(first) < _low(second),
            }
        )
    return found


def orders(figure: Figure, rows: list[Row], _: dict[Any, str]) -> list[Row]:
    """For each cell whether `first` is below `second`, and their ratio."""
    found = []
    for (x, other), entries in _by_cell(figure, rows).items():
        by_name = {row[figure.series]: row for row in entries}
        first, second = by_name.get(figure.first), by_name.get(figure.second)
        if first is None or second is None or second["mean"] <= 0:
            continue
        holds = "yes" if _high(first) < _low(second) else "no" if _low(first) > _high(second) else "open"
        found.append({"x": x, "row": other, "holds": holds, "ratio": first["mean"] / second["mean"]})
    return found


def _by_cell(figure: Figure, rows: list[Row]) -> dict[tuple[Any, Any], list[Row]]:
    cells: dict[tuple[Any, Any], list[Row]] = defaultdict(list)
    for row in rows:
        cells[row[figure.x], row[figure.rows or ""]].append(row)
    return cells


def _high(row: Row) -> float:
    return math.inf if row["ci_high"] is None else float(row["ci_high"])


def _low(row: Row) -> float:
    return -math.inf if row["ci_low"] is None else float(row["ci_low"])

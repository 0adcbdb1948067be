"""Tidy tables of figures: one row per point of a line, for any plotting tool."""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from cubecast.lab.metric_titles import FLOOR, LOWER_BOUND
from cubecast.lab.plan import Figure, Plan
from cubecast.lab.remote import sink
from cubecast.lab.runs import points_of
from cubecast.lab.select import matches
from cubecast.lab.store import Store

Row = dict[str, Any]
STATISTICS = ("n", "mean", "sd", "ci_low", "ci_high", "smallest", "largest")


def rows_of(table: pa.Table, study: str) -> list[Row]:
    """The rows of one study in a table of several; Arrow filters them quickly."""
    return list(table.filter(pc.equal(table.column("study"), study)).to_pylist())


def figure_rows(figure: Figure, points: list[Row], summary: list[Row]) -> list[Row]:
    """The rows of a figure: parameters, metric, drawn value, and the statistics behind it."""
    rows = _floor_rows(figure, points, summary)
    for row in summary:
        if row["metric"] not in figure.y:
            continue
        point = points[row["point"]]
        if not matches(figure.only, point):
            continue
        statistics = {name: row[name] for name in STATISTICS}
        rows.append({**point, "metric": row["metric"], "value": _value(figure, row), **statistics})
    names = [figure.panel, figure.rows, figure.series, "metric", figure.x]
    return sorted(rows, key=lambda row: [sortable(row.get(name)) for name in names if name])


def _floor_rows(figure: Figure, points: list[Row], summary: list[Row]) -> list[Row]:
    """The line of lower bounds; of several bounds at one point, the lowest holds for all."""
    is_by_protocol = figure.series in ("protocol", "variant")  # else the name would stand among numbers
    if figure.kind != "lines" or figure.statistic != "mean" or not is_by_protocol:
        return []
    floors: dict[tuple[Any, ...], Row] = {}
    for row in summary:
        metric = row["metric"].removeprefix(FLOOR)
        if metric == row["metric"] or metric not in figure.y:
            continue
        point = points[row["point"]]
        if not matches(figure.only, point):
            continue
        kept: Row = {name: point[name] for name in (figure.x, figure.panel) if name is not None and name in point}
        statistics = {name: row[name] for name in STATISTICS}
        found = {**kept, figure.series: LOWER_BOUND, "metric": metric, "value": float(row["mean"]), **statistics}
        place = (*kept.values(), metric)
        if place not in floors or found["value"] < floors[place]["value"]:
            floors[place] = found
    return list(floors.values())


def _value(figure: Figure, row: Row) -> float | None:
    """The statistic that the figure draws; None if it does not exist."""
    if figure.statistic == "mean":
        return float(row["mean"])
    if figure.statistic == "spread":
        return float(row["largest"] - row["smallest"])
    return None if row["sd"] is None or not row["mean"] else float(row["sd"] / row["mean"])


def sortable(value: Any) -> list[tuple[int, float, str]]:
    """A sort key that orders numbers by size, also inside text: degree=5 comes before degree=10."""
    if isinstance(value, int | float):
        return [(0, float(value), "")]
    parts = re.split(r"(\d+(?:\.\d+)?)", str(value))
    return [(0, float(part), "") if place % 2 else (1, 0.0, part) for place, part in enumerate(parts)]


def write_tables(store: Store, plan: Plan, size: str, summary: pa.Table) -> dict[str, list[Row]]:
    """Write one CSV and one Parquet file per figure; return the rows by figure."""
    tables = {}
    own, points = rows_of(summary, plan.id), points_of(plan, size)
    for figure in plan.figures:
        rows = figure_rows(figure, points, own)
        tables[figure.id] = rows
        if not rows:
            continue
        table = _table(plan, rows)
        base = store.tables / file_name(plan, figure)
        with sink(base.with_name(base.name + ".csv")) as file:
            pa.csv.write_csv(table, file)
        with sink(base.with_name(base.name + ".parquet")) as file:
            pq.write_table(table, file, compression="zstd")
    return tables


def parameter_column(values: list[Any]) -> pa.Array:
    """Values of a parameter as numbers, as booleans or, if they have several types, as text."""
    kinds = {type(value) for value in values if value is not None}
    is_one = len(kinds) == 1 or kinds == {int, float}
    return pa.array(values if is_one else [None if value is None else str(value) for value in values])


def _table(plan: Plan, rows: list[Row]) -> pa.Table:
    """Rows with the same keys, or those of a lower bound with fewer."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    columns = {name: [row.get(name) for row in rows] for name in names}
    own = set(plan.parameters)
    return pa.table(
        {name: parameter_column(found) if name in own else pa.array(found) for name, found in columns.items()}
    )


def file_name(plan: Plan, figure: Figure) -> str:
    """The name of the files of a figure, without the ending."""
    return f"{plan.id}-fig-{re.sub(r'[^0-9A-Za-z]+', '-', figure.id).strip('-')}"

"""Charts of studies, as Vega-Lite: lines with error bars, and phase diagrams."""

from __future__ import annotations

import itertools
import math
from typing import Any

import altair as alt

from cubecast.errors import LocalProtocolError
from cubecast.lab.metric_titles import LOWER_BOUND, title_of
from cubecast.lab.palette import colours
from cubecast.lab.phase_diagrams import (
    order_map,
    orders,
    winner_map,
    winners,
)
from cubecast.lab.plan import Figure, Plan
from cubecast.lab.select import accepts
from cubecast.lab.tables import Row
from cubecast.protocols.catalogue import detector_named, protocol_named, transport_named

WIDTH, HEIGHT = 330, 230
COLUMNS_MAX = 3
DASHES = ([1, 0], [8, 4], [6, 6], [2, 4], [10, 3, 2, 3], [4, 8], [1, 2], [12, 4])
FLOOR_DASH = [2, 2]
SECONDS_FROM_MS = 10_000
"""Times of at least this are drawn in seconds."""
_STATISTICS = {"mean": "", "spread": "worst − best of ", "variation": "standard deviation / mean of "}


def draw(plan: Plan, figure: Figure, rows: list[Row]) -> dict[str, Any]:
    """The chart of one figure, as Vega-Lite: a row of panels for each metric."""
    panels = list(dict.fromkeys(row.get(figure.panel or "") for row in rows))
    names = _names(plan, figure, rows)
    charts = []
    for metric, panel in itertools.product(figure.y, panels):
        own = [row for row in rows if row["metric"] == metric and row.get(figure.panel or "") == panel]
        if not own:
            continue
        stated = [one for one in stated_values(plan, figure, metric, panel) if one[figure.series] in names]
        seconds = metric.endswith("_ms") and max(row["mean"] for row in own) >= SECONDS_FROM_MS
        own, stated = (_in_seconds(own), _in_seconds(stated)) if seconds else (own, stated)
        what = _STATISTICS[figure.statistic] + title_of(metric)
        what = what.replace("(ms)", "(s)") if seconds else what
        heading = _heading(figure, what, panel)
        charts.append(_panel(figure, own, names, stated, what) | ({"title": heading} if heading else {}))
    return {
        "$schema": alt.SCHEMA_URL,
        "config": _CONFIG.to_dict(),
        "concat": charts,
        "columns": _columns(len(panels)),
        "resolve": {"scale": {"color": "shared", "strokeDash": "shared"}},
    }


def stated_values(plan: Plan, figure: Figure, metric: str, panel: Any) -> list[Row]:
    """The values that the paper states for the metric of a panel, from the tests of the plan that name them."""
    if figure.kind != "lines" or figure.statistic != "mean":
        return []
    found = []
    for test in (test for claim in plan.claims for test in claim.tests):
        if test.paper is None or test.kind != "value" or test.metric != metric:
            continue
        where = test.where
        x, series = where.get(figure.x), where.get(figure.series)
        in_panel = figure.panel is None or accepts(where.get(figure.panel, panel), panel)
        if in_panel and isinstance(x, int | float) and isinstance(series, str | int | float):
            found.append({figure.x: x, figure.series: series, "value": test.paper})
    return found


def _in_seconds(rows: list[Row]) -> list[Row]:
    """Convert rows of times in milliseconds to seconds."""
    names = ("value", "mean", "sd", "ci_low", "ci_high", "smallest", "largest")
    return [row | {name: row[name] / 1000 for name in names if name in row and row[name] is not None} for row in rows]


def _columns(panels: int) -> int:
    """The number of panels side by side: as many as fit on a page, but two by two for four panels."""
    return 2 if panels == 4 else min(max(panels, 2), COLUMNS_MAX)


def _panel(figure: Figure, rows: list[Row], names: dict[Any, str], stated: list[Row], what: str) -> dict[str, Any]:
    """One panel. Its layers are combined here, because Altair would copy and validate them repeatedly, with all values.

    For the same reason charts name their channels in full: Altair needs 25 ms to parse a channel from text.
    """
    choose, lay_out = _KINDS[figure.kind]
    values = choose(figure, rows, names)
    layers = [layer.to_dict(validate=False, context={"top_level": False}) for layer in lay_out(figure, values, names)]
    for layer in layers:
        del layer["data"]  # null: the data is in the panel
    if figure.kind == "lines":
        layers[0]["encoding"]["y"]["title"] = what
    if stated:
        layers.append(_stated(figure, stated, names).to_dict(validate=False, context={"top_level": False}))
    return {"data": {"values": values}, "layer": layers, "width": WIDTH, "height": HEIGHT}


_CONFIG = alt.Config(
    axis=alt.AxisConfig(gridColor="#e8e8e8", labelColor="#444", titleColor="#444", titleFontWeight="normal"),
    view=alt.ViewConfig(stroke=None),
    title=alt.TitleConfig(anchor="start", fontSize=12, color="#333"),
    legend=alt.LegendConfig(orient="top", labelFontSize=12, titleFontSize=12, titleColor="#444", symbolStrokeWidth=3),
    background="#ffffff",
)


def _heading(figure: Figure, what: str, panel: Any) -> str:
    """The heading of a panel: a phase diagram has no axis that names the metric."""
    if figure.kind == "lines":
        return "" if panel is None else _panel_name(figure, panel)
    return what if panel is None else f"{what}, {_panel_name(figure, panel)}"


def _panel_name(figure: Figure, panel: Any) -> str:
    text = str(panel)
    if figure.panel in ("network", "variant", "protocol"):
        return text.partition(":")[2] or text if figure.panel == "network" else text
    return f"{title_of(figure.panel or '')} = {text}"


_FIND = {"protocol": protocol_named, "transport": transport_named, "detector": detector_named}
"""The parameters that name a protocol. A stability protocol and a failure detector may have the same name."""


def _names(plan: Plan, figure: Figure, rows: list[Row]) -> dict[Any, str]:
    """The names of the values of the series, in the order of the plan."""
    floor = {LOWER_BOUND: LOWER_BOUND} if any(row[figure.series] == LOWER_BOUND for row in rows) else {}
    if figure.series == "variant":
        return {variant["label"]: variant["label"] for variant in plan.variants} | floor
    if figure.series == "protocol":
        return {name: _title("protocol", name) for name in plan.protocols} | floor
    if figure.series in _FIND:
        return {row[figure.series]: _title(figure.series, row[figure.series]) for row in rows}
    return {row[figure.series]: f"{row[figure.series]}" for row in rows}


def _title(parameter: str, name: str) -> str:
    """The title of the protocol that a parameter names, or the name itself, such as that of a model."""
    try:
        return _FIND[parameter](name).title
    except LocalProtocolError:
        return name


def _points(figure: Figure, rows: list[Row], names: dict[Any, str]) -> list[Row]:
    log = figure.y_scale == "log"
    return [shown for row in rows if (shown := _shown(figure, row, names, log)) is not None]


def _lines(figure: Figure, values: list[Row], names: dict[Any, str]) -> list[alt.Chart]:
    log = figure.y_scale == "log"
    # Low values would lie below a logarithmic axis, so the axis begins at the smallest value.
    y_scale = alt.Scale(type="log") if log else alt.Scale(zero=True)
    x_scale = alt.Scale(type=figure.x_scale, zero=False, nice=False, padding=8)
    drawn = "high" if figure.statistic == "mean" else "value"
    y_axis = alt.Axis(format=_form(drawn, values), tickCount=6, values=_powers(values) if log else alt.Undefined)
    base = alt.Chart().encode(
        x=alt.X("x:Q", title=title_of(figure.x), scale=x_scale, axis=alt.Axis(format=_form("x", values), tickCount=6)),
        color=alt.Color("series:N", scale=colours(names), legend=_legend(figure)),
    )
    dashes = [FLOOR_DASH if name == LOWER_BOUND else DASHES[k % len(DASHES)] for k, name in enumerate(names.values())]
    dash = alt.Scale(domain=[*names.values()], range=dashes)
    line = base.mark_line(strokeWidth=1.8).encode(
        y=alt.Y("value:Q", scale=y_scale, axis=y_axis),
        strokeDash=alt.StrokeDash("series:N", scale=dash, legend=None),
    )
    point = base.mark_point(filled=True, size=34).encode(y=alt.Y("value:Q"), tooltip=_tooltip(figure))
    if figure.statistic != "mean":
        return [line, point]
    bars = base.mark_rule(strokeWidth=1.6).encode(y=alt.Y("low:Q"), y2=alt.Y2("high:Q"))
    caps = [
        base.mark_tick(orient="horizontal", size=7, thickness=1.6).encode(y=alt.Y(f"{end}:Q"))
        for end in ("low", "high")
    ]
    return [line, bars, *caps, point]


def _stated(figure: Figure, stated: list[Row], names: dict[Any, str]) -> alt.Chart:
    """The values that the paper states, as diamonds."""
    values = [{"x": one[figure.x], "series": names[one[figure.series]], "value": one["value"]} for one in stated]
    chart: alt.Chart = (
        alt.Chart(alt.Data(values=values))
        .mark_point(shape="diamond", size=150, strokeWidth=2.5, filled=False)
        .encode(
            x=alt.X("x:Q"),
            y=alt.Y("value:Q"),
            color=alt.Color("series:N", scale=colours(names), legend=_legend(figure)),
            tooltip=[alt.Tooltip("series:N", title="the paper"), alt.Tooltip("x:Q"), alt.Tooltip("value:Q")],
        )
    )
    return chart


def _legend(figure: Figure) -> alt.Legend:
    """The legend: names need no title, numbers do."""
    title = None if figure.series in ("variant", *_FIND) else title_of(figure.series)
    return alt.Legend(symbolType="stroke", symbolSize=220, title=title, titleOrient="left")


def _form(name: str, values: list[Row]) -> str:
    """The number format: large numbers with k and M, smaller ones as 500 and 0.1, not 0.5k, 5e+2 or 100m."""
    largest = max((abs(float(row[name])) for row in values), default=0.0)
    return "~s" if largest >= 20_000 else ",~f"


def _shown(figure: Figure, row: Row, names: dict[Any, str], log: bool) -> Row | None:
    """One point as it is drawn; None if a logarithm does not exist."""
    value = row["value"]
    if value is None or (log and value <= 0):
        return None
    low, high = row["ci_low"], row["ci_high"]
    exact = low is None or high is None or not math.isfinite(low) or not math.isfinite(high)
    low, high = (value, value) if exact else (low, high)
    if log and low <= 0:
        low = min(value, row["smallest"]) if row["smallest"] > 0 else value
    shown = {"x": row[figure.x], "series": names[row[figure.series]], "value": value, "low": max(low, 0), "high": high}
    return shown | {"n": row["n"], "smallest": row["smallest"], "largest": row["largest"]}


def _powers(values: list[Row]) -> list[float]:
    if not values:
        return []
    low, high = min(row["low"] for row in values), max(row["high"] for row in values)
    return [10.0**power for power in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)]


def _tooltip(figure: Figure) -> list[alt.Tooltip]:
    form = ",.4~g"
    tips = [
        alt.Tooltip("series:N", title=title_of(figure.series)),
        alt.Tooltip("x:Q", title=title_of(figure.x)),
        alt.Tooltip("value:Q", title=_STATISTICS[figure.statistic] or "mean", format=form),
    ]
    if figure.statistic == "mean":
        tips += [alt.Tooltip("low:Q", title="95 % from", format=form), alt.Tooltip("high:Q", title="to", format=form)]
    ends = [alt.Tooltip(f"{end}:Q", title=end, format=form) for end in ("smallest", "largest")]
    return [*tips, *ends, alt.Tooltip("n:Q", title="seeds")]


_KINDS = {"lines": (_points, _lines), "winner": (winners, winner_map), "order": (orders, order_map)}
"""For each kind of figure: which values it draws, and how."""

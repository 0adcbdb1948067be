"""Pictures of studies, as Vega-Lite: lines with error bars, and maps of who wins where."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Any

import altair as alt

from cubecast.core.registry import protocols as registered
from cubecast.lab.plan import Figure, Plan
from cubecast.lab.tables import Row

WIDTH, HEIGHT = 330, 230
# Okabe and Ito's colours, told apart with any kind of colour vision; yellow last, it is faint on white.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000", "#F0E442")
DASHES = ([1, 0], [8, 4], [6, 6], [2, 4], [10, 3, 2, 3], [4, 8], [1, 2], [12, 4])
TITLES = {
    "rtt_first_ms": "RTT, first member (ms)",
    "rtt_last_ms": "RTT, last member (ms)",
    "load_mean": "messages on all links",
    "queue_mean": "mean queue (messages)",
    "queue_max": "largest queue (messages)",
    "hops": "hops",
    "messages": "messages",
    "bytes": "bytes",
    "delay_mean_ms": "mean delay (ms)",
    "delay_max_ms": "largest delay (ms)",
    "delivery_queue_mean": "mean delivery queue (messages)",
    "delivery_queue_max": "largest delivery queue (messages)",
    "data_bytes": "bytes sent",
    "data_hops": "hops",
    "data_fragments": "fragments sent",
    "data_messages": "messages sent",
    "reliability": "reachability",
    "reliability_with_quota": "reachability with quota",
    "repair_share": "share of REPAIR messages",
    "rounds_to_converge": "rounds to converge",
    "payload_bytes": "d (bytes)",
    "micro_steps": "micro-steps",
    "level_messages": "messages in the buffer",
    "crashed_neighbours": "crashed neighbours",
    "rate_per_s": "messages a second",
}


def draw(plan: Plan, figure: Figure, rows: list[Row]) -> alt.ConcatChart:
    """The chart of one figure: a row of panels for each metric."""
    panels = list(dict.fromkeys(row.get(figure.panel or "") for row in rows))
    charts = []
    for metric in figure.y:
        for panel in panels:
            own = [row for row in rows if row["metric"] == metric and row.get(figure.panel or "") == panel]
            if own:
                charts.append(_panel(plan, figure, metric, panel, own))
    chart: alt.ConcatChart = alt.concat(*charts, columns=max(len(panels), 2))
    chart = chart.resolve_scale(color="shared", strokeDash="shared")
    chart.config = alt.Config(
        axis=alt.AxisConfig(gridColor="#e8e8e8", labelColor="#444", titleColor="#444", titleFontWeight="normal"),
        view=alt.ViewConfig(stroke=None),
        title=alt.TitleConfig(anchor="start", fontSize=12, color="#333"),
        legend=alt.LegendConfig(orient="top", title=None, labelFontSize=12, symbolStrokeWidth=3),
        background="#ffffff",
    )
    return chart


def _panel(plan: Plan, figure: Figure, metric: str, panel: Any, rows: list[Row]) -> alt.LayerChart:
    drawn = _map if figure.kind == "winner" else _lines
    what = _title(metric) if figure.statistic == "mean" else f"spread of {_title(metric)}"
    heading = what if panel is None else f"{what}, {_panel_name(figure, panel)}"
    chart: alt.LayerChart = drawn(plan, figure, rows).properties(width=WIDTH, height=HEIGHT, title=heading)
    return chart


def _panel_name(figure: Figure, panel: Any) -> str:
    text = str(panel)
    return text.partition(":")[2] or text if figure.panel == "network" else f"{_title(figure.panel or '')} = {text}"


def _title(name: str) -> str:
    return TITLES.get(name, name.replace("_", " "))


def _names(plan: Plan, figure: Figure, rows: list[Row]) -> dict[Any, str]:
    """How the values of the series are called, in the order of the plan."""
    titles = {protocol.name: protocol.title for protocol in registered()}
    if figure.series == "protocol":
        return {name: titles.get(name, name) for name in plan.protocols}
    if figure.series == "variant":
        return {variant["label"]: variant["label"] for variant in plan.variants}
    return {row[figure.series]: f"{row[figure.series]}" for row in rows}


def _colours(names: dict[Any, str]) -> alt.Scale:
    return alt.Scale(domain=[*names.values()], range=[COLOURS[place % len(COLOURS)] for place in range(len(names))])


def _lines(plan: Plan, figure: Figure, rows: list[Row]) -> alt.LayerChart:
    names = _names(plan, figure, rows)
    log = figure.y_scale == "log"
    values = [shown for row in rows if (shown := _shown(figure, row, names, log)) is not None]
    # Low values of a logarithmic axis would vanish below it; the axis begins where the values do.
    y_scale = alt.Scale(type="log") if log else alt.Scale(zero=True)
    x_scale = alt.Scale(type=figure.x_scale, zero=False, nice=False, padding=8)
    y_axis = alt.Axis(format="~s", tickCount=6, values=_powers(values) if log else alt.Undefined)
    base = alt.Chart(alt.Data(values=values)).encode(
        x=alt.X("x:Q", title=_title(figure.x), scale=x_scale, axis=alt.Axis(format="~s", tickCount=6)),
        color=alt.Color("series:N", scale=_colours(names), legend=alt.Legend(symbolType="stroke")),
    )
    dash = alt.Scale(domain=[*names.values()], range=[DASHES[place % len(DASHES)] for place in range(len(names))])
    line = base.mark_line(strokeWidth=1.8).encode(
        y=alt.Y("value:Q", title=None, scale=y_scale, axis=y_axis),
        strokeDash=alt.StrokeDash("series:N", scale=dash, legend=None),
    )
    point = base.mark_point(filled=True, size=34).encode(y="value:Q", tooltip=_tooltip(figure))
    if figure.statistic == "spread":
        return alt.LayerChart(layer=[line, point])
    bars = base.mark_rule(strokeWidth=1.6).encode(y="low:Q", y2="high:Q")
    caps = [base.mark_tick(orient="horizontal", size=7, thickness=1.6).encode(y=f"{end}:Q") for end in ("low", "high")]
    return alt.LayerChart(layer=[line, bars, *caps, point])


def _shown(figure: Figure, row: Row, names: dict[Any, str], log: bool) -> Row | None:
    """One point as it is drawn, or nothing where a logarithm does not exist."""
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
        alt.Tooltip("series:N", title=_title(figure.series)),
        alt.Tooltip("x:Q", title=_title(figure.x)),
        alt.Tooltip("value:Q", title="mean" if figure.statistic == "mean" else "worst − best", format=form),
    ]
    if figure.statistic == "mean":
        tips += [alt.Tooltip("low:Q", title="95 % from", format=form), alt.Tooltip("high:Q", title="to", format=form)]
    ends = [alt.Tooltip(f"{end}:Q", title=end, format=form) for end in ("smallest", "largest")]
    return [*tips, *ends, alt.Tooltip("n:Q", title="seeds")]


def _map(plan: Plan, figure: Figure, rows: list[Row]) -> alt.LayerChart:
    """Coloured by who has the smallest value; faint where the intervals of the first two overlap."""
    names = _names(plan, figure, rows)
    base = alt.Chart(alt.Data(values=winners(figure, rows, names))).encode(
        x=alt.X("x:O", title=_title(figure.x), axis=alt.Axis(labelAngle=0)),
        y=alt.Y("row:O", title=_title(figure.rows or ""), sort="descending"),
    )
    field = base.mark_rect(stroke="white").encode(
        color=alt.Color("winner:N", scale=_colours(names)),
        opacity=alt.condition("datum.clear", alt.value(0.95), alt.value(0.45)),
        tooltip=[
            "winner:N",
            "second:N",
            alt.Tooltip("margin:Q", format=".2f", title="second / winner"),
            "x:O",
            "row:O",
        ],
    )
    text = base.mark_text(fontSize=10, color="white").encode(text=alt.Text("margin:Q", format=".2~f"))
    return alt.LayerChart(layer=[field, text])


def winners(figure: Figure, rows: list[Row], names: dict[Any, str]) -> list[Row]:
    """For each cell who wins, who comes second, and by how much."""
    cells: dict[tuple[Any, Any], list[Row]] = defaultdict(list)
    for row in rows:
        cells[row[figure.x], row[figure.rows or ""]].append(row)
    found = []
    for (x, other), entries in cells.items():
        ranked = sorted(entries, key=lambda row: row["mean"])
        if len(ranked) < 2 or ranked[0]["mean"] <= 0:
            continue
        first, second = ranked[:2]
        found.append(
            {
                "x": x,
                "row": other,
                "winner": names[first[figure.series]],
                "second": names[second[figure.series]],
                "margin": second["mean"] / first["mean"],
                "clear": _high(first) < _low(second),
            }
        )
    return found


def _high(row: Row) -> float:
    return math.inf if row["ci_high"] is None else float(row["ci_high"])


def _low(row: Row) -> float:
    return -math.inf if row["ci_low"] is None else float(row["ci_low"])

"""Plots of a comparison: one panel per metric, one colour per protocol.

With several group sizes each panel draws curves with their 95 % intervals, otherwise bars. A grey dotted line is the
lower bound, if it is known. The picture is a Vega-Lite chart; an HTML page contains its JavaScript and needs no
network.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cubecast.errors import LocalProtocolError
from cubecast.lab.metric_titles import LOWER_BOUND
from cubecast.lab.page import comparison_page
from cubecast.lab.whole_file import write_whole

if TYPE_CHECKING:
    import altair as alt

    from cubecast.lab.compare import Comparison, Metric, Summary

ENDINGS = (".html", ".png", ".svg", ".pdf")
EMBED = {"actions": {"source": False}}
COLUMNS = 3
WIDTH, HEIGHT = 230, 190
# Okabe and Ito's colours, distinct for every kind of colour vision; yellow is last, as it is faint on white.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000", "#F0E442")
# Wide gaps: the curve below must be visible through them if two protocols cost the same.
DASHES = ([1, 0], [8, 4], [6, 6], [2, 4], [10, 3, 2, 3], [4, 8], [1, 2], [12, 4])
BOUND: dict[str, Any] = {"color": "#777777", "strokeDash": [2, 2], "strokeWidth": 2}
"""The style of the lower bound."""
# Drawn in every picture, in this order; the other metrics are in the table.
DRAWN = (
    *("rtt_first_ms", "rtt_last_ms", "delay_mean_ms", "delay_max_ms", "messages", "data_messages", "hops", "data_hops"),
    *("queue_mean", "queue_max", "tts_last_ms", "buffer_mean"),
)
# FullDist sends n² messages, others n: only a logarithmic axis shows both.
LOGARITHMIC = ("messages", "hops", "data_messages", "data_hops", "queue_max")


def check_ending(path: str | Path) -> None:
    """Check the name of a picture before the simulation starts, not after it."""
    if Path(path).suffix.lower() not in ENDINGS:
        raise LocalProtocolError(f"plot {path}: give a name that ends in {', '.join(ENDINGS)}")


def save_plot(comparison: Comparison, path: str | Path) -> Path:
    """Draw the comparison into a file; its ending determines the format."""
    return write_chart(draw(comparison), path, lambda inside: comparison_page(comparison, inside))


def write_chart(chart: alt.ConcatChart, path: str | Path, page: Callable[[str], str]) -> Path:
    """Write a chart in the format of the ending; `page` makes an HTML page around it."""
    check_ending(path)
    ending = Path(path).suffix.lower()
    if ending == ".html":
        return write_whole(path, page(inline_html(chart)))
    # Imported here: the converter contains a JavaScript engine, which takes a while to load.
    import vl_convert

    specification = chart.to_json()
    if ending == ".svg":
        return write_whole(path, vl_convert.vegalite_to_svg(specification))
    if ending == ".pdf":
        return write_whole(path, vl_convert.vegalite_to_pdf(specification))
    return write_whole(path, vl_convert.vegalite_to_png(specification, scale=2))


def inline_html(chart: alt.ConcatChart) -> str:
    """The chart as a part of a page, with its JavaScript, so that the page needs no network."""
    return str(chart.to_html(inline=True, fullhtml=False, embed_options=EMBED))


def draw(comparison: Comparison) -> alt.ConcatChart:
    """The chart, which can be changed or shown in a notebook."""
    import altair as alt

    titles = list(dict.fromkeys(one.title for one in comparison.summaries))
    curves = len({summary.members for summary in comparison.summaries}) > 1
    panel = _curves if curves else _bars
    panels = [
        panel(comparison, metric, titles).properties(width=WIDTH, height=HEIGHT, title=_heading(metric))
        for name in DRAWN
        for metric in comparison.metrics
        if metric.name == name
    ]
    chart: alt.ConcatChart = alt.concat(*panels, columns=COLUMNS, title=_title(comparison))
    chart.config = alt.Config(
        axis=alt.AxisConfig(gridColor="#e8e8e8"),
        view=alt.ViewConfig(stroke=None),
        title=alt.TitleConfig(anchor="start"),
    )
    return chart


def _heading(metric: Metric) -> str:
    return f"{metric.title} ({metric.unit})" if metric.unit else metric.title


def _title(comparison: Comparison) -> str:
    first = comparison.runs[0].scenario
    sizes = {run.scenario.members for run in comparison.runs}
    seeds = len({run.scenario.seed for run in comparison.runs})
    group = f"{first.members} members" if len(sizes) == 1 else f"{min(sizes)} to {max(sizes)} members"
    bound = f"; dotted: {LOWER_BOUND}" if comparison.lower_bounds else ""
    return f"{group} on {first.network}, {seeds} seed{'s' if seeds > 1 else ''}, {_rounds(first.rounds)}{bound}"


def _rounds(rounds: int) -> str:
    return "one round" if rounds == 1 else f"{rounds} rounds"


def _rows(comparison: Comparison, metric: Metric) -> list[dict[str, Any]]:
    return [_row(summary, metric) for summary in comparison.summaries if summary.figures[metric.name].n]


def _row(summary: Summary, metric: Metric) -> dict[str, Any]:
    figure = summary.figures[metric.name]
    reach = figure.half_width or 0.0
    return {
        "protocol": summary.title,
        "members": summary.members,
        "mean": figure.value,
        "low": max(figure.value - reach, 0.0),
        "high": figure.value + reach,
        "runs": figure.n,
    }


def _tooltip(metric: Metric) -> list[alt.Tooltip]:
    import altair as alt

    form = f",.{metric.digits}f"
    return [
        alt.Tooltip("protocol:N"),
        alt.Tooltip("members:Q"),
        alt.Tooltip("mean:Q", title=metric.title, format=form),
        alt.Tooltip("low:Q", title="95 % from", format=form),
        alt.Tooltip("high:Q", title="to", format=form),
        alt.Tooltip("runs:Q"),
    ]


def _colour(titles: list[str], *, legend: bool) -> alt.Color:
    import altair as alt

    key = alt.Legend(orient="top", title=None, symbolOpacity=1, symbolType="stroke", symbolStrokeWidth=3)
    scale = alt.Scale(domain=titles, range=_cycle(COLOURS, titles))
    return alt.Color("protocol:N", scale=scale, legend=key if legend else None)


def _cycle(choices: Sequence[Any], titles: list[str]) -> list[Any]:
    return [choices[place % len(choices)] for place in range(len(titles))]


def _curves(comparison: Comparison, metric: Metric, titles: list[str]) -> alt.LayerChart:
    import altair as alt

    rows = _rows(comparison, metric)
    # A logarithm of zero does not exist: such a panel stays linear.
    positive = bool(rows) and metric.name in LOGARITHMIC and all(row["low"] > 0 for row in rows)
    scale = alt.Scale(type="log") if positive else alt.Scale(zero=True)
    axis = alt.Axis(values=_powers_of_ten(rows), format="~s") if positive else alt.Axis(format="~s")
    base = alt.Chart(alt.Data(values=rows)).encode(
        x=alt.X("members:Q", title="members", scale=alt.Scale(zero=False, nice=False, padding=8)),
        color=_colour(titles, legend=True),
    )
    band = base.mark_area(opacity=0.15).encode(y=alt.Y("low:Q", title=None, scale=scale, axis=axis), y2="high:Q")
    # Dashes, because curves of equal values cover each other.
    line = base.mark_line(point=True).encode(
        y=alt.Y("mean:Q", title=None, scale=scale, axis=axis),
        strokeDash=alt.StrokeDash(
            "protocol:N", legend=None, scale=alt.Scale(domain=titles, range=_cycle(DASHES, titles))
        ),
        tooltip=_tooltip(metric),
    )
    layers: alt.LayerChart = band + line
    bounds = _bounds(comparison, metric)
    if not bounds or (positive and min(row["mean"] for row in bounds) <= 0):
        return layers
    bound = alt.Chart(alt.Data(values=bounds)).encode(x=alt.X("members:Q"), y=alt.Y("mean:Q", scale=scale, axis=axis))
    found: alt.LayerChart = layers + bound.mark_line(**BOUND).encode(tooltip=_tooltip(metric))
    return found


def _bounds(comparison: Comparison, metric: Metric) -> list[dict[str, Any]]:
    return [_row(one, metric) for one in comparison.lower_bounds if one.figures[metric.name].n]


def _powers_of_ten(rows: list[dict[str, Any]]) -> list[float]:
    low, high = min(row["low"] for row in rows), max(row["high"] for row in rows)
    return [10.0**power for power in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)]


def _bars(comparison: Comparison, metric: Metric, titles: list[str]) -> alt.LayerChart:
    import altair as alt

    base = alt.Chart(alt.Data(values=_rows(comparison, metric))).encode(
        x=alt.X("protocol:N", title=None, sort=None, axis=alt.Axis(labelAngle=0))
    )
    bar = base.mark_bar(size=28).encode(
        y=alt.Y("mean:Q", title=None), color=_colour(titles, legend=False), tooltip=_tooltip(metric)
    )
    spread = base.mark_rule(strokeWidth=2).encode(y=alt.Y("low:Q", title=None), y2="high:Q")
    layers: alt.LayerChart = bar + spread
    bounds = _bounds(comparison, metric)
    if not bounds:
        return layers
    bound = alt.Chart(alt.Data(values=bounds)).encode(y=alt.Y("mean:Q", title=None))
    found: alt.LayerChart = layers + bound.mark_rule(**BOUND).encode(tooltip=_tooltip(metric))
    return found

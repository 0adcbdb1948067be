"""Pictures of a churn study: one panel a figure, one curve a group size, the rate of changes from left to right."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from cubecast.sim.churn.rates import FIGURES, ChurnStudy, Figure
from cubecast.sim.page import html_page
from cubecast.sim.plots import COLOURS, COLUMNS, HEIGHT, WIDTH, write_chart

if TYPE_CHECKING:
    import altair as alt

DRAWN = (
    *("pause_median_ms", "pause_p99_ms", "paused_share", "stable_median_ms", "stable_p99_ms", "wait_p99_ms"),
    *("control_bytes_per_member_s", "links_changed_per_view", "excluded_living"),
)


def save_study(study: ChurnStudy, path: str | Path) -> Path:
    """Draw the study into a file whose ending says the format."""
    return write_chart(draw(study), path, lambda inside: _page(study, inside))


def draw(study: ChurnStudy) -> alt.ConcatChart:
    """The chart itself."""
    import altair as alt

    panels = [_panel(study, figure) for figure in FIGURES if figure.name in DRAWN]
    chart: alt.ConcatChart = alt.concat(*panels, columns=COLUMNS)
    chart.config = alt.Config(axis=alt.AxisConfig(gridColor="#e8e8e8"), view=alt.ViewConfig(stroke=None))
    return chart


def _panel(study: ChurnStudy, figure: Figure) -> alt.Chart:
    import altair as alt

    rows = [
        {"churn": row["churn"], "members": f"{row['members']:,}", "value": row[figure.name]} for row in study.rows()
    ]
    sizes = list(dict.fromkeys(str(row["members"]) for row in rows))
    chart: alt.Chart = (
        alt.Chart(alt.Data(values=rows))
        .mark_line(point=True)
        .encode(
            x=alt.X("churn:Q", title="changes a second", scale=alt.Scale(type="symlog", constant=0.05)),
            y=alt.Y("value:Q", title=None),
            color=alt.Color(
                "members:N", sort=sizes, scale=alt.Scale(domain=sizes, range=[*COLOURS] * (1 + len(sizes) // 8))
            ),
            tooltip=["members:N", "churn:Q", "value:Q"],
        )
        .properties(width=WIDTH, height=HEIGHT, title=figure.title)
    )
    return chart


def _page(study: ChurnStudy, chart: str) -> str:
    heads = "".join(f"<th>{escape(figure.title)}</th>" for figure in FIGURES)
    rows = "".join(
        f"<tr><td>{row['members']:,}</td><td>{row['churn']:g}</td>"
        + "".join(f"<td>{row[figure.name]:,.{figure.digits}f}</td>" for figure in FIGURES)
        + "</tr>"
        for row in study.rows()
    )
    first = study.results[0].scenario
    return html_page(
        "Groups under churn",
        f"""<p>Means over the seeds; {first.seconds:g} s of {first.messages_per_second:g} messages a second in the whole
group, a tick of {first.tick_ms:g} ms.</p>
<div class="wide">{chart}</div>
<div class="wide"><table><thead><tr><th>Members</th><th>Changes a second</th>{heads}</tr></thead>
<tbody>{rows}</tbody></table></div>""",
    )

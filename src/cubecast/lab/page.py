"""The web page of a comparison: the plot, its numbers, and the commands that replay the runs."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from cubecast.lab.stats import Estimate

if TYPE_CHECKING:
    from cubecast.lab.compare import Comparison, Metric

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem; color: #222 }
table { border-collapse: collapse; margin: 1rem 0; font-variant-numeric: tabular-nums }
th, td { padding: .3rem .8rem; border-bottom: 1px solid #ddd; text-align: right; white-space: nowrap }
th:first-child, td:first-child { text-align: left }
td small { color: #777 }
code { background: #f4f4f4; padding: .1rem .3rem; overflow-wrap: anywhere }
.wide { overflow-x: auto }
"""


def comparison_page(comparison: Comparison, chart: str) -> str:
    """A complete HTML page around the chart's HTML."""
    scenario = comparison.runs[0].scenario
    failures = "".join(f"<li><code>{escape(failure)}</code></li>" for failure in comparison.failures)
    inside = f"""<p>Means over the seeds; ± and the bands are 95 % confidence intervals. Messages, packet-hops and bytes
are sums over the {scenario.rounds} round(s) of a run. The lower bound is a limit that no protocol can beat on these
networks.</p>
<div class="wide">{chart}</div>
<div class="wide">{_table(comparison)}</div>
{f"<h2>Runs that did not end</h2><ul>{failures}</ul>" if failures else ""}
<p>Command to replay the first run: <code>{escape(scenario.command())}</code></p>"""
    return html_page("Comparison of protocols", inside)


def html_page(title: str, inside: str) -> str:
    """An HTML page with this title."""
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>cubecast: {title.lower()}</title>
<style>{_STYLE}</style>
</head>
<body>
<h1>{title}</h1>
{inside}
</body>
</html>
"""


def _table(comparison: Comparison) -> str:
    heads = "".join(f"<th>{escape(metric.title)}{_unit(metric)}</th>" for metric in comparison.metrics)
    rows = []
    for summary in comparison.rows():
        title = escape(summary.title)
        cells = "".join(f"<td>{_cell(summary.figures[metric.name], metric)}</td>" for metric in comparison.metrics)
        rows.append(f"<tr><td>{title}</td><td>{summary.members}</td>{cells}</tr>")
    return (
        f"<table><thead><tr><th>Protocol</th><th>Members</th>{heads}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
    )


def _unit(metric: Metric) -> str:
    return f" ({escape(metric.unit)})" if metric.unit else ""


def _cell(figure: Estimate, metric: Metric) -> str:
    if figure.n == 0:
        return "–"
    spread = "" if not figure.half_width else f" <small>± {figure.half_width:,.{metric.digits}f}</small>"
    return f"{figure.value:,.{metric.digits}f}{spread}"

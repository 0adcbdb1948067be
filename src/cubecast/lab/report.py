"""The report: one self-contained HTML page, and the pictures beside it.

Every figure of every study, interactive; under it each claim, our figure, and the verdict of `lab.claims`. The page
says by which rule, on which machine, by which versions, from which seeds and in how long.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from html import escape
from importlib import metadata
from pathlib import Path
from typing import Any

import altair as alt
import vl_convert

from cubecast.lab.claims import NOT_COMPARABLE, RULE, Judgement, judge
from cubecast.lab.figures import draw
from cubecast.lab.plan import FORMULAS, Claim, Plan
from cubecast.lab.quantities import describe_test
from cubecast.lab.questions import CONFIRMED, REFUTED
from cubecast.lab.runs import points_of, runs_of
from cubecast.lab.store import Store
from cubecast.lab.study import StudyOutcome
from cubecast.lab.tables import file_name, rows_of, write_tables
from cubecast.lab.whole_file import write_whole

PAPERS = {
    "cube": "Scalable Stability Detection Using Logical Hypercube",
    "guo": "Scalable Message Stability Detection Protocols",
    "causal": "Causal Ordering in Deterministic Overlay Networks",
    "rasm": "RASM: A Reliable Algorithm for Scalable Multicast",
    "own": "Studies of our own",
}
_CLASSES = {CONFIRMED: "yes", REFUTED: "no", NOT_COMPARABLE: "open"}
_TEMPLATE = Path(__file__).with_name("report.html")


Step = Callable[[int, int, str], None]
"""Called with the number of finished figures, the number of all figures, and the next step."""


def write_report(
    outcome: StudyOutcome, store: Store, *, pictures: bool = True, step: Step = lambda _done, _total, _what: None
) -> Path:
    """Write tables, pictures and the page; return the path of the page."""
    assert outcome.findings is not None
    assert outcome.summary is not None
    step(0, 1, "judging the claims")
    judgements = {plan.id: _judge(plan, outcome) for plan in outcome.plans}
    specs = _draw_all(outcome, store, step)
    if pictures:
        for done, (name, spec) in enumerate(specs.items()):
            step(done, len(specs), f"drawing {name}")
            _save_pictures(store, name, spec)
    _write_claims(store, judgements)
    return write_whole(store.report / "index.html", _page(outcome, judgements, specs))


def _judge(plan: Plan, outcome: StudyOutcome) -> list[Judgement]:
    with_data = {row["point"] for row in rows_of(outcome.summary, plan.id)}
    return judge(plan, points_of(plan, outcome.size), with_data, rows_of(outcome.findings, plan.id))


def _draw_all(outcome: StudyOutcome, store: Store, step: Step) -> dict[str, Any]:
    """The tables of all figures on disk, and the charts of those that have data, by name."""
    specs: dict[str, Any] = {}
    for place, plan in enumerate(outcome.plans):
        step(place, len(outcome.plans), f"tables of {plan.id}")
        tables = write_tables(store, plan, outcome.size, outcome.summary)
        for figure in plan.figures:
            if tables[figure.id]:
                specs[file_name(plan, figure)] = draw(plan, figure, tables[figure.id])
    return specs


def _save_pictures(store: Store, name: str, spec: dict[str, Any]) -> None:
    svg = vl_convert.vegalite_to_svg(spec)
    write_whole(store.figures / f"{name}.svg", svg)
    write_whole(store.figures / f"{name}.png", vl_convert.svg_to_png(svg, scale=2))


def _write_claims(store: Store, judgements: dict[str, list[Judgement]]) -> None:
    """The table of all claims, as JSON lines for programs."""
    lines = [
        json.dumps(
            {
                "study": one.study,
                "claim": one.claim.id,
                "text": one.claim.text,
                "source": one.claim.source,
                "at": one.at,
                "verdict": one.verdict,
                "ours": one.ours,
                "reading": one.claim.reading,
                "tests": [describe_test(test) for test in one.claim.tests],
            },
            ensure_ascii=False,
        )
        for found in judgements.values()
        for one in found
    ]
    write_whole(store.tables / "claims.jsonl", "".join(line + "\n" for line in lines))


def _page(outcome: StudyOutcome, judgements: dict[str, list[Judgement]], specs: dict[str, Any]) -> str:
    papers = [paper for paper in PAPERS if any(plan.paper == paper for plan in outcome.plans)]
    chapters = [_chapter(paper, outcome, judgements, specs) for paper in papers]
    counts = Counter(one.verdict for found in judgements.values() for one in found)
    parts = {
        "title": f"cubecast: the studies, {outcome.size} size",
        "counts": "".join(
            f'<div class="count {_CLASSES[verdict]}"><b>{counts[verdict]}</b> {verdict}</div>' for verdict in _CLASSES
        ),
        "rule": escape(RULE),
        "contents": "".join(_contents(paper, outcome, judgements) for paper in papers),
        "chapters": "".join(chapters),
        "failures": _failures(outcome),
        "facts": _facts(outcome),
        # "</" would end the script element early.
        "specs": json.dumps(specs, separators=(",", ":"), allow_nan=False).replace("</", "<\\/"),
        "vega": vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", vl_version=_vega_lite_version()),
    }
    page = _TEMPLATE.read_text("utf-8")
    for name, text in parts.items():
        page = page.replace(f"<!--{name}-->", text, 1)
    return page


def _contents(paper: str, outcome: StudyOutcome, judgements: dict[str, list[Judgement]]) -> str:
    rows = []
    for plan in (one for one in outcome.plans if one.paper == paper):
        counts = Counter(one.verdict for one in judgements[plan.id])
        cells = "".join(f'<td class="{kind}">{counts[verdict] or ""}</td>' for verdict, kind in _CLASSES.items())
        figures = ", ".join(figure.id for figure in plan.figures)
        link = f'<a href="#{plan.id}">{escape(plan.title)}</a> <small>Figs {escape(figures)}</small>'
        rows.append(f"<tr><td>{link}</td>{cells}</tr>")
    return f'<tr><th colspan="4">{escape(PAPERS[paper])}</th></tr>{"".join(rows)}'


def _chapter(paper: str, outcome: StudyOutcome, judgements: dict[str, list[Judgement]], specs: dict[str, Any]) -> str:
    studies = [_study(plan, outcome, judgements[plan.id], specs) for plan in outcome.plans if plan.paper == paper]
    return f"<section><h2>{escape(PAPERS[paper])}</h2>{''.join(studies)}</section>"


def _study(plan: Plan, outcome: StudyOutcome, judgements: list[Judgement], specs: dict[str, Any]) -> str:
    repeats = plan.sizes[outcome.size].repeats
    seeds = "exact, no seed" if plan.experiment in FORMULAS else f"seeds 0 … {repeats - 1}"
    runs = len(runs_of(plan, outcome.size))
    shown: set[int] = set()
    figures = []
    for figure in plan.figures:
        name = file_name(plan, figure)
        claims = [one for one in judgements if figure.id in one.claim.figures and id(one) not in shown]
        shown |= {id(one) for one in claims}
        chart = f'<div class="chart" data-spec="{name}"></div>' if name in specs else "<p>No data.</p>"
        files = f'<a href="../figures/{name}.png">PNG</a> <a href="../figures/{name}.svg">SVG</a>'
        files += f' <a href="../tables/{name}.csv">CSV</a>'
        figures.append(
            f'<figure id="{name}"><figcaption><b>Fig {escape(figure.id)}</b> {escape(figure.title)} '
            f"<small>{files}</small></figcaption>{chart}{_claims(claims)}</figure>"
        )
    rest = [one for one in judgements if id(one) not in shown]
    return (
        f'<article id="{plan.id}"><h3>{escape(plan.title)}</h3><p>{escape(plan.about)}</p>'
        f'<p class="meta">{runs} runs, {seeds}; study <code>{plan.id}</code></p>'
        f"{''.join(figures)}{_claims(rest)}</article>"
    )


def _claims(judgements: list[Judgement]) -> str:
    if not judgements:
        return ""
    rows = []
    for claim in {id(one.claim): one.claim for one in judgements}.values():
        own = [one for one in judgements if one.claim is claim]
        text = f"{escape(claim.text)} <small>{escape(claim.source)}</small>{_tested(claim)}"
        for place, one in enumerate(own):
            head = f'<td rowspan="{len(own)}">{text}</td>' if place == 0 else ""
            where = f"<small>{escape(one.at)}</small><br>" if one.at else ""
            verdict = f'<td class="{_CLASSES[one.verdict]}">{one.verdict}</td>'
            rows.append(f"<tr>{head}<td>{where}{escape(one.ours)}</td>{verdict}</tr>")
    head = '<tr><th class="claim">The paper claims</th><th>We measure</th><th>Verdict</th></tr>'
    return f'<div class="wide"><table><thead>{head}</thead><tbody>{"".join(rows)}</tbody></table></div>'


def _tested(claim: Claim) -> str:
    """How the sentence is read, and the very tests that are applied."""
    reading = f"<p>{escape(claim.reading)}</p>" if claim.reading else ""
    tests = "".join(f"<li>{escape(describe_test(test))}</li>" for test in claim.tests)
    return f'<details class="rule"><summary>tested as</summary>{reading}<ul>{tests}</ul></details>'


def _failures(outcome: StudyOutcome) -> str:
    if not outcome.failures:
        return "<p>Every run ended.</p>"
    rows = "".join(
        f"<tr><td>{escape(one['study'])}</td><td>{one['seed']}</td><td><code>{escape(one['settings'])}</code></td>"
        f"<td>{escape(one['error'] or '')}</td></tr>"
        for one in outcome.failures[:200]
    )
    head = "<tr><th>study</th><th>seed</th><th>settings</th><th>error</th></tr>"
    return f'<p>{len(outcome.failures)} runs failed:</p><div class="wide"><table>{head}{rows}</table></div>'


def _facts(outcome: StudyOutcome) -> str:
    facts = {
        "cubecast": metadata.version("cubecast"),
        "commit": _commit(),
        "Python": platform.python_version(),
        **outcome.versions,
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "runs": f"{len({run.id for run in outcome.runs})}, of which {outcome.done_now} were done now",
        "wall time": f"{outcome.seconds:.0f} s",
        "made": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
    }
    return "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in facts.items())


def _vega_lite_version() -> str:
    """Major and minor of the Vega-Lite that the charts are written for."""
    return ".".join(alt.SCHEMA_VERSION.lstrip("v").split(".")[:2])


def _commit() -> str:
    """The commit of the checkout that runs, if it is one."""
    folder = Path(__file__).resolve().parent
    try:
        finished = subprocess.run(
            ["git", "describe", "--always", "--dirty"],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=10,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return "unknown"
    return finished.stdout.strip() or "unknown"

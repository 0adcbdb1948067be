"""The report: one self-contained HTML page, and picture files of its figures.

The first screen summarises the verdicts on the statements of each paper (`lab.report_summary`). Then follow, per study,
all figures, interactive and with the values of the paper; below each figure its claims (`lab.report_claims`).
The page states the rule of the verdicts, the machine, the versions, the seeds and the duration (`lab.provenance`). It
needs no network, fits on a phone, and can be printed.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Container, Mapping
from html import escape
from pathlib import Path
from typing import Any

import altair as alt
import pyarrow as pa
import pyarrow.csv
import vl_convert

from cubecast.lab.calibration_file import read_calibration
from cubecast.lab.claims import RULE, VERDICTS, Answers, Judgement, judge, ours
from cubecast.lab.figures import draw
from cubecast.lab.plan import Plan
from cubecast.lab.provenance import caption, facts, study_provenance
from cubecast.lab.quantities import describe_test
from cubecast.lab.remote import AnyPath, sink
from cubecast.lab.report_claims import claim_card, claim_file, points_of_claim
from cubecast.lab.report_summary import CLASSES, Calibrated, overview, paper_summary, verdict_sentence
from cubecast.lab.runs import points_of
from cubecast.lab.store import Store
from cubecast.lab.study import StudyOutcome
from cubecast.lab.tables import file_name, rows_of, write_tables
from cubecast.lab.whole_file import write_whole

PAPERS = {
    "cube": "Scalable Stability Detection Using Logical Hypercube",
    "guo": "Scalable Message Stability Detection Protocols",
    "causal": "Causal Ordering in Deterministic Overlay Networks",
    "rasm": "RASM: A Reliable Algorithm for Scalable Multicast",
    "own": "Own studies",
}
OWN = "own"
_TEMPLATE = Path(__file__).with_name("report.html")


Step = Callable[[int, int, str], None]
"""Called with the number of finished figures, the number of all figures, and the next step."""


def write_report(
    outcome: StudyOutcome, store: Store, *, pictures: bool = True, step: Step = lambda _done, _total, _what: None
) -> AnyPath:
    """Write tables, pictures and the page; return the path of the page."""
    assert outcome.findings is not None
    assert outcome.summary is not None
    step(0, 1, "judging the claims")
    judgements = judge([answers_of(plan, outcome) for plan in outcome.plans])
    specs, captions = _draw_all(outcome, store, step)
    if pictures:
        for done, (name, spec) in enumerate(specs.items()):
            step(done, len(specs), f"drawing {name}")
            _save_pictures(store, name, spec)
    _write_claims(store, judgements)
    calibrated = {paper: read_calibration(store, paper, outcome.plans) for paper in PAPERS}
    return write_whole(store.report / "index.html", _page(outcome, judgements, specs, captions, calibrated))


def answers_of(plan: Plan, outcome: StudyOutcome) -> Answers:
    """The findings of a study, for judging its claims."""
    with_data = {row["point"] for row in rows_of(outcome.summary, plan.id)}
    points = points_of(plan, outcome.size)
    return Answers(plan=plan, points=points, with_data=with_data, findings=rows_of(outcome.findings, plan.id))


def _draw_all(outcome: StudyOutcome, store: Store, step: Step) -> tuple[dict[str, Any], dict[str, str]]:
    """Write the tables of all figures; return by name the charts of those that have data, and all captions."""
    specs: dict[str, Any] = {}
    captions: dict[str, str] = {}
    for place, plan in enumerate(outcome.plans):
        step(place, len(outcome.plans), f"tables of {plan.id}")
        tables = write_tables(store, plan, outcome.size, outcome.summary)
        for figure in plan.figures:
            captions[file_name(plan, figure)] = caption(plan, figure, outcome.size, tables[figure.id])
            if tables[figure.id]:
                specs[file_name(plan, figure)] = draw(plan, figure, tables[figure.id])
    return specs, captions


def _save_pictures(store: Store, name: str, spec: dict[str, Any]) -> None:
    svg = vl_convert.vegalite_to_svg(spec)
    write_whole(store.figures / f"{name}.svg", svg)
    write_whole(store.figures / f"{name}.png", vl_convert.svg_to_png(svg, scale=2))


def _write_claims(store: Store, judgements: dict[str, list[Judgement]]) -> None:
    """Write all claims, as JSON lines for programs, and a table of the points of each claim."""
    found = [one for own in judgements.values() for one in own]
    lines = [json.dumps(_claim_row(one), ensure_ascii=False) + "\n" for one in found]
    write_whole(store.tables / "claims.jsonl", "".join(lines))
    for one in found:
        if rows := points_of_claim(one):
            with sink(store.tables / claim_file(one)) as file:
                pa.csv.write_csv(pa.Table.from_pylist(rows), file)


def _claim_row(judgement: Judgement) -> dict[str, Any]:
    claim = judgement.claim
    return {
        "study": judgement.plan.id,
        "claim": claim.id,
        "text": claim.text,
        "source": claim.source,
        "verdict": judgement.verdict,
        "sentence": verdict_sentence(judgement),
        "readings": [{"verdict": one.verdict, **one.reading} for one in judgement.readings],
        "ours": ours(judgement.findings, judgement.plan.parameters),
        "reading": claim.reading,
        "tests": [describe_test(test) for test in claim.tests],
    }


def _page(
    outcome: StudyOutcome,
    judgements: dict[str, list[Judgement]],
    specs: dict[str, Any],
    captions: dict[str, str],
    calibrated: Mapping[str, Calibrated],
) -> str:
    papers = [paper for paper in PAPERS if any(plan.paper == paper for plan in outcome.plans)]
    of_papers = {paper: _of_paper(paper, outcome, judgements) for paper in papers}
    counts = Counter(one.verdict for paper in papers if paper != OWN for one in of_papers[paper])
    judged = [paper for paper in papers if paper != OWN and of_papers[paper]]
    parts = {
        "title": f"cubecast: the studies, {outcome.size} size",
        "counts": "".join(
            f'<div class="count {CLASSES[verdict]}"><b>{counts[verdict]}</b> {verdict}</div>' for verdict in VERDICTS
        ),
        "overview": overview([(paper, PAPERS[paper], of_papers[paper], calibrated.get(paper)) for paper in judged]),
        "papers": "".join(
            paper_summary(paper, PAPERS[paper], of_papers[paper], calibrated.get(paper)) for paper in judged
        ),
        "questions": _questions(of_papers.get(OWN, [])),
        "rule": escape(RULE),
        "contents": "".join(_contents(paper, outcome) for paper in papers),
        "chapters": "".join(_chapter(paper, outcome, judgements, captions, specs) for paper in papers),
        "failures": _failures(outcome),
        "facts": facts(outcome),
        # "</" would end the script element early.
        "specs": json.dumps(specs, separators=(",", ":"), allow_nan=False).replace("</", "<\\/"),
        "vega": vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", vl_version=_vega_lite_version()),
    }
    page = _TEMPLATE.read_text("utf-8")
    for name, text in parts.items():
        page = page.replace(f"<!--{name}-->", text, 1)
    return page


def _of_paper(paper: str, outcome: StudyOutcome, judgements: dict[str, list[Judgement]]) -> list[Judgement]:
    return [one for plan in outcome.plans if plan.paper == paper for one in judgements[plan.id]]


def _questions(judgements: list[Judgement]) -> str:
    """Our own questions, with the conditions under which the answer is yes; no verdicts."""
    if not judgements:
        return ""
    items = "".join(
        f'<li><a href="#{one.plan.id}--{one.claim.id}">{escape(one.claim.text)}</a><br>'
        f"{escape(verdict_sentence(one))}</li>"
        for one in judgements
    )
    title = f"{len(judgements)} own questions, answered by phase diagrams"
    inside = f"<details><summary>{title}</summary><ul>{items}</ul></details>"
    return f'<section class="paper"><h2>Own questions</h2>{inside}</section>'


def _contents(paper: str, outcome: StudyOutcome) -> str:
    rows = []
    for plan in (one for one in outcome.plans if one.paper == paper):
        figures = ", ".join(f'<a href="#{file_name(plan, figure)}">{escape(figure.id)}</a>' for figure in plan.figures)
        rows.append(f'<li><a href="#{plan.id}">{escape(plan.title)}</a> <small>Figs {figures}</small></li>')
    return f"<p><b>{escape(PAPERS[paper])}</b></p><ul>{''.join(rows)}</ul>"


def _chapter(
    paper: str,
    outcome: StudyOutcome,
    judgements: dict[str, list[Judgement]],
    captions: dict[str, str],
    drawn: Container[str],
) -> str:
    plans = [plan for plan in outcome.plans if plan.paper == paper]
    studies = [_study(plan, outcome, judgements[plan.id], captions, drawn) for plan in plans]
    return f"<section><h2>{escape(PAPERS[paper])}</h2>{''.join(studies)}</section>"


def _study(
    plan: Plan, outcome: StudyOutcome, judgements: list[Judgement], captions: dict[str, str], drawn: Container[str]
) -> str:
    shown: set[int] = set()
    figures = []
    for figure in plan.figures:
        name = file_name(plan, figure)
        claims = [one for one in judgements if figure.id in one.claim.figures and id(one) not in shown]
        shown |= {id(one) for one in claims}
        files = f'<a href="../figures/{name}.png">PNG</a> <a href="../figures/{name}.svg">SVG</a>'
        files += f' <a href="../tables/{name}.csv">CSV</a>'
        below = f"{captions[name]}{_cards(plan, claims)}"
        figures.append(
            f'<figure id="{name}"><figcaption><b>Fig {escape(figure.id)}</b> {escape(figure.title)} '
            f"<small>{files}</small></figcaption>{_chart(name, name in drawn)}{below}</figure>"
        )
    rest = [one for one in judgements if id(one) not in shown]
    return (
        f'<article id="{plan.id}"><h3>{escape(plan.title)}</h3><p>{escape(plan.about)}</p>'
        f"{study_provenance(plan, outcome)}{''.join(figures)}{_cards(plan, rest)}</article>"
    )


def _chart(name: str, is_drawn: bool) -> str:
    """The element of a chart, or its picture without JavaScript."""
    if not is_drawn:
        return "<p>No data.</p>"
    picture = f'<noscript><img src="../figures/{name}.svg" alt="{name}"></noscript>'
    return f'<div class="chart" data-spec="{name}"></div>{picture}'


def _cards(plan: Plan, judgements: list[Judgement]) -> str:
    return "".join(claim_card(one, is_own=plan.paper == OWN) for one in judgements)


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


def _vega_lite_version() -> str:
    """The major and minor version of Vega-Lite for which the charts are written."""
    return ".".join(alt.SCHEMA_VERSION.lstrip("v").split(".")[:2])

"""A claim in the report: its tests, where it holds, and all points of the verdict."""

from __future__ import annotations

from html import escape
from typing import Any

from cubecast.lab.claims import UNDECIDED, Finding, Judgement, estimate_text, ours, place
from cubecast.lab.conditions import PhaseDiagram, influences, phase_diagram, value_text
from cubecast.lab.metric_titles import title_of
from cubecast.lab.outcomes import CONTRADICTED, HOLDS, OUTCOMES
from cubecast.lab.quantities import describe_test, name_of
from cubecast.lab.report_summary import CLASSES, anchor, verdict_sentence

POINTS_SHOWN = 40
_CELLS = {HOLDS: "yes", CONTRADICTED: "no", UNDECIDED: "open"}
_MIXED = "part"


def claim_card(judgement: Judgement, *, is_own: bool) -> str:
    """The HTML of one claim. Our own questions get no verdict: there is no paper to agree with."""
    claim = judgement.claim
    verdict = "" if is_own else f'<b class="{CLASSES[judgement.verdict]}">{judgement.verdict}</b> '
    diagram = phase_diagram(judgement.readings)
    figures = "".join(f"<li>{escape(one)}</li>" for one in ours(judgement.findings, judgement.plan.parameters))
    return (
        f'<div class="claim" id="{anchor(judgement)}"><p>{verdict}{escape(claim.text)} '
        f"<small>{escape(claim.source)}</small></p><p>{escape(verdict_sentence(judgement))}</p>"
        f"{_diagram(diagram, judgement) if diagram else ''}"
        f"<details><summary>tested as</summary>{_tested(judgement)}</details>"
        f"<details><summary>we measure</summary><ul>{figures}</ul>{_points(judgement)}</details></div>"
    )


def _tested(judgement: Judgement) -> str:
    """How the sentence is interpreted, and the exact tests that are applied."""
    claim = judgement.claim
    reading = f"<p>{escape(claim.reading)}</p>" if claim.reading else ""
    tests = "".join(f"<li>{escape(describe_test(test))}</li>" for test in claim.tests)
    return f"{reading}<ul>{tests}</ul>"


def _diagram(diagram: PhaseDiagram, judgement: Judgement) -> str:
    """The phase diagram as a table, which works in every browser, on paper and with a screen reader."""
    shares = influences(judgement.readings)
    head = "".join(f"<th>{escape(_short(diagram.x, value))}</th>" for value in diagram.columns)
    rows = []
    for row in reversed(diagram.rows):
        name = f"<th>{escape(_short(diagram.y, row))}</th>" if diagram.y is not None else ""
        rows.append(f"<tr>{name}{''.join(_cell(diagram, column, row) for column in diagram.columns)}</tr>")
    over = title_of(diagram.x) + (f" (across) and {title_of(diagram.y)} (down)" if diagram.y else "")
    listed = ", ".join(f"{title_of(name)} {share:.0%}" for name, share in shares.items())
    corner = "<th></th>" if diagram.y else ""
    return (
        f"<p>{escape(over[:1].upper() + over[1:])}. "
        f"<small>Share of the outcome that each parameter alone explains: {escape(listed)}.</small></p>"
        f'<div class="wide"><table class="phase">'
        f"<thead><tr>{corner}{head}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


def _cell(diagram: PhaseDiagram, column: Any, row: Any) -> str:
    counts = diagram.cells.get((column, row), {})
    total = sum(counts.values())
    if not total:
        return '<td class="none"></td>'
    if len(counts) == 1:
        [verdict] = counts
        return f'<td class="{_CELLS[verdict]}">{_WORDS[verdict]}</td>'
    return f'<td class="{_MIXED}">{counts.get(HOLDS, 0)} of {total} hold</td>'


_WORDS = {HOLDS: "holds", CONTRADICTED: "no", UNDECIDED: "open"}


def _short(name: str, value: Any) -> str:
    """A value as a heading; a network with parameters is shortened to these."""
    return value_text(name, value).removeprefix("random:")


def points_of_claim(judgement: Judgement) -> list[dict[str, Any]]:
    """One row per test and point, the most severe first: n, estimate, interval and outcome."""
    rows = [
        {
            "test": name_of(finding.test),
            **{name: value for name, value in finding.point.items() if name in judgement.plan.parameters},
            "n": finding.estimate.n,
            "value": finding.estimate.value,
            "low": finding.estimate.low,
            "high": finding.estimate.high,
            "paper": finding.test.paper,
            "outcome": finding.outcome,
        }
        for finding in _by_gravity(judgement.findings)
    ]
    columns = dict.fromkeys(name for row in rows for name in row)
    return [{name: row.get(name) for name in columns} for row in rows]


def _by_gravity(findings: list[Finding]) -> list[Finding]:
    return sorted(findings, key=lambda finding: -OUTCOMES.index(finding.outcome))


def claim_file(judgement: Judgement) -> str:
    """The name of the table of all points."""
    return f"{judgement.plan.id}-claim-{judgement.claim.id}.csv"


def _points(judgement: Judgement) -> str:
    found = _by_gravity(judgement.findings)
    if not found:
        return "<p>No data.</p>"
    rows = "".join(
        f"<tr><td>{escape(name_of(one.test))}<br><small>{escape(place(one, judgement.plan.parameters))}</small></td>"
        f"<td>{one.estimate.n}</td><td>{escape(estimate_text(one.estimate))}</td>"
        f'<td class="{_OUTCOME_CLASSES[one.outcome]}">{one.outcome}</td></tr>'
        for one in found[:POINTS_SHOWN]
    )
    shown = f"the most severe {POINTS_SHOWN} of {len(found)} points" if len(found) > POINTS_SHOWN else "all points"
    link = f'<a href="../tables/{escape(claim_file(judgement))}">CSV</a>'
    head = "<tr><th>quantity and point</th><th>n</th><th>value and 95 % interval</th><th>outcome</th></tr>"
    return f'<p><small>{shown}; all in {link}</small></p><div class="wide"><table>{head}{rows}</table></div>'


_OUTCOME_CLASSES = dict(zip(OUTCOMES, ("yes", "open", "open", "no"), strict=True))

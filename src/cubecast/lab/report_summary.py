"""The first screen of the report: a summary of the verdicts on each paper, in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from cubecast.lab.claims import (
    EVERYWHERE,
    NOT_TESTED,
    REGION,
    UNDECIDED,
    Judgement,
    estimate_text,
    nearest,
    place,
    ranges,
)
from cubecast.lab.conditions import span_text, value_text, where_holds, where_or_count
from cubecast.lab.joint_readings import JointReading, best_joint_reading
from cubecast.lab.metric_titles import title_of
from cubecast.lab.outcomes import CONTRADICTED

_HEADINGS = {
    EVERYWHERE: "Reproduced at every reading",
    REGION: "Holds under conditions",
    CONTRADICTED: "Contradicted at every reading tried",
    UNDECIDED: "Undecided",
    NOT_TESTED: "Not tested",
}
CLASSES = {EVERYWHERE: "yes", REGION: "part", CONTRADICTED: "no", UNDECIDED: "open", NOT_TESTED: "none"}
"""The CSS class of each verdict."""


def anchor(judgement: Judgement) -> str:
    """The anchor of a claim on the page."""
    return f"{judgement.plan.id}--{judgement.claim.id}"


Calibrated = Mapping[str, Any] | str | None
"""The result of a calibration, or why it cannot be used; None if there is none."""


def overview(papers: Sequence[tuple[str, str, Sequence[Judgement], Calibrated]]) -> str:
    """A table of all papers: their names and titles, how many statements have which verdict, how many hold together."""
    if not papers:
        return ""
    heads = ("paper", "statements", *(_COLUMNS[verdict] for verdict in _COLUMNS), "hold at one setting")
    rows = []
    for paper, title, judgements, calibrated in papers:
        counts = [sum(one.verdict == verdict for one in judgements) for verdict in _COLUMNS]
        together = "not calibrated"
        if isinstance(calibrated, Mapping):
            best = calibrated["best"]
            together = f"{best['held']} of {best['tested']}, {best['in_part']} more in part"
        link = f'<a href="#paper-{paper}">{escape(title)}</a>'
        cells = (link, str(len(judgements)), *map(str, counts), together)
        rows.append(f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>")
    head = "".join(f"<th>{name}</th>" for name in heads)
    return f'<div class="wide"><table class="papers"><tr>{head}</tr>{"".join(rows)}</table></div>'


_COLUMNS = {
    EVERYWHERE: "hold at every reading",
    REGION: "hold under conditions",
    CONTRADICTED: "contradicted",
    UNDECIDED: "undecided",
}


def paper_summary(paper: str, title: str, judgements: Sequence[Judgement], calibrated: Calibrated = None) -> str:
    """The summary of a paper's verdicts; with the result of its calibration, or why there is none to show."""
    by_verdict = {verdict: [one for one in judgements if one.verdict == verdict] for verdict in _HEADINGS}
    lists = "".join(
        f'<details{" open" if verdict in (REGION, CONTRADICTED) else ""}><summary class="{CLASSES[verdict]}">'
        f"{heading} ({len(by_verdict[verdict])})</summary><ul>"
        f"{''.join(_item(one) for one in by_verdict[verdict])}</ul></details>"
        for verdict, heading in _HEADINGS.items()
        if by_verdict[verdict]
    )
    return (
        f'<section class="paper" id="paper-{paper}"><h2>{escape(title)}</h2>'
        f"<p>{escape(_lead(by_verdict))}</p>{_together(judgements, calibrated)}{lists}</section>"
    )


def _lead(by_verdict: dict[str, list[Judgement]]) -> str:
    """The counts as a sentence."""
    said = {
        EVERYWHERE: ("holds at every reading tried", "hold at every reading tried"),
        REGION: ("holds under conditions", "hold under conditions"),
        CONTRADICTED: ("is contradicted at every reading tried", "are contradicted at every reading tried"),
        UNDECIDED: ("is undecided", "are undecided"),
        NOT_TESTED: ("was not tested", "were not tested"),
    }
    counts = {verdict: len(own) for verdict, own in by_verdict.items() if own}
    total = sum(counts.values())
    parts = [f"{count} {said[verdict][count != 1]}" for verdict, count in counts.items()]
    return f"Of {total} statement{'s' if total != 1 else ''}, {_listed(parts)}."


def _listed(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def _together(judgements: Sequence[Judgement], calibrated: Calibrated) -> str:
    """How many statements hold at the same time: by calibration or, without one, at the best of the readings."""
    if isinstance(calibrated, Mapping):
        return _calibrated(calibrated, {f"{one.plan.id}/{one.claim.id}": one.claim.text for one in judgements})
    return (f"<p>{escape(calibrated)}</p>" if calibrated else "") + _joint(judgements)


def _calibrated(found: Mapping[str, Any], texts: Mapping[str, str]) -> str:
    """The best joint setting that a calibration found (`lab.calibrate`), as a list; `texts` are those of the claims."""
    best = found["best"]
    against = [claim for claim in found["contradicted"] if claim not in found["nowhere"]]
    items = [
        f"Most statements hold together with {escape(_setting(best['setting']))}: {best['held']} of {best['tested']}, "
        f"and {best['in_part']} in part (at some of their group sizes or variants); {best['undecided']} are undecided.",
        f"Contradicted there: {_links(against, texts)}." if against else "",
        f"Contradicted at every setting: {_links(found['nowhere'], texts)}." if found["nowhere"] else "",
        *(
            f"At every setting one of the two is contradicted: {_links(pair, texts, ' and ')}."
            for pair in found["exclusions"]
        ),
        f"Within one statement of the best: {escape(_region(found['acceptable']))}.",
        f"Numbers there: {_numbers(found['numbers'])}." if found["numbers"] else "",
        f"What matters most (total Sobol index of the score): {escape(_shares(found['sensitivities']))}.",
    ]
    inside = "".join(f"<li>{item}</li>" for item in items if item)
    return f"<p>Can they all be true at once? Calibration over {found['settings_tried']} settings:</p><ul>{inside}</ul>"


def _setting(setting: Mapping[str, Any]) -> str:
    return ", ".join(f"{title_of(name)} {value_text(name, value)}" for name, value in setting.items())


def _links(claims: Sequence[str], texts: Mapping[str, str], separator: str = "; ") -> str:
    """Links to claims by their names, STUDY/CLAIM, with their texts."""
    return separator.join(_link(name, texts.get(name, name).rstrip(".")) for name in claims)


def _link(name: str, text: str) -> str:
    return f'<a href="#{escape(name.replace("/", "--"))}">{escape(text)}</a>'


def _region(values: Mapping[str, Sequence[Any]]) -> str:
    """The values of each parameter: a range of many numbers, otherwise a list."""
    return "; ".join(f"{title_of(name)} {span_text(name, own)}" for name, own in values.items())


def _numbers(found: Sequence[Mapping[str, Any]]) -> str:
    """The paper's numbers and ours, by claim."""
    by_claim: dict[str, list[str]] = {}
    for one in found:
        said = f"{one['quantity']} {one['paper']:g} in the paper, {one['ours']:.3g} here"
        by_claim.setdefault(one["claim"], []).append(said)
    return "; ".join(
        f"{_link(name, name.partition('/')[2])}: {escape(', '.join(own))}" for name, own in by_claim.items()
    )


def _shares(found: Mapping[str, Mapping[str, float]]) -> str:
    order = sorted(found.items(), key=lambda item: -item[1]["total"])
    return ", ".join(f"{title_of(name)} {one['total']:.2f}" for name, one in order)


def _joint(judgements: Sequence[Judgement]) -> str:
    """The best joint reading of the study that has the most claims with readings."""
    studies: dict[str, list[Judgement]] = {}
    for one in judgements:
        studies.setdefault(one.plan.id, []).append(one)
    found = [best for own in studies.values() if (best := best_joint_reading(own)) is not None]
    best = max(found, key=lambda one: one.tested, default=None)
    return "" if best is None else f"<p>{escape(_joint_words(best))}</p>"


def _joint_words(best: JointReading) -> str:
    reading = ", ".join(f"{title_of(name)} {value_text(name, value)}" for name, value in best.reading.items())
    against = f"; {best.contradicted} are contradicted there" if best.contradicted else ""
    return f"Most statements of the study {best.study} hold with {reading}: {best.held} of {best.tested}{against}."


def _item(judgement: Judgement) -> str:
    claim = judgement.claim
    return (
        f'<li><a href="#{anchor(judgement)}">{escape(claim.text)}</a> <small>{escape(claim.source)}</small>'
        f"<br>{escape(verdict_sentence(judgement))}</li>"
    )


def verdict_sentence(judgement: Judgement) -> str:
    """The verdict as a sentence: where it holds, what contradicts it, or what is missing."""
    readings, verdict = judgement.readings, judgement.verdict
    if verdict == NOT_TESTED:
        return "No data" + (" for some of its tests at this size." if judgement.findings else " for it at this size.")
    if verdict == REGION:
        parts = [f"Holds where {where_holds(readings)}"]
        for other, word in ((CONTRADICTED, "contradicted"), (UNDECIDED, "undecided")):
            if where := where_or_count(readings, other):
                parts.append(f"{word} {where}")
        return f"{'. '.join(_capital(part) for part in parts)}.{_value(judgement)}"
    if verdict == UNDECIDED:
        why = "needs more runs" if any(one.is_open for one in readings) else "within the margin: too close to call"
        against = where_or_count(readings, CONTRADICTED)
        return f"{_capital(why)}.{f' Contradicted {against}.' if against else ''}{_value(judgement)}"
    return f"Ours: {'; '.join(ranges(judgement.findings))}.{_value(judgement)}"


def _value(judgement: Judgement) -> str:
    """The paper's value and the nearest of ours."""
    found = nearest(judgement.findings)
    if found is None:
        return ""
    at = place(found, judgement.plan.parameters)
    where = f" at {at}" if at else ""
    return f" The paper: {found.test.paper:g}; ours nearest to it: {estimate_text(found.estimate)}{where}."


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]

"""The evidence behind an answer: the answer as JSON, a plan that repeats the final, and a page that shows both.

| file | contents |
|---|---|
| `advice.json` | the answer |
| `plan.toml` | the finalists as a study; with the seed 0 its runs are those of the race, which are already finished |
| `advice.html` | ranking, Pareto front, live cost, and a command for each row; works offline |
| `runs/` | every simulation |
"""

from __future__ import annotations

import json
import math
from html import escape
from typing import TYPE_CHECKING, Any

from cubecast.lab.advisor.candidates import Candidate
from cubecast.lab.advisor.workload import Workload
from cubecast.lab.page import html_page
from cubecast.lab.plots import inline_html
from cubecast.lab.remote import AnyPath
from cubecast.lab.whole_file import write_whole
from cubecast.protocols.catalogue import protocol_named
from cubecast.sim.scenario import Scenario

if TYPE_CHECKING:
    import altair as alt

    from cubecast.lab.advisor.advice import Advice, Row

ANSWER, PLAN, PAGE = "advice.json", "plan.toml", "advice.html"
_METRICS = {"time-to-stable": "tts_last_ms", "bytes": "bytes", "buffer": "buffer_mean"}


def write_evidence(folder: AnyPath, advice: Advice, workload: Workload) -> list[AnyPath]:
    """Write all files, and return their paths."""
    text = json.dumps(_finite(advice.to_dict()), indent=2, ensure_ascii=False, allow_nan=False)
    return [
        write_whole(folder / ANSWER, text + "\n"),
        write_whole(folder / PLAN, plan_text(advice, workload)),
        write_whole(folder / PAGE, _page(advice, workload, inline_html(_chart(advice)))),
    ]


def _finite(value: Any) -> Any:
    """Replace NaN and infinity, which JSON does not have."""
    if isinstance(value, dict):
        return {key: _finite(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


# The plan.


def plan_text(advice: Advice, workload: Workload) -> str:
    """The finalists as a plan for `cubecast study run`."""
    finalists = [row.candidate for row in advice.ranking if row.probability is not None]
    settings = {candidate: workload.settings(candidate) for candidate in finalists}
    first = settings[finalists[0]]
    shared = {
        name: value
        for name, value in first.items()
        if name != "members" and all(own.get(name) == value and name in own for own in settings.values())
    }
    seeds = max(row.seeds for row in advice.ranking)
    lines = [
        "# The finalists of the advisor. `cubecast study run plan.toml --out .` in this folder reuses finished runs.",
        "",
        'id = "advice"',
        'paper = "own"',
        'title = "The finalists of the advisor"',
        f"about = {_toml(_asked(advice))}",
        "",
        "[fixed]",
        *(f"{name} = {_toml(value)}" for name, value in shared.items()),
        "",
        "[sweep]",
        f"members = [{advice.question.members}]",
    ]
    for candidate, own in settings.items():
        lines += ["", "[[variant]]", f"label = {_toml(candidate.label)}"]
        lines += [f"{name} = {_toml(value)}" for name, value in own.items() if name not in (*shared, "members")]
    for size in ("quick", "full"):
        lines += ["", f"[{size}]", f"repeats = {seeds}"]
    lines += ["", "[[figure]]", 'id = "finalists"', 'title = "The finalists"', 'x = "members"', 'series = "variant"']
    lines += ['y = ["tts_last_ms", "bytes", "buffer_mean"]']
    lines += _claims(advice, finalists)
    return "\n".join(lines) + "\n"


def _claims(advice: Advice, finalists: list[Candidate]) -> list[str]:
    """Claims that the first is better than each other finalist; none for bytes, since runs differ in length."""
    if advice.question.optimise == "bytes":
        return []
    metric = _METRICS[advice.question.optimise]
    lines = []
    for number, rival in enumerate(finalists[1:], start=1):
        lines += ["", "[[claim]]", f'id = "first-before-{number}"', 'source = "the advisor"', 'figures = ["finalists"]']
        lines += [f"text = {_toml(f'{finalists[0].label} is better than {rival.label}.')}"]
        lines += ["[[claim.test]]", 'kind = "ratio"', f'metric = "{metric}"', "below = 1.0"]
        lines += [f"top = {{ variant = {_toml(finalists[0].label)} }}"]
        lines += [f"bottom = {{ variant = {_toml(rival.label)} }}"]
    return lines


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value) if isinstance(value, int | float) else json.dumps(str(value), ensure_ascii=False)


def _asked(advice: Advice) -> str:
    question = advice.question
    limits = [f"at most {question.budget_bytes_per_s:g} B/s per member"] if question.budget_bytes_per_s else []
    limits += [f"stable within {question.within_ms:g} ms"] if question.within_ms else []
    return (
        f"{question.members} members on {question.network}, loss {question.loss:g}, {question.rate:g} messages of "
        f"{question.payload_bytes} B per second and sender; least {question.optimise}"
        + (f", {', '.join(limits)}" if limits else "")
        + "."
    )


# The page.


def _chart(advice: Advice) -> alt.ConcatChart:
    """Time against bytes: the Pareto front as a line, the ranking as points."""
    import altair as alt

    rows = [_point(row, on_front=True) for row in advice.front]
    rows += [_point(row, on_front=False) for row in advice.ranking if math.isfinite(row.time_ms.value)]
    base = alt.Chart(alt.Data(values=rows)).encode(
        x=alt.X("kilobytes:Q", title="sent per member (kB/s)", scale=alt.Scale(type="log")),
        y=alt.Y("time:Q", title="time to stable (ms)", scale=alt.Scale(type="log")),
    )
    line = base.transform_filter("datum.front").mark_line(color="#999", interpolate="step-after")
    points = base.mark_point(filled=True, size=60).encode(
        color=alt.Color("protocol:N", title=None), tooltip=["label:N", "time:Q", "kilobytes:Q", "buffer:Q", "seeds:Q"]
    )
    chart: alt.ConcatChart = alt.concat((line + points).properties(width=560, height=320))
    return chart


def _point(row: Row, *, on_front: bool) -> dict[str, Any]:
    return {
        "label": row.candidate.label,
        "protocol": protocol_named(row.candidate.configuration.protocol).title,
        "time": row.time_ms.value,
        "kilobytes": row.bytes_per_s.value / 1e3,
        "buffer": row.buffer.value,
        "seeds": row.seeds,
        "front": on_front,
    }


def _page(advice: Advice, workload: Workload, chart: str) -> str:
    finalists = [row.candidate for row in advice.ranking if row.probability is not None]
    commands = "".join(f"<li><code>{escape(_command(one, workload))}</code></li>" for one in finalists)
    live = advice.live_settings()
    cost = advice.live_cost()
    impossible = "".join(f"<li>{escape(reason)}</li>" for reason in advice.impossible.values())
    inside = f"""<p>{escape(_asked(advice))}</p>
<p><b>{escape(answer_text(advice))}</b></p>
{f"<p>Live: <code>{escape(live)}</code>, {escape(cost_text(cost))}.</p>" if live and cost else ""}
<h2>Ranking</h2>
<div class="wide">{_table(advice.ranking)}</div>
<p>Means over the seeds, ± the 95 % interval. A row with few seeds was dropped early. The probability is that of being
the best of the finalists within the limits.</p>
<h2>Pareto front</h2>
<div class="wide">{chart}</div>
<div class="wide">{_table(advice.front)}</div>
{f"<h2>Not possible</h2><ul>{impossible}</ul>" if impossible else ""}
<h2>Evidence</h2>
<p>{advice.simulations} simulations of {advice.candidates} configurations. To replay the finalists:</p>
<ul>{commands}</ul>
<p>The finalists as a study: <code>cubecast study run {PLAN} --out .</code></p>"""
    return html_page("Advice", inside)


def _command(candidate: Candidate, workload: Workload) -> str:
    settings = workload.settings(candidate)
    return Scenario.of(**settings, seed=workload.question.seed).command()


def _table(rows: list[Row]) -> str:
    names = (
        "time to stable (ms)",
        "sent per member (kB/s)",
        "buffer (messages)",
        "messages/s",
        "seeds",
        "best",
        "fits",
    )
    head = "".join(f"<th>{name}</th>" for name in names)
    return f"<table><thead><tr><th>Candidate</th>{head}</tr></thead><tbody>{''.join(map(_line, rows))}</tbody></table>"


def _line(row: Row) -> str:
    spread = f" <small>± {row.time_ms.half_width:.1f}</small>" if row.time_ms.half_width else ""
    cells = [f"{row.time_ms.value:,.1f}{spread}", f"{row.bytes_per_s.value / 1e3:,.2f}", f"{row.buffer.value:,.1f}"]
    cells += [f"{row.messages_per_s.value:,.1f}", str(row.seeds), probability_text(row), "yes" if row.fits else "no"]
    return f"<tr><td>{escape(row.candidate.label)}</td>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"


# Sentences for the page and the command line.


def answer_text(advice: Advice) -> str:
    """The answer in a few sentences."""
    first = advice.ranking[0].candidate.label
    if advice.verdict == "nothing fits":
        return f"No candidate satisfies the limits. The nearest is {first}."
    change = "" if advice.current is None else f" {_change_text(advice)}"
    chance = f"{advice.selection.best:.0%}"
    if advice.verdict == "clear":
        return f"{first}. It is the best of the finalists with a probability of {chance}.{change}"
    rivals = "; ".join(row.candidate.label for row in advice.rivals) or "the limits, which it may narrowly miss"
    return (
        f"Too close to call: {first} ({chance}), or {rivals}. With a probability of {advice.selection.near:.0%} the "
        f"first is within 5 % of the best.{change}"
    )


def _change_text(advice: Advice) -> str:
    """What the advice changes for a running group."""
    now, best = advice.current, advice.best
    assert now is not None
    assert best is not None
    if now.candidate == best.candidate:
        return "The group already runs this configuration: nothing to change."
    fits = "" if now.fits else ", which is beyond the limits"
    return (
        f"The group now runs {now.candidate.label}{fits}: time to stable {now.time_ms.value:,.1f} → "
        f"{best.time_ms.value:,.1f} ms, {8 * now.bytes_per_s.value / 1e3:,.1f} → "
        f"{8 * best.bytes_per_s.value / 1e3:,.1f} kb/s per member, buffer {now.buffer.value:,.1f} → "
        f"{best.buffer.value:,.1f} messages."
    )


def probability_text(row: Row) -> str:
    """The probability that a row is the best, as text."""
    if row.probability is None:
        return "dropped"
    return "–" if math.isnan(row.probability) else f"{row.probability:.0%}"


def cost_text(cost: dict[str, float]) -> str:
    """The cost in a live group, as text."""
    return (
        f"{8 * cost['bytes_per_member_s'] / 1e3:,.1f} kb/s and {cost['messages_per_member_s']:,.1f} messages/s per "
        f"member, {8 * cost['bytes_of_group_s'] / 1e3:,.0f} kb/s in all, and {cost['buffer_messages']:,.1f} unstable "
        f"messages ({cost['buffer_bytes'] / 1e3:,.1f} kB of payload) at each member"
    )

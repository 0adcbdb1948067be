"""All claims with their verdicts, compared with those of an earlier study, as a Markdown page.

It is computed from the table that a report writes (`tables/claims.jsonl`). Claims are matched by study and id; if the
earlier table has a claim in several rows, one per reading, its verdicts are counted.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from cubecast.errors import PlanError
from cubecast.lab.claims import VERDICTS
from cubecast.lab.plan import Plan
from cubecast.lab.remote import AnyPath
from cubecast.lab.store import Store

OWN = "own"
NOT_A_CLAIM = "–"
Row = Mapping[str, Any]
_TEXTS = ("study", "claim", "verdict")


def read_verdicts(results: AnyPath) -> list[Row]:
    """The rows of the table of claims in a folder of results."""
    path = Store(results).tables / "claims.jsonl"
    if not path.exists():
        raise PlanError(f"{path}: no table of claims; create it with cubecast study report")
    lines = path.read_bytes().splitlines()
    rows = [_row(line) for line in lines]
    if None in rows:
        raise PlanError(f"{path}:{rows.index(None) + 1}: not a claim; write the table again with cubecast study report")
    return [row for row in rows if row is not None]


def _row(line: bytes) -> Row | None:
    """The row in a line, if it is one."""
    try:
        row = json.loads(line)
    except ValueError:
        return None
    return row if isinstance(row, dict) and all(isinstance(row.get(name), str) for name in _TEXTS) else None


def verdict_page(plans: Sequence[Plan], rows: Sequence[Row], earlier: Sequence[Row] | None = None) -> str:
    """A table of counts, and one of claims for each paper; our own questions have no verdicts."""
    papers = {plan.id: plan.paper for plan in plans if plan.paper != OWN}
    judged = [row for row in rows if row["study"] in papers]
    before = _by_claim(earlier or ())
    of_paper: dict[str, list[Row]] = defaultdict(list)
    for row in judged:
        of_paper[papers[row["study"]]].append(row)
    parts = [_counts(of_paper)]
    if earlier is not None:
        parts.append(_changes(judged, before))
    parts += [_claims(paper, found, before if earlier is not None else None) for paper, found in of_paper.items()]
    return "\n\n".join(parts) + "\n"


def _by_claim(rows: Iterable[Row]) -> dict[tuple[str, str], Counter[str]]:
    found: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for row in rows:
        found[row["study"], row["claim"]][row["verdict"]] += 1
    return found


def _counts(of_paper: Mapping[str, Sequence[Row]]) -> str:
    lines = [_line("paper", "claims", *VERDICTS), _line(*["---"] * (2 + len(VERDICTS)))]
    for paper, rows in of_paper.items():
        counts = Counter(row["verdict"] for row in rows)
        lines.append(_line(paper, len(rows), *(counts[verdict] for verdict in VERDICTS)))
    total = Counter(row["verdict"] for rows in of_paper.values() for row in rows)
    lines.append(_line("all", total.total(), *(total[verdict] for verdict in VERDICTS)))
    return "\n".join(lines)


def _changes(rows: Sequence[Row], before: Mapping[tuple[str, str], Counter[str]]) -> str:
    """How many claims went from which verdict to which."""
    pairs = Counter((_counts_text(before.get((row["study"], row["claim"]))), row["verdict"]) for row in rows)
    lines = [_line("before", *VERDICTS), _line(*["---"] * (1 + len(VERDICTS)))]
    for earlier in sorted({old for old, _ in pairs}, key=lambda old: (old == NOT_A_CLAIM, old)):
        lines.append(_line(earlier, *(pairs[earlier, verdict] for verdict in VERDICTS)))
    return "\n".join(lines)


def _claims(paper: str, rows: Sequence[Row], before: Mapping[tuple[str, str], Counter[str]] | None) -> str:
    heads = ("claim", "statement", "place", *(("before",) if before is not None else ()), "now")
    lines = [f"## {paper}\n", _line(*heads), _line(*["---"] * len(heads))]
    for row in rows:
        earlier = () if before is None else (_counts_text(before.get((row["study"], row["claim"]))),)
        name = f"`{row['study']}/{row['claim']}`"
        lines.append(
            _line(name, row.get("text", NOT_A_CLAIM), row.get("source", NOT_A_CLAIM), *earlier, row["verdict"])
        )
    return "\n".join(lines)


def _counts_text(counts: Counter[str] | None) -> str:
    if not counts:
        return NOT_A_CLAIM
    if counts.total() == 1:
        return next(iter(counts))
    return ", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items()))


def _line(*cells: Any) -> str:
    return "| " + " | ".join(str(cell).replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"

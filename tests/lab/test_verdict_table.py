"""The page of all verdicts: counts, what changed, one row per claim."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cubecast.errors import PlanError
from cubecast.lab.load_plan import load_plan
from cubecast.lab.plan import Plan
from cubecast.lab.verdict_table import read_verdicts, verdict_page

PLAN = """\
id = "{id}"
paper = "{paper}"
title = "a study"
protocols = ["coord"]
[sweep]
members = [8]
[quick]
repeats = 2
[full]
repeats = 2
"""


@pytest.fixture
def plans(tmp_path: Path) -> list[Plan]:
    found = []
    for name, paper in (("x", "cube"), ("y", "guo"), ("z", "own")):
        path = tmp_path / f"{name}.toml"
        path.write_text(PLAN.format(id=name, paper=paper))
        found.append(load_plan(path))
    return found


def row(study: str, claim: str, verdict: str) -> dict[str, Any]:
    return {"study": study, "claim": claim, "text": f"{claim} | text", "source": "§1", "verdict": verdict}


NOW = [
    row("x", "a", "holds everywhere"),
    row("x", "b", "contradicted"),
    row("y", "a", "undecided"),
    row("z", "own", "contradicted"),
]


def test_claims_are_counted_by_paper_and_questions_of_our_own_are_left_out(plans: list[Plan]) -> None:
    page = verdict_page(plans, NOW)
    assert "| cube | 2 | 1 | 0 | 1 | 0 | 0 |\n| guo | 1 | 0 | 0 | 0 | 1 | 0 |\n| all | 3 | 1 | 0 | 1 | 1 | 0 |" in page
    assert "| `x/a` | a \\| text | §1 | holds everywhere |" in page
    assert "z/own" not in page
    assert "before" not in page


def test_earlier_verdicts_stand_beside_and_readings_of_a_claim_are_counted(plans: list[Plan]) -> None:
    before = [row("x", "a", "refuted"), row("x", "b", "refuted"), row("x", "b", "confirmed"), row("x", "b", "refuted")]
    page = verdict_page(plans, NOW, before)
    assert "| `x/a` | a \\| text | §1 | refuted | holds everywhere |" in page
    assert "| `x/b` | b \\| text | §1 | 1 confirmed, 2 refuted | contradicted |" in page
    assert "| `y/a` | a \\| text | §1 | – | undecided |" in page
    assert "| refuted | 1 | 0 | 0 | 0 | 0 |" in page
    assert "| – | 0 | 0 | 0 | 1 | 0 |" in page


def test_the_table_of_a_report_is_read(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="no table of claims"):
        read_verdicts(tmp_path)
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables" / "claims.jsonl").write_text("".join(json.dumps(one) + "\n" for one in NOW))
    assert read_verdicts(tmp_path) == NOW


@pytest.mark.parametrize("line", [b"garbage", b"[1]", b'{"study": "x", "claim": "a"}', b"\xff\xfe", b'{"study": 1}'])
def test_a_damaged_table_of_claims_is_named_with_its_line(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "tables" / "claims.jsonl"
    path.parent.mkdir()
    path.write_bytes(json.dumps(NOW[0]).encode() + b"\n" + line + b"\n")
    with pytest.raises(PlanError, match=r"claims\.jsonl:2: not a claim; write the table again"):
        read_verdicts(tmp_path)

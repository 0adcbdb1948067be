"""docs/statements.md against the plans: every claim of a paper has a row, and every row has a claim or a reason."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cubecast.lab.load_plan import load_plans

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "statements.md"
COUNTS = "## Scalable Stability Detection Using Logical Hypercube (cube)"
CLAIM = re.compile(r"`([a-z][\w-]*/[a-z][\w-]*)`")


def rows_of(text: str) -> list[list[str]]:
    """The cells of the rows of all tables of statements, without heads; the counts of verdicts stand before them."""
    tables = text.rpartition(COUNTS)[2]
    rows = [line.strip("| \n").split(" | ") for line in tables.splitlines() if line.startswith("| ")]
    return [row for row in rows if row[0] != "place"]


def mistakes_in(text: str, claims: set[str]) -> list[str]:
    """What is wrong with the table, given the claims of the plans."""
    rows = rows_of(text)
    named = {claim for row in rows for claim in CLAIM.findall(row[-1])}
    found = [f"{' | '.join(row)}: three cells are needed" for row in rows if len(row) != 3]
    found += [f"{row[0]}: neither a claim nor a reason" for row in rows if not _answers(row[-1])]
    found += [f"{claim}: no such claim" for claim in sorted(named - claims)]
    return found + [f"{claim}: in no row" for claim in sorted(claims - named)]


def _answers(cell: str) -> bool:
    return bool(CLAIM.search(cell)) or re.match(r"none: \w", cell) is not None


@pytest.fixture(scope="module")
def claims() -> set[str]:
    plans = [plan for plan in load_plans(ROOT / "plans") if plan.paper != "own"]
    return {f"{plan.id}/{claim.id}" for plan in plans for claim in plan.claims}


def test_every_claim_has_a_row_and_every_row_a_claim_or_a_reason(claims: set[str]) -> None:
    assert mistakes_in(PAGE.read_text("utf-8"), claims) == []


def test_files_that_stand_for_a_claim_exist() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)`", PAGE.read_text("utf-8"))
    assert named
    assert [name for name in named if not (ROOT / name).exists()] == []


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("| §1 | a | `x/gone` |", "x/gone: no such claim"),
        ("| §1 | a | |", "§1: neither a claim nor a reason"),
        ("| §1 | a | none |", "§1: neither a claim nor a reason"),
        ("", "x/here: in no row"),
    ],
)
def test_a_table_that_lags_behind_is_noticed(row: str, said: str) -> None:
    complete = "| §2 | b | `x/here` |\n" if said != "x/here: in no row" else ""
    assert said in mistakes_in(f"| place | statement | claim |\n|---|---|---|\n{row}\n{complete}", {"x/here"})

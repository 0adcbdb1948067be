"""What a report says of where its figures come from."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cubecast.lab.load_plan import load_plan
from cubecast.lab.plan import Plan
from cubecast.lab.provenance import caption, command_of, cpu_model, facts, plan_hash, study_provenance
from cubecast.lab.runs import runs_of
from cubecast.lab.study import StudyOutcome, project_plans
from tests.spark.conftest import PLAN


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    path = tmp_path / "small.toml"
    path.write_text(PLAN.format(fixed=""))
    return load_plan(path)


def _rows(*counts: int) -> list[dict[str, Any]]:
    return [{"n": count} for count in counts]


def test_a_caption_has_n_the_interval_and_the_command(plan: Plan) -> None:
    said = caption(plan, plan.figures[0], "full", _rows(20, 20))
    assert "Means with 95 % intervals (Student), n = 20 seeds per point." in said
    assert f"cubecast study run {plan.path} --full --figure 1" in said
    assert "Preliminary" not in said


def test_few_seeds_are_preliminary(plan: Plan) -> None:
    assert "Preliminary" in caption(plan, plan.figures[0], "quick", _rows(5, 20))
    assert "n = 5 … 20 seeds" in caption(plan, plan.figures[0], "quick", _rows(20, 5))
    assert "Preliminary" not in caption(plan, plan.figures[0], "quick", _rows(6))


def test_a_formula_has_no_seeds(plan: Plan) -> None:
    said = caption(replace(plan, experiment="gossip_chain"), plan.figures[0], "quick", _rows(1))
    assert "Exact values" in said
    assert "Preliminary" not in said


def test_a_plan_of_the_project_is_named_and_another_by_its_file(plan: Plan) -> None:
    assert command_of(plan, "quick") == f"cubecast study run {plan.path} --quick"
    own = load_plan(project_plans() / "cube-fig07-complexity.toml")
    assert command_of(own, "full") == f"cubecast study run {own.id} --full"


def test_a_study_names_the_hashes_of_its_plan_and_its_code(plan: Plan) -> None:
    runs = runs_of(plan, "quick")
    said = study_provenance(plan, StudyOutcome(plans=[plan], size="quick", runs=runs))
    assert hashlib.sha256(Path(str(plan.path)).read_bytes()).hexdigest()[:12] in said
    assert runs[0].code in said
    assert len(plan_hash(replace(plan, path=Path("nowhere.toml")))) == 12


def test_the_facts_name_versions_and_the_processor(plan: Plan) -> None:
    outcome = StudyOutcome(plans=[plan], size="quick", runs=[], versions={"Spark": "4", "Java": "17"})
    said = facts(outcome)
    for word in ("numba", "numpy", "pyarrow", "Spark", "Java", "CPU time of all runs", cpu_model().split()[0]):
        assert word in said

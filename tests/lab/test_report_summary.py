"""What the report says of a claim: a sentence that agrees with the verdict, a diagram, and every point behind it."""

from __future__ import annotations

from pathlib import Path

import pytest

from cubecast.lab.claims import UNDECIDED, Finding, JudgedReading, Judgement
from cubecast.lab.outcomes import CONTRADICTED, HOLDS, OPEN
from cubecast.lab.plan import Claim, Plan, PlanSize, Test
from cubecast.lab.report_claims import POINTS_SHOWN, claim_card, points_of_claim
from cubecast.lab.report_summary import overview, paper_summary, verdict_sentence
from cubecast.lab.stats import Estimate

TEST = Test(kind="value", metric="rtt_last_ms", where={"protocol": "coord"}, low=40.0, high=50.0, paper=46.0)
SIZE = PlanSize(repeats=3, fixed={}, sweep={"members": [64], "degree": [3, 5]}, zips=())


def _judgement(*readings: tuple[int, str, float], outcome: str | None = None, count: int = 1) -> Judgement:
    """A claim judged at these degrees, with these verdicts and values."""
    claim = Claim(id="c", text="RTT is <small>.", source="§1", figures=(), tests=(TEST,), readings=("degree",))
    plan = Plan(
        id="x",
        paper="cube",
        title="",
        about="",
        experiment="simulate",
        protocols=("coord",),
        skip=(),
        sizes={"quick": SIZE, "full": SIZE},
        figures=(),
        claims=(claim,),
        path=Path("x.toml"),
    )
    judged = [
        JudgedReading(
            reading={"degree": degree},
            verdict=verdict,
            findings=tuple(
                Finding(
                    test=TEST,
                    point={"protocol": "coord", "members": str(64 + number), "degree": str(degree)},
                    estimate=Estimate(value, value - 1, value + 1, 7),
                    outcome=outcome or (verdict if verdict != UNDECIDED else OPEN),
                    p_breaks=1.0,
                )
                for number in range(count)
            ),
        )
        for degree, verdict, value in readings
    ]
    return Judgement(claim=claim, plan=plan, readings=tuple(judged))


@pytest.mark.parametrize(
    ("judgement", "sentence"),
    [
        (_judgement((3, HOLDS, 45.0), (5, HOLDS, 47.0)), "Ours: RTT, last member (ms) 45 to 47."),
        (
            _judgement((3, HOLDS, 45.0), (5, CONTRADICTED, 99.0)),
            "Holds where degree is 3. Contradicted where degree is 5.",
        ),
        (_judgement((3, UNDECIDED, 49.0), (5, CONTRADICTED, 99.0)), "Needs more runs. Contradicted where degree is 5."),
        (_judgement((3, UNDECIDED, 49.0), outcome="close"), "Within the margin: too close to call."),
        (_judgement((3, CONTRADICTED, 99.0)), "Ours: RTT, last member (ms) 99."),
    ],
)
def test_the_sentence_agrees_with_the_verdict(judgement: Judgement, sentence: str) -> None:
    assert verdict_sentence(judgement).startswith(sentence)


def test_the_value_of_the_paper_stands_beside_the_nearest_of_ours() -> None:
    sentence = verdict_sentence(_judgement((3, HOLDS, 45.0), (5, CONTRADICTED, 99.0)))
    assert sentence.endswith("The paper: 46; ours nearest to it: 45 [44, 46] at protocol coord, members 64, degree 3.")


def test_a_paper_begins_with_a_sentence_of_counts() -> None:
    page = paper_summary("cube", "A title", [_judgement((3, HOLDS, 45.0)), _judgement((3, CONTRADICTED, 99.0))])
    assert "Of 2 statements, 1 holds at every reading tried and 1 is contradicted at every reading tried." in page
    assert "RTT is &lt;small&gt;." in page
    assert 'href="#x--c"' in page


def test_a_question_of_our_own_gets_no_verdict() -> None:
    judgement = _judgement((3, HOLDS, 45.0), (5, CONTRADICTED, 99.0))
    assert "holds in a region" in claim_card(judgement, is_own=False)
    assert "holds in a region" not in claim_card(judgement, is_own=True)
    assert "Holds where degree is 3" in claim_card(judgement, is_own=True)


def test_the_phase_diagram_shows_each_reading() -> None:
    card = claim_card(_judgement((3, HOLDS, 45.0), (5, CONTRADICTED, 99.0)), is_own=False)
    assert '<td class="yes">holds</td><td class="no">no</td>' in card
    assert "degree 100%" in card


def test_every_point_is_in_the_table_and_the_gravest_first() -> None:
    judgement = _judgement((3, HOLDS, 45.0), (5, CONTRADICTED, 99.0), count=30)
    rows = points_of_claim(judgement)
    assert len(rows) == 60
    assert [row["outcome"] for row in rows] == [CONTRADICTED] * 30 + [HOLDS] * 30
    assert (rows[0]["degree"], rows[0]["n"], rows[0]["value"], rows[0]["paper"]) == ("5", 7, 99.0, 46.0)
    card = claim_card(judgement, is_own=False)
    assert f"the most severe {POINTS_SHOWN} of 60 points" in card
    assert "../tables/x-claim-c.csv" in card


def test_a_calibration_takes_the_place_of_the_best_reading() -> None:
    found = {
        "best": {"setting": {"degree": 5.0}, "held": 3, "in_part": 0, "undecided": 1, "tested": 5},
        "contradicted": ["x/c", "x/e"],
        "settings_tried": 24,
        "numbers": [{"claim": "x/c", "quantity": "RTT", "paper": 46.0, "ours": 45.2}],
        "acceptable": {"degree": [2.5, 3.0, 4.0, 4.5, 5.0], "routing": ["delay", "hops"]},
        "sensitivities": {
            "routing": {"first_order": 0.1, "total": 0.2},
            "degree": {"first_order": 0.4, "total": 0.61},
        },
        "exclusions": [["x/a", "x/b"]],
        "nowhere": ["x/c", "x/d"],
    }
    judgements = [_judgement((3, HOLDS, 45.0), (5, CONTRADICTED, 99.0))]
    page = paper_summary("cube", "A title", judgements, found)
    assert "Calibration over 24 settings:" in page
    assert "Most statements hold together with degree 5: 3 of 5, and 0 in part" in page
    assert 'Contradicted there: <a href="#x--e">x/e</a>.' in page, "x/c is contradicted at every setting"
    assert 'Contradicted at every setting: <a href="#x--c">RTT is &lt;small&gt;</a>; <a href="#x--d">x/d</a>.' in page
    assert 'one of the two is contradicted: <a href="#x--a">x/a</a> and <a href="#x--b">x/b</a>.' in page
    assert "Within one statement of the best: degree 2.5 to 5; routing delay or hops." in page
    assert '<a href="#x--c">c</a>: RTT 46 in the paper, 45.2 here.' in page
    assert "(total Sobol index of the score): degree 0.61, routing 0.20." in page
    assert "Most statements of the study" not in page
    assert "Most statements of the study" not in paper_summary("cube", "A title", judgements), "one claim is not most"
    assert "Most statements of the study" in paper_summary("cube", "A title", 2 * judgements)
    page = paper_summary("cube", "A title", 2 * judgements, "calibration-cube.json is damaged.")
    assert "<p>calibration-cube.json is damaged.</p><p>Most statements of the study" in page


def test_the_overview_has_a_row_per_paper() -> None:
    judgements = [_judgement((3, HOLDS, 45.0)), _judgement((3, HOLDS, 45.0), (5, CONTRADICTED, 99.0))]
    best = {"best": {"held": 1, "in_part": 2, "tested": 4}}
    table = overview([("cube", "A <title>", judgements, best), ("guo", "Another", judgements[:1], "is damaged")])
    cells = "<td>2</td><td>1</td><td>1</td><td>0</td><td>0</td><td>1 of 4, 2 more in part</td>"
    assert f'<tr><td><a href="#paper-cube">A &lt;title&gt;</a></td>{cells}</tr>' in table
    assert "<td>not calibrated</td>" in table
    assert overview([]) == ""

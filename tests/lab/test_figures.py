"""Figures as pictures: every value has its mark, in lines, in maps of the winner and in maps of an order."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import vl_convert

from cubecast.lab.figures import draw
from cubecast.lab.metric_titles import LOWER_BOUND
from cubecast.lab.plan import Claim, Figure, Plan, Test
from cubecast.lab.tables import figure_rows

PLAN = Plan(
    id="x",
    paper="own",
    title="",
    about="",
    experiment="simulate",
    protocols=("coord", "full_dist"),
    skip=(),
    sizes={},
    figures=(),
    claims=(),
    path=Path("x.toml"),
)
SIZES, DEGREES = (8, 16, 24), (3, 5)


def _rows() -> list[dict[str, Any]]:
    return [
        {"protocol": protocol, "members": members, "degree": degree, "metric": "hops", "value": mean, "n": 3}
        | {"mean": mean, "sd": 1.0, "ci_low": mean - 1, "ci_high": mean + 1, "smallest": mean, "largest": mean}
        for place, protocol in enumerate(PLAN.protocols)
        for members in SIZES
        for degree in DEGREES
        for mean in [float(members * degree + 10 * place)]
    ]


@pytest.mark.parametrize(
    ("figure", "mark", "count"),
    [
        (Figure(id="1", title="", x="members", y=("hops",), panel="degree"), "point", 2 * 3 * 2),
        (Figure(id="1", title="", x="members", y=("hops",), panel="degree", y_scale="log"), "point", 2 * 3 * 2),
        (Figure(id="1", title="", x="members", y=("hops",), kind="winner", rows="degree"), "rect mark", 3 * 2),
        (
            Figure(
                id="1",
                title="",
                x="members",
                y=("hops",),
                kind="order",
                rows="degree",
                first="coord",
                second="full_dist",
            ),
            "rect mark",
            3 * 2,
        ),
    ],
)
def test_every_value_has_its_mark(figure: Figure, mark: str, count: int) -> None:
    spec = draw(PLAN, figure, _rows())
    picture = vl_convert.vegalite_to_svg(spec)
    assert picture.count(f'aria-roledescription="{mark}"') == count
    assert all(text in picture for text in ("Coord" if figure.kind != "order" else "Coord below FullDist", "members"))


def test_a_floor_is_one_more_line_and_the_lowest_at_each_point() -> None:
    figure = Figure(id="1", title="", x="members", y=("hops",), panel="degree")
    points, summary = _summary()
    floors = [{**row, "metric": "floor_hops", "mean": row["mean"] - 5.0} for row in summary]
    rows = figure_rows(figure, points, floors + summary)
    floor = {(row["members"], row["degree"]): row["value"] for row in rows if row["protocol"] == LOWER_BOUND}
    assert floor == {(members, degree): members * degree - 5.0 for members in SIZES for degree in DEGREES}
    picture = vl_convert.vegalite_to_svg(draw(PLAN, figure, rows))
    assert picture.count('aria-roledescription="point"') == 3 * 3 * 2
    assert LOWER_BOUND in picture


def test_a_phase_diagram_has_no_floor() -> None:
    figure = Figure(id="1", title="", x="members", y=("hops",), kind="winner", rows="degree")
    points, summary = _summary()
    assert figure_rows(figure, points, [{**row, "metric": "floor_hops"} for row in summary]) == []


def test_lines_by_a_parameter_have_no_floor() -> None:
    figure = Figure(id="1", title="", x="members", y=("hops",), series="degree")
    points, summary = _summary()
    assert figure_rows(figure, points, [{**row, "metric": "floor_hops"} for row in summary]) == []


def _summary() -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The points, and the rows with their places among them."""
    points = [{name: row[name] for name in ("protocol", "members", "degree")} for row in _rows()]
    return points, [{**row, "point": place} for place, row in enumerate(_rows())]


def test_what_the_paper_states_is_drawn_where_it_belongs() -> None:
    where = {"protocol": "full_dist", "members": 16}
    test = Test(kind="value", metric="hops", where={**where, "degree": 5}, low=0.0, paper=77.0)
    claim = Claim(id="c", text="t", source="s", figures=(), tests=(test,))
    figure = Figure(id="1", title="", x="members", y=("hops",), panel="degree")
    with_claim = draw(replace(PLAN, claims=(claim,)), figure, _rows())
    stated = [layer for panel in with_claim["concat"] for layer in panel["layer"] if "data" in layer]
    assert [layer["data"]["values"] for layer in stated] == [[{"x": 16, "series": "FullDist", "value": 77.0}]]
    assert "data" in with_claim["concat"][1]["layer"][-1], "in the panel of degree 5"
    everywhere = replace(claim, tests=(replace(test, where=where),))
    drawn = vl_convert.vegalite_to_svg(draw(replace(PLAN, claims=(everywhere,)), figure, _rows()))
    assert drawn.count('aria-roledescription="point"') == 2 * 3 * 2 + 2, "in both panels"
    silent = replace(claim, tests=(replace(test, paper=None),))
    assert draw(replace(PLAN, claims=(silent,)), figure, _rows()) == draw(PLAN, figure, _rows())


def _y_title(panel: dict[str, Any]) -> str:
    return str(panel["layer"][0]["encoding"]["y"]["title"])


def test_an_axis_says_what_it_measures_and_a_heading_which_panel_it_is() -> None:
    figure = Figure(id="1", title="", x="members", y=("hops",), panel="degree")
    panels = draw(PLAN, figure, _rows())["concat"]
    assert [_y_title(panel) for panel in panels] == ["hops", "hops"]
    assert [panel["title"] for panel in panels] == ["degree = 3", "degree = 5"]
    picture = vl_convert.vegalite_to_svg(draw(PLAN, figure, _rows()))
    assert picture.count(">hops</text>") == 2
    assert picture.count(">members</text>") == 2


@pytest.mark.parametrize(
    ("series", "names", "titles"),
    [
        ("protocol", ("coord", "gossip"), ["Coord", "Gossip"]),
        ("detector", ("gossip", "heartbeat", "model"), ["Gossip-style detection", "Heartbeat", "model"]),
        ("transport", ("ack", "srm"), ["ACK", "SRM"]),
    ],
)
def test_a_protocol_is_named_by_its_title_in_its_family(series: str, names: tuple[str, ...], titles: list[str]) -> None:
    plan = replace(PLAN, protocols=names if series == "protocol" else ("coord",))
    figure = Figure(id="1", title="", x="members", y=("hops",), series=series)
    rows = [row | {series: name} for name in names for row in _rows() if row["degree"] == 3]
    (panel,) = draw(plan, figure, rows)["concat"]
    assert panel["layer"][0]["encoding"]["color"]["scale"]["domain"] == titles


def test_long_times_are_drawn_in_seconds() -> None:
    figure = Figure(id="1", title="", x="members", y=("rtt_last_ms",))
    rows = [row | {"metric": "rtt_last_ms"} for row in _rows() if row["degree"] == 3]
    [short] = draw(PLAN, figure, rows)["concat"]
    assert _y_title(short) == "RTT, last member (ms)"
    scaled = [row | {name: 1000.0 * row[name] for name in ("value", "mean", "ci_low", "ci_high")} for row in rows]
    [long] = draw(PLAN, figure, scaled)["concat"]
    assert _y_title(long) == "RTT, last member (s)"
    assert [one["value"] for one in long["data"]["values"]] == [one["value"] for one in short["data"]["values"]]

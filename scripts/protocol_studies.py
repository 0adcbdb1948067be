"""The figures of the protocol pages: those of the project's studies in which a protocol takes part.

    cubecast study run --quick --all --out results
    python scripts/protocol_studies.py --results results

The second command draws them as the report does, from the tables of the results, into docs/images/studies. The pages
need no runs then: captions.json beside the pictures has what only the results say, the numbers of seeds and runs.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from cubecast.lab.plan import Figure, Plan
from cubecast.lab.provenance import caption
from cubecast.lab.remote import dataset_of
from cubecast.lab.runs import points_of, settings_of
from cubecast.lab.select import matches
from cubecast.lab.store import Store
from cubecast.lab.study import choose_plans, project_plans
from cubecast.lab.tables import figure_rows, file_name
from cubecast.protocol.definition import Protocol
from cubecast.protocols.catalogue import list_protocols
from cubecast.sim.roles import roles_of

FOLDER = Path(__file__).parents[1] / "docs" / "images" / "studies"
CAPTIONS = FOLDER / "captions.json"
SIZE = "quick"
SHOWN_MAX = 2
"""Figures on a page; the others are listed."""
_COLUMNS = 2
_FIELDS = {
    "protocol": "parameters",
    "transport": "transport_parameters",
    "detector": "detector_parameters",
    "data": "other_parameters",
    "stability": "other_parameters",
}
"""The settings that name a protocol, and the roles of these protocols in a run."""


class StudyFigure(NamedTuple):
    """A figure of a study, and who takes part in it."""

    plan: Plan
    figure: Figure
    points: tuple[dict[str, Any], ...]
    protocols: frozenset[tuple[str, str]]
    """Families and names."""

    @property
    def name(self) -> str:
        """The name of its picture, as in the report."""
        return file_name(self.plan, self.figure)


@cache
def study_figures() -> tuple[StudyFigure, ...]:
    """Every figure of the project's studies."""
    return tuple(one for plan in choose_plans(project_plans(), []) for one in _figures_of_plan(plan))


def _figures_of_plan(plan: Plan) -> Iterator[StudyFigure]:
    points = points_of(plan, SIZE)
    named = [frozenset(_named(settings_of(plan, SIZE, point))) for point in points]
    for figure in plan.figures:
        own = [place for place, point in enumerate(points) if matches(figure.only, point)]
        protocols = frozenset[tuple[str, str]]().union(*(named[place] for place in own))
        yield StudyFigure(plan, figure, tuple(points[place] for place in own), protocols)


def _named(settings: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The protocols that the settings of a run name."""
    if "protocol" not in settings:
        return  # a formula
    roles = roles_of(settings)
    for setting, field in _FIELDS.items():
        if setting in settings and field in roles and roles[field].entry.name == settings[setting]:
            yield roles[field].entry.family, settings[setting]


def figures_with(protocol: Protocol) -> list[StudyFigure]:
    """The figures in which a protocol takes part; those that compare its family over a range come first."""
    found = [one for one in study_figures() if (protocol.family, protocol.name) in one.protocols]
    return sorted(found, key=lambda one: _order(one, protocol))


def _order(one: StudyFigure, protocol: Protocol) -> tuple[Any, ...]:
    figure = one.figure
    family = [name for of, name in one.protocols if of == protocol.family]
    sizes = {point.get(figure.x) for point in one.points}
    shows_time = any(metric.endswith("_ms") for metric in figure.y)
    return (figure.kind != "lines", len(sizes) < 2, not shows_time, -len(family))


def shown_with(protocol: Protocol) -> list[StudyFigure]:
    """The figures on the page of a protocol: the first of each paper, beginning with those that describe it."""
    by_paper: dict[str, StudyFigure] = {}
    for one in figures_with(protocol):
        by_paper.setdefault(one.plan.paper, one)
    own = re.findall(r"\w+", protocol.paper)
    papers = sorted(by_paper, key=lambda paper: own.index(paper) if paper in own else len(own))
    return [by_paper[paper] for paper in papers][:SHOWN_MAX]


def all_shown() -> dict[str, StudyFigure]:
    """The figures of all pages, by the names of their pictures."""
    return {one.name: one for protocol in list_protocols() for one in shown_with(protocol)}


def captions() -> dict[str, str]:
    """The captions of the committed pictures."""
    found: dict[str, str] = json.loads(CAPTIONS.read_text("utf-8"))
    return found


# Drawing.


def draw_figure(one: StudyFigure, store: Store) -> tuple[str, str]:
    """The picture of a figure and its caption, from the tables of a results folder."""
    import vl_convert

    from cubecast.lab.figures import draw

    summary = _summary(one.plan, store)
    rows = figure_rows(one.figure, points_of(one.plan, SIZE), summary)
    chart = draw(one.plan, one.figure, rows)
    _narrow(chart, metrics=len(one.figure.y))
    drawn = {row["point"] for row in summary if row["metric"] in one.figure.y}
    counts = {place: max(row["n"] for row in summary if row["point"] == place) for place in drawn}
    wanted = [place for place, point in enumerate(points_of(one.plan, SIZE)) if point in one.points]
    runs = sum(counts.get(place, 0) for place in wanted)
    text = re.sub(r"</?p[^>]*>", "", caption(one.plan, one.figure, SIZE, rows))
    return _compact(vl_convert.vegalite_to_svg(chart)), f"{runs:,} runs. {text}"


def _narrow(chart: dict[str, Any], metrics: int) -> None:
    """Lay out a chart in two columns: a page of the site is narrower than the report."""
    panels = len(chart["concat"]) // metrics
    if panels % 2 and metrics % 2 == 0:  # a row per panel, so that a row has one kind of columns
        chart["concat"] = [chart["concat"][metric * panels + row] for row in range(panels) for metric in range(metrics)]
    chart["columns"] = _COLUMNS
    chart["config"]["legend"] |= {"columns": 4, "labelLimit": 220}


def _summary(plan: Plan, store: Store) -> list[dict[str, Any]]:
    """The measurements of a study; an error if the results are of another size or plan."""
    points = [dict(row) for row in _table(store, "points", plan)]
    expected = points_of(plan, SIZE)
    if len(points) != len(expected):
        raise SystemExit(f"{plan.id}: results of another size or plan; cubecast study run {plan.id} --{SIZE}")
    return _table(store, "summary", plan)


def _table(store: Store, name: str, plan: Plan) -> list[dict[str, Any]]:
    folder = store.partition(name, plan.id)
    if not folder.exists():
        raise SystemExit(f"{plan.id}: no results in {store.root}; cubecast study run {plan.id} --{SIZE}")
    rows: list[dict[str, Any]] = dataset_of(folder).to_table().to_pylist()
    return rows


_SPOKEN = re.compile(r' (?:aria-label|aria-roledescription|role)="[^"]*"')
_NUMBER = re.compile(r"-?\d+\.\d{3,}")


def _compact(svg: str) -> str:
    """Without the words per mark that only a browser's own chart needs, and with coordinates of a hundredth."""
    return _NUMBER.sub(lambda number: f"{float(number[0]):.2f}", _SPOKEN.sub("", svg)) + "\n"


def main(words: Sequence[str] | None = None) -> None:
    """Draw the figures of all pages, and remove those that no page shows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", default="results", help="the folder of `cubecast study run`")
    store = Store(Path(parser.parse_args(words).results))
    FOLDER.mkdir(parents=True, exist_ok=True)
    texts = {}
    for name, one in sorted(all_shown().items()):
        picture, texts[name] = draw_figure(one, store)
        (FOLDER / f"{name}.svg").write_text(picture, "utf-8")
        print(f"{name}: {texts[name]}", flush=True)
    for stale in FOLDER.glob("*.svg"):
        if stale.stem not in texts:
            stale.unlink()
    CAPTIONS.write_text(json.dumps(texts, indent=1, ensure_ascii=False) + "\n", "utf-8")


if __name__ == "__main__":
    main()

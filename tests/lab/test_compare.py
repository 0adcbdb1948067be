"""Protocols side by side: equal conditions, honest intervals, whole files."""

from __future__ import annotations

import csv
import math
import re
from pathlib import Path

import numpy as np
import pytest

from cubecast.errors import LocalProtocolError
from cubecast.lab.compare import Comparison, compare
from cubecast.lab.stats import mean_estimate
from cubecast.lab.whole_file import check_folder, write_whole
from cubecast.networks.spec import build_network
from cubecast.sim.result import Result
from cubecast.sim.simulate import simulate

NETWORK = "random:degree=3"


@pytest.fixture(scope="module")
def comparison() -> Comparison:
    return compare(members=[6, 12], network=NETWORK, repeat=3, seed=5, protocols=["coord", "full_dist"])


def results(comparison: Comparison) -> list[Result]:
    return [run.result for run in comparison.runs if run.result is not None]


def test_each_run_is_what_simulate_gives(comparison: Comparison) -> None:
    assert [(one.members, one.seed, one.protocol) for one in results(comparison)] == [
        (members, seed, protocol) for members in (6, 12) for seed in (5, 6, 7) for protocol in ("coord", "full_dist")
    ]
    for result in results(comparison):
        alone = simulate(result.protocol, members=result.members, network=NETWORK, seed=result.seed)
        assert (result.rtt_last_ms, result.hops, result.queue_max) == (alone.rtt_last_ms, alone.hops, alone.queue_max)


def test_a_summary_is_the_mean_and_the_interval_of_its_runs(comparison: Comparison) -> None:
    summary = next(one for one in comparison.summaries if (one.protocol, one.members) == ("full_dist", 12))
    values = [one.rtt_last_ms for one in results(comparison) if (one.protocol, one.members) == ("full_dist", 12)]
    mean = sum(values) / 3
    deviation = math.sqrt(sum((value - mean) ** 2 for value in values) / 2)
    figure = summary.figures["rtt_last_ms"]
    assert figure.value == pytest.approx(mean)
    # Student's t for 2 degrees of freedom and 95 %, from a printed table.
    assert figure.half_width == pytest.approx(4.303 * deviation / math.sqrt(3), rel=1e-3)
    assert summary.figures["messages"].half_width == 0


def test_one_run_has_no_interval_and_none_has_no_mean() -> None:
    assert mean_estimate(np.array([4.0])).half_width is None
    assert math.isnan(mean_estimate(np.array([])).value)


def test_metrics_are_those_of_the_protocols_compared(comparison: Comparison) -> None:
    assert {metric.of for metric in comparison.metrics} == {"all", "rounds"}
    with_data = compare(members=5, network="star", messages=2, protocols=["coord"])
    assert {metric.of for metric in with_data.metrics} == {"all", "rounds", "buffers"}
    assert with_data.summaries[0].figures["tts_last_ms"].value > 0
    causal = compare(members=5, network="star", messages=2, protocols=["timestamp"])
    assert {metric.of for metric in causal.metrics} == {"all", "data"}
    assert causal.summaries[0].figures["delay_mean_ms"].value > 0


def test_tables_hold_every_run_and_every_cell(comparison: Comparison) -> None:
    runs = list(csv.DictReader(comparison.runs_csv().splitlines()))
    assert [float(row["rtt_last_ms"]) for row in runs] == [one.rtt_last_ms for one in results(comparison)]
    cells = list(csv.DictReader(comparison.summary_csv().splitlines()))
    assert [(row["protocol"], row["members"]) for row in cells] == [
        *(("coord", "6"), ("full_dist", "6"), ("lower bound", "6")),
        *(("coord", "12"), ("full_dist", "12"), ("lower bound", "12")),
    ]


def test_nothing_is_below_the_lower_bound_of_its_size(comparison: Comparison) -> None:
    assert [one.members for one in comparison.lower_bounds] == [6, 12]
    for bound in comparison.lower_bounds:
        assert bound.figures["messages"].value == 2 * (bound.members - 1)
        assert bound.figures["queue_max"].n == 0
        for summary in (one for one in comparison.summaries if one.members == bound.members):
            for name in ("rtt_first_ms", "rtt_last_ms", "messages", "hops"):
                assert 0 < bound.figures[name].value <= summary.figures[name].value
    assert [one["protocol"] for one in comparison.to_dict()["lower_bounds"]] == ["lower bound"] * 2


def test_the_lower_bound_of_a_star_is_its_diameter() -> None:
    """Two links of 1 ms, and a header of bytes over each."""
    bound = compare(members=5, network="star:delay=1ms,bandwidth=1e12", protocols=["coord"]).lower_bounds[0]
    assert bound.figures["rtt_last_ms"].value == pytest.approx(2.0, rel=1e-3)
    assert bound.figures["rtt_first_ms"].value == pytest.approx(1.0, rel=1e-3)


def test_a_group_that_changes_has_no_lower_bound(tmp_path: Path) -> None:
    crashed = compare(members=6, network="star", protocols=["coord"], crashes=["3@1ms"], repeat_ms=5.0)
    assert crashed.lower_bounds == []
    assert [one.protocol for one in crashed.rows()] == ["coord"]
    crashed.plot(tmp_path / "plot.html")


def test_pictures_and_pages_show_the_lower_bound(comparison: Comparison, tmp_path: Path) -> None:
    page = comparison.plot(tmp_path / "plot.html").read_text("utf-8")
    assert page.count("<td>lower bound</td>") == 2
    picture = comparison.plot(tmp_path / "plot.svg").read_text("utf-8")
    assert "dotted: lower bound" in picture
    assert "#777777" in picture
    bars = compare(members=6, network=NETWORK, protocols=["coord"]).plot(tmp_path / "bars.svg").read_text("utf-8")
    assert "#777777" in bars


def test_a_page_needs_no_network(comparison: Comparison, tmp_path: Path) -> None:
    page = comparison.plot(tmp_path / "plot.html").read_text("utf-8")
    # The scripts are whole inside the page: their tags name no file, and they ask for none.
    tags = re.sub(r"(<script[^>]*>).*?(</script>)", r"\1\2", page, flags=re.DOTALL)
    assert tags.count("<script") >= 1
    assert not re.search(r"<(?:script|link|img)[^>]*(?:src|href)=", tags)
    assert "cdn.jsdelivr" not in page
    assert "vegaEmbed" in page
    assert tags.count("<tr>") == 1 + len(comparison.rows())


@pytest.mark.parametrize(("ending", "start"), [("png", b"\x89PNG"), ("svg", b"<svg"), ("pdf", b"%PDF")])
def test_pictures_in_every_format(comparison: Comparison, tmp_path: Path, ending: str, start: bytes) -> None:
    assert comparison.plot(tmp_path / f"plot.{ending}").read_bytes().startswith(start)


def test_a_comparison_in_which_nothing_ended_is_still_drawn(tmp_path: Path) -> None:
    failed = compare(members=[8, 12], network=NETWORK, protocols=["full_dist"], packets_max=2)
    assert len(failed.failures) == 2
    assert all(one.failed == one.runs for one in failed.summaries)
    assert "did not end" in failed.plot(tmp_path / "plot.html").read_text("utf-8")


def test_names_in_a_page_are_only_text(tmp_path: Path) -> None:
    edges = tmp_path / "<b>net.txt"
    edges.write_text("0 1\n1 2\n")
    page = compare(members=3, network=f"file:{edges}", protocols=["coord"]).plot(tmp_path / "plot.html")
    body = re.sub(r"<script.*?</script>", "", page.read_text("utf-8"), flags=re.DOTALL)
    assert "<b>net.txt" not in body


def test_a_network_of_another_size_is_refused() -> None:
    with pytest.raises(LocalProtocolError, match="has 5 members, the scenario 6"):
        compare(members=6, network=build_network("star", members=5, seed=0))


def test_bad_settings_are_found_before_the_first_run() -> None:
    begun: list[str] = []
    with pytest.raises(LocalProtocolError, match="members = 1"):
        compare(members=[5, 1], network="star", progress=lambda *news: begun.append(str(news)))
    assert begun == []


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    place = tmp_path / "table.csv"
    write_whole(place, "old")
    with pytest.raises(LocalProtocolError, match="cannot write"):
        write_whole(place / "below.csv", "new")
    assert place.read_text() == "old"
    assert list(tmp_path.iterdir()) == [place]
    with pytest.raises(LocalProtocolError, match="not a folder"):
        check_folder(place / "below")
    check_folder(tmp_path / "not" / "yet")

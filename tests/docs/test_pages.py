"""The pages of docs/: their links, the options of their commands, and the site that is built of them."""

from __future__ import annotations

import html
import importlib
import importlib.util
import os
import re
import shlex
import subprocess
import sys
import unicodedata
from dataclasses import fields
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer.main

from cubecast.cli import app
from cubecast.lab.metric_titles import title_of
from cubecast.lab.runs import points_of
from cubecast.lab.store import Store
from cubecast.protocols.catalogue import list_protocols, protocol_named
from tests.docs.pages import DOCS, PAGES, ROOT, blocks, command_lines

each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub and MkDocs name them."""
    text = re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    return {_slug(heading) for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE)}


def _slug(heading: str) -> str:
    plain = unicodedata.normalize("NFKD", heading).encode("ascii", "ignore").decode()
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", plain).strip().lower())


@each_page
def test_every_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    text = re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    wrong = []
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
            wrong.append(link)
    assert not wrong


def test_every_page_is_in_the_navigation_of_the_site() -> None:
    listed = re.findall(r"([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text("utf-8"), re.MULTILINE)
    assert sorted(listed) == sorted(page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md"))


def commands(page: Path) -> list[list[str]]:
    """The command lines of cubecast on a page."""
    found = [re.sub(r"^(\w+=\S+ )*", "", line) for line in command_lines(page)]
    return [shlex.split(line) for line in found if line.startswith("cubecast ")]


@pytest.mark.parametrize(
    ("page", "words"),
    [(page, words) for page in PAGES for words in commands(page)],
    ids=lambda value: " ".join(value)[:60] if isinstance(value, list) else value.name,
)
def test_every_command_and_option_exists(page: Path, words: list[str]) -> None:
    command: Any = typer.main.get_command(app)
    rest = words[1:]
    while hasattr(command, "commands"):
        assert rest, words
        assert rest[0] in command.commands, words
        command, rest = command.commands[rest[0]], rest[1:]
    options = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    options |= {
        "--" + one.name.replace("_", "-") for protocol in list_protocols() for one in fields(protocol.parameters)
    }
    options |= {"--help", "--protocol-file", "--radix"}  # the last one is of examples/doubling.py
    used = {word.partition("=")[0] for word in rest if word.startswith("--")}
    assert not used - options, words


@each_page
def test_every_python_block_is_python(page: Path) -> None:
    for number, text in enumerate(blocks(page, "python")):
        compile(text, f"{page.name}, block {number}", "exec", flags=0x2000)  # `await` outside of functions is allowed


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("mkdocs") is None, reason="MkDocs is not installed: `make docs`")
def test_the_site_is_built_without_a_warning_and_needs_no_network(tmp_path: Path) -> None:
    site = tmp_path / "site"
    subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", site],
        check=True,
        cwd=ROOT,
        timeout=250,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )
    pages = "".join(file.read_text("utf-8") for file in site.rglob("*.html"))
    fetched = re.findall(r"<(?:script|img|iframe)[^>]* src=\"?(https?:[^\"> ]+)", pages)
    fetched += re.findall(r"<link[^>]* rel=\"?(?:stylesheet|preconnect)[^>]*href=\"?(https?:[^\"> ]+)", pages)
    assert not fetched
    assert (site / "source" / "examples" / "ring.py.txt").is_file()
    assert "Send to every member, this one included" in (site / "api" / "live.html").read_text("utf-8")
    assert "images/studies/own-causal-stability-fig-1.svg" in (site / "protocol" / "stability-cascade.html").read_text()
    assert (site / "source" / "plans" / "own-causal-stability.toml.txt").is_file()
    tutorial = (site / "tutorial.html").read_text("utf-8")
    assert '<code><span class="option">--trace</span> run.parquet</code>' in tutorial
    assert '<div class="language-sh highlight">' in tutorial


def script(name: str) -> Any:
    """A module of scripts/, which imports others from there; a further call gives the same module."""
    folder = str(ROOT / "scripts")
    if folder not in sys.path:
        sys.path.append(folder)
    return importlib.import_module(name)


def test_every_protocol_has_a_page_with_its_diagram_its_figures_and_its_parameters() -> None:
    pages = script("protocol_pages").pages()
    for protocol in list_protocols():
        text = pages[f"protocol/{protocol.family}-{protocol.name}.md"]
        pictures = re.findall(r"\]\(\.\./images/(\S+)\)", text)
        for picture in pictures:
            assert (DOCS / "images" / picture).is_file(), f"{picture}: python scripts/{DRAWS[picture.split('/')[0]]}.py"
        assert [picture.split("/")[0] for picture in pictures][:2] == ["protocols", "studies"], protocol.name
        assert "takes part in" in text
        assert protocol.paper in text
        for one in fields(protocol.parameters):
            assert f"| `{one.name}` |" in text
    drawn = {file.stem for file in (DOCS / "images" / "protocols").iterdir()}
    assert drawn == {f"{protocol.family}-{protocol.name}" for protocol in list_protocols()}


DRAWS = {"protocols": "protocol_diagrams", "studies": "protocol_studies"}
"""The program that draws the pictures of a folder."""


def test_the_figures_of_the_pages_are_those_of_the_present_studies() -> None:
    studies = script("protocol_studies")
    shown, captions = studies.all_shown(), studies.captions()
    again = "cubecast study run --quick --all --out results; python scripts/protocol_studies.py --results results"
    assert set(captions) == set(shown) == {file.stem for file in studies.FOLDER.glob("*.svg")}, again
    for name, one in shown.items():
        picture = html.unescape((studies.FOLDER / f"{name}.svg").read_text("utf-8"))
        words = [title_of(one.figure.x), *(title_of(metric).replace("(ms)", "") for metric in one.figure.y)]
        words += [protocol_named(point["protocol"]).title for point in one.points if one.figure.series == "protocol"]
        words += [str(point["variant"])[:30] for point in one.points if one.figure.series == "variant"]
        assert [word for word in words if word not in picture] == [], f"{name}: {again}"
        command = f"cubecast study run {one.plan.id} --quick --figure {one.figure.id}"
        assert html.escape(command) in captions[name], again


def test_a_figure_is_drawn_from_the_tables_of_a_results_folder(tmp_path: Path) -> None:
    studies = script("protocol_studies")
    one, store = studies.all_shown()["rasm-estimates-fig-E1"], Store(tmp_path)
    points = points_of(one.plan, "quick")
    with pytest.raises(SystemExit, match=r"rasm-estimates: no results in .*cubecast study run rasm-estimates --quick"):
        studies.draw_figure(one, store)
    numbers = {"mean": 0.5, "sd": 0.1, "ci_low": 0.4, "ci_high": 0.6, "smallest": 0.3, "largest": 0.7}
    rows = [{"point": place, "metric": "reliability", "n": 7, **numbers} for place in range(len(points))]
    for name, table in (("points", points), ("summary", rows)):
        folder = tmp_path / "tables" / name / f"study={one.plan.id}"
        folder.mkdir(parents=True)
        pq.write_table(pa.Table.from_pylist(table), folder / "part.parquet")
    picture, caption = studies.draw_figure(one, store)
    assert picture.count("<svg") == 1
    assert all(f">{title}</text>" in picture for title in ("Plumtree", "RASM", "reachability"))
    assert caption.startswith(
        f"{7 * len(one.points)} runs. Means with 95 % intervals (Student), n = 7 seeds per point."
    )
    pq.write_table(pa.Table.from_pylist(points[:-1]), tmp_path / "tables/points/study=rasm-estimates/part.parquet")
    with pytest.raises(SystemExit, match="rasm-estimates: results of another size or plan"):
        studies.draw_figure(one, store)


def test_a_page_shows_figures_of_the_papers_that_describe_its_protocol() -> None:
    studies = script("protocol_studies")
    (coord,) = (one for one in list_protocols("stability") if one.name == "coord")
    assert [one.plan.paper for one in studies.shown_with(coord)] == ["cube", "guo"]
    (detector,) = (one for one in list_protocols("failure") if one.name == "gossip")
    assert {one.plan.id for one in studies.figures_with(detector)} == {"guo-failure-hierarchy", "own-detectors"}


def test_a_protocol_of_no_study_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    pages = script("protocol_pages")
    monkeypatch.setattr(script("protocol_studies"), "study_figures", tuple)
    (coord,) = (one for one in list_protocols("stability") if one.name == "coord")
    assert "No [study](../plans.md) of the project includes Coord yet." in pages.page_of(coord)


def test_a_bar_inside_a_cell_is_text() -> None:
    text = "| field | meaning |\n|---|---|\n| log | sender << 32 | sequence |\n\nRest"
    assert script("protocol_pages")._tables(text) == text.replace("32 |", "32 \\|")


def test_a_diagram_of_a_protocol_shows_its_messages() -> None:
    figures = script("protocol_diagrams")
    (coord,) = (one for one in list_protocols("stability") if one.name == "coord")
    drawn = figures.diagram(coord)
    assert drawn.count("marker-end") == 3 * (figures.MEMBERS - 1)
    assert drawn.count("<circle") == figures.MEMBERS


def test_no_line_of_a_page_ends_inside_an_option() -> None:
    hook = script("docs_site")
    option = '<span class="option">--keep-all</span>'
    assert hook.on_page_content("<code>a --keep-all 1</code>") == f"<code>a {option} 1</code>"
    block = '<div class="language-{0} highlight"><pre><span></span><code>a<span>b</span>{1} c-d</code></pre></div>'
    assert hook.on_page_content(block.format("sh", " --keep-all")) == block.format("sh", f" {option}")
    python = block.format("python", " --keep-all")
    assert hook.on_page_content(python) == python

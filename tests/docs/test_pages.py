"""The pages of docs/: their links, the options of their commands, and the site that is built of them."""

from __future__ import annotations

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

import pytest
import typer.main

from cubecast.cli import app
from cubecast.protocols.catalogue import list_protocols
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
    assert (site / "protocol" / "stability-cascade.html").is_file()
    tutorial = (site / "tutorial.html").read_text("utf-8")
    assert '<code><span class="option">--trace</span> run.parquet</code>' in tutorial
    assert '<div class="language-sh highlight">' in tutorial


def script(name: str) -> Any:
    """A module of scripts/."""
    specification = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def test_every_protocol_has_a_page_with_its_diagram_its_figure_and_its_parameters() -> None:
    pages = script("protocol_pages").pages()
    for protocol in list_protocols():
        text = pages[f"protocol/{protocol.family}-{protocol.name}.md"]
        for picture in re.findall(r"\]\(\.\./(images/\S+)\)", text):
            assert (DOCS / picture).is_file(), f"{picture}: python scripts/protocol_figures.py"
        assert text.count("](../images/") == 2
        assert protocol.paper in text
        for one in fields(protocol.parameters):
            assert f"| `{one.name}` |" in text


def test_a_diagram_of_a_protocol_shows_its_messages() -> None:
    figures = script("protocol_figures")
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

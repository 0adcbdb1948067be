"""A hook of MkDocs: a page per protocol, and project files that a page links to as part of the site.

`protocol_pages` writes the pages of the protocols from their files. In a clone, a link such as `../examples/ring.py`
leads out of docs/. On the site the same file is below `source/`, as text, so that no link needs the network.
"""

from __future__ import annotations

import posixpath
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
OUTSIDE = re.compile(r"\]\((\.\./[^)#\s]+)\)")


def linked_files(docs: Path, texts: dict[Path, str]) -> dict[str, Path]:
    """Every file outside docs/ that a page links to, by its path on the site."""
    found: dict[str, Path] = {}
    for page in sorted(texts):
        for link in OUTSIDE.findall(texts[page]):
            file = (page.parent / link).resolve()
            if file.is_file() and not file.is_relative_to(docs.resolve()):
                found[_place(file)] = file
    return found


def _place(file: Path) -> str:
    return f"source/{file.relative_to(ROOT.resolve()).as_posix()}.txt"


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Add the pages of the protocols to the navigation."""
    sys.path.insert(0, str(ROOT / "scripts"))
    import protocol_pages

    for entry in config.nav or ():
        if "Concepts" in entry:
            entry["Concepts"].append({"The protocols": protocol_pages.navigation()})
    return config


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the pages of the protocols, and the files that pages link to."""
    import protocol_pages
    from mkdocs.structure.files import File

    docs, written = Path(config.docs_dir), protocol_pages.pages()
    for place, text in written.items():
        files.append(File.generated(config, place, content=text))
    texts = {page: page.read_text("utf-8") for page in docs.rglob("*.md")}
    texts |= {docs / place: text for place, text in written.items()}
    for place, file in linked_files(docs, texts).items():
        files.append(File.generated(config, place, content=file.read_text("utf-8")))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, **_: Any) -> str:
    """Rewrite links out of docs/ to these files."""
    source = Path(config.docs_dir) / page.file.src_uri

    def moved(match: re.Match[str]) -> str:
        file = (source.parent / match[1]).resolve()
        if not file.is_file() or file.is_relative_to(Path(config.docs_dir).resolve()):
            return match[0]
        return f"]({posixpath.relpath(_place(file), posixpath.dirname(page.file.src_uri) or '.')})"

    return OUTSIDE.sub(moved, markdown)


_INLINE = re.compile(r"<code>[^<]*</code>")
_COMMANDS = re.compile(r'<div class="language-sh.*?</div>', re.DOTALL)
_TEXT = re.compile(r"(?<=>)[^<]+")
_OPTION = re.compile(r"(?<![\w-])--?[a-zA-Z][\w-]*")


def on_page_content(html: str, **_: Any) -> str:
    """Let no line end inside an option: browsers break `--trace` after its first dash."""
    html = _INLINE.sub(lambda code: _whole_options(code[0]), html)
    return _COMMANDS.sub(lambda block: _TEXT.sub(lambda text: _whole_options(text[0]), block[0]), html)


def _whole_options(text: str) -> str:
    return _OPTION.sub(r'<span class="option">\g<0></span>', text)

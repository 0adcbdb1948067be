"""The pages of the protocols on the documentation site: one per protocol, written from its file and catalogue entry."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cubecast.lab.plan import Plan
    from cubecast.protocol.definition import Protocol

FOLDER = "protocol"
FAMILIES = {
    "stability": "Stability",
    "causal": "Causal order",
    "broadcast": "Multicast trees",
    "transport": "Reliable transports",
    "failure": "Failure detectors",
}
LINKS = {
    "lossy": "any: it recovers lost messages itself",
    "reliable": "reliable: nothing is lost",
    "fifo": "reliable and FIFO: nothing is lost or reordered",
}


def name_of(protocol: Protocol) -> str:
    """The name of the page of a protocol and of its pictures."""
    return f"{protocol.family}-{protocol.name}"


def pages() -> dict[str, str]:
    """The pages by their path."""
    from cubecast.protocols.catalogue import list_protocols

    found = {f"{FOLDER}/{name_of(one)}.md": page_of(one) for one in list_protocols()}
    return {f"{FOLDER}/index.md": overview()} | found


def navigation() -> list[object]:
    """The pages as an entry of the navigation."""
    from cubecast.protocols.catalogue import list_protocols

    entry: list[object] = [f"{FOLDER}/index.md"]
    for family, title in FAMILIES.items():
        entry.append({title: [{one.title: f"{FOLDER}/{name_of(one)}.md"} for one in list_protocols(family)]})
    return entry


def overview() -> str:
    """A table of all protocols."""
    from cubecast.protocol.definition import FAMILIES as PURPOSES
    from cubecast.protocols.catalogue import list_protocols

    lines = [
        "# The protocols",
        "",
        "[Which protocol should I use?](../choosing.md) helps to choose. [Write a protocol](../protocols.md) adds one.",
        "The papers are *causal*, *cube*, *guo* and *rasm*: [every statement of the papers](../statements.md).",
    ]
    for family, title in FAMILIES.items():
        lines += ["", f"## {title}", "", f"A protocol of this family {PURPOSES[family]}.", ""]
        lines += ["| protocol | paper | summary |", "|---|---|---|"]
        for one in list_protocols(family):
            lines.append(f"| [{one.title}]({name_of(one)}.md) | {one.paper} | {_cell(one.summary)} |")
    return "\n".join(lines) + "\n"


def page_of(protocol: Protocol) -> str:
    """One protocol: its diagram, how it works, how it compares, parameters and messages."""
    from cubecast.protocol.parameters import describe

    name = name_of(protocol)
    heading, text = _explanation(protocol)
    lines = [
        f"# {protocol.title}",
        "",
        f"*{_sentence(protocol.summary)}*",
        "",
        _picture(
            f"A small run of {protocol.title}: a line per member, an arrow per message", f"images/protocols/{name}.svg"
        ),
        "",
        f"- Name: `{protocol.name}`",
        f"- Paper: {protocol.paper}",
        f"- Links: {LINKS[protocol.links]}",
        f"- Live: {_live(protocol)}",
        "",
        "## How it works",
        "",
        heading,
        "",
        text,
        "",
        "## In the studies",
        "",
        *_studies(protocol),
        "",
        "## Parameters",
        "",
    ]
    known = list(describe(protocol.parameters).values())
    if known:
        lines += ["| parameter | default | meaning |", "|---|---|---|"]
        for info in known:
            default = info.otherwise if info.default is None else str(info.default)
            lines.append(f"| `{info.name}` | {_cell(default)} | {_cell(info.help)} |")
    else:
        lines.append("It has no parameters.")
    if protocol.messages:
        lines += ["", "## Messages", "", "Sizes in bytes, with n members and m senders.", ""]
        lines += ["| message | fields |", "|---|---|"]
        for message in protocol.messages:
            fields = ", ".join(f"{field}: {size.text}" for field, size in message.fields.items())
            lines.append(f"| `{message.name}` | {_cell(fields) or 'none'} |")
    return "\n".join(lines) + "\n"


def _studies(protocol: Protocol) -> list[str]:
    """Figures of the report in which the protocol takes part, and the list of all such studies."""
    import protocol_studies

    found = protocol_studies.figures_with(protocol)
    if not found:
        return [f"No [study](../plans.md) of the project includes {protocol.title} yet."]
    lines = [
        "These figures are those of the report, drawn from the same tables: "
        f"`cubecast study run --{protocol_studies.SIZE} --all` runs all studies and writes it."
    ]
    captions = protocol_studies.captions()
    for one in protocol_studies.shown_with(protocol):
        title = f"{one.figure.title}, figure {one.figure.id} of {one.plan.id}"
        lines += [
            "",
            f"### {one.plan.title}",
            "",
            " ".join(one.plan.about.split()),
            "",
            _picture(title, f"images/studies/{one.name}.svg"),
            "",
            f"*{_sentence(one.figure.title)}* Figure {one.figure.id} of the study {_plan_link(one.plan)}: "
            f"{captions.get(one.name, '')}",
        ]
    figures: dict[str, list[str]] = {}
    links = {one.plan.id: _plan_link(one.plan) for one in found}
    for one in found:
        figures.setdefault(one.plan.id, []).append(one.figure.id)
    lines += ["", f"{protocol.title} takes part in {_plural(len(figures), 'study', 'studies')}:", ""]
    for plan, own in sorted(figures.items()):
        lines.append(f"- {links[plan]}, {'figure' if len(own) == 1 else 'figures'} {'; '.join(sorted(own))}")
    return lines


def _picture(text: str, path: str) -> str:
    """A picture that can be scrolled where the page is narrow."""
    return f'<div class="figure" markdown="1">![{text}](../{path})</div>'


def _plan_link(plan: Plan) -> str:
    return f"[{plan.id}](../../plans/{plan.path.name})"


def _plural(count: int, one: str, several: str) -> str:
    return f"{count} {one if count == 1 else several}"


def _explanation(protocol: Protocol) -> tuple[str, str]:
    """The first line of the protocol's file, and the rest of its opening text."""
    text = inspect.cleandoc(protocol.handler_source().__doc__ or protocol.summary)
    heading, _, rest = text.partition("\n")
    return heading, _tables(rest.strip())


def _tables(text: str) -> str:
    """Tables of Markdown; a `|` inside the last cell of a row, as in Python, is not the end of the cell."""
    columns, lines = 0, []
    for line in text.split("\n"):
        cells = line.strip("| ").split(" | ")
        if not line.startswith("|"):
            columns = 0
        elif columns == 0:
            columns = len(cells)
        elif len(cells) > columns:
            cells = [*cells[: columns - 1], _cell(" | ".join(cells[columns - 1 :]))]
            line = f"| {' | '.join(cells)} |"
        lines.append(line)
    return "\n".join(lines)


def _live(protocol: Protocol) -> str:
    if protocol.family == "stability":
        return f'`Settings(stability="{protocol.name}")`'
    if protocol.live is not None:
        return f'`Settings(data="{protocol.name}")`'
    return "only in the simulator"


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def _cell(text: str) -> str:
    return text.replace("|", "\\|")

"""The pages of the protocols on the documentation site: one per protocol, written from its file and catalogue entry."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

if TYPE_CHECKING:
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
    picture = f"../images/protocols/{name}"
    heading, text = _explanation(protocol)
    lines = [
        f"# {protocol.title}",
        "",
        f"*{_sentence(protocol.summary)}*",
        "",
        f"![A small run of {protocol.title}: a line per member, an arrow per message]({picture}.svg)",
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
        "## Beside the others",
        "",
        f"![{protocol.title} beside the other protocols of its family]({picture}-figure.svg)",
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


def _explanation(protocol: Protocol) -> tuple[str, str]:
    """The first line of the protocol's file, and the rest of its opening text."""
    text = inspect.cleandoc(protocol.handler_source().__doc__ or protocol.summary)
    heading, _, rest = text.partition("\n")
    return heading, rest.strip()


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

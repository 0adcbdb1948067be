"""Draws the diagrams of the protocol pages into docs/images/protocols; run it again when a protocol has changed.

    python scripts/protocol_diagrams.py [NAME ...]

A diagram shows a small run: a line per member, an arrow per message, time to the right. It is drawn from the trace of
the simulator.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cubecast.networks.spec import build_network
from cubecast.protocol.definition import Protocol
from cubecast.protocols.catalogue import list_protocols
from cubecast.sim.scenario import Scenario
from cubecast.sim.simulate import run_and_trace
from cubecast.trace import schema

FOLDER = Path(__file__).parents[1] / "docs" / "images" / "protocols"
MEMBERS = 8
CONTROL_COLOUR, DATA_COLOUR, MARK_COLOUR, DROP_COLOUR = "#0072B2", "#009E73", "#D55E00", "#CC0000"


class Run(NamedTuple):
    """A run for a diagram."""

    settings: dict[str, Any]
    layer: int
    mark: int
    """The event that ends the work of a member, drawn as a dot."""
    caption: str


def name_of(protocol: Protocol) -> str:
    """The name of the pictures and of the page of a protocol."""
    return f"{protocol.family}-{protocol.name}"


def run_of(protocol: Protocol) -> Run:
    """The small run that shows how a protocol works."""
    usual = {"members": MEMBERS, "network": "flat:delay=1ms", "seed": 1}
    if protocol.family == "stability":
        settings = usual | {"protocol": protocol.name, "rounds": 1}
        return Run(settings, schema.CONTROL, schema.DONE, "One round. Dots: the member knows which messages are stable")
    if protocol.family == "transport":
        settings = usual | {"protocol": "coord", "transport": protocol.name, "senders": 1, "messages": 3}
        settings |= {"loss": 0.08, "rate": 500}
        return Run(settings, schema.DATA, schema.DELIVER, "Three messages; × is a loss. Dots: deliveries")
    if protocol.family == "failure":
        settings = usual | {"protocol": "coord", "detector": protocol.name, "rounds": 1, "least_ms": 1000.0}
        return Run(settings, schema.FAILURE, schema.EXCLUDE, "The first messages, while all members are up")
    settings = usual | {"protocol": protocol.name, "senders": 1, "messages": 1}
    if protocol.family == "broadcast" or "regular" in protocol.summary:
        settings |= {"network": "regular:degree=3"}
    return Run(settings, schema.DATA, schema.DELIVER, "One message of the first member. Dots: deliveries")


# Diagrams.


def diagram(protocol: Protocol) -> str:
    """The picture of a small run."""
    run = run_of(protocol)
    scenario = Scenario.of(**run.settings)
    network = build_network(scenario.network, members=scenario.members, seed=scenario.seed)
    events = run_and_trace(scenario, network)[1].events
    return _space_time(events, run)


WIDTH, LEFT, RIGHT, TOP, GAP = 760, 78, 24, 18, 34
ARROWS_MAX = 64
"""A run without an end is shown until it has sent so many messages."""


def _space_time(events: schema.Events, run: Run) -> str:
    members = run.settings["members"]
    arrows = list(_arrows(events, run.layer))[:ARROWS_MAX]
    drops = _drops(events, run.layer)
    marks = [
        one for one in events[events["event"] == run.mark] if one["time_ns"] > 0 and one["layer"] in (0, run.layer)
    ]
    end_ns = max([*(one[1] for one in arrows), *(int(one["time_ns"]) for one in marks)], default=1)
    begin_ns = min((one[0] for one in arrows), default=0)
    height = TOP + GAP * (members - 1) + 52

    def x(time_ns: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (time_ns - begin_ns) / max(1, end_ns - begin_ns)

    def y(rank: int) -> float:
        return TOP + GAP * rank

    parts = [_head(WIDTH, height, run.caption)]
    for rank in range(members):
        parts.append(f'<text x="{LEFT - 12}" y="{y(rank) + 4}" text-anchor="end">member {rank}</text>')
        parts.append(f'<path d="M{LEFT} {y(rank)}H{WIDTH - RIGHT}" stroke="#d0d0d0"/>')
    colour = DATA_COLOUR if run.layer == schema.DATA else CONTROL_COLOUR
    for sent, received, source, target in arrows:
        parts.append(
            f'<path d="M{x(sent):.1f} {y(source)}L{x(received):.1f} {y(target)}" stroke="{colour}" '
            'stroke-opacity=".75" marker-end="url(#head)"/>'
        )
    for sent, source, target in drops:
        middle = (y(source) + y(target)) / 2
        parts.append(
            f'<path d="M{x(sent):.1f} {y(source)}L{x(sent + 5e5):.1f} {middle}" stroke="{DROP_COLOUR}" '
            'stroke-dasharray="3 2"/>'
            f'<text x="{x(sent + 5e5):.1f}" y="{middle + 5}" text-anchor="middle" fill="{DROP_COLOUR}">×</text>'
        )
    for one in marks:
        parts.append(
            f'<circle cx="{x(int(one["time_ns"])):.1f}" cy="{y(int(one["member"]))}" r="4.5" fill="{MARK_COLOUR}"/>'
        )
    for place in range(5):
        time_ns = begin_ns + (end_ns - begin_ns) * place / 4
        label = f"{time_ns / 1e6:.3g}" + (" ms" if place == 4 else "")
        parts.append(f'<text x="{x(time_ns):.1f}" y="{height - 24}" text-anchor="middle">{label}</text>')
    parts.append(f'<text x="{LEFT}" y="{height - 6}" fill="#555">{run.caption}</text></svg>')
    return "\n".join(parts)


def _head(width: int, height: float, title: str) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height:g}" font-family="sans-serif" '
        f'font-size="12"><title>{title}</title><defs><marker id="head" viewBox="0 0 8 8" refX="7.5" refY="4" '
        f'markerWidth="7" markerHeight="7" orient="auto"><path d="M0 0.8L8 4L0 7.2z" fill="#333"/></marker></defs>'
        f'<rect width="{width}" height="{height:g}" fill="#fff"/>'
    )


def _arrows(events: schema.Events, layer: int) -> Iterator[tuple[int, int, int, int]]:
    """When each message of a layer was sent and received, and by whom."""
    mine = events[events["layer"] == layer]
    sent = {int(one["message"]): int(one["time_ns"]) for one in mine[mine["event"] == schema.SEND]}
    for one in mine[mine["event"] == schema.RECEIVE]:
        at = sent.get(int(one["message"]))
        if at is not None:
            yield at, int(one["time_ns"]), int(one["peer"]), int(one["member"])


def _drops(events: schema.Events, layer: int) -> list[tuple[int, int, int]]:
    mine = events[events["layer"] == layer]
    lost = set(mine[mine["event"] == schema.DROP]["message"].tolist())
    sent = mine[(mine["event"] == schema.SEND) & np.isin(mine["message"], list(lost)) & (mine["peer"] >= 0)]
    return [(int(one["time_ns"]), int(one["member"]), int(one["peer"])) for one in sent]


def main(names: Sequence[str]) -> None:
    """Draw the diagrams of these protocols, or of all."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for protocol in list_protocols():
        if not names or protocol.name in names:
            (FOLDER / f"{name_of(protocol)}.svg").write_text(diagram(protocol) + "\n", "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])

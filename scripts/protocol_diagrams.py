"""Draws the pictures of the protocol pages into docs/images/protocols; run it again when a protocol has changed.

    python scripts/protocol_figures.py [NAME ...]

A *diagram* shows a small run: a line per member, an arrow per message, time to the right. It is drawn from the trace of
the simulator. A *figure* compares the protocols of a family as the group grows. Its numbers are in figures.json, and a
page highlights its own protocol.
"""

from __future__ import annotations

import json
import math
import statistics
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cubecast.networks.spec import build_network
from cubecast.protocol.definition import Protocol
from cubecast.protocols.catalogue import list_protocols
from cubecast.sim.scenario import Scenario
from cubecast.sim.simulate import run_and_trace, simulate
from cubecast.trace import schema

FOLDER = Path(__file__).parents[1] / "docs" / "images" / "protocols"
MEMBERS = 8
SIZES = (8, 16, 32, 64, 128)
SEEDS = (1, 2, 3)
CONTROL_COLOUR, DATA_COLOUR, MARK_COLOUR, OTHER_COLOUR, DROP_COLOUR = (
    "#0072B2",
    "#009E73",
    "#D55E00",
    "#9a9a9a",
    "#CC0000",
)


class Run(NamedTuple):
    """A run for a diagram."""

    settings: dict[str, Any]
    layer: int
    mark: int
    """The event that ends the work of a member, drawn as a dot."""
    caption: str


class Curve(NamedTuple):
    """A quantity of a figure."""

    metric: str
    title: str


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


# Figures.

CURVES = {
    "stability": (
        Curve("rtt_last_ms", "round, until all members know the result (ms)"),
        Curve("messages", "messages per round"),
    ),
    "causal": (
        Curve("delay_mean_ms", "delay of a message (ms)"),
        Curve("data_messages", "copies per multicast"),
    ),
    "broadcast": (
        Curve("delay_mean_ms", "delay of a message (ms)"),
        Curve("data_messages", "copies per multicast"),
    ),
    "transport": (
        Curve("delay_mean_ms", "delay of a message (ms)"),
        Curve("overhead_messages", "control messages per multicast"),
    ),
    "failure": (
        Curve("detect_last_ms", "until all exclude a crashed member (ms)"),
        Curve("failure_bytes_per_member_s", "bytes per member and second"),
    ),
}
MULTICASTS = 20
CONDITIONS = {
    "stability": "random graphs of average degree 5, 100 Mbit/s, one round",
    "causal": f"random graphs of average degree 5, 4 senders, {MULTICASTS} multicasts each",
    "broadcast": f"random graphs of average degree 5, 4 senders, {MULTICASTS} multicasts each",
    "transport": f"random graphs of average degree 5, 1 % loss per link, 4 senders, {MULTICASTS} multicasts each",
    "failure": "random graphs of average degree 5, one member crashes",
}


def settings_of(protocol: Protocol) -> dict[str, Any]:
    """The run that a figure measures, without its size and seed."""
    network = {"network": "random:degree=5"}
    flow = {"senders": 4, "messages": MULTICASTS}
    if protocol.family == "stability":
        return network | {"protocol": protocol.name}
    if protocol.family == "transport":
        return network | flow | {"protocol": "cube_full_dist", "transport": protocol.name, "loss": 0.01}
    if protocol.family == "failure":
        return network | {
            "protocol": "cube_full_dist",
            "detector": protocol.name,
            "crashes": ("1@2000ms",),
            "least_ms": 4000.0,
        }
    return network | flow | {"protocol": protocol.name}


def measured(protocol: Protocol) -> dict[str, list[float | None]]:
    """The curves of a protocol: a value per size."""
    found: dict[str, list[float | None]] = {curve.metric: [] for curve in CURVES[protocol.family]}
    for members in SIZES:
        results = [simulate(**settings_of(protocol), members=members, seed=seed) for seed in SEEDS]
        for metric, values in found.items():
            some = [getattr(one, metric) for one in results]
            value = None if None in some else statistics.fmean(some)
            if metric in ("data_messages", "overhead_messages") and value is not None:
                value /= 4 * MULTICASTS
            values.append(None if value is None else round(value, 3))
    return found


def figure(protocol: Protocol, numbers: dict[str, dict[str, list[float | None]]]) -> str:
    """The curves of a family, with those of one protocol highlighted."""
    names = [name_of(one) for one in list_protocols(protocol.family) if name_of(one) in numbers]
    width, height, panel = 760, 300, 330
    parts = [_head(width, height, f"{protocol.title} beside the others: {CONDITIONS[protocol.family]}")]
    for place, curve in enumerate(CURVES[protocol.family]):
        lines = {name: numbers[name][curve.metric] for name in names}
        parts.append(_panel(curve.title, lines, name_of(protocol), left=56 + place * (panel + 50), width=panel - 20))
    caption = f"{CONDITIONS[protocol.family]}; grey: the others of its family"
    parts.append(f'<text x="16" y="{height - 6}" fill="#555">{caption}</text></svg>')
    return "\n".join(parts)


def _panel(title: str, lines: dict[str, list[float | None]], own: str, *, left: float, width: float) -> str:
    top, bottom = 34, 240
    values = [value for line in lines.values() for value in line if value is not None and value > 0]
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    high = max(high, low + 1)

    def x(place: int) -> float:
        return left + width * place / (len(SIZES) - 1)

    def y(value: float) -> float:
        return bottom - (bottom - top) * (math.log10(max(value, 10**low)) - low) / (high - low)

    parts = [f'<text x="{left}" y="18" font-weight="bold">{title}</text>']
    for power in range(low, high + 1):
        parts.append(f'<path d="M{left} {y(10**power):.1f}h{width}" stroke="#e2e2e2"/>')
        parts.append(f'<text x="{left - 6}" y="{y(10**power) + 4:.1f}" text-anchor="end">{10**power:g}</text>')
    for place, size in enumerate(SIZES):
        parts.append(f'<text x="{x(place):.1f}" y="{bottom + 16}" text-anchor="middle">{size}</text>')
    parts.append(f'<text x="{left + width / 2}" y="{bottom + 32}" text-anchor="middle" fill="#555">members</text>')
    for name in sorted(lines, key=lambda one: one == own):
        points = [(x(place), y(value)) for place, value in enumerate(lines[name]) if value is not None]
        if not points:
            continue
        path = "M" + "L".join(f"{at:.1f} {height:.1f}" for at, height in points)
        colour, wide = (MARK_COLOUR, 2.5) if name == own else (OTHER_COLOUR, 1.2)
        parts.append(f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="{wide}"/>')
        if name == own:
            parts += [f'<circle cx="{at:.1f}" cy="{height:.1f}" r="3" fill="{colour}"/>' for at, height in points]
    return "\n".join(parts)


def main(names: Sequence[str]) -> None:
    """Draw the diagrams of these protocols, or of all, and the figures of all."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    stored = FOLDER / "figures.json"
    numbers = json.loads(stored.read_text("utf-8")) if stored.exists() else {}
    for protocol in list_protocols():
        if names and protocol.name not in names:
            continue
        name = name_of(protocol)
        (FOLDER / f"{name}.svg").write_text(diagram(protocol) + "\n", "utf-8")
        numbers[name] = measured(protocol)
        print(name, numbers[name], flush=True)
    stored.write_text(json.dumps(dict(sorted(numbers.items())), indent=1) + "\n", "utf-8")
    for protocol in list_protocols():
        if name_of(protocol) in numbers:
            picture = figure(protocol, numbers)
            (FOLDER / f"{name_of(protocol)}-figure.svg").write_text(picture + "\n", "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])

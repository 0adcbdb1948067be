"""Draws the pictures of docs/guarantees.md: what stable and causally stable mean, and how a view ends.

python scripts/concept_figures.py

A line per member, an arrow per message, time to the right; the unit of time is arbitrary.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).parents[1] / "docs" / "images"
WIDTH, LEFT, TOP, GAP = 760, 40, 58, 58
BLUE, GREEN, ORANGE, GREY = "#0072B2", "#009E73", "#D55E00", "#8a8a8a"


class Arrow(NamedTuple):
    """A message from one member to another."""

    sent: float
    source: int
    received: float
    target: int
    colour: str = BLUE
    is_control: bool = False


class Label(NamedTuple):
    """A text beside a dot on the line of a member."""

    at: float
    member: int
    text: str
    colour: str = BLUE
    below: bool = False


class Span(NamedTuple):
    """A time that is shaded for all members."""

    begin: float
    end: float
    text: str
    colour: str


class Picture(NamedTuple):
    """What to draw."""

    title: str
    members: str
    end: float
    spans: Sequence[Span]
    arrows: Sequence[Arrow]
    labels: Sequence[Label]
    crashes: Sequence[tuple[float, int]] = ()


STABLE = Picture(
    "A message is stable when every member has it and its sender knows that",
    "ABC",
    10,
    [Span(0.6, 4.4, "some member may lack m", "#fdf0e6"), Span(4.4, 9.9, "every member has m", "#e9f5f0")],
    [
        Arrow(0.6, 0, 2.2, 1),
        Arrow(0.6, 0, 4.4, 2),
        Arrow(5.2, 1, 6.4, 0, GREY, True),
        Arrow(5.2, 2, 7.6, 0, GREY, True),
        Arrow(7.8, 0, 8.6, 1, GREY, True),
        Arrow(7.8, 0, 9.2, 2, GREY, True),
    ],
    [
        Label(0.6, 0, "multicast(m)"),
        Label(2.2, 1, "deliver m"),
        Label(4.4, 2, "deliver m", below=True),
        Label(7.8, 0, "m is stable", ORANGE),
        Label(8.6, 1, "", ORANGE),
        Label(9.2, 2, "", ORANGE),
    ],
)
CAUSALLY_STABLE = Picture(
    "m is causally stable when no message that is concurrent with m can still arrive",
    "ABC",
    10,
    [
        Span(0.6, 4.6, "m is not known to be stable", "#fdf0e6"),
        Span(4.6, 7.4, "m is stable, x is still in transit", "#fbf7dc"),
        Span(7.4, 9.9, "m is causally stable", "#e9f5f0"),
    ],
    [
        Arrow(0.6, 0, 2.0, 1),
        Arrow(0.6, 0, 3.2, 2),
        Arrow(2.4, 2, 5.4, 1, GREEN),
        Arrow(2.4, 2, 7.4, 0, GREEN),
    ],
    [
        Label(0.6, 0, "multicast(m)"),
        Label(2.0, 1, "deliver m"),
        Label(3.2, 2, "deliver m"),
        Label(2.4, 2, "multicast(x), before it has m", GREEN, below=True),
        Label(5.4, 1, "deliver x", GREEN, below=True),
        Label(7.4, 0, "deliver x", GREEN),
        Label(8.8, 0, "free m", ORANGE),
    ],
)
VIEWS = Picture(
    "All members that stay deliver the same messages in a view",
    "ABCD",
    10,
    [
        Span(0.1, 3.6, "view 1: A, B, C, D", "#e8f1f8"),
        Span(3.6, 6.9, "view change: agree, fill gaps", "#fdf0e6"),
        Span(6.9, 9.9, "view 2: A, B, C", "#e9f5f0"),
    ],
    [
        Arrow(0.9, 3, 2.0, 2),
        Arrow(3.7, 0, 4.5, 1, GREY, True),
        Arrow(3.7, 0, 4.7, 2, GREY, True),
        Arrow(4.7, 2, 5.7, 1),
        Arrow(4.7, 2, 6.3, 0),
        Arrow(7.6, 1, 8.4, 0, GREEN),
        Arrow(7.6, 1, 8.4, 2, GREEN),
    ],
    [
        Label(0.9, 3, "multicast(m)", below=True),
        Label(2.0, 2, "deliver m: only C has it"),
        Label(3.7, 0, "suspects D, proposes view 2", GREY),
        Label(5.7, 1, "deliver m", below=True),
        Label(6.3, 0, "deliver m", below=True),
        Label(7.6, 1, "multicast", GREEN),
    ],
    [(1.3, 3)],
)


def draw(picture: Picture) -> str:
    """The picture as SVG."""
    bottom = TOP + GAP * (len(picture.members) - 1) + 34

    def x(at: float) -> float:
        return LEFT + (WIDTH - LEFT - 16) * at / picture.end

    def y(member: int) -> float:
        return TOP + GAP * member

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {bottom}" font-family="sans-serif" '
        f'font-size="13"><title>{picture.title}</title><defs><marker id="head" viewBox="0 0 8 8" refX="7.5" refY="4" '
        'markerWidth="7" markerHeight="7" orient="auto"><path d="M0 0.8L8 4L0 7.2z" fill="#333"/></marker></defs>'
        f'<rect width="{WIDTH}" height="{bottom}" fill="#fff"/>'
    ]
    for span in picture.spans:
        place = f'x="{x(span.begin):.1f}" width="{x(span.end) - x(span.begin):.1f}"'
        parts.append(f'<rect {place} y="6" height="{bottom - 12}" fill="{span.colour}"/>')
        parts.append(f'<text x="{x(span.begin) + 6:.1f}" y="22" fill="#444">{span.text}</text>')
    ends = {member: at for at, member in picture.crashes}
    for member, name in enumerate(picture.members):
        end = x(ends.get(member, picture.end))
        parts.append(f'<text x="14" y="{y(member) + 5}" font-weight="bold">{name}</text>')
        parts.append(f'<path d="M{LEFT} {y(member)}H{end:.1f}" stroke="#555"/>')
        if member in ends:
            parts.append(f'<text x="{end:.1f}" y="{y(member) + 6}" font-size="19" fill="#CC0000">× crash</text>')
    for one in picture.arrows:
        dashes = ' stroke-dasharray="4 3"' if one.is_control else ""
        line = f"M{x(one.sent):.1f} {y(one.source)}L{x(one.received):.1f} {y(one.target)}"
        parts.append(f'<path d="{line}" stroke="{one.colour}" stroke-width="1.6"{dashes} marker-end="url(#head)"/>')
    for label in picture.labels:
        at, line = x(label.at), y(label.member)
        parts.append(f'<circle cx="{at:.1f}" cy="{line}" r="5" fill="{label.colour}"/>')
        place = f'x="{at + 4:.1f}" y="{line + 19 if label.below else line - 9}"'
        parts.append(f'<text {place} fill="{label.colour}">{label.text}</text>')
    return "\n".join([*parts, "</svg>\n"])


if __name__ == "__main__":
    for name, picture in {"stable": STABLE, "causally-stable": CAUSALLY_STABLE, "views": VIEWS}.items():
        (FOLDER / f"{name}.svg").write_text(draw(picture), "utf-8")

"""The colours of figures."""

from __future__ import annotations

from typing import Any

import altair as alt

# Okabe and Ito's colours, told apart with any kind of colour vision; yellow last, it is faint on white.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#8C8C8C", "#F0E442")


_OWN = dict(
    zip(
        ("Coord", "FullDist", "S_Coord", "CubeFullDist", "Gossip", "Train", "S_Train", "S_Gossip"), COLOURS, strict=True
    )
)
"""The colour of each stability protocol, the same in every figure."""


def colours(names: dict[Any, str]) -> alt.Scale:
    """Protocols in their own colours where all have one, otherwise one after the other."""
    by_place = {name: COLOURS[place % len(COLOURS)] for place, name in enumerate(names.values())}
    chosen = _OWN if set(by_place) <= set(_OWN) else by_place
    return alt.Scale(domain=[*by_place], range=[chosen[name] for name in by_place])

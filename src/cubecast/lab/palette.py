"""The colours of figures."""

from __future__ import annotations

from typing import Any

import altair as alt

from cubecast.lab.metric_titles import LOWER_BOUND
from cubecast.protocols.catalogue import list_protocols

# Okabe and Ito's colours, which people with any kind of colour vision can distinguish; yellow is last, as it is faint.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#8C8C8C", "#F0E442")

FLOOR_COLOUR = "#000000"


def colours(names: dict[Any, str]) -> alt.Scale:
    """The protocols' own colours if all have different ones, otherwise colours in order."""
    lines = [name for name in names.values() if name != LOWER_BOUND]
    by_place = {name: COLOURS[place % len(COLOURS)] for place, name in enumerate(lines)}
    own = {one.title: one.colour for one in list_protocols() if one.colour and one.title in by_place}
    chosen = own if set(own) == set(by_place) and len(set(own.values())) == len(own) else by_place
    shown = {name: chosen[name] for name in by_place} | dict.fromkeys(set(names.values()) - set(lines), FLOOR_COLOUR)
    return alt.Scale(domain=[*shown], range=[*shown.values()])

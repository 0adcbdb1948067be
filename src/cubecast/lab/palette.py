"""The colours of figures."""

from __future__ import annotations

from typing import Any

import altair as alt

# Okabe and Ito's colours, told apart with any kind of colour vision; yellow last, it is faint on white.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#8C8C8C", "#F0E442")


def colours(names: dict[Any, str]) -> alt.Scale:
    return alt.Scale(domain=[*names.values()], range=[COLOURS[place % len(COLOURS)] for place in range(len(names))])

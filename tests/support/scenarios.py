"""Scenarios from one set of settings for several protocols."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from cubecast.sim.roles import split_settings
from cubecast.sim.scenario import Scenario

_FIELDS = {one.name for one in fields(Scenario)}


def shared_scenario(**flat: Any) -> Scenario:
    """A scenario from flat settings; parameters that only other protocols have are left out, and what is None."""
    given = {name: value for name, value in flat.items() if value is not None}
    return Scenario(**split_settings(given, _FIELDS, lenient=True))

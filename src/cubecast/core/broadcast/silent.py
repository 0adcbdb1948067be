"""No data traffic: R stays as it is, and a stability round is measured on its own."""

from typing import NamedTuple

from cubecast.core.group import Group


class SilentState(NamedTuple):
    """Nothing but the group."""

    group: Group

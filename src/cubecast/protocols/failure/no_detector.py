"""A layer that does nothing: the stability layer under a causal protocol, the detector where detection is a model."""

from typing import NamedTuple

from cubecast.protocol.group import Group


class SilentState(NamedTuple):
    """Nothing but the group."""

    group: Group

"""A protocol that does nothing: it stands where a run has no stability protocol, no data or no failure detector."""

from typing import NamedTuple

from cubecast.protocol import handlers
from cubecast.protocol.group import GroupState


class Nothing(NamedTuple):
    """Nothing but the group."""

    group: GroupState


handlers.register(Nothing, None)

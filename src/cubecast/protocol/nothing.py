"""A protocol that does nothing, for runs without a stability protocol, without data or without a failure detector."""

from typing import NamedTuple

from cubecast.protocol import handlers
from cubecast.protocol.group import GroupState


class Nothing(NamedTuple):
    """Nothing but the group."""

    group: GroupState


handlers.register(Nothing, None)

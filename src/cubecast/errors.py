"""The errors cubecast raises: yours, the peer's, or the study's.

The message of each is one line that names the value at fault and the fix. A bug of cubecast itself is an
AssertionError.
"""

from __future__ import annotations


class CubecastError(Exception):
    """Everything cubecast raises on purpose; catch this one to catch them all."""


class LocalProtocolError(CubecastError):
    """The caller asked for something that cannot be: fix the call, the option or the file."""


class JournalError(LocalProtocolError):
    """The journal of a member cannot be used: it is damaged, in use, of another member, or its disk fails."""


class RemoteProtocolError(CubecastError):
    """A peer sent something that the protocol forbids."""


class ExcludedError(RemoteProtocolError):
    """The other members took this one out of the group: it was silent for too long."""


class PlanError(CubecastError):
    """A study's plan cannot be run as written."""


class SimulationError(CubecastError):
    """A run could not end: the message names its seed and the command that replays it."""

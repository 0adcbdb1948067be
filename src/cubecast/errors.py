"""The errors cubecast raises: yours, the peer's, or the study's.

The message of each is one line that names the value at fault and the fix. A bug of cubecast itself is an
AssertionError.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class CubecastError(Exception):
    """Everything cubecast raises on purpose; catch this one to catch them all."""


class LocalProtocolError(CubecastError):
    """The caller's mistake: fix the call, the option or the file. `setting` names the setting at fault, or is None."""

    def __init__(self, message: str = "", *, setting: str | None = None) -> None:
        """Keep the name of the setting beside the message."""
        super().__init__(message)
        self.setting = setting


class NoTreeError(LocalProtocolError):
    """The parents of a tree form a circle: no path leads from the source to some members."""


class JournalError(LocalProtocolError):
    """The journal of a member cannot be used: it is damaged, in use, of another member, or its disk fails."""


class RemoteProtocolError(CubecastError):
    """A peer sent something that the protocol forbids."""


class DuplicateConnectionError(RemoteProtocolError):
    """Two members connected to each other at the same time: this connection is the one that closes."""


class ExcludedError(RemoteProtocolError):
    """The other members excluded this one from the group: it was silent for too long."""


class PlanError(CubecastError):
    """A study's plan cannot be run as written."""


class SimulationError(CubecastError):
    """A run could not end: the message names its seed and the command that replays it."""


class OutOfTimeError(SimulationError):
    """The simulated time is over before the run has ended."""


@contextmanager
def blame(setting: str) -> Iterator[None]:
    """Name the setting that the block reads in an error of the block that names none."""
    try:
        yield
    except LocalProtocolError as error:
        error.setting = error.setting or setting
        raise

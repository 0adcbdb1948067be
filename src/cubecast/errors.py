"""The errors cubecast raises: for a mistake of the caller, of a peer, or in a study.

Each message is one line that names the wrong value and the fix. A bug in cubecast itself is an AssertionError.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class CubecastError(Exception):
    """The base class of all errors that cubecast raises on purpose."""


class LocalProtocolError(CubecastError):
    """The caller's mistake: fix the call, the option or the file. `setting` names the wrong setting, or is None."""

    def __init__(self, message: str = "", *, setting: str | None = None) -> None:
        """Keep the name of the setting beside the message."""
        super().__init__(message)
        self.setting = setting


class NoTreeError(LocalProtocolError):
    """The parents of a tree form a cycle: no path leads from the source to some members."""


class JournalError(LocalProtocolError):
    """The journal of a member cannot be used: it is damaged or in use, belongs to another member, or its disk fails."""


class RemoteProtocolError(CubecastError):
    """A peer sent something that the protocol forbids."""


class ExcludedError(RemoteProtocolError):
    """The other members excluded this one from the group: it was silent for too long."""


class PlanError(CubecastError):
    """A study's plan cannot be run as written."""


class SimulationError(CubecastError):
    """A run failed: the message names its seed and the command that replays it."""


class OutOfTimeError(SimulationError):
    """The simulated time ran out before the run ended."""


@contextmanager
def blame(setting: str) -> Iterator[None]:
    """Set `setting` in a LocalProtocolError that the block raises, unless the error names a setting itself."""
    try:
        yield
    except LocalProtocolError as error:
        error.setting = error.setting or setting
        raise

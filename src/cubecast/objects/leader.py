"""A leader: one member of the primary partition, known to all members without a message.

The leader of a view is its first rank. With `quorum="majority"` there is one view at a time that can decide, so a
leader that is cut off has a lower token than the next one; a service that both use must compare tokens, as with a lock.
"""

from __future__ import annotations

from typing import Any

from cubecast.objects.shared import Operation, SharedObject
from cubecast.protocols.membership.views import MemberId, View


class Leader(SharedObject):
    """The leader in the view that the application has reached."""

    kind = "leader"
    _view: View | None = None

    @property
    def member(self) -> MemberId | None:
        """The leader; None before the first view."""
        return self._view.members[0] if self._view is not None else None

    @property
    def is_me(self) -> bool:
        """Is this member the leader? False while too few members are reachable: the others may have another leader."""
        return self.member == self._space.group.me and not self._space.group.is_blocked

    @property
    def token(self) -> int:
        """A number that grows whenever the leader may have changed: the number of the view."""
        return self._view.number if self._view is not None else 0

    def begin_view(self, view: View) -> None:
        """The first rank leads."""
        self._view = view

    def apply(self, operation: Operation) -> None:
        """A leader has no operations."""

    def state(self) -> Any:
        """None: the leader follows from the view."""
        return None

    def load(self, state: Any) -> None:
        """A leader has no state."""

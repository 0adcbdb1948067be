"""The base of shared objects: a name in the space, operations that are multicast, and a state for newcomers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from cubecast.live.message import Message
from cubecast.protocols.membership.views import MemberId, View

if TYPE_CHECKING:
    from cubecast.objects.space import Space


class Operation(NamedTuple):
    """An operation as it arrives: its sender, its number, its Lamport clock, and the value that the object sent."""

    sender: MemberId
    view: int
    sequence: int
    clock: int
    value: Any


class SharedObject:
    """One object at one member. Its state must depend on the operations it applied, and on nothing else."""

    kind = ""
    is_ordered = False
    """Are its operations applied in total order?"""

    def __init__(self, space: Space, name: str) -> None:
        """Empty."""
        self.name = name
        self._space = space

    async def _send(self, value: Any) -> Message:
        return await self._space.multicast(self, value)

    def apply(self, operation: Operation) -> None:
        """Apply an operation of any member, this one included; operations come in causal order."""
        raise NotImplementedError

    def begin_view(self, view: View) -> None:
        """A view begins; all operations of earlier ones were applied."""

    def forget(self) -> None:
        """More is causally stable: free what every later operation follows."""

    def state(self) -> Any:
        """The state, as values that msgpack can encode."""
        raise NotImplementedError

    def load(self, state: Any) -> None:
        """Continue with the state of another member."""
        raise NotImplementedError

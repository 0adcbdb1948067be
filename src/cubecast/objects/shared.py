"""What every shared object has: a name in its space, operations that are multicast, and a state for newcomers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from cubecast.live.message import Message
from cubecast.protocols.membership.views import MemberId, View

if TYPE_CHECKING:
    from cubecast.objects.space import Space


class Operation(NamedTuple):
    """An operation as it arrives: who multicast it, its number, its Lamport clock, and what the object said."""

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
        """An operation of any member, this one included, in an order that respects causality."""
        raise NotImplementedError

    def begin_view(self, view: View) -> None:
        """A view begins; all operations of earlier ones were applied."""

    def forget(self) -> None:
        """More is causally stable: free what no later operation can contradict."""

    def state(self) -> Any:
        """The state, of what msgpack encodes."""
        raise NotImplementedError

    def load(self, state: Any) -> None:
        """Continue with the state of another member."""
        raise NotImplementedError

"""A counter: all additions count, in any order."""

from __future__ import annotations

from typing import Any

from cubecast.errors import LocalProtocolError
from cubecast.live.message import Message
from cubecast.objects.shared import Operation, SharedObject


class Counter(SharedObject):
    """An integer that members add to."""

    kind = "counter"
    value = 0
    """The sum of all delivered additions."""

    async def add(self, amount: int = 1) -> Message:
        """Add an integer, which may be negative; `value` changes when the message is delivered."""
        if isinstance(amount, bool) or not isinstance(amount, int):
            raise LocalProtocolError(f"add({amount!r}) to the counter {self.name!r}: give a whole number")
        return await self._send(amount)

    def apply(self, operation: Operation) -> None:
        """Add the amount of the operation."""
        self.value += operation.value

    def state(self) -> Any:
        """The value; as text if it is too large for MessagePack."""
        return self.value if abs(self.value) < 1 << 63 else str(self.value)

    def load(self, state: Any) -> None:
        """Install the value of another member."""
        self.value = int(state)

"""The result of `Group.multicast`: a message whose stability can be awaited."""

from __future__ import annotations

import asyncio

import msgspec

from cubecast.live.driver import Driver
from cubecast.member.effects import Outgoing


class Message(msgspec.Struct, frozen=True, gc=False, eq=False):
    """One message that this member multicast; made by `Group.multicast`."""

    _driver: Driver
    _outgoing: Outgoing

    def __repr__(self) -> str:
        """Its number, and whether it is stable."""
        state = "stable" if self.is_stable else "not stable"
        return f"<Message sequence={self.sequence} view={self.view} {state}>"

    @property
    def payload(self) -> bytes:
        """What was multicast."""
        return self._outgoing.payload

    @property
    def sequence(self) -> int:
        """Its number among all messages of this member; 0 while it waits for the next view."""
        return self._outgoing.sequence

    @property
    def view(self) -> int:
        """The number of the view in which it was sent; 0 while it waits for the next view."""
        return self._outgoing.view

    @property
    def is_stable(self) -> bool:
        """Does every member of the view have it?"""
        return self._outgoing.is_stable

    async def stable(self, timeout: float | None = None, *, hurry: bool = False) -> None:
        """Wait until every member of the view has the message; `hurry` requests a stability round at once.

        Raises TimeoutError, naming the members behind; LocalProtocolError if this member left before; ExcludedError if
        the group continued without this member and the message is not multicast again.
        """
        try:
            async with asyncio.timeout(timeout):
                await self._driver.wait_settled(self._outgoing, hurry=hurry)
        except TimeoutError:
            raise TimeoutError(f"not stable after {timeout} s: {self._why_not_stable()}") from None

    def _why_not_stable(self) -> str:
        member = self._driver.member
        if not self._outgoing.was_sent:
            if member.awaits_restore:
                return "it is not sent before the application takes the group's state; iterate over the group"
            return "it is not sent yet; " + (
                "too few members are reachable" if member.is_blocked else "the view changes"
            )
        late = ", ".join(f"{who.name} ({count})" for who, count in member.laggards()) or "nobody known"
        return f"message {self.sequence} is not at every member; members behind (messages): {late}"

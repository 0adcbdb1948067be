"""A lock: at most one member holds it, and all members agree on the order of requests.

Requests and releases are applied in total order (`objects.total_order`), so every member has the same queue; its head
holds the lock. A member that is not in the view is removed from the queue. Only members of the primary
partition make progress: elsewhere no message becomes stable.

A holder that is cut off does not know that the lock was granted to another member. So every grant has a *fencing
token*, which grows with each grant: the protected service must reject a token below the highest one it has seen.
"""

from __future__ import annotations

import asyncio
import secrets
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple

from cubecast.errors import CubecastError, ExcludedError, LocalProtocolError
from cubecast.objects.shared import Operation, SharedObject
from cubecast.protocols.membership.views import MemberId, View

if TYPE_CHECKING:
    from cubecast.objects.space import Space


class Token(NamedTuple):
    """A grant of a lock. Tokens of one lock are ordered by grant."""

    view: int
    grant: int


class _Request(NamedTuple):
    member: MemberId
    number: int
    """Counts the requests of this member."""


class Lock(SharedObject):
    """One lock. A task that waits for it may be cancelled: its request is withdrawn."""

    kind = "lock"
    is_ordered = True

    def __init__(self, space: Space, name: str) -> None:
        """The lock is free."""
        super().__init__(space, name)
        self._queue: list[_Request] = []
        self._grants = 0
        self._token: Token | None = None
        """The token of the current holder."""
        self._last: _Request | None = None
        """The request that was granted last, while it is at the head."""
        self._view = 0
        self._numbers = secrets.randbits(48)  # a restarted process must not repeat a number
        self._held: _Request | None = None
        """The request with which a task of this process holds the lock."""
        self._waiting: dict[int, asyncio.Future[Token]] = {}
        self._blocks: dict[asyncio.Task[Any] | None, _Request] = {}
        """By task: the request with which its `async with` block began."""

    @property
    def holder(self) -> MemberId | None:
        """The holder, as far as this member knows."""
        return self._queue[0].member if self._queue else None

    async def acquire(self, timeout: float | None = None) -> Token:
        """Wait for the lock.

        Raises TimeoutError, naming the holder; ExcludedError if this member was excluded; LocalProtocolError if this
        member left. A task that holds the lock must not acquire it again: it would deadlock.
        """
        self._numbers += 1
        number = self._numbers
        granted: asyncio.Future[Token] = asyncio.get_running_loop().create_future()
        self._waiting[number] = granted
        try:
            async with asyncio.timeout(timeout):
                message = await self._send(["acquire", number])
                self._space.hurry(message)
                token = await granted
        except BaseException as error:
            self._waiting.pop(number, None)
            self._space.later(self._send(["release", number]))
            if isinstance(error, TimeoutError):
                raise TimeoutError(self._why_not_granted(timeout)) from None
            raise
        if self._waiting.pop(number, None) is None:
            raise self._excluded()  # after the grant, before this task could run
        self._held = _Request(self._space.group.me, number)
        return token

    def _why_not_granted(self, timeout: float | None) -> str:
        if self.holder is None:
            why = "this member has not received its own request, or not all members have"
        else:
            why = f"{self.holder.name} holds it"
        return f"lock {self.name!r} not granted within {timeout} s: {why}"

    async def release(self) -> None:
        """Release the lock. A cancelled call releases it too."""
        held, self._held = self._held, None
        if held is None:
            raise LocalProtocolError(f"release of the lock {self.name!r}, which is not held here")
        await asyncio.shield(self._space.later(self._pass_on(held)))

    async def _pass_on(self, held: _Request) -> None:
        self._space.hurry(await self._send(["release", held.number]))

    async def __aenter__(self) -> Token:
        """Wait for the lock."""
        token = await self.acquire()
        assert self._held is not None
        self._blocks[asyncio.current_task()] = self._held
        return token

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Release the lock, unless this member lost it: another task of this process may hold it by now."""
        request = self._blocks.pop(asyncio.current_task(), None)
        if request is not None and request == self._held:
            await self.release()

    # In total order.

    def apply(self, operation: Operation) -> None:
        """Apply a request or a release."""
        what, number = operation.value
        if type(number) is not int:
            raise TypeError("a request has a number")
        request = _Request(operation.sender, number)
        if what == "acquire":
            self._queue.append(request)
            self._withdraw_if_forgotten(request)
        elif request in self._queue:
            self._queue.remove(request)
        self._grant()

    def begin_view(self, view: View) -> None:
        """Remove members that are no longer in the view from the queue."""
        self._view = view.number
        self._queue = [request for request in self._queue if request.member in view.members]
        self._grant()
        for request in self._queue:
            self._withdraw_if_forgotten(request)

    def _withdraw_if_forgotten(self, request: _Request) -> None:
        """Withdraw a request from before a restart: no task of this process waits for it."""
        is_mine = request.member == self._space.group.me
        if is_mine and request.number not in self._waiting and request != self._held:
            self._space.later(self._send(["release", request.number]))

    def _grant(self) -> None:
        """The head of the queue holds the lock; a new head has a new token."""
        if not self._queue:
            self._token = None
            self._last = None
            return
        head = self._queue[0]
        if head != self._last:
            self._last = head
            self._grants += 1
            self._token = Token(self._view, self._grants)
        waiting = self._waiting.get(head.number) if head.member == self._space.group.me else None
        if waiting is not None and not waiting.done() and self._token is not None:
            waiting.set_result(self._token)

    def lost(self) -> None:
        """The group continued without this member: its tasks lose what they hold or wait for."""
        self._give_up(self._excluded())

    def ended(self) -> None:
        """This member has left, or failed: nothing is granted any more."""
        self._give_up(LocalProtocolError(f"this member left while it waited for the lock {self.name!r}"))

    def _give_up(self, reason: CubecastError) -> None:
        self._held = None
        waiting, self._waiting = self._waiting, {}
        for one in waiting.values():
            if not one.done():
                one.set_exception(type(reason)(*reason.args))

    def _excluded(self) -> ExcludedError:
        return ExcludedError(f"excluded while waiting for the lock {self.name!r}")

    # For newcomers.

    def state(self) -> Any:
        """Queue and grants."""
        queue = [[*request.member, request.number] for request in self._queue]
        return [queue, self._grants, self._token, self._last and [*self._last.member, self._last.number], self._view]

    def load(self, state: Any) -> None:
        """Continue with the queue of another member."""
        queue, self._grants, token, last, self._view = state
        self._queue = [_Request(MemberId(name, incarnation), number) for name, incarnation, number in queue]
        self._token = Token(*token) if token else None
        self._last = _Request(MemberId(last[0], last[1]), last[2]) if last else None

"""The group for programs without asyncio: the same interface, with the event loop in a separate thread.

with cubecast.join_sync("orders", listen=..., peers=[...], plaintext=True) as group:
    message = group.multicast(b"hello")
    message.stable(timeout=5)
    for delivery in group:
        print(delivery.sender.name, delivery.payload)

Deliveries are passed from the loop's thread in batches. `snapshot` and `restore` are called in the loop's thread while
the consuming thread waits for the next event, so they see the state after all earlier events. Callbacks are called in
the loop's thread at any time.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from cubecast.errors import LocalProtocolError
from cubecast.live.application_state import Buffer
from cubecast.live.group import Group, join
from cubecast.live.group_status import Laggard
from cubecast.live.inbox import Event
from cubecast.live.loop import LoopThread
from cubecast.live.message import Level, Message, Of
from cubecast.member.effects import Delivery, Excluded
from cubecast.member.settings import Settings
from cubecast.protocols.membership.views import MemberId, View

_Result = TypeVar("_Result")


class SyncMessage:
    """One message that this member multicast; returned by `SyncGroup.multicast`."""

    def __init__(self, group: SyncGroup, message: Message) -> None:
        """Sent, or waiting for the next view."""
        self._group = group
        self._message = message

    @property
    def payload(self) -> bytes:
        """The payload of the message."""
        return self._message.payload

    @property
    def sequence(self) -> int:
        """Its sequence number among all messages of this member; 0 while it waits for the next view."""
        return self._message.sequence

    @property
    def view(self) -> int:
        """The number of the view in which it was sent; 0 while it waits for the next view."""
        return self._message.view

    @property
    def is_stable(self) -> bool:
        """Does every member of the view have it?"""
        return self._message.is_stable

    def stable(
        self, timeout: float | None = None, *, level: Level = "received", of: Of = "all", hurry: bool = False
    ) -> None:
        """Wait until every member of the view has the message, or a higher level; see `Message.stable`."""
        if not (self._message.is_stable and (level, of) == ("received", "all")):
            self._group._run(self._message.stable(timeout, level=level, of=of, hurry=hurry))

    @property
    def is_causally_stable(self) -> bool:
        """Does every message that is still to be delivered here causally follow it?"""
        return self._message.is_causally_stable

    def causally_stable(self, timeout: float | None = None, *, hurry: bool = False) -> None:
        """Wait until every message that is still to be delivered here causally follows this one."""
        self._group._run(self._message.causally_stable(timeout, hurry=hurry))


class SyncGroup:
    """A member of a group, for threads. Create it with `cubecast.join_sync`, and use it in a `with` block."""

    def __init__(self, group: Group) -> None:
        """Nothing is opened before `with`."""
        self._group = group
        self._loop = LoopThread()
        self._is_running = False
        self._taken: deque[Event] = deque()
        """Entries that crossed over and were not returned by a call yet."""
        self._taking = threading.Lock()

    # Entering and leaving.

    def __enter__(self) -> Self:
        """Wait until this member is in the group and has its state."""
        self._loop.start()
        self._is_running = True
        try:
            self._run(self._group.__aenter__())
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Leave the group; without waiting for others when an exception ends the block."""
        try:
            self.leave(drain=kind is None)
        finally:
            self._stop()

    def leave(self, *, drain: bool = True, timeout: float | None = None) -> None:
        """Leave; see `Group.leave`. What was delivered until then can still be received inside the `with` block."""
        if self._is_running:
            self._run(self._group.leave(drain=drain, timeout=timeout))

    def force(self) -> None:
        """Operator's override; see `Group.force`."""
        self._call(self._group.force)

    def refresh_credentials(self) -> None:
        """Reload the files of the credentials now; see `Group.refresh_credentials`."""
        self._call(self._group.refresh_credentials)

    def _stop(self) -> None:
        if self._is_running:
            self._is_running = False
            self._loop.end()

    # Sending and receiving.

    def multicast(self, payload: Buffer) -> SyncMessage:
        """Send to every member, this one included; see `Group.multicast`."""
        return SyncMessage(self, self._run(self._group.multicast(payload)))

    def receive(self, timeout: float | None = None) -> Delivery:
        """Return exactly one delivery. Raises TimeoutError; LocalProtocolError when this member has left."""
        delivery = self._next((Delivery,), timeout)
        if delivery is None:
            raise LocalProtocolError(f"this member has left group {self._group.name!r}, and everything is received")
        assert isinstance(delivery, Delivery)
        return delivery

    def __iter__(self) -> Iterator[Delivery]:
        """Deliveries in causal order, each once; ends when this member has left."""
        return self.deliveries()

    def deliveries(self, timeout: float | None = None) -> Iterator[Delivery]:
        """The same; also ends when none arrived for `timeout` seconds."""
        for event in self._iterate((Delivery,), timeout):
            assert isinstance(event, Delivery)
            yield event

    def events(self, timeout: float | None = None) -> Iterator[Event]:
        """Deliveries, and a `ViewChange` for every view; also ends when none arrived for `timeout` seconds."""
        return self._iterate((), timeout)

    def _iterate(self, wanted: tuple[type[Any], ...], timeout: float | None) -> Iterator[Event]:
        while True:
            try:
                event = self._next(wanted, timeout)
            except TimeoutError:
                return
            if event is None:
                return
            yield event

    def _next(self, wanted: tuple[type[Any], ...], timeout: float | None) -> Event | None:
        """The next entry of these classes (of all, if none is named); None at the end."""
        with self._taking:
            while True:
                if not self._taken and not self._run(self._group._take_batch(self._taken, timeout)):
                    return None
                event = self._taken.popleft()
                if not wanted or isinstance(event, wanted):
                    return event

    def ack(self) -> None:
        """The application has processed everything it has taken; see `Group.ack`.

        Events are passed between threads in batches: it counts when the last event of its batch was taken.
        """
        with self._taking:
            if not self._taken:
                self._call(self._group.ack)

    # Callbacks, in the thread of the loop. One that raises is logged, and everything continues.

    def on_stable(self, callback: Callable[[dict[MemberId, int]], object]) -> None:
        """Call a function with the frontier each time it advances."""
        self._group.on_stable(callback)

    def on_causally_stable(self, callback: Callable[[dict[MemberId, int]], object]) -> None:
        """Call a function with the causal frontier each time it advances."""
        self._group.on_causally_stable(callback)

    def on_view(self, callback: Callable[[View], object]) -> None:
        """Call a function when a view is installed, regardless of what the application has taken so far."""
        self._group.on_view(callback)

    def on_blocked(self, callback: Callable[[bool], object]) -> None:
        """Call a function with True when too few members are reachable, and with False when enough are again."""
        self._group.on_blocked(callback)

    def on_excluded(self, callback: Callable[[Excluded], object]) -> None:
        """Call a function with the reason and the returned messages when this member learns that it was excluded."""
        self._group.on_excluded(callback)

    def on_progress(self, callback: Callable[[tuple[int, int]], object]) -> None:
        """Call a function with (chunks received, chunks of the state) while this member fetches the state."""
        self._group.on_progress(callback)

    def on_waiting(self, callback: Callable[[str], object]) -> None:
        """Call a function at intervals with what this member waits for, while it is not in the group yet."""
        self._group.on_waiting(callback)

    # Status.

    @property
    def name(self) -> str:
        """The group's name."""
        return self._group.name

    @property
    def address(self) -> str:
        """The address that others dial, which is this member's name."""
        return self._group.address

    @property
    def settings(self) -> Settings:
        """The settings of this member."""
        return self._group.settings

    @property
    def is_entered(self) -> bool:
        """Was the group entered, even if this member has left since?"""
        return self._group.is_entered

    @property
    def has_more(self) -> bool:
        """Are there events that the application has not taken?"""
        return bool(self._taken) or self._call(lambda: self._group.has_more)

    @property
    def me(self) -> MemberId:
        """This member: its address and its incarnation."""
        return self._group.me

    @property
    def view(self) -> View:
        """The members by rank, in the newest view that this member installed."""
        return self._group.view

    @property
    def rank(self) -> int:
        """This member's rank in the view; -1 when it is not in it."""
        return self._group.rank

    @property
    def is_blocked(self) -> bool:
        """Are too few members reachable to continue?"""
        return self._group.is_blocked

    @property
    def frontier(self) -> dict[MemberId, int]:
        """Per member of the view: the sequence number up to which every member has its messages."""
        return self._call(lambda: self._group.frontier)

    def is_stable(self, delivery: Delivery) -> bool:
        """Does every member of the view have this message? All messages of earlier views are stable."""
        return self._call(lambda: self._group.is_stable(delivery))

    @property
    def causal_frontier(self) -> dict[MemberId, int]:
        """Per member of the view: the sequence number up to which its messages are causally stable here."""
        return self._call(lambda: self._group.causal_frontier)

    def is_causally_stable(self, delivery: Delivery) -> bool:
        """Does every message that is still to be delivered here causally follow it?"""
        return self._call(lambda: self._group.is_causally_stable(delivery))

    def laggards(self) -> list[Laggard]:
        """The members that delay stability, and by how many messages; the slowest first."""
        return self._call(self._group.laggards)

    @property
    def stats(self) -> dict[str, Any]:
        """Counts and sizes of this member, and its links by name."""
        return self._call(lambda: self._group.stats)

    def status(self) -> dict[str, Any]:
        """The status of this member and its group, for the status page."""
        return self._call(self._group.status)

    # Internal.

    def _run(self, work: Coroutine[Any, Any, _Result]) -> _Result:
        """Run a coroutine in the loop; an interrupt in this thread cancels it there too."""
        if not self._is_running:
            work.close()
            raise LocalProtocolError(f"this member is not in group {self._group.name!r}: use it inside `with`")
        future = self._loop.begin(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def _call(self, function: Callable[[], _Result]) -> _Result:
        """Call a function in the loop's thread: arrays that the loop changes are read there."""

        async def call() -> _Result:
            return function()

        return self._run(call())


def join_sync(
    name: str,
    *,
    listen: str,
    advertise: str | None = None,
    peers: Any = None,
    contact: Any = None,
    found: bool = False,
    credentials: Any = None,
    plaintext: bool = False,
    settings: Any = None,
    snapshot: Any = None,
    restore: Any = None,
    journal: str | Path | None = None,
    trace: str | Path | None = None,
    status: str | None = None,
) -> SyncGroup:
    """Join a group from a program without asyncio: `with cubecast.join_sync(...) as group`.

    The options are those of `cubecast.join`; see help(cubecast.join).

        with cubecast.join_sync("orders", listen="10.0.0.1:7001", contact="10.0.0.2:7001", plaintext=True) as group:
            group.multicast(b"hello").stable(timeout=5)
            for delivery in group:
                print(delivery.sender.name, delivery.sequence, delivery.payload)
    """
    return SyncGroup(
        join(
            name,
            listen=listen,
            advertise=advertise,
            peers=peers,
            contact=contact,
            found=found,
            credentials=credentials,
            plaintext=plaintext,
            settings=settings,
            snapshot=snapshot,
            restore=restore,
            journal=journal,
            trace=trace,
            status=status,
        )
    )

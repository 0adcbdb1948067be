"""The status of a member and its group, and callbacks for changes."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable
from typing import Any, NamedTuple

from cubecast.errors import LocalProtocolError
from cubecast.live.driver import Driver
from cubecast.live.inbox import Inbox
from cubecast.live.notices import NoticeLog
from cubecast.member.effects import Delivery, Excluded
from cubecast.protocols.membership.views import MemberId, View

log = logging.getLogger("cubecast.live")


class Laggard(NamedTuple):
    """A member that delays stability: it lacks `behind` messages that another member has."""

    member: MemberId
    behind: int


class GroupStatus:
    """Properties and callbacks of a group; `Group` adds the operations."""

    name: str
    address: str
    _driver: Driver | None
    _inbox: Inbox
    _notices: NoticeLog
    _callbacks: dict[str, list[Callable[[Any], object]]]

    # Callbacks. One that raises is logged, and everything continues.

    def on_stable(self, callback: Callable[[dict[MemberId, int]], object]) -> None:
        """Call a function with the frontier each time it advances."""
        self._add_callback("stable", callback)

    def on_causally_stable(self, callback: Callable[[dict[MemberId, int]], object]) -> None:
        """Call a function with the causal frontier each time it advances."""
        self._add_callback("causally_stable", callback)

    def on_view(self, callback: Callable[[View], object]) -> None:
        """Call a function when a view is installed, regardless of what the application has taken so far."""
        self._add_callback("view", callback)

    def on_blocked(self, callback: Callable[[bool], object]) -> None:
        """Call a function with True when too few members are reachable, and with False when enough are again."""
        self._add_callback("blocked", callback)

    def on_excluded(self, callback: Callable[[Excluded], object]) -> None:
        """Call a function with the reason and the returned messages when this member learns that it was excluded."""
        self._add_callback("excluded", callback)

    def on_progress(self, callback: Callable[[tuple[int, int]], object]) -> None:
        """Call a function with (chunks received, chunks of the state) while this member fetches the state."""
        self._add_callback("progress", callback)

    def on_waiting(self, callback: Callable[[str], object]) -> None:
        """Call a function at intervals with what this member waits for, while it is not in the group yet."""
        self._add_callback("waiting", callback)

    def _add_callback(self, event: str, callback: Callable[[Any], object]) -> None:
        if not callable(callback):
            raise LocalProtocolError(f"on_{event}({callback!r}): give a function")
        if inspect.iscoroutinefunction(callback):
            raise LocalProtocolError(
                f"on_{event}({callback.__qualname__}): an `async` function is not awaited here; "
                "give a plain function, which may start a task"
            )
        self._callbacks.setdefault(event, []).append(callback)

    def _call_back(self, event: str, value: Any) -> None:
        for callback in self._callbacks.get(event, ()):
            try:
                callback(value)
            except (Exception, asyncio.CancelledError):  # the latter is the result of a cancelled task
                log.exception("callback failed event=%s member=%s", event, self.address)

    # Status.

    @property
    def me(self) -> MemberId:
        """This member: its address and its incarnation."""
        return self._entered().member.me

    @property
    def view(self) -> View:
        """The members by rank, in the newest view that this member installed."""
        view = self._entered().member.view
        if view is None:
            raise LocalProtocolError("this member is in no view yet")
        return view

    @property
    def rank(self) -> int:
        """This member's rank in the view; -1 when it is not in it."""
        members = self.view.members
        return members.index(self.me) if self.me in members else -1

    @property
    def frontier(self) -> dict[MemberId, int]:
        """Per member of the view: the sequence number up to which every member has its messages."""
        return self._entered().member.frontier

    def is_stable(self, delivery: Delivery) -> bool:
        """Does every member of the view have this message? All messages of earlier views are stable."""
        return delivery.view < self.view.number or delivery.sequence <= self.frontier.get(delivery.sender, 0)

    @property
    def causal_frontier(self) -> dict[MemberId, int]:
        """Per member of the view: the sequence number up to which its messages are causally stable here.

        Every message that is still to be delivered here causally follows these: the application of its sender had
        processed them before the multicast. So no later message depends on what they replaced, and it can be freed.
        """
        return self._entered().levels.known.causal_frontier

    def is_causally_stable(self, delivery: Delivery) -> bool:
        """Does every message that is still to be delivered here causally follow it? See `causal_frontier`."""
        return self._entered().levels.known.is_causally_stable(delivery.sender, delivery.view, delivery.sequence)

    def laggards(self) -> list[Laggard]:
        """The members that delay stability, and by how many messages; the slowest first."""
        return [Laggard(who, behind) for who, behind in self._entered().member.laggards()]

    @property
    def is_blocked(self) -> bool:
        """Are too few members reachable to continue?"""
        return self._entered().member.is_blocked

    @property
    def stats(self) -> dict[str, Any]:
        """Counts and sizes of this member, and its links by name."""
        driver = self._entered()
        driver.report_processed()
        stats = dict(driver.member.stats())
        stats["refused_connections"] = driver.refused
        stats["views"] = self._notices.views
        stats["exclusions"] = self._notices.exclusions
        stats["inbox_entries"] = len(self._inbox.queue)
        stats["journal_bytes"] = driver.journal.bytes if driver.journal is not None else 0
        return stats

    @property
    def is_entered(self) -> bool:
        """Was the group entered, even if this member has left since?"""
        return self._driver is not None

    def _entered(self) -> Driver:
        if self._driver is None:
            raise LocalProtocolError(f"this member is not in group {self.name!r}: use it inside `async with`")
        return self._driver

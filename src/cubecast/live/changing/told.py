"""What the core tells the application: deliveries, views, stability and states, life after life.

It goes to the application's inbox, to the window of its own messages, and, if wanted, into the recorded history.

| field     | meaning                                                                                 |
|-----------|-----------------------------------------------------------------------------------------|
| me        | the present life                                                                        |
| view      | the newest view; the application may not have got there yet                             |
| stable    | how many messages of each rank of that view are stable                                  |
| is_ready  | has the application, in this life, been given the state of the group?                   |
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from cubecast.core.membership import MemberId, View
from cubecast.core.membership.messages import (
    Action,
    Blocked,
    Deliver,
    Excluded,
    Install,
    Progress,
    Restore,
    Sent,
    Stable,
    Unblocked,
    WantSnapshot,
)
from cubecast.live.changing.events import ChangingDelivery, Inbox, PutState, TakeSnapshot, ViewChange
from cubecast.live.changing.keeping import Keeping
from cubecast.live.changing.recording import HistoryRecorder
from cubecast.live.changing.settings import ChangingSettings
from cubecast.live.changing.window import Outgoing, Window

log = logging.getLogger("cubecast.live")

OnEvent = Callable[[str, Any], None]
GiveSnapshot = Callable[[int, bytes], None]


class Told:
    """What one application has been told. `on_event(name, value)` hears of it at once."""

    def __init__(
        self,
        me: MemberId,
        settings: ChangingSettings,
        *,
        recorder: HistoryRecorder | None,
        makes_snapshots: bool,
        give_snapshot: GiveSnapshot,
        on_event: OnEvent,
    ) -> None:
        """Nothing yet. `give_snapshot(view, octets)` hands the core the history that is kept, for newcomers."""
        self.me = me
        self.inbox = Inbox(settings.backlog_bytes)
        self.window = Window(settings.window_bytes)
        self.keeping = Keeping(settings.keep)
        self.view: View | None = None
        self.stable: tuple[int, ...] = ()
        self.is_blocked = False
        self.is_ready = False
        self.is_replay = False
        """Is it told again, after a restart, what it was told before?"""
        self.delivered = 0
        self._settings = settings
        self._recorder = recorder
        self._makes_snapshots = makes_snapshots
        self._give_snapshot = give_snapshot
        self._on_event = on_event

    def note(self, event: str, data: Any = None) -> None:
        """Record an event of the present life."""
        if self._recorder is not None:
            self._recorder.note(self.me, event, data)

    def take(self, action: Action) -> None:
        """One thing more."""
        if isinstance(action, Deliver):
            self._deliver(action)
        elif isinstance(action, Sent):
            self._sent(action)
        elif isinstance(action, Stable):
            self._settle(action)
        elif isinstance(action, Install):
            self._install(action)
        elif isinstance(action, WantSnapshot):
            self._want_snapshot(action.view)
        elif isinstance(action, Restore):
            self._restore(action.octets)
        elif isinstance(action, Progress):
            self._on_event("progress", (action.pieces, action.of))
        elif isinstance(action, Blocked | Unblocked):
            self._block(action)

    def _deliver(self, action: Deliver) -> None:
        self.delivered += 1
        payload: bytes = action.payload  # type: ignore[assignment]
        self.note("deliver", [action.view, action.sender, action.number])
        self.keeping.add(action)
        self.inbox.put(
            ChangingDelivery(sender=action.sender, view=action.view, sequence=action.number, payload=payload)
        )

    def _sent(self, action: Sent) -> None:
        if self.is_replay:
            self.window.add(action.payload)  # type: ignore[arg-type]
        outgoing = self.window.sent(action.view, action.number)
        self.note("sent", [action.view, action.number, outgoing.serial])

    def _settle(self, action: Stable) -> None:
        self.note("stable", [action.view, action.delivered])
        if self.view is not None and action.view == self.view.number:
            self.stable = action.delivered
            self.window.stable(action.view, action.delivered[self.view.members.index(self.me)])
            self._on_event("stable", action)

    def _install(self, action: Install) -> None:
        self.view = action.view
        self.stable = (0,) * len(action.view.members)
        self.is_ready = True
        if self._recorder is not None:
            self._recorder.install(self.me, action.view, action.pause_ns)
        self.window.stable(action.view.number, 0)
        self.inbox.put(ViewChange(view=action.view, pause_s=action.pause_ns / 1e9))
        self._on_event("view", action.view)

    def _want_snapshot(self, view: int) -> None:
        if self._makes_snapshots:
            self.inbox.put(TakeSnapshot(view=view))
        else:
            self._give_snapshot(view, self.keeping.dump())

    def _restore(self, octets: bytes) -> None:
        if self._recorder is not None:
            self._recorder.restore(self.me, octets)
        if self._makes_snapshots:
            self.inbox.put(PutState(octets=octets))
            return
        for one in self.keeping.load(octets):
            self.inbox.put(
                ChangingDelivery(
                    sender=one.sender, view=one.view, sequence=one.number, payload=one.payload, is_history=True
                )
            )

    def _block(self, action: Blocked | Unblocked) -> None:
        self.is_blocked = isinstance(action, Blocked)
        self.note("blocked" if self.is_blocked else "unblocked", action.view)
        log.warning("%s", "too few members within reach: blocked" if self.is_blocked else "not blocked any more")
        self._on_event("blocked", self.is_blocked)

    # The end of a life.

    def excluded(self, action: Excluded, *, comes_back: bool) -> None:
        """The group goes on without this life; what came back waits for the next one, or is lost."""
        returned = self.window.returned(action.returned)  # type: ignore[arg-type]
        self.note("excluded", [[outgoing.serial for outgoing in returned], action.certain])
        log.warning("%s is out of the group: %s; %d messages came back", self.me.name, action.reason, len(returned))
        self.is_blocked = self.is_ready = False
        for outgoing in returned:
            if comes_back and self._is_resent(outgoing, action):
                self.window.again(outgoing)
            else:
                self.window.lose(outgoing, f"excluded before it was stable: {action.reason}")
        self._on_event("excluded", action)

    def _is_resent(self, outgoing: Outgoing, action: Excluded) -> bool:
        """What was never sent is certain to be with nobody."""
        if self._settings.resend == "certain":
            return action.certain or not outgoing.was_sent
        return self._settings.resend == "always"

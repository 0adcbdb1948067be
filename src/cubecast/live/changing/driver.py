"""One member of a changing group: messages and timers into its core, the core's actions out, life after life.

| from          | to                                                                                        |
|---------------|-------------------------------------------------------------------------------------------|
| application   | `multicast`, `leave` → core                                                               |
| connection    | batch → messages → core                                                                   |
| clock         | every tick → core                                                                         |
| core          | actions → links, the application's inbox, the window of own messages                      |

What is to be sent leaves at the end of the turn of the loop, in large batches, after what it tells of was recorded.

An excluded member goes on ticking until its core is out: others may need what it knows. Then another life begins, and
what waits in the window is multicast there.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from cubecast.core.membership import Member, MemberId, View, founding_view
from cubecast.core.membership.member import JOINING, MEMBER, OUT
from cubecast.core.membership.messages import (
    Action,
    Behind,
    Blocked,
    Deliver,
    Excluded,
    Install,
    Left,
    Message,
    Progress,
    Restore,
    Send,
    Sent,
    Stable,
    Status,
    Unblocked,
    WantSnapshot,
)
from cubecast.errors import CubecastError, ExcludedError, LocalProtocolError
from cubecast.live.changing.events import ChangingDelivery, Inbox, PutState, TakeSnapshot, ViewChange
from cubecast.live.changing.keeping import Keeping
from cubecast.live.changing.links import Links
from cubecast.live.changing.settings import ChangingSettings
from cubecast.live.changing.window import Outgoing, Window
from cubecast.live.credentials import Credentials
from cubecast.wire.membership import decode_batch, encode_message, require_fit

if TYPE_CHECKING:
    from cubecast.live.changing.recording import HistoryRecorder

log = logging.getLogger("cubecast.live")

IDLE_S = 10.0
"""A connection to somebody outside the view is kept so long after the last word."""


class Driver:
    """Drives the core of one member. `on_event(name, value)` hears of everything the group's interface tells."""

    def __init__(
        self,
        *,
        group: str,
        listen: str,
        contacts: Sequence[str],
        settings: ChangingSettings,
        credentials: Credentials | None,
        recorder: HistoryRecorder | None,
        makes_snapshots: bool,
        on_event: Callable[[str, Any], None],
    ) -> None:
        """Nothing is opened before `start`."""
        self.settings = settings
        self.contacts = list(contacts)
        self.me = MemberId(listen, time.time_ns())
        self.core = Member(self.me, settings.core())
        self.inbox = Inbox(settings.backlog_bytes)
        self.window = Window(settings.window_bytes)
        self.links = Links(
            group=group,
            me=self.me,
            settings=settings,
            credentials=credentials,
            on_batch=self._arrived,
            before_write=self._record,
        )
        self.view: View | None = None
        self.stable: tuple[int, ...] = ()
        self.is_blocked = False
        self.is_ready = False
        self.has_left = False
        self.delivered = 0
        self.lives = 1
        self.failure: CubecastError | None = None
        self._keeping = Keeping(settings.keep)
        self._makes_snapshots = makes_snapshots
        self._recorder = recorder
        self._on_event = on_event
        self._is_over = False
        """Is this life over, and the next one not begun?"""
        self._turn_asked = False
        self._encoded: tuple[Message | None, bytes] = (None, b"")
        self._named: set[MemberId] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()

    # Beginning and ending.

    async def start(self) -> None:
        """Open the port, and found the group or ask to be taken in."""
        await self.links.listen()
        if self.contacts:
            self._do(self.core.join(self.contacts, time.monotonic_ns()))
        else:
            self._do(self.core.found(founding_view([self.me]), time.monotonic_ns()))
        self._timer = self._loop.call_later(self.settings.tick_s, self._tick)

    async def stop(self) -> None:
        """Close everything; nothing is called back afterwards."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.inbox.close()
        await self.links.close()
        if self._recorder is not None:
            self._recorder.close()
            self._recorder = None

    def fail(self, failure: CubecastError) -> None:
        """This member cannot go on."""
        if self.failure is None:
            self.failure = failure
            log.error("%s", failure)
        self._end()

    def _end(self) -> None:
        gone = self.failure or LocalProtocolError("this member has left the group")
        self.window.end(gone)
        self.inbox.close()
        self._on_event("end", None)

    # From the application.

    def multicast(self, payload: bytes) -> Outgoing:
        """Send now, or as soon as the view allows."""
        outgoing = self.window.add(payload)
        if not self._is_over:
            self._multicast(outgoing)
        return outgoing

    def _multicast(self, outgoing: Outgoing) -> None:
        self._note("multicast", outgoing.serial)
        self._do(self.core.multicast(outgoing.payload, time.monotonic_ns()))

    def leave(self) -> None:
        """Go, when what was multicast is sent and the others have agreed."""
        self._do(self.core.leave(time.monotonic_ns()))

    def give_snapshot(self, view: int, octets: bytes) -> None:
        """The application's state at the beginning of a view."""
        self.core.give_snapshot(view, octets)

    def has_taken(self) -> None:
        """The application took from the inbox."""
        if not self.core.takes and self.inbox.has_room and self._timer is not None:
            self.core.takes = True
            self._do(self.core.on_timer(time.monotonic_ns()))

    # Into the core.

    def _tick(self) -> None:
        if self._timer is None:
            return
        self._timer = self._loop.call_later(self.settings.tick_s, self._tick)
        self._do(self.core.on_timer(time.monotonic_ns()))
        self._name_slow()

    def _arrived(self, source: MemberId, body: bytes) -> None:
        for message in decode_batch(body, self.settings.payload_bytes_max):
            core = self.core
            if core.phase == MEMBER and getattr(message, "view", -1) == core.view.number:
                require_fit(message, len(core.view.members))
            self._do(core.receive(source, message, time.monotonic_ns()))

    def _name_slow(self) -> None:
        if self.settings.slow == "wait" or self.core.phase != MEMBER:
            return
        behind = {who: many for who, many in self.core.behind().items() if many > self.settings.behind_messages}
        for who in behind.keys() - self._named:
            log.warning("%s keeps %d messages from becoming stable", who.name, behind[who])
        self._named = set(behind)

    # Out of the core.

    def _do(self, actions: list[Action]) -> None:
        """Carry out what the core asks for; what is to be sent leaves at the end of this turn of the loop."""
        for action in actions:
            if isinstance(action, Send):
                self._send(action)
            else:
                self._tell(action)
        if self.inbox.is_full:
            self.core.takes = False
        if actions and not self._turn_asked:
            self._turn_asked = True
            self._loop.call_soon(self._turn)
        if self._is_over and self.core.phase == OUT:
            self._begin_life()

    def _turn(self) -> None:
        self._turn_asked = False
        self.links.flush()

    def _record(self) -> None:
        """Before anything leaves."""
        if self._recorder is not None:
            self._recorder.flush()

    def _send(self, action: Send) -> None:
        if self._encoded[0] is not action.message:
            self._encoded = (action.message, encode_message(action.message))
        self.links.send(action.to, self._encoded[1], is_status=isinstance(action.message, Status))

    def _tell(self, action: Action) -> None:
        if isinstance(action, Deliver):
            self._deliver(action)
        elif isinstance(action, Sent):
            outgoing = self.window.sent(action.view, action.number)
            self._note("sent", [action.view, action.number, outgoing.serial])
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
            self.is_blocked = isinstance(action, Blocked)
            self._note("blocked" if self.is_blocked else "unblocked", action.view)
            log.warning("%s", "too few members within reach: blocked" if self.is_blocked else "not blocked any more")
            self._on_event("blocked", self.is_blocked)
        elif isinstance(action, Behind):
            log.warning("%s keeps %d messages from becoming stable and is excluded", action.who.name, action.messages)
        elif isinstance(action, Left):
            self.has_left = True
            self._note("left")
            self._end()
        elif isinstance(action, Excluded):
            self._excluded(action)

    def _note(self, event: str, data: Any = None) -> None:
        if self._recorder is not None:
            self._recorder.note(self.me, event, data)

    def _deliver(self, action: Deliver) -> None:
        self.delivered += 1
        payload: bytes = action.payload  # type: ignore[assignment]
        self._note("deliver", [action.view, action.sender, action.number])
        self._keeping.add(action)
        self.inbox.put(
            ChangingDelivery(sender=action.sender, view=action.view, sequence=action.number, payload=payload)
        )

    def _settle(self, action: Stable) -> None:
        self._note("stable", [action.view, action.delivered])
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
        self.links.retain([who.name for who in action.view.members], IDLE_S)
        self._on_event("view", action.view)

    def _want_snapshot(self, view: int) -> None:
        if self._makes_snapshots:
            self.inbox.put(TakeSnapshot(view=view))
        else:
            self.core.give_snapshot(view, self._keeping.dump())

    def _restore(self, octets: bytes) -> None:
        if self._makes_snapshots:
            self.inbox.put(PutState(octets=octets))
            return
        for one in self._keeping.load(octets):
            self.inbox.put(
                ChangingDelivery(
                    sender=one.sender, view=one.view, sequence=one.number, payload=one.payload, is_history=True
                )
            )

    # Exclusion, and another life.

    def _excluded(self, action: Excluded) -> None:
        returned = self.window.returned(len(action.returned))
        self._note("excluded", [[outgoing.serial for outgoing in returned], action.certain])
        log.warning("%s is out of the group: %s; %d messages came back", self.me.name, action.reason, len(returned))
        self.is_blocked = False
        comes_back = self.settings.rejoin and not self.core.leaving
        resend = self.settings.resend == "always" or (self.settings.resend == "certain" and action.certain)
        for outgoing in returned:
            if comes_back and resend:
                self.window.again(outgoing)
            else:
                self.window.lose(outgoing, f"excluded before it was stable: {action.reason}")
        self._on_event("excluded", action)
        if comes_back:
            self._is_over = True
            self.is_ready = False
        else:
            self.fail(ExcludedError(f"{self.me.name} was excluded: {action.reason}"))

    def _begin_life(self) -> None:
        """A new member of the same name asks those it knew to be taken in."""
        self._is_over = False
        last = self.core
        known = [who.name for who in self.view.members] if self.view is not None else []
        contacts = dict.fromkeys([*known, *sorted(last.acquaintances), *self.contacts])
        contacts.pop(self.me.name, None)
        if not contacts:
            self.fail(ExcludedError(f"{self.me.name} knows nobody who could take it in again: give it a contact"))
            return
        self.me = MemberId(self.me.name, max(time.time_ns(), self.me.incarnation + 1))
        self.lives += 1
        self.core = Member(self.me, self.settings.core())
        self.core.takes = last.takes
        self.links.begin_life(self.me)
        self._do(self.core.join(list(contacts), time.monotonic_ns()))
        for outgoing in list(self.window.waiting):
            self._multicast(outgoing)

    @property
    def is_out(self) -> bool:
        """Has it left, or failed?"""
        return self.has_left or self.failure is not None

    @property
    def phase(self) -> str:
        """joining, fetching (the state), member, or out."""
        if self.core.phase == JOINING:
            return "joining"
        if self.core.phase == MEMBER:
            return "member" if self.core.is_ready else "fetching"
        return "out"

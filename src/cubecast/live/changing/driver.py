"""One member of a changing group: messages and timers into its core, the core's actions out, life after life.

| from          | to                                                                                        |
|---------------|-------------------------------------------------------------------------------------------|
| application   | `multicast`, `leave` → core                                                               |
| connection    | batch → messages → core                                                                   |
| clock         | every tick → core                                                                         |
| core          | actions → links, the application's inbox, the window of own messages                      |

An excluded member goes on ticking until its core is out: others may need what it knows. Then another life begins, and
what waits in the window is multicast there.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from cubecast.core.membership import Durable, Member, MemberId, View, fold, founding_view
from cubecast.core.membership.member import JOINING, MEMBER, OUT
from cubecast.core.membership.messages import (
    Action,
    Behind,
    Blocked,
    Deliver,
    Excluded,
    Install,
    Join,
    Left,
    Persist,
    Progress,
    Restore,
    Send,
    Sent,
    Stable,
    Unblocked,
    WantSnapshot,
)
from cubecast.errors import CubecastError, ExcludedError, LocalProtocolError, RemoteProtocolError
from cubecast.live.changing.events import ChangingDelivery, Inbox, PutState, TakeSnapshot, ViewChange
from cubecast.live.changing.journal import Journal
from cubecast.live.changing.keeping import Keeping
from cubecast.live.changing.links import Links
from cubecast.live.changing.outbox import Outbox
from cubecast.live.changing.settings import ChangingSettings
from cubecast.live.changing.window import Outgoing, Window
from cubecast.live.credentials import Credentials
from cubecast.wire.membership import decode_batch, require_fit

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
        journal: Journal | None,
        makes_snapshots: bool,
        on_event: Callable[[str, Any], None],
    ) -> None:
        """Nothing is opened before `start`."""
        self.settings = settings
        self.contacts = list(contacts)
        self.me = MemberId(listen, time.time_ns())
        self.core = self._new_core(is_durable=journal is not None)
        self.inbox = Inbox(settings.backlog_bytes)
        self.window = Window(settings.window_bytes)
        self.links = Links(
            group=group,
            me=self.me,
            settings=settings,
            credentials=credentials,
            on_batch=self._arrived,
        )
        self.outbox = Outbox(self.links, journal, recorder, self.fail)
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
        self._journal = journal
        self._checkpoint_above = settings.log_bytes
        self._on_event = on_event
        self._is_over = False
        """Is this life over, and the next one not begun?"""
        self._is_replaying = False
        self._named: set[MemberId] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()

    # Beginning and ending.

    async def start(self) -> None:
        """Open the port, and found the group, ask to be taken in, or go on from the log."""
        await self.links.listen()
        records = self._journal.read() if self._journal is not None else []
        if records:
            self._resume(fold(records))
        elif self.contacts:
            self._do(self.core.join(self.contacts, time.monotonic_ns()))
        else:
            self._do(self.core.found(founding_view([self.me]), time.monotonic_ns()))
        self._timer = self._loop.call_later(self.settings.tick_s, self._tick)

    def _new_core(self, *, is_durable: bool) -> Member:
        return Member(self.me, self.settings.core(is_durable=is_durable))

    def _resume(self, durable: Durable) -> None:
        """Go on in the life of the log, or after it: who is started again wants to be in, also if it was leaving."""
        self.me = durable.me
        self.core = self._new_core(is_durable=True)
        self.links.begin_life(self.me)
        if durable.over is not None and not isinstance(durable.over.end, Excluded):
            self._begin_life()
            return
        durable.is_leaving = False
        durable.contacts = tuple(dict.fromkeys([*self.contacts, *durable.contacts]))
        me, core = self.me, self.core
        self.window.base = time.time_ns()  # numbers of this run are not those of an earlier one
        self._note("resume")
        actions = core.resume(durable, time.monotonic_ns())
        if core.phase == MEMBER and core.is_ready:
            self.view = core.view
            self.is_ready = True
        self._is_replaying = True
        self._do(actions)
        self._is_replaying = False
        if self.core is core:
            for payload in core.pending:
                self.window.add(payload)  # type: ignore[arg-type]
        if self._recorder is not None:
            self._recorder.note(me, "resumed")

    async def stop(self) -> None:
        """Close everything; nothing is called back afterwards."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.inbox.close()
        await self.outbox.close()
        self._journal = self._recorder = None
        await self.links.close()

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

    @property
    def wants_checkpoint(self) -> bool:
        """Is the log long, and is this a moment to replace it by the application's state?"""
        if self._journal is None or self._journal.bytes < self._checkpoint_above or self.inbox.entries:
            return False
        return self.is_ready and self.core.phase == MEMBER

    def checkpoint(self, octets: bytes | None) -> None:
        """The application's state after all that it was given; None: the history that is kept is the state."""
        assert self._journal is not None
        try:
            self._do(self.core.checkpoint(self._keeping.dump() if octets is None else octets, time.monotonic_ns()))
            self.outbox.turn()
        except CubecastError as error:
            log.warning("no checkpoint now: %s", error)
        self._checkpoint_above = max(self.settings.log_bytes, 2 * self._journal.bytes)

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
            if isinstance(message, Join) and message.who != source:
                raise RemoteProtocolError(f"it asks for {message.who.name} to be taken in, which is another")
            try:
                self._do(core.receive(source, message, time.monotonic_ns()))
            except Exception as error:
                self.fail(LocalProtocolError(f"a {type(message).__name__} of {source.name} cannot be: {error!r}"))
                raise

    def _name_slow(self) -> None:
        if self.settings.slow == "wait" or self.core.phase != MEMBER:
            return
        behind = {who: many for who, many in self.core.behind().items() if many > self.settings.behind_messages}
        for who in behind.keys() - self._named:
            log.warning("%s keeps %d messages from becoming stable", who.name, behind[who])
        self._named = set(behind)

    # Out of the core.

    def _do(self, actions: list[Action]) -> None:
        """Carry out what the core asks for, in its order."""
        for action in actions:
            if isinstance(action, Send):
                self.outbox.send(action.to, action.message)
            else:
                self._tell(action)
        if self.inbox.is_full:
            self.core.takes = False
        if self._is_over and self.core.phase == OUT:
            self._begin_life()

    def _tell(self, action: Action) -> None:
        if isinstance(action, Deliver):
            self._deliver(action)
        elif isinstance(action, Persist):
            self.outbox.persist(action.records)
        elif isinstance(action, Sent):
            if self._is_replaying:
                self.window.add(action.payload)  # type: ignore[arg-type]
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
            self.outbox.ask_turn()

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
        if self._recorder is not None:
            self._recorder.restore(self.me, octets)
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
        returned = self.window.returned(action.returned)  # type: ignore[arg-type]
        self._note("excluded", [[outgoing.serial for outgoing in returned], action.certain])
        log.warning("%s is out of the group: %s; %d messages came back", self.me.name, action.reason, len(returned))
        self.is_blocked = False
        comes_back = self.settings.rejoin and not self.core.leaving
        for outgoing in returned:
            if comes_back and self._is_resent(outgoing, action):
                self.window.again(outgoing)
            else:
                self.window.lose(outgoing, f"excluded before it was stable: {action.reason}")
        self._on_event("excluded", action)
        if comes_back:
            self._is_over = True
            self.is_ready = False
        else:
            self.fail(ExcludedError(f"{self.me.name} was excluded: {action.reason}"))

    def _is_resent(self, outgoing: Outgoing, action: Excluded) -> bool:
        """What was never sent is certain to be with nobody."""
        if self.settings.resend == "certain":
            return action.certain or not outgoing.was_sent
        return self.settings.resend == "always"

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
        self.core = self._new_core(is_durable=self._journal is not None)
        self.core.takes = last.takes
        self.outbox.forget()
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

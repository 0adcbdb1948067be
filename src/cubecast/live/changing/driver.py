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

from cubecast.core.membership import Durable, Member, MemberId, fold, founding_view
from cubecast.core.membership.member import JOINING, MEMBER, OUT
from cubecast.core.membership.messages import (
    Action,
    Behind,
    Excluded,
    Install,
    Join,
    Left,
    Persist,
    Send,
)
from cubecast.errors import CubecastError, ExcludedError, LocalProtocolError, RemoteProtocolError
from cubecast.live.changing.journal import Journal
from cubecast.live.changing.links import Links
from cubecast.live.changing.outbox import Outbox
from cubecast.live.changing.settings import ChangingSettings
from cubecast.live.changing.told import Told
from cubecast.live.changing.window import Outgoing
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
        me = MemberId(listen, time.time_ns())
        self.told = Told(
            me,
            settings,
            recorder=recorder,
            makes_snapshots=makes_snapshots,
            give_snapshot=self.give_snapshot,
            on_event=on_event,
        )
        self.links = Links(group=group, me=me, settings=settings, credentials=credentials, on_batch=self._arrived)
        self.outbox = Outbox(self.links, journal, recorder, self.fail)
        self.lives = 1
        self.has_left = False
        self.failure: CubecastError | None = None
        self._journal = journal
        self._checkpoint_above = settings.log_bytes
        self._on_event = on_event
        self._is_over = False
        """Is this life over, and the next one not begun?"""
        self.core = self._new_core()
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

    def _new_core(self) -> Member:
        return Member(self.me, self.settings.core(is_durable=self._journal is not None))

    @property
    def me(self) -> MemberId:
        """The present life."""
        return self.told.me

    def _resume(self, durable: Durable) -> None:
        """Go on in the life of the log, or after it: who is started again wants to be in, also if it was leaving."""
        self.told.me = durable.me
        self.core = self._new_core()
        self.links.begin_life(self.me)
        if durable.over is not None and not isinstance(durable.over.end, Excluded):
            self._begin_life()
            return
        durable.is_leaving = False
        durable.contacts = tuple(dict.fromkeys([*self.contacts, *durable.contacts]))
        core, told = self.core, self.told
        told.window.base = time.time_ns()  # numbers of this run are not those of an earlier one
        told.note("resume")
        actions = core.resume(durable, time.monotonic_ns())
        if core.phase == MEMBER and core.is_ready:
            told.view = core.view
            told.is_ready = True
        told.is_replay = True
        self._do(actions, begins_life=False)
        told.is_replay = False
        for payload in core.pending:
            told.window.add(payload)  # type: ignore[arg-type]
        told.note("resumed")
        self._do([])

    async def stop(self) -> None:
        """Close everything; nothing is called back afterwards."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.told.inbox.close()
        await self.outbox.close()
        self._journal = None
        await self.links.close()

    def fail(self, failure: CubecastError) -> None:
        """This member cannot go on."""
        if self.failure is None:
            self.failure = failure
            log.error("%s", failure)
        self._end()

    def _end(self) -> None:
        gone = self.failure or LocalProtocolError("this member has left the group")
        self.told.window.end(gone)
        self.told.inbox.close()
        self._on_event("end", None)

    # From the application.

    def multicast(self, payload: bytes) -> Outgoing:
        """Send now, or as soon as the view allows."""
        outgoing = self.told.window.add(payload)
        if not self._is_over:
            self._multicast(outgoing)
        return outgoing

    def _multicast(self, outgoing: Outgoing) -> None:
        self.told.note("multicast", outgoing.serial)
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
        if self._journal is None or self._journal.bytes < self._checkpoint_above or self.told.inbox.entries:
            return False
        return self.told.is_ready and self.core.phase == MEMBER

    def checkpoint(self, octets: bytes | None) -> None:
        """The application's state after all that it was given; None: the history that is kept is the state."""
        assert self._journal is not None
        try:
            state = self.told.keeping.dump() if octets is None else octets
            self._do(self.core.checkpoint(state, time.monotonic_ns()))
            self.outbox.turn()
        except CubecastError as error:
            log.warning("no checkpoint now: %s", error)
        self._checkpoint_above = max(self.settings.log_bytes, 2 * self._journal.bytes)

    def has_taken(self) -> None:
        """The application took from the inbox."""
        if not self.core.takes and self.told.inbox.has_room and self._timer is not None:
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

    def _do(self, actions: list[Action], *, begins_life: bool = True) -> None:
        """Carry out what the core asks for, in its order; begin another life if this one is over."""
        for action in actions:
            if isinstance(action, Send):
                self.outbox.send(action.to, action.message)
            else:
                self._tell(action)
        if self.told.inbox.is_full:
            self.core.takes = False
        if actions:
            self.outbox.ask_turn()
        if begins_life and self._is_over and self.core.phase == OUT:
            self._begin_life()

    def _tell(self, action: Action) -> None:
        if isinstance(action, Persist):
            self.outbox.persist(action.records)
        elif isinstance(action, Behind):
            log.warning("%s keeps %d messages from becoming stable and is excluded", action.who.name, action.messages)
        elif isinstance(action, Left):
            self.has_left = True
            self.told.note("left")
            self._end()
        elif isinstance(action, Excluded):
            self._excluded(action)
        else:
            self.told.take(action)
        if isinstance(action, Install):
            self.links.retain([who.name for who in action.view.members], IDLE_S)

    # Exclusion, and another life.

    def _excluded(self, action: Excluded) -> None:
        self._is_over = self.settings.rejoin and not self.core.leaving
        self.told.excluded(action, comes_back=self._is_over)
        if not self._is_over:
            self.fail(ExcludedError(f"{self.me.name} was excluded: {action.reason}"))

    def _begin_life(self) -> None:
        """A new member of the same name asks those it knew to be taken in."""
        self._is_over = False
        last = self.core
        known = [who.name for who in self.told.view.members] if self.told.view is not None else []
        contacts = dict.fromkeys([*known, *sorted(last.acquaintances), *self.contacts])
        contacts.pop(self.me.name, None)
        if not contacts:
            self.fail(ExcludedError(f"{self.me.name} knows nobody who could take it in again: give it a contact"))
            return
        self.told.me = MemberId(self.me.name, max(time.time_ns(), self.me.incarnation + 1))
        self.lives += 1
        self.core = self._new_core()
        self.core.takes = last.takes
        self.outbox.forget()
        self.links.begin_life(self.me)
        self._do(self.core.join(list(contacts), time.monotonic_ns()))
        for outgoing in list(self.told.window.waiting):
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

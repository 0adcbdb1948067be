"""Drives one sans-I/O `Member` with asyncio: sockets, the journal, the clock, and turns of the event loop.

A *turn*: all calls of the member in one pass of the event loop (bytes of many connections, timers, multicasts) are
followed by one `take_effects`, so that messages are batched. A lone message does not wait for the end of the
turn: when the last turn had at most one multicast and nothing else is pending, its effects are carried out at once;
so are those of a few bytes that arrive after a quiet turn. What the application has processed is reported to the member
a moment later, before anything that depends on it.

Effects are carried out in their order: persist, writes, closes, dials, entries, settled, notices. With `sync="always"`
they wait for the disk in a thread of the journal; meanwhile the member is called as usual and its next effects
accumulate, so that one fsync serves many messages. A checkpoint is written by that thread too, and nothing waits for it
except effects in the short moment in which it replaces the journal. When the journal fails, nothing becomes visible any
more: connections are aborted, and every waiting caller gets the error.
"""

from __future__ import annotations

import asyncio
import logging
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from cubecast.errors import CubecastError, JournalError, LocalProtocolError
from cubecast.live.connections import Connections
from cubecast.live.credentials import Credentials
from cubecast.live.journal import Journal
from cubecast.live.level_waits import LevelWaits
from cubecast.live.sync_thread import SyncThread
from cubecast.member.effects import Effects, Entry, Notice, Outgoing
from cubecast.member.links import DUPLICATE
from cubecast.member.member import Member
from cubecast.member.settings import Settings
from cubecast.protocols.membership.views import Vector

log = logging.getLogger("cubecast.live")

TURN_MESSAGES = 256
"""The most messages that are multicast in one turn, so that other work and the batches are not delayed."""
SMALL_BYTES = 1024
QUIET_BYTES = 4096
REPORT_BYTES = 4096
REPORT_S = 0.05
"""How long a report that the application has processed few bytes may wait for the next timer or control message."""
REFRESH_S = 10.0
"""How often the files of the credentials are checked."""
MEASURE_S = 1.0
"""How often round-trip times are read, where ranks follow from them."""
STABLE_BOUNDS_S = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
"""Bounds of the histogram of the time from a multicast to its stability."""


class Flushable(Protocol):
    """A trace, as far as the driver uses it."""

    @property
    def position(self) -> int:
        """The place of the next event."""

    def flush(self, position: int) -> None:
        """Write the events recorded up to this position."""

    def close(self, position: int | None) -> None:
        """Write the events up to this position, or all, and end it."""


class StableTimes:
    """The time from a multicast to its stability, of one own message at a time."""

    def __init__(self) -> None:
        """There is no sample yet."""
        self.counts = [0] * (len(STABLE_BOUNDS_S) + 1)
        self.sum_s = 0.0
        self.sample: Outgoing | None = None
        self._began_ns = 0

    def begin(self, outgoing: Outgoing) -> None:
        """Start to measure with this message, which was multicast now."""
        self.sample, self._began_ns = outgoing, time.monotonic_ns()

    def end(self) -> None:
        """The sample is stable, or never will be."""
        sample, self.sample = self.sample, None
        if sample is not None and sample.is_stable:
            seconds = (time.monotonic_ns() - self._began_ns) / 1e9
            self.counts[bisect_left(STABLE_BOUNDS_S, seconds)] += 1
            self.sum_s += seconds


class Driver:
    """Drives one member: its sockets, journal, clock and callbacks."""

    def __init__(
        self,
        member: Member,
        settings: Settings,
        *,
        credentials: Credentials | None,
        journal: Journal | None,
        trace: Flushable | None,
        on_entries: Callable[[list[Entry]], None],
        on_notice: Callable[[Notice], None],
        on_end: Callable[[CubecastError | None], None],
        answer: Callable[[bytes], bytes],
    ) -> None:
        """Nothing is opened yet. `on_end` is called once: with None after leaving, otherwise with the error.

        `answer` gives the answer to another member's request for a report.
        """
        self.member = member
        self.settings = settings
        self.journal = journal
        self.failure: CubecastError | None = None
        self.is_ended = False
        self.refused = 0
        self.stable_times = StableTimes()
        self.levels = LevelWaits(self)
        self.connections = Connections(
            member,
            settings,
            credentials,
            touch=self.touch,
            before_control=self.report_processed,
            arrived=self.arrived,
            fail=self._crash,
            on_refused=self._count_refusal,
            answer=answer,
        )
        self.credentials = credentials
        self._trace = trace
        self._on_entries = on_entries
        self._on_notice = on_notice
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self._sync_thread = SyncThread(journal, self._loop) if journal is not None else None
        self._held: Effects | None = None
        """Effects that wait for the disk."""
        self._traced_to = self._persisted_to = 0
        """Positions in the trace: where the last effects were taken, and where the last carried out were."""
        self._is_replacing = False
        """Is the thread of the journal rewriting it?"""
        self._on_checkpoint: Callable[[], None] = lambda: None
        self._sync_timer: asyncio.TimerHandle | None = None
        self._written_place: tuple[int, Vector] = (0, ())
        """Up to where the member's messages are written to the journal."""
        self._is_turn_due = self._is_dirty = False
        self._is_calm = self._is_quiet = True
        self._in_turn = self._turn_bytes = 0
        self._turn_ns = 0
        self._room = 0
        self._room_lump = max(1, settings.window_messages // 64)
        self._granted = self._granted_bytes = 0
        """Multicasts that may be sent now: each is sent when its waiting task runs, unless it was cancelled."""
        self._queue: deque[tuple[asyncio.Future[None], bytes]] = deque()
        """Multicasts that wait for room or for the next turn, in the order of the calls."""
        self._awaited: set[Outgoing] = set()
        """Own messages with callers that wait for their stability."""
        self._processed_bytes = 0
        """Bytes that the application has processed, and that the member does not know of."""
        self._report_bytes = min(REPORT_BYTES, settings.backlog_bytes // 4)
        self._report_timer: asyncio.TimerHandle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ns = 0
        self._refreshing: asyncio.TimerHandle | None = None
        self._measuring: asyncio.TimerHandle | None = None
        self._is_stopped = False

    # Beginning and end.

    async def start(self, listen: str, begin: Callable[[int], None]) -> None:
        """Bind the address, then let the member begin."""
        await self.connections.start(listen)
        if self.credentials is not None:
            self._refreshing = self._loop.call_later(REFRESH_S, self.refresh_credentials)
        begin(time.monotonic_ns())
        self.touch()
        if self.settings.rerank_gain:
            self._measure()

    def _measure(self) -> None:
        """Read the round-trip times of the links."""
        member = self.member
        for name, link in member.links.links.items():
            path = None if link.pipe is None else self.connections.path_quality(link.pipe.number)
            if path is not None:
                member.measured_us[name] = round(1e3 * path.rtt_ms)
        self._measuring = self._loop.call_later(MEASURE_S, self._measure)

    async def stop(self) -> None:
        """Close everything: connections, port, journal, trace. It can be called again."""
        if not self._is_stopped:
            self._is_stopped = True
            if self.failure is None:
                self._guard(lambda: self.member.stop(time.monotonic_ns()))
                await self._finish_journal()
            self._end(None)
            for timer in (self._timer, self._report_timer, self._sync_timer, self._refreshing, self._measuring):
                if timer is not None:
                    timer.cancel()
        await self.connections.stop()
        if self.journal is not None:
            assert self._sync_thread is not None
            self._sync_thread.close(0.0 if self.failure is not None else 1.0)
            try:
                self.journal.close(1.0)
            except JournalError as error:
                log.error("journal not closed error=%s", error)
        if self._trace is not None:
            is_complete = self.journal is None or (self.failure is None and self._held is None)
            self._trace.close(None if is_complete else self._persisted_to)
            self._trace = None

    async def _finish_journal(self) -> None:
        """Carry out the last effects, and wait until the disk has them."""
        self._carry_out()
        if self._sync_thread is None or self.journal is None or self.failure is not None:
            return
        try:
            async with asyncio.timeout(10):
                while True:
                    await self._wait_synced(self._sync_thread)
                    self._carry_out()
                    if self._held is None or self.failure is not None:
                        break
        except TimeoutError:
            log.error("journal not synced path=%s reason=the disk does not respond", self.journal.path)

    async def _wait_synced(self, sync_thread: SyncThread) -> None:
        done: asyncio.Future[None] = self._loop.create_future()
        sync_thread.submit(lambda _: None if done.done() else done.set_result(None))
        await done

    def fail(self, error: CubecastError) -> None:
        """This member cannot continue; nothing it does is visible any more."""
        if self.failure is None and not self._is_stopped:
            self.failure = error
            log.error("member failed member=%s error=%s", self.member.me.name, error)
            self.connections.abort()
            self._end(error)

    def _crash(self, error: Exception) -> None:
        """The member raised: a bug in cubecast, or an invalid call by the driver."""
        if isinstance(error, CubecastError):
            self.fail(error)
            return
        log.error("member crashed member=%s", self.member.me.name, exc_info=error)
        self.fail(CubecastError(f"this member ended by a bug in cubecast: {error!r}; please report it with the log"))

    def _end(self, error: CubecastError | None) -> None:
        """Wake every waiting caller: the member has ended."""
        if self.is_ended:
            return
        self.is_ended = True
        for future, _ in self._queue:
            if not future.done():
                future.set_exception(self.end_error("the message was sent"))
        self._queue.clear()
        for outgoing in self._awaited:
            self._resolve(outgoing)
        self._awaited.clear()
        self.levels.wake()
        self._on_end(error)

    def end_error(self, what: str) -> CubecastError:
        """Why something did not happen: this member failed, or left before."""
        if self.failure is not None:
            return type(self.failure)(*self.failure.args)
        return LocalProtocolError(f"this member left before {what}")

    def refresh_credentials(self) -> None:
        """Read certificates and the list of those revoked if they changed; revoked peers lose their connections."""
        assert self.credentials is not None
        if self._is_stopped:
            return
        if self._refreshing is not None:
            self._refreshing.cancel()
        self._refreshing = self._loop.call_later(REFRESH_S, self.refresh_credentials)
        if self.credentials.refresh():
            closed = self.connections.close_revoked()
            log.info("credentials refreshed member=%s revoked_connections=%d", self.member.me.name, closed)

    # Turns of the loop.

    def touch(self) -> None:
        """The member was called: carry out its effects at the end of this turn."""
        self._is_dirty = True
        if not self._is_turn_due:
            self._is_turn_due = True
            self._loop.call_soon(self._turn)

    def _touch(self, *, is_lone: bool) -> None:
        """As `touch`; the effects of a lone message are carried out first, so that its readers run before the turn."""
        self._is_dirty = True
        if not self._is_turn_due:
            self._is_turn_due = True
            if is_lone:
                self._carry_out()
            self._loop.call_soon(self._turn)

    def arrived(self, size: int) -> None:
        """The member got bytes of a connection. A few bytes, after few in the last turn, are handled at once."""
        self._turn_bytes += size
        self._touch(is_lone=self._is_quiet and size < QUIET_BYTES)

    def _turn(self) -> None:
        self._is_turn_due = False
        self._is_calm = self._in_turn <= 1
        self._is_quiet = self._turn_bytes < QUIET_BYTES
        self._in_turn = self._room = self._turn_bytes = 0
        if self.is_ended:
            return
        if self._queue:
            self._guard(self._multicast_queued)
        if self._is_dirty:
            self._carry_out()
        self._set_timer()

    def _set_timer(self) -> None:
        """One timer of the loop, which may fire early; calls that are due are made at once."""
        due_ns = self.member.next_timer_ns
        if due_ns is None or (self._timer is not None and self._timer_ns <= due_ns):
            return
        delay_ns = due_ns - time.monotonic_ns()
        if delay_ns <= 0 and not self.is_ended:
            self._run_timers()
            due_ns = self.member.next_timer_ns
            if due_ns is None:
                return
            delay_ns = max(0, due_ns - time.monotonic_ns())
        if self._timer is not None:
            self._timer.cancel()
        self._timer_ns = due_ns
        # Some loops round to milliseconds: a timer that fires early would be set again and again until it is due.
        self._timer = self._loop.call_later(-(-delay_ns // 1_000_000) / 1e3, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        if not self.is_ended:
            self._run_timers()
            self._set_timer()

    def _run_timers(self) -> None:
        self.report_processed()
        self._guard(lambda: self.member.on_timer(time.monotonic_ns()))
        self._carry_out()

    def call(self, call: Callable[[int], None]) -> None:
        """Call the member with the time, and carry out its effects at the end of the turn."""
        if not self.is_ended:
            self.report_processed()
            call(time.monotonic_ns())
            self.touch()

    def processed(self, octets: int) -> None:
        """The application has processed deliveries of that many bytes.

        After a lone message the report waits for what wakes this process anyway, so that the processor is free for the
        other processes that receive the message.
        """
        self._processed_bytes += octets
        if self._processed_bytes > self._report_bytes:
            self.report_processed()
        elif self._report_timer is None and not self._is_timer_within(REPORT_S):
            self._report_timer = self._loop.call_later(REPORT_S, self._report_waited)

    def _is_timer_within(self, seconds: float) -> bool:
        """Is the member called soon in any case?"""
        return self._timer is not None and self._timer_ns <= time.monotonic_ns() + 1e9 * seconds

    def _report_waited(self) -> None:
        self._report_timer = None
        self.report_processed()

    def report_processed(self) -> None:
        """Tell the member now what the application has processed."""
        if self._processed_bytes and not self.is_ended:
            octets, self._processed_bytes = self._processed_bytes, 0
            self._guard(lambda: self.member.taken(octets, time.monotonic_ns()))
            self.touch()

    def _guard(self, call: Callable[[], None]) -> None:
        try:
            call()
        except Exception as error:
            self._crash(error)

    # Multicasts.

    def try_multicast(self, payload: bytes) -> Outgoing | None:
        """Multicast now, or None when others wait, the turn was long, or the window is full.

        `has_room` is called only every few small messages: the window is exceeded by one in sixty-four at most.
        """
        if self._queue or self._granted or self._in_turn >= TURN_MESSAGES:
            return None
        if self._room <= 0 or len(payload) > SMALL_BYTES:
            if not self.member.has_room:
                self._room = 0
                return None
            self._room = self._room_lump
        self._room -= 1
        if not self._in_turn:
            self._turn_ns = time.monotonic_ns()
        self._in_turn += 1
        outgoing = self.member.multicast(payload, self._turn_ns)
        if self.stable_times.sample is None:
            self.stable_times.begin(outgoing)
        self._touch(is_lone=self._is_calm)
        return outgoing

    async def wait_multicast(self, payload: bytes) -> Outgoing:
        """Multicast in the order of the calls, as soon as there is room; cancelled meanwhile, it sends nothing."""
        future: asyncio.Future[None] = self._loop.create_future()
        self._queue.append((future, payload))
        self.member.queued += 1  # what it multicasts was made before what is delivered while it waits
        self.touch()
        try:
            await future
        finally:
            if future.done() and not future.cancelled() and future.exception() is None:
                self._granted -= 1
                self._granted_bytes -= len(payload)
                self.touch()
            self.member.queued -= 1
        if self.is_ended:
            raise self.end_error("the message was sent")
        self._turn_ns = time.monotonic_ns()
        self._is_dirty = True
        outgoing = self.member.multicast(payload, self._turn_ns)
        if self.stable_times.sample is None:
            self.stable_times.begin(outgoing)
        return outgoing

    def _multicast_queued(self) -> None:
        """Let waiting callers multicast, in the order of their calls."""
        own, queue, messages_max = self.member.own, self._queue, self.settings.window_messages
        while queue and self._in_turn < TURN_MESSAGES:
            if not own.has_room(messages_max, self._granted, self._granted_bytes):
                break
            future, payload = queue.popleft()
            if future.done():  # cancelled: not sent
                continue
            self._granted += 1
            self._granted_bytes += len(payload)
            self._in_turn += 1
            future.set_result(None)
        if queue and self._in_turn >= TURN_MESSAGES:
            self.touch()

    async def wait_settled(self, outgoing: Outgoing, *, hurry: bool) -> None:
        """Until a message is stable; raises when it never will be."""
        if not (outgoing.is_stable or outgoing.failure is not None):
            if self.is_ended:
                raise self.end_error("the message was stable")
            if hurry:
                self.call(lambda now_ns: self.member.ask_stable(outgoing, now_ns))
            waiter: asyncio.Future[None] = self._loop.create_future()
            outgoing.waiters = (*outgoing.waiters, waiter)
            self._awaited.add(outgoing)
            try:
                await waiter
            finally:
                outgoing.waiters = tuple(one for one in outgoing.waiters if one is not waiter)
                if not outgoing.waiters:
                    self._awaited.discard(outgoing)
        if outgoing.failure is not None:
            raise type(outgoing.failure)(*outgoing.failure.args)

    def _resolve(self, outgoing: Outgoing) -> None:
        """Wake the callers that wait for a message, with the reason when it did not become stable."""
        waiters, outgoing.waiters = outgoing.waiters, ()
        for waiter in waiters:
            if waiter.done():
                continue
            if outgoing.is_stable or outgoing.failure is not None:
                waiter.set_result(None)
            else:
                waiter.set_exception(self.end_error("the message was stable"))

    # Effects.

    def _carry_out(self) -> None:
        """Take the effects, unless earlier ones wait for the disk."""
        if self._held is not None or self.failure is not None:
            return
        self._is_dirty = False
        try:
            effects = self.member.take_effects()
        except Exception as error:
            self._crash(error)
            return
        if self._trace is not None:
            self._traced_to = self._trace.position
        if (effects.persist or effects.checkpoint) and self.journal is not None and not self._persist(effects):
            return
        if effects:
            self._guard(lambda: self._do(effects))

    def _persist(self, effects: Effects) -> bool:
        """Write the records of effects to the journal; False when the effects must wait for the disk, or for ever."""
        journal, sync_thread = self.journal, self._sync_thread
        assert journal is not None
        assert sync_thread is not None
        try:
            if effects.replaces:
                journal.replace(effects.persist)
                self._held, self._is_replacing = effects, True
                sync_thread.submit_write(self._replaced)
                return False
            covered, later = effects.persist[: effects.covered], effects.persist[effects.covered :]
            if covered:
                journal.append(covered)
                journal.write()
            if effects.checkpoint:
                journal.begin_checkpoint(effects.checkpoint)
                sync_thread.submit_checkpoint(self._checkpointed)
                effects.checkpoint = []
            if later:
                journal.append(later)
                journal.write()
        except JournalError as error:
            self.fail(error)
            return False
        if journal.is_gathering:
            self._held = effects
            return False
        return self._is_persisted(effects)

    def _is_persisted(self, effects: Effects) -> bool:
        """The records are written; must the effects wait for the disk?"""
        journal, sync_thread = self.journal, self._sync_thread
        assert journal is not None
        assert sync_thread is not None
        self._written_place = self.member.journal_place()
        if journal.is_synced:
            return True
        if journal.holds_effects:
            self._held = effects
            sync_thread.submit(self._synced)
            return False
        if self.settings.sync == "interval" and self._sync_timer is None:
            self._sync_timer = self._loop.call_later(self.settings.sync_interval_s, self._sync_soon)
        return True

    def checkpoint(self, state: bytes, on_end: Callable[[], None]) -> None:
        """Replace the journal by the application's state after everything it took; then call `on_end`."""
        assert self.journal is not None
        if self.journal.is_checkpointing:
            return
        untaken = self._held.entries if self._held is not None else []
        self._on_checkpoint = on_end
        self.call(lambda now_ns: self.member.checkpoint(state, now_ns, untaken))

    def _replaced(self, error: JournalError | None) -> None:
        self._is_replacing = False
        self._synced(error)

    def _checkpointed(self, error: JournalError | None) -> None:
        """The checkpoint is in place, or abandoned; effects held in its last moment continue."""
        journal = self.journal
        assert journal is not None
        if error is not None:
            self._held = None
            self.fail(error)
        if self.failure is not None or self._is_replacing:
            return
        was_gathering = journal.is_gathering
        try:
            journal.write()
        except JournalError as failure:
            self._held = None
            self.fail(failure)
            return
        effects = self._held
        if was_gathering and effects is not None:
            self._held = None
            if self._is_persisted(effects):
                self._held = effects
                self._synced(None)
        self._on_checkpoint()

    def _sync_soon(self) -> None:
        self._sync_timer = None
        if not self._is_stopped and self.failure is None:
            assert self._sync_thread is not None
            place = self._written_place
            self._sync_thread.submit(lambda error: self._sync_ended(error, place))

    def _sync_ended(self, error: JournalError | None, place: tuple[int, Vector]) -> None:
        if error is not None:
            self.fail(error)
        elif not self._is_stopped:
            self.call(lambda now_ns: self.member.synced(*place, now_ns))

    def _synced(self, error: JournalError | None) -> None:
        """The records that the held effects depend on are on the disk."""
        effects, self._held = self._held, None
        if error is not None:
            self.fail(error)
        elif effects is not None and self.failure is None:
            self._guard(lambda: self._do(effects))
            self._carry_out()
            if not self.is_ended:
                self._set_timer()
                if self._queue:
                    self.touch()

    def _do(self, effects: Effects) -> None:
        """Carry out the effects that follow the journal."""
        if self._trace is not None:
            self._persisted_to = self._traced_to
            self._trace.flush(self._traced_to)
        connections = self.connections
        for number, buffers in effects.writes:
            connections.write(number, buffers)
        for close in effects.closes:
            connections.close(close)
        for name in effects.dials:
            connections.dial(name)
        if effects.entries:
            self._on_entries(effects.entries)
        sample = self.stable_times.sample
        for outgoing in effects.settled:
            if outgoing.waiters:
                self._awaited.discard(outgoing)
                self._resolve(outgoing)
            if outgoing is sample:
                self.stable_times.end()
        for notice in effects.notices:
            self._note(notice)
        if effects.is_partial or (self._queue and effects.settled):
            self.touch()

    def _note(self, notice: Notice) -> None:
        if notice.what == "failed":
            self.fail(notice.value)
        elif notice.what == "link" and notice.value[1] == "up":
            link = self.member.links.links.get(notice.value[0])
            if link is not None and link.pipe is not None:
                self.connections.establish(link.pipe.number)
        if notice.what == "excluded":
            self.member.exclusion_reported()
            self.touch()
        if notice.what == "levels":
            self.levels.known = notice.value
        if notice.what in ("levels", "view", "excluded"):
            self.levels.wake()
        self._on_notice(notice)
        if notice.what == "left":
            self._end(None)

    def _count_refusal(self, _address: str, reason: str) -> None:
        if reason != DUPLICATE:
            self.refused += 1


def shielded(work: Coroutine[Any, Any, None]) -> asyncio.Future[None]:
    """Work that runs to completion even when the waiting task is cancelled."""
    return asyncio.shield(asyncio.get_running_loop().create_task(work))

"""One live member: frames and timers into its cores, the cores' actions out to links, timers and the application.

| from            | to                                                                                       |
|-----------------|------------------------------------------------------------------------------------------|
| application     | `traffic` → data core, once for all messages of a turn of the loop → links               |
| DATA frame      | `traffic` → data core → deliveries to the application, forwards to links                 |
| CONTROL frame   | stability core → answers; at the end of a round the frontier moves and buffers are freed |
| FAILURE frame   | failure core → gossip; whoever it suspects is taken out of the group                     |
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from cubecast.core import mail
from cubecast.errors import CubecastError, ExcludedError
from cubecast.live.cores import ControlCore, Cores
from cubecast.live.credentials import Credentials
from cubecast.live.link import Link
from cubecast.live.rounds import Rounds
from cubecast.live.settings import Settings
from cubecast.live.traffic import Traffic
from cubecast.live.transport import Transport
from cubecast.wire import frame
from cubecast.wire.control import decode_control, encode_control
from cubecast.wire.frame import Frame
from cubecast.wire.greeting import terms_digest

if TYPE_CHECKING:
    from cubecast.live.recorder import Recorder

log = logging.getLogger("cubecast.live")

GOODBYE_S = 1.0
"""How long a member that leaves waits for a neighbour that does not answer: it may have crashed."""


class Member:
    """Drives the cores of one member."""

    def __init__(
        self,
        *,
        group: str,
        addresses: list[str],
        rank: int,
        settings: Settings,
        credentials: Credentials | None,
        recorder: Recorder | None,
    ) -> None:
        """Nothing is opened before `start`."""
        self.rank = rank
        self.addresses = addresses
        self.settings = settings
        self.cores = Cores(settings, len(addresses), rank)
        self.view_id = 1
        self.failure: CubecastError | None = None
        self.stopped = False
        self.recorder = recorder
        self.on_change: Callable[[], None] = lambda: None
        """Called after progress of stability, a change of members, or the end."""
        self.transport = Transport(
            group=group,
            addresses=addresses,
            rank=rank,
            settings=settings,
            terms=terms_digest(group, addresses, *settings.agreed(len(addresses))),
            credentials=credentials,
            on_frame=self._arrived,
            on_excluded=self._excluded,
        )
        self.traffic = Traffic(self)
        self.rounds = Rounds(self)
        self._loop = asyncio.get_running_loop()
        self._timers: set[asyncio.TimerHandle] = set()
        self._leaving = False

    async def start(self) -> None:
        """Open the links and wait for the neighbours."""
        self.traffic.load()
        await self.transport.listen()
        for rank in sorted(self.cores.neighbours):
            self.transport.open_link(rank)
        self._carry_out(self.cores.failure, self.cores.failure.start(time.monotonic_ns()), frame.FAILURE)
        missing = await self.transport.wait_for(self.cores.neighbours, self.settings.join_timeout_s)
        if missing:
            named = ", ".join(f"{rank} ({self.addresses[rank]})" for rank in sorted(missing))
            log.warning("no link to rank %s after %g s; going on without", named, self.settings.join_timeout_s)
        self.traffic.start()
        self.rounds.start()

    async def stop(self) -> None:
        """Close everything; nothing is called back afterwards."""
        self.stopped = True
        for timer in self._timers:
            timer.cancel()
        self._end_record()
        await self.transport.close()

    async def say_goodbye(self) -> None:
        """Tell the neighbours that this member leaves, and stay until they know.

        Whoever hears a goodbye tells its own neighbours and ends the link. A neighbour that leaves at the same time
        tells nobody any more; whoever takes its place is told instead.
        """
        self._leaving = True
        self._end_record()
        self._carry_out(self.cores.failure, self.cores.failure.publish(time.monotonic_ns()), frame.FAILURE)
        missing = await self.transport.wait_for_ends(self.cores.listeners, GOODBYE_S)
        if missing:
            named = ", ".join(map(str, sorted(missing)))
            log.warning("leaving although rank %s did not hear the goodbye in %g s", named, GOODBYE_S)

    def _end_record(self) -> None:
        """What a member does once it has left is not held against the group: the others do not count it any more."""
        if self.recorder is not None:
            self.recorder.leave()
            self.recorder.close()
            self.recorder = None

    # Frames.

    def _arrived(self, peer: int, arrived: Frame) -> None:
        if self.stopped or self.failure is not None:
            return
        if arrived.kind == frame.DATA:
            self.traffic.arrived(peer, arrived.body)
        else:
            core = self.cores.stability if arrived.kind == frame.CONTROL else self.cores.failure
            message = decode_control(arrived.body, numbers=core.width, words=core.words)
            self._carry_out(core, core.receive(time.monotonic_ns(), peer, message), arrived.kind)

    def link(self, rank: int) -> Link:
        """The link to a member; opened if there is none."""
        link = self.transport.links.get(rank)
        return link if link is not None else self.transport.open_link(rank, dial=True)

    # Control cores.

    def _carry_out(self, core: ControlCore, actions: list[Any], kind: int) -> None:
        """Do what a control core asked for; suspects go last, because the cores are then called again."""
        suspects = []
        for what, slot, a, b, delay_ns in actions:
            if what == mail.SEND:
                self._send_control(core, kind, slot, [a])
            elif what == mail.MULTICAST:
                self._send_control(core, kind, slot, [r for r in self.cores.members() if r != self.rank])
            elif what == mail.TIMER:
                self.later(delay_ns / 1e9, self.fire, core, kind, a, b)
            elif what == mail.NEXT_ROUND:
                self.rounds.rest(a, b, delay_ns)
            elif what == mail.SUSPECT:
                suspects.append(a)
            elif what in (mail.ROUND_BEGUN, mail.ROUND_DONE):
                self._note_round(a, done=what == mail.ROUND_DONE)
        for rank in suspects:
            self._exclude(rank)

    def _send_control(self, core: ControlCore, kind: int, slot: int, ranks: list[int]) -> None:
        body = encode_control(core.drafted(slot))
        if self.recorder is not None:
            self.recorder.flush()
        for rank in ranks:
            if not self.cores.is_member(rank):
                continue
            if kind == frame.FAILURE:
                self.link(rank).send_loose(kind, body)
            else:
                self.link(rank).add_control(body)

    def later(self, delay_s: float, function: Callable[..., None], *arguments: Any) -> None:
        """Call a function after a while, unless the member stops before."""

        def due() -> None:
            self._timers.discard(handle)
            function(*arguments)

        handle = self._loop.call_later(delay_s, due)
        self._timers.add(handle)

    def fire(self, core: ControlCore, kind: int, timer: int, tag: int) -> None:
        """A timer of a core is due."""
        if self.failure is None:
            if core is self.cores.failure:
                self._note_signs_of_life()
            self._carry_out(core, core.on_timer(time.monotonic_ns(), timer, tag), kind)

    def _note_signs_of_life(self) -> None:
        """Tell the failure detector from whom anything came since its last step."""
        for rank, link in list(self.transport.links.items()):
            heard, link.heard = link.heard, False
            if heard:
                self.cores.failure.heard(time.monotonic_ns(), rank)
            self.traffic.note_heartbeat(rank, heard=heard)

    def start_rounds(self) -> None:
        """Let the stability core begin."""
        self._carry_out(self.cores.stability, self.cores.stability.start(time.monotonic_ns()), frame.CONTROL)

    def _note_round(self, number: int, *, done: bool) -> None:
        if self.recorder is not None:
            self.recorder.round(number, done=done)
        self.rounds.note(done=done)
        if done:
            self._free_stable(number)

    def _free_stable(self, number: int) -> None:
        """Stability moved: forget what everybody has."""
        moved = False
        for sender, stable in enumerate(self.cores.group.stable[0].tolist()):
            if stable > self.traffic.store.freed[sender]:
                self.traffic.free(sender, stable)
                moved = True
                if self.recorder is not None:
                    self.recorder.stable(sender, stable, number)
        if moved:
            self.on_change()

    # Membership.

    def _exclude(self, rank: int) -> None:
        if rank == self.rank:
            self._excluded("the other members suspect this one")
            return
        if not self.cores.is_member(rank):
            return
        level = logging.INFO if self._leaving else logging.WARNING
        log.log(level, "rank %d (%s) is excluded from the group", rank, self.addresses[rank])
        self.cores.remove(rank)
        self.view_id += 1
        if self.recorder is not None:
            self.recorder.exclude(rank)
        self.transport.bar(rank)
        self.traffic.leave(rank)
        now = time.monotonic_ns()
        self._carry_out(self.cores.stability, self.cores.stability.leave(now, rank), frame.CONTROL)
        self._carry_out(self.cores.failure, self.cores.failure.leave(now, rank), frame.FAILURE)
        self.on_change()

    def _excluded(self, reason: str) -> None:
        if self.failure is None and not self._leaving:
            self.failure = ExcludedError(f"rank {self.rank} ({self.addresses[self.rank]}) was excluded: {reason}")
            log.error("%s", self.failure)
            self.on_change()

"""One member of a group, without I/O: everything between bytes and application.

A driver calls it with bytes, timers and calls of the application, and carries out the effects it takes
(`member.effects` defines their order). It owns no socket, file or clock: times come in with each call, randomness with
the constructor. `live` drives it over sockets and files, the fuzzer over simulated ones.

| module           | one idea                                                                    |
|------------------|-----------------------------------------------------------------------------|
| `effects`        | what a member asks its driver to do                                         |
| `settings`       | how a member runs                                                           |
| `member`         | the calls of a driver                                                       |
| `restart`        | a process that continues from its journal                                   |
| `lifecycle`      | forming, joining, installing views                                          |
| `branches`       | other branches of the group, and news of an exclusion                       |
| `exits`          | leaving, exclusion, the next incarnation                                    |
| `in_transfer`    | state transfer at both ends                                                 |
| `in_levels`      | the levels of stability that it reports, and those of others                |
| `in_view`        | messages between application, stack and links                               |
| `stack`          | the protocols that serve one view; `alone` for a view of one                |
| `data_core`, `control_core` | a compiled protocol as Python calls it                           |
| `rounds`         | when stability rounds begin                                                 |
| `reranking`      | ranks that follow from measured round-trip times                            |
| `message_log`    | the messages of one view                                                    |
| `own_messages`   | own messages that are not stable                                            |
| `untaken`        | deliveries that the application has not processed                           |
| `stragglers`     | members that lack messages which others delivered a while ago               |
| `troubles`       | when a trouble that persists is reported                                    |
| `levels`         | what all members have received, processed and written; causal stability     |
| `known_levels`   | the same in the sequence numbers that an application sees                   |
| `quorum_levels`  | what a quorum has, on request                                               |
| `links`, `link`  | connections, handshake, frames in order and without a gap                   |
| `state_transfer` | the application's state for newcomers                                       |
| `history`        | the messages kept for newcomers                                             |
| `durable`        | the state of a member, read back from its journal                           |
| `timers`         | calls scheduled for later                                                   |
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cubecast.errors import LocalProtocolError
from cubecast.member.effects import Delivery, Effects, Entry, Notice, Outgoing, ViewChange
from cubecast.member.in_view import FORMING, IN_VIEW, JOINING, LINGER, OUT
from cubecast.member.own_messages import StoppedError
from cubecast.member.restart import Restart
from cubecast.member.settings import MEMBERS_MAX, parse_address
from cubecast.member.state_transfer import uncut
from cubecast.protocols.membership import records as r
from cubecast.protocols.membership.views import founding_view
from cubecast.wire.records import encode_checkpoint, encode_kept, encode_record

_PHASES = {FORMING: "forming", JOINING: "joining", LINGER: "leaving", OUT: "out"}


class Member(Restart):
    """One member. Begin with exactly one of `found`, `form`, `join` and `resume`."""

    # Beginning.

    def found(self, now_ns: int) -> None:
        """Found a group of one, which others can join."""
        self._now_ns = now_ns
        self._begin_incarnation((), ())
        view = founding_view([self.me], self.group)
        self.state = IN_VIEW
        self._members.have_state = {self.me}
        self.record(r.Entered(view, None, is_newcomer=False))
        self._report_view(view, 0)
        self._begin_view(view)
        self._schedule()

    def form(self, founders: Sequence[str], now_ns: int) -> None:
        """Found a group together with others; a majority of them is enough."""
        self._now_ns = now_ns
        names = sorted({*founders, self.me.name}, key=parse_address)
        if len(names) < 2:
            raise LocalProtocolError(f"peers={list(founders)!r}: name at least one member besides {self.me.name}")
        if len(names) > MEMBERS_MAX:
            raise LocalProtocolError(f"{len(names)} founders: at most {MEMBERS_MAX}")
        self._begin_incarnation((), names)
        self._start_forming()
        self._schedule()

    def join(self, contacts: Sequence[str], now_ns: int) -> None:
        """Join a group that has a member at one of these names."""
        self._now_ns = now_ns
        others = [name for name in contacts if name != self.me.name]
        if not others:
            raise LocalProtocolError(f"contact={list(contacts)!r}: name a member other than {self.me.name} itself")
        self._begin_incarnation(others, ())
        self._start_joining()
        self._schedule()

    def add_contacts(self, contacts: Sequence[str], now_ns: int) -> None:
        """While it joins: ask these names first."""
        self._now_ns = now_ns
        if self.state == JOINING:
            self.contacts = list(dict.fromkeys([*contacts, *self.contacts]))
            self.links.need(set(self.contacts), now_ns)
            self._schedule()

    def resume(
        self, batches: list[bytes], now_ns: int, contacts: Sequence[str] = (), founders: Sequence[str] = ()
    ) -> None:
        """Continue from the batches of a journal, the oldest first; the names are further contacts."""
        self._now_ns = now_ns
        self._resume(batches, contacts, founders)
        self._schedule()

    # Connections.

    def connection_made(
        self, number: int, dialled: str, certificate: tuple[str, ...] | None, address: str, now_ns: int
    ) -> None:
        """A connection is open: to the name that was dialled, or, with an empty name, accepted from a peer."""
        self._now_ns = now_ns
        self.links.connection_made(number, dialled, certificate, address, now_ns)

    def data_received(self, number: int, data: bytes, now_ns: int) -> None:
        """Bytes came over a connection."""
        self._now_ns = now_ns
        self.links.data_received(number, data, now_ns)
        if self._is_stirred:
            self._schedule()

    def connection_lost(self, number: int, reason: str, now_ns: int) -> None:
        """A connection has ended."""
        self._now_ns = now_ns
        self.links.connection_lost(number, reason, now_ns)

    def dial_failed(self, name: str, reason: str, now_ns: int) -> None:
        """No connection could be made to that name."""
        self._now_ns = now_ns
        self.links.dial_failed(name, reason, now_ns)

    def pause_writing(self, number: int) -> None:
        """The connection's buffer is full."""
        self.links.pause_writing(number)

    def resume_writing(self, number: int) -> None:
        """The connection's buffer has room again."""
        self.links.resume_writing(number)

    # Time.

    @property
    def next_timer_ns(self) -> int | None:
        """When `on_timer` is due; None when never."""
        if self.state == OUT:
            return None
        due_ns = self._tick_at_ns
        for time_ns in (self.timers.next_ns, self.links.next_timer_ns()):
            if time_ns is not None and time_ns < due_ns:
                due_ns = time_ns
        return due_ns

    def on_timer(self, now_ns: int) -> None:
        """Do what is due."""
        self._now_ns = now_ns
        if self.state == OUT:
            return
        self.timers.run(now_ns)
        if self._tick_at_ns <= now_ns:
            self._tick_at_ns = now_ns + self._tick_ns
            self._tick()
            self.links.confirm()
        self.links.on_timer(now_ns)
        self._schedule()

    def _schedule(self) -> None:
        """Drive a pending or running view change more often."""
        self._is_stirred = False
        if self.state != OUT:
            self._tick_at_ns = min(self._tick_at_ns, self._now_ns + self._tick_ns)

    # The application.

    def multicast(self, payload: bytes, now_ns: int) -> Outgoing:
        """Send to every member, this one included, now or as soon as the view allows, in the order of the calls."""
        if now_ns > self._now_ns:  # a driver may give all messages of one turn the time at which the turn began
            self._now_ns = now_ns
        if self.leaving or self.state == OUT:
            raise LocalProtocolError(f"multicast after leave: {self.me.name} sends nothing more to {self.group!r}")
        if len(payload) > self.settings.payload_bytes_max:
            raise LocalProtocolError(
                f"a payload of {len(payload)} bytes: the limit is payload_bytes_max={self.settings.payload_bytes_max}"
            )
        outgoing = self.own.add(payload)
        if self._trace is not None:
            self._note("multicast", serial=outgoing.serial)
        return outgoing

    def ask_stable(self, outgoing: Outgoing, now_ns: int) -> None:
        """Start stability rounds until this own message is stable."""
        self._now_ns = now_ns
        self._send_own()
        view, stack = self.view, self.stack
        if view is not None and stack is not None and outgoing.view == view.number:
            stack.ask_stable(outgoing.sequence - view.sent[stack.rank])

    def restored(self, now_ns: int) -> None:
        """The application has installed the state of a `StateArrived`."""
        self._now_ns = now_ns
        self._restores_due = max(0, self._restores_due - 1)
        self._levels_changed()

    def wants_checkpoint(self, journal_bytes: int) -> bool:
        """Is the journal long, and can the application's state replace it now?"""
        return (
            self._is_durable
            and journal_bytes >= self.settings.journal_bytes
            and self.state == IN_VIEW
            and self.is_ready
            and not self.awaits_restore
            and not self.effects.replaces
            and not self.effects.checkpoint
            and not any(self.snapshots.is_wanted(view) for view in self.snapshots.needed_by)
        )

    def checkpoint(self, state: bytes, now_ns: int, untaken: Sequence[Entry] = ()) -> None:
        """The application's state after everything it took: a restart begins with it.

        `untaken` are entries of effects that the driver has not carried out. Nothing happens when those, or entries
        that wait here, are anything but deliveries of this view.
        """
        self._now_ns = now_ns
        if not self.wants_checkpoint(self.settings.journal_bytes):
            return
        # The history has them already.
        rest = [*untaken, *self.effects.entries] if self._makes_snapshots else []
        later = [entry for entry in rest if isinstance(entry, Delivery) and entry.view == self._members.view.number]
        if len(later) < len(rest):
            return
        self._record_pending()
        effects = self.effects
        effects.covered = len(effects.persist)
        pieces = [state] if self._makes_snapshots else self.history.pieces()
        effects.checkpoint = encode_checkpoint(self._checkpoint_before(later), pieces)
        for view, needed_by in self.snapshots.needed_by.items():
            effects.checkpoint += encode_kept(view, uncut(self.snapshots.kept[view]), sorted(needed_by))
        effects.checkpoint += [
            encode_record(r.Delivered(b"".join([entry.record for entry in later]))),
            encode_record(r.Settled(tuple(self.log.stable))),
            encode_record(r.Recovered(b"".join(self.log.recovered.values()))),
        ]

    def _checkpoint_before(self, later: Sequence[Delivery]) -> r.Checkpoint:
        """A checkpoint of the state before these last deliveries; the state of the application is empty."""
        members, log = self._members, self.log
        delivered = list(log.delivered())
        for entry in later:
            delivered[members.ranks[entry.sender]] -= 1
        own = [entry.payload for entry in later if entry.sender == self.me]
        return r.Checkpoint(
            me=self.me,
            names=tuple(sorted(self.names)),
            view=members.view,
            decision=members.last_decision,
            promised=members.acceptor.promised,
            accepted_ballot=members.acceptor.accepted_ballot,
            accepted=members.acceptor.accepted,
            delivered=tuple(delivered),
            stable=tuple(map(min, log.stable, delivered)),
            unstable=b"".join(log.in_order(log.stable, delivered)),
            recovered=b"",
            pending=(*own, *(outgoing.payload for outgoing in self.own.waiting)),
            snapshots=(),
            state=b"",
        )

    def leave(self, now_ns: int) -> None:
        """Leave, when what was multicast is sent and the others have agreed."""
        self._now_ns = now_ns
        if self.leaving or self.state == OUT:
            return
        self.leaving = True
        if self.state in (JOINING, FORMING):
            self._end()
        elif self.state == IN_VIEW:
            self._send_own()
            self._tick()
        self._schedule()

    def force(self, now_ns: int) -> None:
        """An operator's override: the reachable members decide on the next view, however few they are."""
        self._now_ns = now_ns
        if self.state == IN_VIEW:
            self._members.force(now_ns)
            self._tick()
            self._schedule()

    def stop(self, now_ns: int) -> None:
        """End all connections; nothing more is sent."""
        self._now_ns = now_ns
        self.state = OUT
        self.own.end(StoppedError(f"{self.me.name} has stopped"), self.effects)
        self.links.close_all("this member stops")

    # Effects.

    def take_effects(self) -> Effects:
        """Return the effects for the driver to carry out."""
        if self.own.waiting:
            self._send_own()
            if self._is_durable:
                self._record_pending()
        self.links.flush()
        effects, self.effects = self.effects, Effects()
        return effects

    # Diagnostics.

    @property
    def phase(self) -> str:
        """forming, joining, fetching (the state), member, leaving, or out."""
        if self.state == IN_VIEW:
            return "member" if self.is_ready else "fetching"
        return _PHASES[self.state]

    @property
    def is_changing(self) -> bool:
        """Is the view being changed?"""
        return self.state == IN_VIEW and self._members.is_frozen

    def waiting_for(self) -> str:
        """What this member waits for before it is in the group, with what is known of the reason."""
        if self.state == IN_VIEW:
            if self._fetch is not None:
                holder = self._fetch.holders[0].name if self._fetch.holders else "nobody"
                return (
                    f"waiting for the state from {holder} ({len(self._fetch.pieces)} of {self._fetch.of or '?'} pieces)"
                )
            if self.is_blocked or self.stack is None:
                return "waiting for a quorum"
            return "waiting for the application to restore the state" if self.awaits_restore else ""
        names = self.founders if self.state == FORMING else self.contacts
        missing = [name for name in names if name != self.me.name and not self._is_linked(name)]
        if not missing:
            linked = ", ".join(name for name in names if name != self.me.name)
            return f"waiting for {linked} to agree on a view" if linked else "waiting for the view to begin"
        reasons = [f"{name} ({self.links.failures.get(name, 'not reached yet')})" for name in missing]
        return f"waiting for {', '.join(reasons)}"

    def _is_linked(self, name: str) -> bool:
        link = self.links.links.get(name)
        return link is not None and link.is_up

    def stats(self) -> dict[str, Any]:
        """Counts and sizes of this member."""
        stack = self.stack
        eager = {self.view.members[rank].name for rank in stack.eager()} if stack is not None and self.view else set()
        return {
            "phase": self.phase,
            "blocked": self.is_blocked,
            "changing": self.is_changing,
            "members": len(self.view.members) if self.view is not None else 0,
            "published": self.own.count,
            "delivered": self.delivered_count,
            "unstable_messages": self.log.unstable,
            "unstable_bytes": self.log.bytes,
            "own_unstable_messages": len(self.own),
            "own_unstable_bytes": self.own.bytes,
            "waiting_messages": self.log.waiting,
            "backlog_bytes": self._backlog_bytes,
            "rounds": stack.rounds if stack is not None else 0,
            "round_seconds": stack.round_s if stack is not None else 0.0,
            "refused_connections": self.links.refused,
            "links": {
                name: {
                    "up": link.is_up,
                    "eager": name in eager,
                    "bytes_in": link.bytes_in,
                    "bytes_out": link.bytes_out,
                    "waiting_bytes": link.waiting_bytes,
                    "reconnections": max(0, link.connections - 1),
                }
                for name, link in sorted(self.links.links.items())
            },
        }


__all__ = ["Member", "Notice", "ViewChange"]

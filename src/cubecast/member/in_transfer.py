"""State transfer at both ends, and the entries that wait for the state behind the gate; see `member.state_transfer`.

A newcomer requests the state piece by piece and hands it to the application, then all entries that arrived meanwhile,
in slices. A member that has the state asks its application for a snapshot at the start of each view with newcomers.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from cubecast.member.durable import from_view
from cubecast.member.effects import Delivery, Notice, StateArrived, ViewChange
from cubecast.member.in_levels import InLevels
from cubecast.member.state_transfer import Fetch
from cubecast.protocols.membership import records as r
from cubecast.protocols.membership.messages import NoState, Ready, State
from cubecast.protocols.membership.views import MemberId, View

GATE_SLICE = 1000
"""How many entries that waited for the state are handed over at a time."""
NO_STATE = "no member gives the application's state"
"""Why a member leaves the group by itself, to join again."""


class InTransfer(InLevels):
    """State transfer, at both ends."""

    def give_snapshot(self, view: int, state: bytes, now_ns: int) -> None:
        """Take the application's state at the place of a `SnapshotWanted`; only the first one for a place counts."""
        self._now_ns = now_ns
        self.snapshots.keep(view, self.snapshots.cut_up(bytes(state)))

    def snapshot_failed(self, view: int, now_ns: int) -> None:
        """The application failed to return its state: it is asked again at the start of a new view."""
        self._now_ns = now_ns
        if self.snapshots.fail(view):
            self.renews = True

    def _new_fetch(self, view: View) -> Fetch:
        return Fetch(view, self._now_ns, self._members.settings.suspect_ns)

    def _is_served(self, who: MemberId) -> None:
        self._members.have_state.add(who)
        self.snapshots.is_served(who)

    def _ask_state(self) -> None:
        if self._fetch is None:
            return
        asked = self._fetch.ask(self._members.view.members, self._now_ns)
        if asked is None:
            self._go_out(NO_STATE, above=0, certain=False)
        elif asked[1] is not None:
            self.send(asked[0], asked[1])

    def _on_state(self, source: MemberId, message: State | NoState) -> None:
        fetch = self._fetch
        if fetch is None or not fetch.is_source(source) or message.view.number > self._members.view.number:
            return
        if isinstance(message, NoState):
            fetch.turn(self._now_ns)
        elif fetch.take(message, self._now_ns):
            self._members.have_state.add(source)  # so that this member may leave later, also as the coordinator
            self.record(r.StatePiece(message.piece, message.octets))
            self.effects.notices.append(Notice("progress", (len(fetch.pieces), fetch.of)))
            if fetch.is_complete:
                self._open_gate(fetch)
            else:
                self._ask_state()

    def _open_gate(self, fetch: Fetch) -> None:
        """The state has arrived: hand it over, and then all entries that waited for it."""
        assert self._gate is not None
        self.record(r.Restored(fetch.view.number, b""))
        waited = from_view(self._gate, fetch.view.number)
        views = [entry.view for entry in waited if isinstance(entry, ViewChange)]
        self._note("restore", view=views[0] if views else fetch.joined)
        self._put_state(fetch.pieces, is_checkpoint=False)
        self._gate, self._fetch = list(waited), None
        self._pass_gate()

    def _pass_gate(self) -> None:
        """Hand over some entries that waited for the state; the rest follow in later turns of the loop."""
        gate, self._gate = self._gate, None
        if gate is None:
            return
        self._replay(gate[:GATE_SLICE])
        del gate[:GATE_SLICE]
        if gate:
            self._gate = gate
            self.later(0, self._pass_gate)
            return
        self._gate_bytes = 0
        if self.stack is not None:
            self.stack.unpark()
        self._levels_changed()
        self._members.have_state.add(self.me)
        for who in self._members.view.members:
            if who != self.me:
                self.send(who, Ready(self._members.view.id))

    @property
    def _is_passing_gate(self) -> bool:
        """Does the application have the state, but not yet all entries that waited for it?"""
        return self._gate is not None and self._fetch is None

    def _put_state(self, pieces: Sequence[bytes], *, is_checkpoint: bool) -> None:
        if self.history.is_kept and not self._makes_snapshots:
            self.history.load(pieces)
        if self.history.is_kept or self._makes_snapshots:
            self._restores_due += 1
            self.effects.entries.append(StateArrived(pieces, is_checkpoint))

    def _replay(self, entries: Sequence[object], *, is_restart: bool = False) -> None:
        """Hand entries that waited, or that preceded a restart, to the application; deliveries go in batches."""
        for is_delivery, run in groupby(entries, lambda entry: isinstance(entry, Delivery)):
            if is_delivery:
                batch: list[Delivery] = list(run)  # type: ignore[arg-type]
                self._emit(batch, sum([len(entry.record) for entry in batch]))
            else:
                for entry in run:
                    if is_restart:
                        self._note_again(entry)
                    self._add_entry(entry)  # type: ignore[arg-type]

    def _note_again(self, entry: object) -> None:
        """The trace may have lost its last rows in the crash."""
        if isinstance(entry, ViewChange):
            self._note("install", view=entry.view, pause_ns=0)

"""The application's state for newcomers (guo §4.1): a snapshot at the beginning of a view, in pieces.

All members that install a view have delivered the same messages, so its installation is a causal cut. Each member
takes a snapshot there when a member joins; one that is itself waiting for the state does so when it has arrived. The
newcomer requests several pieces at a time from one of them; when nothing arrives, or when that member has restarted, it
turns to the next one and starts from the first piece, since snapshots of two members may differ in their bytes.
Meanwhile it takes part in everything but hands nothing to its application. A snapshot is kept until the members that
need it have it, or are gone.

If the application of a member fails to give a snapshot, the member requests a new view and takes one at its beginning.
A newcomer that requests the state of an earlier view is given the later one, and drops what waited before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import overload

from cubecast.protocols.membership.messages import AskState, NoState, State
from cubecast.protocols.membership.views import MemberId, View, ViewId

PIECES_AHEAD = 16
"""How many pieces a newcomer requests at a time."""
STALLS_MAX = 8
"""Stall times without a piece after which a newcomer joins anew: the snapshots of its view may all have failed."""


class CutState(Sequence[bytes]):
    """A state as pieces that are cut on request: to cut a large one at once would block the event loop."""

    def __init__(self, octets: bytes, piece_bytes: int) -> None:
        """The state is not copied."""
        self.octets = octets
        self._piece_bytes = piece_bytes

    def __len__(self) -> int:
        """An empty state is one empty piece."""
        return max(1, -(-len(self.octets) // self._piece_bytes))

    @overload
    def __getitem__(self, place: int) -> bytes: ...

    @overload
    def __getitem__(self, place: slice) -> Sequence[bytes]: ...

    def __getitem__(self, place: int | slice) -> bytes | Sequence[bytes]:
        """Cut out a piece, or several."""
        if isinstance(place, slice):
            return [self[one] for one in range(*place.indices(len(self)))]
        if not 0 <= place < len(self):
            raise IndexError(place)
        return self.octets[place * self._piece_bytes : (place + 1) * self._piece_bytes]


def uncut(pieces: Sequence[bytes]) -> Sequence[bytes]:
    """The same state in as few pieces as possible without copying it."""
    return [pieces.octets] if isinstance(pieces, CutState) else pieces


class Snapshots:
    """The snapshots this member keeps for newcomers."""

    def __init__(self, piece_bytes: int) -> None:
        """There is no snapshot yet."""
        self.kept: dict[int, Sequence[bytes]] = {}
        self.needed_by: dict[int, set[MemberId]] = {}
        self.failed_for: set[MemberId] = set()
        """Newcomers for which the application's snapshot failed."""
        self._ids: dict[int, ViewId] = {}
        self._piece_bytes = piece_bytes

    def expect(self, view: View) -> None:
        """Members that join with this view, and those whose snapshot failed, will request the state it began with."""
        self.needed_by[view.number] = set(view.joined) | self.failed_for & set(view.members)
        self._ids[view.number] = view.id
        self.failed_for = set()

    def fail(self, view: int) -> bool:
        """The application's snapshot failed; returns whether a member needs it."""
        self.failed_for |= self.needed_by.pop(view, set())
        return bool(self.failed_for)

    def is_wanted(self, view: int) -> bool:
        """Is the state with which this view began still missing?"""
        return view in self.needed_by and view not in self.kept

    def keep(self, view: int, pieces: Sequence[bytes]) -> bool:
        """Store the state with which a view began, unless no member waits, or pieces of another are in transit."""
        if not self.is_wanted(view):
            return False
        self.kept[view] = pieces
        return True

    def cut_up(self, state: bytes) -> CutState:
        """Cut a state into pieces."""
        return CutState(state, self._piece_bytes)

    def answer(self, asked: AskState, who: MemberId) -> list[State | NoState]:
        """The pieces that a newcomer wants, perhaps of a later view."""
        later = [view for view in self.kept if view > asked.view.number and who in self.needed_by[view]]
        view = asked.view.number if asked.view.number in self.kept else max(later, default=0)
        # After a restart the tag of a later view is not known: its state must not pass for that of the view requested.
        view_id = asked.view if view == asked.view.number else self._ids.get(view)
        if not view or view_id is None:
            return [NoState(asked.view)]
        pieces = self.kept[view]
        last = min(asked.first + min(asked.pieces, PIECES_AHEAD), len(pieces))
        return [State(view_id, piece, len(pieces), pieces[piece]) for piece in range(asked.first, last)]

    def is_served(self, who: MemberId) -> None:
        """Note that this member has the state, or is gone."""
        for view in list(self.needed_by):
            self.needed_by[view].discard(who)
            if not self.needed_by[view]:
                del self.needed_by[view]
                self.kept.pop(view, None)

    def retain(self, members: Iterable[MemberId]) -> None:
        """Drop snapshots that only departed members wait for."""
        for who in {who for waiting in self.needed_by.values() for who in waiting} - set(members):
            self.is_served(who)


class Fetch:
    """A newcomer gathers the state."""

    def __init__(self, view: View, now_ns: int, stall_ns: int) -> None:
        """Ask the members that were in the group before this view, in the order of their ranks."""
        self.view: ViewId = view.id
        self.joined = view
        self.holders = [who for who in view.members if who not in view.joined]
        self.pieces: list[bytes] = []
        self.of = 0
        self._asked = 0
        self._moved_ns = now_ns
        self._taken_ns = now_ns
        self._stall_ns = stall_ns
        self._session = 0

    def ask(self, members: Sequence[MemberId], now_ns: int) -> tuple[MemberId, AskState | None] | None:
        """The member to ask, and the pieces; None when no member has the state or can give it."""
        if self.holders and (self.holders[0] not in members or now_ns - self._moved_ns > self._stall_ns):
            self.turn(now_ns)
        self.holders = [who for who in self.holders if who in members]
        if not self.holders or now_ns - self._taken_ns > STALLS_MAX * self._stall_ns:
            return None
        if self._asked - len(self.pieces) > PIECES_AHEAD // 2 or (self.of and self._asked >= self.of):
            return self.holders[0], None
        first, self._asked = self._asked, self._asked + PIECES_AHEAD
        return self.holders[0], AskState(self.view, first, PIECES_AHEAD)

    def turn(self, now_ns: int) -> None:
        """Ask the next member, from the first piece."""
        self.holders.append(self.holders.pop(0))
        self.begin_again(now_ns)

    def begin_again(self, now_ns: int) -> None:
        """Request all pieces anew: snapshots of two members, or of two runs of one, may differ in their bytes."""
        self._moved_ns = now_ns
        self.pieces = []
        self.of = self._asked = 0
        self._session = 0

    def link_up(self, who: MemberId, session: int, now_ns: int) -> None:
        """The link to a member has a new connection: request again, from the first piece if that process restarted."""
        if not self.is_source(who):
            return
        if self.pieces and session != self._session:
            self.begin_again(now_ns)
        self._session = session
        self._asked = len(self.pieces)

    def is_source(self, who: MemberId) -> bool:
        """Is this the member that was asked last?"""
        return self.holders[:1] == [who]

    def take(self, state: State, now_ns: int) -> bool:
        """Store a piece; returns whether it was the one expected."""
        if state.view.number > self.view.number and not self.pieces:
            self.view = state.view
        if state.view != self.view:
            return False
        if state.piece != len(self.pieces) or (self.of and state.pieces != self.of):
            return False
        self.pieces.append(state.octets)
        self.of = state.pieces
        self._moved_ns = self._taken_ns = now_ns
        return True

    @property
    def is_complete(self) -> bool:
        """Is the whole state here?"""
        return bool(self.of) and len(self.pieces) == self.of

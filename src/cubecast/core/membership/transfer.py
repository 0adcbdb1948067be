"""The state of the application for those who join late (guo §4.1): a snapshot at the beginning of a view, in pieces.

All who install a view have delivered the same messages, so the moment of its installation is a causal cut. Each member
takes a snapshot there when somebody joins; one that is itself waiting for the state does so when it has got there. The
newcomer asks one of them for piece after piece, and asks the next one, from the first piece on, when nothing comes.
Meanwhile it takes part in everything but hands nothing to its application. A snapshot is kept until those who joined
with its view have the state, or are gone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from cubecast.core.membership.messages import AskState, NoState, State
from cubecast.core.membership.settings import MembershipSettings
from cubecast.core.membership.views import MemberId, View


class Snapshots:
    """The snapshots this member keeps for newcomers."""

    def __init__(self, chunk_bytes: int) -> None:
        """None yet."""
        self.chunk_bytes = chunk_bytes
        self.kept: dict[int, bytes] = {}
        self.needed_by: dict[int, set[MemberId]] = {}

    def expect(self, view: View) -> None:
        """Those who join with this view will ask for the state with which it began."""
        self.needed_by[view.number] = set(view.joined)

    def resume(self, expected: Mapping[int, Iterable[MemberId]], kept: Mapping[int, bytes]) -> None:
        """What was expected and kept before a restart."""
        self.needed_by = {view: set(needed_by) for view, needed_by in expected.items()}
        self.kept = dict(kept)

    def keep(self, view: int, octets: bytes) -> bool:
        """The state with which a view began; not when nobody waits for it, or pieces of another may be on their way."""
        if view not in self.needed_by or view in self.kept:
            return False
        self.kept[view] = octets
        return True

    def answer(self, asked: AskState) -> State | NoState:
        """The piece that a newcomer wants."""
        octets = self.kept.get(asked.view)
        if octets is None:
            return NoState(asked.view)
        pieces = max(1, -(-len(octets) // self.chunk_bytes))
        begin = asked.piece * self.chunk_bytes
        return State(asked.view, asked.piece, pieces, octets[begin : begin + self.chunk_bytes])

    def is_served(self, who: MemberId) -> None:
        """This member has the state, or is gone."""
        for view in list(self.needed_by):
            self.needed_by[view].discard(who)
            if not self.needed_by[view]:
                del self.needed_by[view]
                self.kept.pop(view, None)

    def retain(self, members: tuple[MemberId, ...]) -> None:
        """Forget what only members wait for that are gone."""
        for who in {who for waiting in self.needed_by.values() for who in waiting} - set(members):
            self.is_served(who)


class Fetch:
    """A newcomer gathers the state."""

    def __init__(self, view: View, now_ns: int, settings: MembershipSettings) -> None:
        """Ask those who were in the group before this view, in the order of their ranks."""
        self.view = view.number
        self.holders = [who for who in view.members if who not in view.joined]
        self.pieces: list[bytes] = []
        self.of = 0
        self._moved_ns = now_ns
        self._settings = settings

    def ask(self, members: tuple[MemberId, ...], now_ns: int) -> tuple[MemberId, AskState] | None:
        """Whom to ask for what; None when nobody is left who could have the state."""
        if self.holders and (self.holders[0] not in members or now_ns - self._moved_ns > self._settings.suspect_ns):
            self.turn(now_ns)
        self.holders = [who for who in self.holders if who in members]
        if not self.holders:
            return None
        return self.holders[0], AskState(self.view, len(self.pieces))

    def turn(self, now_ns: int) -> None:
        """Ask another one, from the beginning: snapshots of two members may differ in their bytes."""
        self.holders.append(self.holders.pop(0))
        self._moved_ns = now_ns
        self.pieces = []

    def is_asking(self, who: MemberId) -> bool:
        """Is this the member that was asked last?"""
        return self.holders[:1] == [who]

    def take(self, state: State, now_ns: int) -> bool:
        """Keep a piece; True when it was the one that was waited for."""
        if state.piece != len(self.pieces):
            return False
        self.pieces.append(state.octets)
        self.of = state.pieces
        self._moved_ns = now_ns
        return True

    @property
    def octets(self) -> bytes | None:
        """The whole state, when it is here."""
        return b"".join(self.pieces) if self.of and len(self.pieces) == self.of else None

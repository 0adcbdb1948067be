"""How a member of a changing group is told to behave."""

from __future__ import annotations

from dataclasses import dataclass

from cubecast.errors import LocalProtocolError

NS_PER_MS = 1_000_000


@dataclass(frozen=True, kw_only=True)
class MembershipSettings:
    """The same for all members of a group. Times are in nanoseconds."""

    tick_ns: int = 20 * NS_PER_MS
    """How often `on_timer` is to be called: every tick a member tells the others how far it is."""
    suspect_ns: int = 100 * NS_PER_MS
    """Silence after which a member is suspected."""
    observers: int = 2
    """How many members must suspect one before it is excluded; fewer where fewer are left."""
    batch_ns: int = 20 * NS_PER_MS
    """How long a coordinator gathers changes before it begins to agree on a view."""
    patience_ns: int = 200 * NS_PER_MS
    """How long a change waits for a member that is not excluded yet and does not answer."""
    takeover_ns: int = 300 * NS_PER_MS
    """How long a change may stand still before the next rank takes it over."""
    chunk_bytes: int = 1 << 16
    """The state is handed to a newcomer in pieces of this size."""
    behind_max: int = 0
    """Exclude a member that holds back the stability of more messages than this; 0 waits for ever."""
    cube_from: int = 33
    """In views of at least so many members each talks to its neighbours on a hypercube, in smaller ones to all."""
    is_durable: bool = False
    """Give records to be written down, so that a member can go on after a crash in the same life."""

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        for name in ("tick_ns", "suspect_ns", "observers", "patience_ns", "takeover_ns", "chunk_bytes"):
            if getattr(self, name) < 1:
                raise LocalProtocolError(f"{name} = {getattr(self, name)}: it must be at least 1")
        if self.suspect_ns < 2 * self.tick_ns:
            raise LocalProtocolError(f"suspect_ns = {self.suspect_ns}: give at least two ticks of {self.tick_ns}")
        if self.takeover_ns <= self.patience_ns:
            raise LocalProtocolError(
                f"takeover_ns = {self.takeover_ns}: it must exceed patience_ns = {self.patience_ns}"
            )

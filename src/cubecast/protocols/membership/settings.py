"""How members agree on views: times in nanoseconds, the same for all members of a group."""

from __future__ import annotations

from dataclasses import dataclass

from cubecast.errors import LocalProtocolError
from cubecast.protocols.membership.views import ANY, MAJORITY

NS_PER_MS = 1_000_000


@dataclass(frozen=True, kw_only=True)
class MembershipSettings:
    """Settings of the agreement, the same for all members of a group."""

    tick_ns: int = 20 * NS_PER_MS
    """How often `Agreement.tick` is called while a change is going on."""
    suspect_ns: int = 100 * NS_PER_MS
    """Silence after which a member is suspected; also how long a report is valid."""
    observers: int = 2
    """How many members must suspect a member before it is excluded; fewer if fewer are left."""
    batch_ns: int = 20 * NS_PER_MS
    """How long a coordinator gathers changes before it starts the agreement on a view."""
    patience_ns: int = 200 * NS_PER_MS
    """How long a change waits for a member that does not answer and is not excluded yet."""
    takeover_ns: int = 300 * NS_PER_MS
    """How long a change may make no progress before the next rank takes it over."""
    quorum: str = MAJORITY
    """`majority`: one primary partition. `any`: the remaining members continue, however few."""

    def __post_init__(self) -> None:
        """Validate the settings."""
        for name in ("tick_ns", "suspect_ns", "observers", "patience_ns", "takeover_ns"):
            if getattr(self, name) < 1:
                raise LocalProtocolError(f"{name} = {getattr(self, name)}: it must be at least 1")
        if self.takeover_ns <= self.patience_ns:
            raise LocalProtocolError(
                f"takeover_ns = {self.takeover_ns}: it must exceed patience_ns = {self.patience_ns}"
            )
        if self.quorum not in (MAJORITY, ANY):
            raise LocalProtocolError(f"quorum = {self.quorum!r}: choose {MAJORITY} or {ANY}")

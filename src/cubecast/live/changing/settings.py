"""The settings of a live group that changes, checked in one place."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal

from cubecast.core.membership import MembershipSettings
from cubecast.errors import LocalProtocolError

Slow = Literal["wait", "name", "exclude"]
Keep = Literal["none", "all"] | int
Resend = Literal["certain", "always", "never"]
Sync = Literal["always", "interval", "never"]
NS = 1_000_000_000
NOBODY_IS_SLOW = 1 << 62
"""With this limit the core tells how far each member is behind, and excludes nobody."""
_CHOICES = {
    "slow": ("wait", "name", "exclude"),
    "resend": ("certain", "always", "never"),
    "sync": ("always", "interval", "never"),
}
_MAY_BE_ZERO = ("batch_s", "keep")


@dataclass(frozen=True, kw_only=True)
class ChangingSettings:
    """How a member runs. Those marked *all* must be the same at every member of a group."""

    tick_s: float = 0.1
    """*all* How often a member tells the others how far it is. A message is stable after two or three ticks."""
    suspect_after_s: float = 2.0
    """*all* Silence after which a member is suspected."""
    observers: int = 2
    """*all* How many members must suspect one before it is excluded; fewer where fewer are left."""
    batch_s: float = 0.05
    """How long a coordinator gathers changes before it begins to agree on a view."""
    patience_s: float = 1.0
    """*all* How long a change waits for a member that does not answer and is not excluded yet."""
    takeover_s: float = 1.5
    """*all* How long a change may stand still before the next rank takes it over."""
    slow: Slow = "name"
    """*all* What becomes of a member that keeps more than `behind_messages` from becoming stable: the group waits for
    it; waits and names it in the log; or excludes it."""
    behind_messages: int = 10_000
    """*all* See `slow`."""
    rejoin: bool = True
    """Come back in a new life after an exclusion."""
    resend: Resend = "certain"
    """Multicast again, in the new life, what an exclusion returned: only what it is certain that nobody in the group
    delivers (all that was never sent, at least), always (others may get it twice), or never."""
    keep: Keep = "none"
    """*all* Without a snapshot of the application: what a newcomer gets of the messages before it, none, all, or the
    last so many."""
    chunk_bytes: int = 1 << 16
    """The state is handed to a newcomer in pieces of this size."""
    window_bytes: int = 4 << 20
    """*all* Bytes of own messages that may be unstable or waiting for the view at a time; `multicast` waits beyond."""
    payload_bytes_max: int = 1 << 20
    """*all* The largest payload."""
    backlog_bytes: int = 16 << 20
    """Delivered bytes that the application has not taken; beyond, this member delivers no more."""
    queue_bytes: int = 16 << 20
    """Bytes that may wait for one other member; beyond, messages to it are dropped, and sent again when it asks."""
    sync: Sync = "always"
    """With a log: when it is forced to the disk (`journal`)."""
    sync_interval_s: float = 0.2
    """The longest time that `sync="interval"` leaves the log in the system's memory."""
    log_bytes: int = 8 << 20
    """A log of this size is replaced by a checkpoint of the application when the application has taken everything."""
    join_timeout_s: float = 30.0
    """How long it may take to be taken in and to get the state."""
    greeting_timeout_s: float = 5.0
    """How long a connection may take to say who it is."""
    greetings_max: int = 64
    """Connections that may be in the middle of a greeting."""
    socket_bytes: int = 512 << 10
    """What the system may buffer of a connection, each way."""
    connection_bytes: int = 256 << 10
    """Bytes waiting in a connection before new messages gather for a larger batch."""

    def __post_init__(self) -> None:
        """Refuse what cannot be."""
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name in _CHOICES and value not in _CHOICES[field.name]:
                raise LocalProtocolError(f"{field.name}={value!r}: choose one of {', '.join(_CHOICES[field.name])}")
            least = 0 if field.name in _MAY_BE_ZERO else 1e-9
            if not isinstance(value, str | bool) and value < least:
                raise LocalProtocolError(f"{field.name}={value}: give a number above 0")
        if isinstance(self.keep, str) and self.keep not in ("none", "all"):
            raise LocalProtocolError(f"keep={self.keep!r}: choose none, all, or a number of messages")
        if not self.payload_bytes_max <= self.window_bytes <= self.queue_bytes:
            raise LocalProtocolError(
                f"payload_bytes_max={self.payload_bytes_max}, window_bytes={self.window_bytes}, "
                f"queue_bytes={self.queue_bytes}: each must be at least the one before"
            )
        self.core(is_durable=False)

    @property
    def agreed(self) -> tuple[object, ...]:
        """What all members must have in common."""
        return (
            *(self.tick_s, self.suspect_after_s, self.observers, self.patience_s, self.takeover_s),
            *(self.slow, self.behind_messages, self.keep, self.window_bytes, self.payload_bytes_max),
        )

    @property
    def frame_bytes_max(self) -> int:
        """The largest body of a frame."""
        return self.payload_bytes_max + (1 << 20)

    def core(self, *, is_durable: bool) -> MembershipSettings:
        """The settings of the core."""
        return MembershipSettings(
            tick_ns=round(self.tick_s * NS),
            suspect_ns=round(self.suspect_after_s * NS),
            observers=self.observers,
            batch_ns=round(self.batch_s * NS),
            patience_ns=round(self.patience_s * NS),
            takeover_ns=round(self.takeover_s * NS),
            chunk_bytes=self.chunk_bytes,
            behind_max={"wait": 0, "name": NOBODY_IS_SLOW, "exclude": self.behind_messages}[self.slow],
            is_durable=is_durable,
        )

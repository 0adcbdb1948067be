"""The settings of a live group, checked in one place."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal, get_args

from cubecast.errors import LocalProtocolError

Causal = Literal["auto", "timestamp", "star", "tree", "overlay", "plumtree", "rasm"]
CAUSAL: tuple[Causal, ...] = get_args(Causal)
MESH_MEMBERS_MAX = 32
"""In a group of so many a member can hold a connection to every other, and a stamp is as long as a short message."""
MEMBERS_MAX = 4096


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How a member runs. Those marked *all* must be the same at every member of a group."""

    causal: Causal = "auto"
    """*all* How messages travel: `timestamp` (straight to everybody), `star` (one member forwards), `tree` (a tree of
    the hypercube), `overlay` (flood the hypercube), `plumtree` (trees of the fastest paths), `rasm` (trees of the most
    reliable paths); `auto` chooses by the size of the group."""
    stability: str = "cube_full_dist"
    """*all* The stability protocol by name."""
    round_every_s: float = 0.1
    """Δ: the pause between stability rounds while something is unstable."""
    window_messages: int = 4096
    """*all* Own messages that may be unstable at a time; `multicast` waits beyond."""
    window_bytes: int = 8 << 20
    """*all* Bytes of own messages that may be unstable at a time."""
    payload_bytes_max: int = 1 << 20
    """*all* The largest payload."""
    backlog_bytes: int = 16 << 20
    """Delivered bytes that the application has not taken; beyond, this member takes in no more."""
    gossip_every_s: float = 0.25
    """*all* The step of the failure detector."""
    suspect_after_s: float = 5.0
    """*all* Silence after which a member is excluded."""
    join_timeout_s: float = 30.0
    """How long the other members may take to appear."""
    greeting_timeout_s: float = 5.0
    """How long a connection may take to say who it is."""
    greetings_max: int = 64
    """Connections that may be in the middle of a greeting."""
    socket_bytes: int = 512 << 10
    """What the system may buffer of a connection, each way. More than the path holds only makes everything late."""
    connection_bytes: int = 256 << 10
    """Bytes waiting in a connection before new messages gather for a larger batch."""

    def __post_init__(self) -> None:
        """Refuse what cannot be."""
        if self.causal not in CAUSAL:
            raise LocalProtocolError(f"causal={self.causal!r}: choose one of {', '.join(CAUSAL)}")
        for field in fields(self):
            value = getattr(self, field.name)
            if not isinstance(value, str) and not value > 0:
                raise LocalProtocolError(f"{field.name}={value}: give a number above 0")
        if self.payload_bytes_max > 64 << 20:
            raise LocalProtocolError(
                f"payload_bytes_max={self.payload_bytes_max}: at most {64 << 20}; cut large data up"
            )
        if self.suspect_after_s < 3 * self.gossip_every_s:
            raise LocalProtocolError(
                f"suspect_after_s={self.suspect_after_s}: at least three steps of gossip_every_s={self.gossip_every_s}"
            )

    def causal_for(self, members: int) -> Causal:
        """How messages travel in a group of this size."""
        if self.causal == "auto":
            return "timestamp" if members <= MESH_MEMBERS_MAX else "tree"
        return self.causal

    def agreed(self, members: int) -> tuple[object, ...]:
        """What all members of a group of this size must have in common."""
        return (
            *(self.causal_for(members), self.stability, self.window_messages, self.window_bytes),
            *(self.payload_bytes_max, self.gossip_every_s, self.suspect_after_s),
        )

    @property
    def frame_bytes_max(self) -> int:
        """The largest body of a frame."""
        return self.payload_bytes_max + (1 << 20)


def parse_address(address: str) -> tuple[str, int]:
    """Read "host:port" ("[::1]:7001" for IPv6)."""
    host, colon, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise LocalProtocolError(f"address {address!r}: write host:port, for example 127.0.0.1:7001")
    return host, int(port)


def ranked(listen: str, peers: list[str]) -> tuple[list[str], int]:
    """All members' addresses in the order of their ranks, and this member's rank."""
    members = sorted({listen, *peers}, key=parse_address)
    if len(members) < 2:
        raise LocalProtocolError(f"peers={peers!r}: name at least one member besides {listen}")
    if len(members) > MEMBERS_MAX:
        raise LocalProtocolError(f"{len(members)} members: at most {MEMBERS_MAX}")
    return members, members.index(listen)

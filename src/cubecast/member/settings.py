"""The settings of a member, validated in one place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

from cubecast.errors import LocalProtocolError
from cubecast.protocol.definition import Protocol
from cubecast.protocols.catalogue import AUTO, chosen, list_protocols, plain_name, protocol_named
from cubecast.protocols.membership.settings import MembershipSettings

Parameters = tuple[tuple[str, Any], ...]
Quorum = Literal["majority", "any"]
Slow = Literal["wait", "name", "exclude"]
Resend = Literal["certain", "always", "never"]
Sync = Literal["always", "interval", "never"]
MEMBERS_MAX = 4096
_NS = 1_000_000_000
_CHOICES: dict[str, tuple[str, ...]] = {
    "quorum": get_args(Quorum),
    "slow": get_args(Slow),
    "resend": get_args(Resend),
    "sync": get_args(Sync),
}
_MAY_BE_ZERO = ("batch_s",)
SECONDS_MIN, SECONDS_MAX = 1e-6, 1e6
COUNT_MAX = 1 << 40
_AGREED = (
    *(
        "data",
        "data_parameters",
        "stability",
        "stability_parameters",
        "quorum",
        "heartbeat_s",
        "suspect_after_s",
        "observers",
        "patience_s",
        "takeover_s",
    ),
    *("slow", "behind_messages", "keep", "window_messages", "window_bytes", "payload_bytes_max"),
)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How a member runs. Those marked *all* must be the same at every member of a group.

    Attributes:
        data: *all* The data protocol (`cubecast protocols --family causal` lists them); `auto` chooses by the
            size of each view.
        data_parameters: *all* Parameters of the data protocol, by name.
        stability: *all* The stability protocol.
        stability_parameters: *all* Parameters of the stability protocol, by name.
        quorum: *all* The members that decide on the next view: a majority of the last one (one primary
            partition), or any that are left (a partition splits the group).
        round_every_s: Δ: the pause between stability rounds while something is unstable.
        heartbeat_s: *all* The step of the failure detector.
        suspect_after_s: *all* Silence after which a member is suspected.
        observers: *all* How many members must suspect one before it is excluded; fewer where fewer are left.
        batch_s: How long a coordinator gathers changes before it begins to agree on a view.
        patience_s: *all* How long a change waits for a member that does not answer and is not excluded yet.
        takeover_s: *all* How long a change may stand still before the next rank takes it over.
        rerank_gain: At a view change the coordinator ranks the members by the measured round-trip times of their
            links, if that saves at least this share of the protocols' paths (0.2: a fifth). 0: ranks stay.
        slow: *all* What happens to a member that holds back stability, because its application or its network does
            not keep up: the group waits for it; waits and names it in the log; or excludes it.
        behind_messages: *all* A member holds back stability when it lacks more messages than this of those that
            others delivered `suspect_after_s` ago.
        rejoin: Join again, in a new incarnation, after an exclusion.
        resend: After an exclusion, multicast again what did not reach the group: only what certainly no member
            delivers (at least everything that was never sent), always (others may get it twice), or never.
        keep: *all* Without `snapshot=`: which earlier messages a newcomer gets: none, all, or the last n.
        piece_bytes: The state is transferred to a newcomer in pieces of this size.
        window_messages: *all* Own messages that may be unstable or waiting at a time; `multicast` waits beyond.
        window_bytes: *all* Bytes of own messages that may be unstable or waiting at a time.
        payload_bytes_max: *all* The largest payload.
        backlog_bytes: Delivered bytes that the application has not taken; beyond, this member accepts no more, and its
            own messages wait.
        sync: With a journal: when it is forced to the disk. `always`: before anything it records is visible
            outside.
        sync_interval_s: The longest time that `sync="interval"` leaves the journal in the system's memory.
        journal_bytes: A journal of this size is replaced by a checkpoint when the application has taken
            everything.
        join_timeout_s: How long it may take to found or join the group, and to get the state.
        handshake_timeout_s: How long a connection may take to complete its handshake.
        handshakes_max: Connections that may be in the middle of a handshake.
        socket_bytes: What the system may buffer of a connection, per direction. More than the path holds only
            adds delay.
        connection_bytes: Bytes waiting in a connection before new messages gather for a larger batch.
    """

    data: str = AUTO
    data_parameters: Mapping[str, Any] | Parameters = ()
    stability: str = AUTO
    stability_parameters: Mapping[str, Any] | Parameters = ()
    quorum: Quorum = "majority"
    round_every_s: float = 0.1
    heartbeat_s: float = 0.2
    suspect_after_s: float = 3.0
    observers: int = 2
    batch_s: float = 0.02
    patience_s: float = 1.0
    takeover_s: float = 1.5
    rerank_gain: float = 0.0
    slow: Slow = "name"
    behind_messages: int = 1000
    rejoin: bool = True
    resend: Resend = "certain"
    keep: Literal["none", "all"] | int = "none"
    piece_bytes: int = 1 << 16
    window_messages: int = 4096
    window_bytes: int = 8 << 20
    payload_bytes_max: int = 1 << 20
    backlog_bytes: int = 16 << 20
    sync: Sync = "always"
    sync_interval_s: float = 0.2
    journal_bytes: int = 64 << 20
    join_timeout_s: float = 30.0
    handshake_timeout_s: float = 5.0
    handshakes_max: int = 64
    socket_bytes: int = 512 << 10
    connection_bytes: int = 256 << 10

    def __post_init__(self) -> None:
        """Validate the settings."""
        for name in ("data_parameters", "stability_parameters"):
            object.__setattr__(self, name, _pairs(name, getattr(self, name)))
        for one in fields(self):
            _check_value(one.name, str(one.type), getattr(self, one.name))
        _check_protocol("data", self.data, [one for one in list_protocols() if one.live is not None])
        _check_protocol("stability", self.stability, list_protocols("stability"))
        self.data_for(2).make_parameters(dict(self.data_parameters))
        self.stability_entry.make_parameters(dict(self.stability_parameters))
        if self.payload_bytes_max > 64 << 20:
            raise LocalProtocolError(
                f"payload_bytes_max={self.payload_bytes_max}: at most {64 << 20}; split large data up"
            )
        if self.payload_bytes_max > self.window_bytes:
            raise LocalProtocolError(
                f"payload_bytes_max={self.payload_bytes_max} exceeds window_bytes={self.window_bytes}: raise the window"
            )
        if self.suspect_after_s < 3 * self.heartbeat_s:
            raise LocalProtocolError(
                f"suspect_after_s={self.suspect_after_s}: at least three steps of heartbeat_s={self.heartbeat_s}"
            )
        self.membership()

    def data_for(self, members: int) -> Protocol:
        """The data protocol of a view of this size."""
        return chosen("causal", members) if self.data == AUTO else protocol_named(self.data)

    @property
    def stability_entry(self) -> Protocol:
        """The stability protocol."""
        return chosen("stability") if self.stability == AUTO else protocol_named(self.stability)

    def agreed(self) -> dict[str, Any]:
        """The settings that all members of a group share, by name."""
        values = {name: getattr(self, name) for name in _AGREED}
        return values | {name: str(dict(values[name])) for name in ("data_parameters", "stability_parameters")}

    @property
    def frame_bytes_max(self) -> int:
        """The largest body of a frame."""
        return self.payload_bytes_max + (1 << 20)

    def membership(self) -> MembershipSettings:
        """The settings of the agreement on views."""
        return MembershipSettings(
            tick_ns=round(self.heartbeat_s * _NS) // 4,
            suspect_ns=round(self.suspect_after_s * _NS),
            observers=self.observers,
            batch_ns=round(self.batch_s * _NS),
            patience_ns=round(self.patience_s * _NS),
            takeover_ns=round(self.takeover_s * _NS),
            quorum=self.quorum,
        )


def parse_address(address: str) -> tuple[str, int]:
    """Read "host:port" ("[::1]:7001" for IPv6)."""
    host, colon, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise LocalProtocolError(f"address {address!r}: write host:port, for example 127.0.0.1:7001")
    return host, int(port)


def _check_protocol(role: str, name: str, able: list[Protocol]) -> None:
    """Reject a protocol that does not serve a live member in this role."""
    names = [AUTO, *(one.name for one in able)]
    if plain_name(name) not in names:
        raise LocalProtocolError(f"{role}={name!r}: choose one of {', '.join(names)}")


def _pairs(name: str, given: Any) -> Parameters:
    """Parameters in a canonical order, so that equal ones compare equal."""
    try:
        return tuple(sorted(dict(given).items()))
    except (TypeError, ValueError):
        raise LocalProtocolError(f"{name}={given!r}: give a dictionary of parameters") from None


def _check_value(name: str, kind: str, value: Any) -> None:
    """Reject a value of the wrong type for its field, or outside its range."""
    if name in _CHOICES:
        if value not in _CHOICES[name]:
            raise LocalProtocolError(f"{name}={value!r}: choose one of {', '.join(_CHOICES[name])}")
    elif name == "keep":
        is_number = type(value) is int and 0 <= value <= COUNT_MAX
        if value not in ("none", "all") and not is_number:
            raise LocalProtocolError(f"keep={value!r}: choose none, all, or a number of messages")
    elif name == "rerank_gain":
        if type(value) not in (int, float) or not 0 <= value < 1:
            raise LocalProtocolError(f"rerank_gain={value!r}: give a share from 0 (never) to less than 1")
    elif kind in ("bool", "str"):
        if type(value).__name__ != kind:
            raise LocalProtocolError(f"{name}={value!r}: give {'True or False' if kind == 'bool' else 'a text'}")
    elif kind == "int":
        if type(value) is not int or not 0 < value <= COUNT_MAX:
            raise LocalProtocolError(f"{name}={value!r}: give a whole number from 1 to {COUNT_MAX}")
    elif kind == "float":
        least = 0.0 if name in _MAY_BE_ZERO else SECONDS_MIN
        if type(value) not in (int, float) or not least <= value <= SECONDS_MAX:
            raise LocalProtocolError(f"{name}={value!r}: give seconds from {least:g} to {SECONDS_MAX:g}")

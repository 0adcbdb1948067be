"""The settings of a run, validated in one place."""

from __future__ import annotations

import math
import shlex
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Literal

from cubecast.errors import LocalProtocolError, blame
from cubecast.networks.network import MEMBERS_MAX
from cubecast.protocol.definition import Protocol
from cubecast.protocol.transport_abilities import shares_sequences
from cubecast.protocols.catalogue import AUTO, file_of, list_protocols, protocol_named
from cubecast.sim.faults import NEVER, TIME_NS_MAX, Fault, check_members, parse_fault
from cubecast.sim.roles import MODEL, PARAMETER_FIELDS, Role, roles_of, split_settings
from cubecast.sim.views.settings import check_churn

PAPER_SENDERS = 50  # cube §4.1: in groups above 50 members, 50 send
NS_PER_MS = 1_000_000
TIME_MS_MAX = TIME_NS_MAX / NS_PER_MS
ROUNDS_MAX = 1_000_000
SAMPLES_MAX = 1_000_000
SEED_MAX = (1 << 64) - 1  # the random streams take a 64-bit key
SIZE_MAX = (1 << 31) - 1  # sequence numbers and sizes are 32-bit in messages and traces
REPEAT_NS = 20 * NS_PER_MS


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """Everything that determines a run: the same scenario gives the same result, bit for bit, anywhere."""

    protocol: str
    members: int
    senders: int | None = None
    """Default: all members in groups of up to 50, otherwise 50 (cube §4.1)."""
    network: str = "random:p=0.02"
    routing: Literal["hops", "delay"] = "hops"
    placement: Literal["random", "bisection", "search"] | None = None
    """How ranks are assigned to the members of the network (`sim.placement`). Default: in the network's order."""
    multicast: Literal["copies", "tree"] | None = None
    """A multicast takes n−1 unicasts, or one copy per link of the shortest-path tree. Default: copies; tree on the WAN
    tree."""
    seed: int = 0
    rounds: int = 1
    delta_ms: float | None = None
    """Δ: how long after a round the next one begins. Default: 10 ms; on the WAN tree about the length of a round."""
    trigger: Literal["delta", "buffer"] = "delta"
    """A round begins Δ after the last, or when `trigger_messages` of one sender are not stable (guo ch. 6)."""
    trigger_messages: int = 0
    """X, for the trigger "buffer"; 0: rounds run back to back."""
    buffer_messages: int = 0
    """g: how many of its own unstable messages a sender buffers; then it stops sending. 0: any number."""
    series_ms: float = 0.0
    """Interval at which the contents of the buffers are recorded; 0: never."""
    repeat_ms: float | None = None
    """After how long an unanswered message is repeated. Default: never; if messages can be lost, 20 ms or about the
    length of a round, whichever is longer."""
    deliver: Literal["received", "stable"] = "received"
    """When an application gets a message: at once, or when its member knows that all members have it (guo §2.3)."""
    causal_stability: bool = False
    """Also detect when messages are causally stable (`sim.causal_stability`); this doubles the arrays."""
    goal: Literal["stability", "errors"] = "stability"
    """The arrays hold what every member holds (the minimum), or what any member has seen (the maximum, guo ch. 7). A
    sender has seen everything it sent, so while it is up, the maximum is the number of messages it sent."""
    sequences: int | None = None
    """Number of sequences that the senders share; 1 gives total order (guo ch. 7). Default: one per sender."""
    changed_only: bool = False
    """Send only the entries of an array that differ from the last S (guo ch. 7)."""
    piggyback_control: bool = False
    """Control messages of senders are piggybacked on their data messages (guo ch. 7)."""
    loss: float = 0.0
    """Probability that a message is lost, on each link it crosses."""
    duplicate: float = 0.0
    reorder: float = 0.0
    """Probability that a message is delayed by up to `reorder_ms` after a link, so that others overtake it."""
    reorder_ms: float = 1.0
    queue_limit: int = 0
    """Messages that may wait on a link; more are dropped. 0: any number."""
    losses_per_step: int = 0
    """Gossip: random messages lost at their senders in every step (guo §5.3.1)."""
    crashes: tuple[Fault, ...] = ()
    suspicions: tuple[Fault, ...] = ()
    partitions: tuple[Fault, ...] = ()
    joins: tuple[Fault, ...] = ()
    """Members that join during the run; their ranks are the last ones."""
    leaves: tuple[Fault, ...] = ()
    """Members that announce that they leave: the group does not wait for the failure detector."""
    detect_ms: float = 10.0
    """How long a member must be down before the failure detectors report it."""
    detect_spread_ms: float = 1.0
    detector: str = MODEL
    """`model`: failures are reported after `detect_ms`; otherwise the protocol that detects them (family failure)."""
    messages: int = 0
    """Data messages each sender multicasts during the rounds; 0: R stays as it is."""
    rate: float = 100.0
    """Data messages per second of each sender."""
    churn_per_s: float | None = None
    """A group with views (`sim.views`): the joins, leaves, crashes and returns per second. None: no views."""
    churn_mix: str = "join=1,leave=1,crash=1,return=1"
    """Churn: the weights of the kinds of changes."""
    churn_ms: float = 10_000.0
    """Churn: how long members change and multicast; then the run waits until the group is quiet."""
    batch_ms: float = 20.0
    """Churn: how long a coordinator gathers changes before it starts the agreement on a view."""
    state_bytes: int = 0
    """Churn: the size of the application's state that a newcomer gets."""
    stability: str = AUTO
    """Churn: the stability protocol beside a protocol that multicasts data."""
    data: str = AUTO
    """Churn: the data protocol beside a stability protocol."""
    payload_bytes: int = 100
    heartbeats: int = 0
    """Trees: the reliability of neighbours and links is estimated from this many heartbeats; 0: it is known exactly."""
    transport: str = AUTO
    """The reliable multicast under the data messages (`cubecast protocols --family transport`)."""
    until_ms: float = 600_000.0
    """Simulated time after which an unfinished run is abandoned."""
    least_ms: float = 0.0
    """Simulated time before which a run does not end, even if only further rounds are left."""
    packets_max: int | None = None
    """Most message copies in flight; memory is used only when needed. Default: 4 Mi, or 32 per member if more."""
    measure: bool = True
    """Sample queues and load (MODELS §9)."""
    parameters: Any = None
    """Parameters of the protocol: a dictionary, or its own dataclass; omitted ones have their defaults."""
    other_parameters: Any = None
    """Churn: parameters of the stability protocol beside a data protocol, or of the data protocol."""
    transport_parameters: Any = None
    detector_parameters: Any = None

    def __post_init__(self) -> None:
        for role in self.roles.values():
            object.__setattr__(self, role.field, role.complete(getattr(self, role.field)))
        for name, what in _FAULTS.items():
            object.__setattr__(self, name, _read_faults(name, what, getattr(self, name)))
        check_churn(self)
        _check_choices(self)
        _check_sizes(self)
        _check_probabilities(self)
        _check_times(self)
        _check_faults(self)
        _check_links(self)
        _check_savings(self)
        _check_causal(self)
        _check_detector(self)
        _check_trigger(self)

    @classmethod
    def of(cls, protocol: str, **settings: Any) -> Scenario:
        """A scenario from flat settings: fields, parameters of the protocol, and those of others with a prefix.

        >>> Scenario.of("gossip", members=20, subset=2, detector="gossip", detector_step_ms=50).parameters.subset
        2
        """
        return cls(**split_settings({"protocol": protocol} | settings, _FIELDS))

    @cached_property
    def roles(self) -> dict[str, Role]:
        """The protocols that run, by the field that holds their parameters."""
        return roles_of(vars(self))

    @property
    def running(self) -> dict[str, Role]:
        """The protocols that have something to do: a transport has only if data flows above it."""
        idle = self.carries_data or self.messages == 0
        return {field: role for field, role in self.roles.items() if field != "transport_parameters" or not idle}

    def entry(self, role: str = "parameters") -> Protocol:
        """The catalogue's entry of the protocol in a role."""
        return self.roles[role].entry

    def with_parameters(self, **values: Any) -> Scenario:
        """The same scenario with other parameters of its protocol."""
        return replace(self, parameters=vars(self.parameters) | values)

    @property
    def sender_count(self) -> int:
        return min(self.members, PAPER_SENDERS) if self.senders is None else self.senders

    @property
    def sequence_count(self) -> int:
        """Entries of an array."""
        return self.sender_count if self.sequences is None else self.sequences

    @property
    def folded_count(self) -> int:
        """Numbers that the stability protocol folds: entries of an array, twice as many with causal stability."""
        return (2 if self.causal_stability else 1) * self.sequence_count

    def senders_for(self, role: str) -> int:
        """The senders that the protocol in a role knows of."""
        return self.folded_count if role == "parameters" else self.sequence_count

    @property
    def packet_room(self) -> int:
        """Message copies that may be in flight."""
        return max(1 << 22, 32 * self.members) if self.packets_max is None else self.packets_max

    @property
    def forced_losses(self) -> int:
        """Forced losses per step; none for a protocol without steps (guo §5.4 loses only gossip)."""
        return self.losses_per_step if self.entry().steps is not None else 0

    @property
    def loses_messages(self) -> bool:
        """Can a message between two members be lost? A message sent to a newcomer before it joined is lost."""
        recovers = any(crash.until_ns >= 0 for crash in self.crashes)
        lossy = self.loss > 0 or self.queue_limit > 0 or self.forced_losses > 0
        return lossy or recovers or bool(self.partitions) or (bool(self.joins) and not self.entry().admits_joins)

    @property
    def repeats(self) -> bool:
        """Does the lossy form of the protocol run?"""
        return self.loses_messages or self.reorder > 0

    @property
    def detects(self) -> bool:
        """Does a protocol detect failures?"""
        return self.detector != MODEL

    @property
    def repeat_ns(self) -> int:
        """The repeat interval; 0 in the reliable FIFO form (`sim.resolve_defaults` adapts it to the network)."""
        if self.repeat_ms is not None:
            return round(self.repeat_ms * NS_PER_MS)
        return REPEAT_NS if self.repeats else 0

    @property
    def carries_data(self) -> bool:
        """Does the protocol itself multicast the data messages? If so, there are no rounds."""
        return protocol_named(self.protocol).carries_data

    @property
    def has_views(self) -> bool:
        """Do members join and leave by agreement, while messages flow?"""
        return self.churn_per_s is not None

    @property
    def data_protocol(self) -> str:
        """Under churn: the protocol that multicasts the data."""
        return (self.entry() if self.carries_data else self.entry("other_parameters")).name

    @property
    def stability_protocol(self) -> str:
        """Under churn: the protocol that detects stability."""
        return (self.entry("other_parameters") if self.carries_data else self.entry()).name

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON; faults as text, parameters by their flat names."""
        values = {field.name: getattr(self, field.name) for field in fields(self) if field.name not in PARAMETER_FIELDS}
        entry = protocol_named(self.data_protocol) if self.has_views else self.entry()
        values |= {"family": entry.family, "floods": entry.floods}
        if self.carries_data or self.has_views:
            values["rounds"] = 0
        for name in _FAULTS:
            values[name] = [str(fault) for fault in values[name]]
        for role in self.roles.values():
            values |= {role.prefix + name: value for name, value in vars(getattr(self, role.field)).items()}
        return values | {"senders": self.sender_count, "repeat_ms": self.repeat_ns / NS_PER_MS}

    def command(self) -> str:
        """The command line that runs this scenario again."""
        words = ["cubecast", "simulate", self.protocol]
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name in ("protocol", *PARAMETER_FIELDS):
                continue
            if value != field.default or field.name in ("members", "seed"):
                words += _option(_OPTION_NAMES.get(field.name, field.name), value)
        files = dict.fromkeys(file_of(role.entry) for role in self.roles.values())
        words += [word for file in files if file is not None for word in ("--protocol-file", str(file))]
        for role in self.roles.values():
            usual = vars(role.entry.parameters())
            for name, value in vars(getattr(self, role.field)).items():
                if value != usual[name]:
                    words += _option(role.prefix + name, value)
        return shlex.join(words)


def _option(name: str, value: Any) -> list[str]:
    option = "--" + name.replace("_", "-")
    if isinstance(value, tuple):
        return [word for fault in value for word in (option, str(fault))]
    if isinstance(value, bool):
        return [option if value else option.replace("--", "--no-")]
    return [option, str(value)]


_FAULTS = {"crashes": "crash", "suspicions": "suspicion", "partitions": "partition", "joins": "join", "leaves": "leave"}
"""The fields that hold faults, and the word for a single one."""


def _read_faults(name: str, what: str, given: Any) -> tuple[Fault, ...]:
    """Faults as objects or as text ("3@2ms")."""
    found = [given] if isinstance(given, str | Fault) else given
    if not isinstance(found, list | tuple) or not all(isinstance(one, str | Fault) for one in found):
        raise LocalProtocolError(f'{name} = {given!r}: give faults such as "3@2ms"', setting=name)
    with blame(name):
        return tuple(parse_fault(one, what=what) if isinstance(one, str) else one for one in found)


_OPTION_NAMES = {
    "crashes": "crash",
    "suspicions": "suspect",
    "partitions": "partition",
    "joins": "join",
    "leaves": "leave",
    "payload_bytes": "payload",
    "churn_per_s": "churn",
}


_CHOICES = {
    "routing": ("hops", "delay"),
    "placement": ("random", "bisection", "search", None),
    "multicast": ("copies", "tree", None),
    "deliver": ("received", "stable"),
    "goal": ("stability", "errors"),
    "trigger": ("delta", "buffer"),
}


def _check_choices(scenario: Scenario) -> None:
    for name, choices in _CHOICES.items():
        if getattr(scenario, name) not in choices:
            known = " or ".join(filter(None, choices))
            raise LocalProtocolError(f"{name} = {getattr(scenario, name)!r}: choose {known}", setting=name)


def _check_sizes(scenario: Scenario) -> None:
    if scenario.members < 2:
        raise LocalProtocolError(f"members = {scenario.members}: a group has at least 2 members", setting="members")
    if scenario.members > MEMBERS_MAX:
        raise LocalProtocolError(
            f"members = {scenario.members}: a group has at most {MEMBERS_MAX} members", setting="members"
        )
    if not 1 <= scenario.sender_count <= scenario.members:
        raise LocalProtocolError(
            f"senders = {scenario.senders}: choose from 1 to the {scenario.members} members", setting="senders"
        )
    if not 1 <= scenario.rounds <= ROUNDS_MAX:
        raise LocalProtocolError(f"rounds = {scenario.rounds}: choose from 1 to {ROUNDS_MAX}", setting="rounds")
    for name, most in _COUNTS_MAX.items():
        if not 0 <= getattr(scenario, name) <= most:
            raise LocalProtocolError(f"{name} = {getattr(scenario, name)}: choose from 0 to {most}", setting=name)
    if not 1 <= scenario.packet_room <= SIZE_MAX:
        raise LocalProtocolError(
            f"packets_max = {scenario.packets_max}: choose from 1 to {SIZE_MAX}", setting="packets_max"
        )


_COUNTS_MAX = {
    "queue_limit": SIZE_MAX,
    "losses_per_step": SIZE_MAX,
    "messages": SIZE_MAX,
    "payload_bytes": 1 << 30,
    "heartbeats": SIZE_MAX,
    "trigger_messages": SIZE_MAX,
    "buffer_messages": SIZE_MAX,
    "seed": SEED_MAX,
}


def _check_probabilities(scenario: Scenario) -> None:
    for name in ("loss", "duplicate", "reorder"):
        if not 0 <= getattr(scenario, name) < 1:
            raise LocalProtocolError(
                f"{name} = {getattr(scenario, name)}: a probability from 0 up to but not including 1",
                setting=name,
            )


def _check_times(scenario: Scenario) -> None:
    for name in ("delta_ms", "reorder_ms", "detect_ms", "detect_spread_ms", "until_ms", "repeat_ms"):
        value = getattr(scenario, name)
        if value is not None and not 0 <= value <= TIME_MS_MAX:
            raise LocalProtocolError(f"{name} = {value}: choose from 0 to {TIME_MS_MAX:.0f} ms", setting=name)
    if scenario.until_ms == 0:
        raise LocalProtocolError("until_ms = 0: choose more than 0", setting="until_ms")
    if not 1e3 / TIME_MS_MAX <= scenario.rate < math.inf:
        raise LocalProtocolError(f"rate = {scenario.rate}: choose more than 0 messages per second", setting="rate")
    if scenario.repeat_ns == 0 and scenario.loses_messages and (scenario.has_views or not scenario.carries_data):
        raise LocalProtocolError(
            "repeat_ms = 0 with messages that can be lost: the rounds would never end", setting="repeat_ms"
        )


def _check_faults(scenario: Scenario) -> None:
    for name, what in _FAULTS.items():
        with blame(name):
            check_members(getattr(scenario, name), scenario.members, what)
    for suspicion in scenario.suspicions:
        if suspicion.until_ns != NEVER:
            raise LocalProtocolError(
                f"suspicion {suspicion}: a member is excluded for good; leave out the end", setting="suspicions"
            )
    for leave in scenario.leaves:
        if leave.until_ns != NEVER:
            raise LocalProtocolError(f"leave {leave}: a member leaves for good; leave out the end", setting="leaves")
    for partition in scenario.partitions:
        if partition.until_ns == NEVER:
            raise LocalProtocolError(
                f"partition {partition}: say when it ends, as in 0-15@10ms-60ms", setting="partitions"
            )
    _check_joins(scenario)


def _check_joins(scenario: Scenario) -> None:
    """Validate joins: a newcomer adds a bit at the end (guo §3.2), so newcomers have the last ranks."""
    ranks = [rank for join in scenario.joins for rank in join.members]
    last = range(scenario.members - len(ranks), scenario.members)
    if sorted(ranks) != list(last) or len(ranks) >= scenario.members:
        raise LocalProtocolError(
            f"join of members {', '.join(map(str, ranks))} of {scenario.members}: newcomers have the last ranks, each "
            "joins once, and member 0 is there from the start",
            setting="joins",
        )
    if any(join.until_ns >= 0 for join in scenario.joins):
        raise LocalProtocolError(
            "a join has one time, for example 7@20ms: use leave or crash for what comes after", setting="joins"
        )
    joined_ns = {rank: join.at_ns for join in scenario.joins for rank in join.members}
    for fault in (*scenario.crashes, *scenario.suspicions, *scenario.leaves):
        for rank in fault.members:
            if rank in joined_ns and fault.at_ns <= joined_ns[rank]:
                raise LocalProtocolError(
                    f"member {rank} leaves or fails at {fault.at_ns} ns and joins at {joined_ns[rank]} ns: "
                    "it must join first",
                    setting="joins",
                )


def _check_links(scenario: Scenario) -> None:
    """Reject links that are too weak for the protocol: it would stall or break its promise."""
    protocol = protocol_named(scenario.protocol)
    if scenario.has_views:
        return  # the transport below a view recovers what the network loses
    if protocol.carries_data and scenario.messages == 0:
        raise LocalProtocolError(
            f"messages = 0: {protocol.name} multicasts data, give each sender 1 or more", setting="messages"
        )
    if protocol.links != "lossy" and scenario.loses_messages:
        raise LocalProtocolError(
            f"{protocol.name} needs links that lose nothing: drop loss, queue_limit, partitions, recoveries and joins",
            setting="protocol",
        )
    if protocol.links == "fifo" and (scenario.reorder > 0 or scenario.duplicate > 0):
        raise LocalProtocolError(f"{protocol.name} needs FIFO links: drop reorder and duplicate", setting="protocol")


_NOT_RELEASED = ("delta", 0, "received")
"""The trigger, buffer and delivery settings that a run must have if nothing becomes stable in it."""


def _check_savings(scenario: Scenario) -> None:
    senders = scenario.sender_count
    if not 1 <= scenario.sequence_count <= senders:
        raise LocalProtocolError(
            f"sequences = {scenario.sequences}: choose from 1 to the {senders} senders", setting="sequences"
        )
    if scenario.sequence_count < senders and scenario.messages > 0:
        _check_shared_sequences(scenario)
    if scenario.goal == "errors" and (scenario.trigger, scenario.buffer_messages, scenario.deliver) != _NOT_RELEASED:
        raise LocalProtocolError(
            "goal = errors releases no messages: drop trigger, buffer_messages and deliver", setting="goal"
        )
    if scenario.deliver == "stable" and (scenario.messages == 0 or scenario.carries_data or scenario.has_views):
        raise LocalProtocolError(
            "deliver = stable needs data messages beside a stability protocol, and no churn: set messages, drop churn",
            setting="deliver",
        )
    if scenario.piggyback_control and (scenario.messages == 0 or scenario.carries_data):
        raise LocalProtocolError(
            "piggyback_control without data messages of a transport: set messages, or drop it",
            setting="piggyback_control",
        )
    if scenario.changed_only and (scenario.repeat_ns > 0 or any(getattr(scenario, name) for name in _FAULTS)):
        raise LocalProtocolError(
            "changed_only with messages that can be lost or repeated: an omitted S might never be sent; "
            "drop loss, reorder, repeat_ms and faults",
            setting="changed_only",
        )


_NOT_SHARED = (
    *("trigger", "buffer_messages", "deliver", "piggyback_control", "causal_stability"),
    *("crashes", "suspicions", "joins", "leaves"),
)
"""Settings that would need the sender of each number of a shared sequence, or a second sequencer."""


def _check_shared_sequences(scenario: Scenario) -> None:
    known = [entry.name for entry in list_protocols("transport") if shares_sequences(entry)]
    if scenario.carries_data or scenario.has_views or scenario.entry("transport_parameters").name not in known:
        raise LocalProtocolError(
            f"sequences = {scenario.sequences} with data messages needs a transport that numbers them: "
            f"transport = {' or '.join(known)}",
            setting="sequences",
        )
    usual = {field.name: field.default for field in fields(Scenario)}
    for name in _NOT_SHARED:
        if getattr(scenario, name) != usual[name]:
            raise LocalProtocolError(f"{name} with shared sequences: drop {name}, or sequences", setting=name)


def _check_causal(scenario: Scenario) -> None:
    if not scenario.causal_stability:
        return
    if not scenario.has_views and (scenario.messages == 0 or scenario.carries_data):
        raise LocalProtocolError(
            "causal_stability needs data messages beside a stability protocol: set messages, or churn_per_s",
            setting="causal_stability",
        )
    if scenario.goal == "errors" or scenario.deliver == "stable" or scenario.changed_only:
        raise LocalProtocolError(
            "causal_stability folds whole arrays to their minimum, of what was delivered at once: drop goal, deliver "
            "and changed_only",
            setting="causal_stability",
        )
    newcomers = [rank for join in scenario.joins for rank in join.members if rank < scenario.sender_count]
    if newcomers and not scenario.has_views:
        raise LocalProtocolError(
            f"causal_stability with senders that join, {', '.join(map(str, newcomers))}: set churn_per_s "
            "(0 is enough), or fewer senders",
            setting="causal_stability",
        )


def _check_detector(scenario: Scenario) -> None:
    if not 0 <= scenario.least_ms <= scenario.until_ms:
        raise LocalProtocolError(
            f"least_ms = {scenario.least_ms:g}: choose from 0 to until_ms = {scenario.until_ms:g}", setting="least_ms"
        )


def _check_trigger(scenario: Scenario) -> None:
    if not 0 <= scenario.series_ms <= TIME_MS_MAX or (0 < scenario.series_ms < scenario.until_ms / SAMPLES_MAX):
        least = scenario.until_ms / SAMPLES_MAX
        raise LocalProtocolError(
            f"series_ms = {scenario.series_ms:g}: choose 0, or {least:g} ms or more", setting="series_ms"
        )
    if scenario.trigger != "buffer":
        return
    if scenario.messages == 0:
        raise LocalProtocolError(
            "trigger = buffer without data messages: no buffer would fill; set messages", setting="trigger"
        )
    if 0 < scenario.buffer_messages < scenario.trigger_messages:
        raise LocalProtocolError(
            f"trigger_messages = {scenario.trigger_messages}: a buffer of {scenario.buffer_messages} never holds that",
            setting="trigger_messages",
        )


_FIELDS = {field.name for field in fields(Scenario)}

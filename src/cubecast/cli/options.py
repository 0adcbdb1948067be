"""The options of a scenario, shared by every command that runs one.

`OPTIONS` is data: one entry for each field of `Scenario`; an option left out keeps the default of its field. All other
options are parameters of protocols, which the protocols declare themselves. The defaults are written in the help only,
so that `--help` need not load the simulator; a test compares them with the fields.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import wraps
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import typer

from cubecast.cli.protocol_files import with_protocol_files
from cubecast.errors import LocalProtocolError

if TYPE_CHECKING:
    from cubecast.protocol.parameters import ParameterInfo

RATE_MAX = 1e6
"""The largest rate of messages per second."""


def whole_number(text: str) -> int:
    """Read an integer; the error names the text found instead."""
    try:
        return int(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a whole number.") from None


def number(text: str) -> float:
    """Read a number; the error names the text found instead."""
    try:
        return float(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a number.") from None


def require_between(option: str, value: float, low: float, high: float) -> None:
    """Reject a value outside the option's range, such as nan."""
    if not low <= value <= high:
        raise LocalProtocolError(f"{option} {value:g}: give a number from {low:g} to {high:g}")


_READERS: dict[Any, tuple[Callable[[str], Any], str]] = {int: (whole_number, "INTEGER"), float: (number, "NUMBER")}


class ScenarioOption(NamedTuple):
    """An option as the command line shows it."""

    type: Any
    flags: tuple[str, ...]
    panel: str
    default: str
    help: str


GROUP, NETWORK, ROUNDS, PROTOCOL = "Group", "Network", "Rounds", "Protocol"
FAULTS, DETECTION, DATA, LIMITS = "Faults", "Failure detection", "Data traffic", "Limits"
CHURN = "Churn"
_O = ScenarioOption
_CONTEXT = "context"
TAKES_PARAMETERS = {"allow_extra_args": True, "ignore_unknown_options": True}
"""Settings of a command whose further options are parameters of protocols."""

OPTIONS: dict[str, ScenarioOption] = {
    "members": _O(int, ("--members", "-n"), GROUP, "", "Size n of the group, ranks 0 … n−1."),
    "senders": _O(int, ("--senders", "-m"), GROUP, "all, at most 50", "Number of senders: ranks 0 … m−1."),
    "seed": _O(int, ("--seed", "-s"), GROUP, "0", "Seed of all random draws; one seed gives one result."),
    "joins": _O(list[str], ("--join",), GROUP, "none", "Let one of the last ranks join later: 7@20ms. Repeatable."),
    "leaves": _O(list[str], ("--leave",), GROUP, "none", "Let members leave: 3@20ms. Repeatable."),
    "network": _O(str, ("--network",), NETWORK, "random:p=0.02", "The network; `cubecast networks` lists the kinds."),
    "routing": _O(
        Literal["hops", "delay"], ("--routing",), NETWORK, "hops", "Shortest paths by number of links, or by delay."
    ),
    "placement": _O(
        Literal["random", "bisection", "search"],
        ("--placement",),
        NETWORK,
        "in the order of the network",
        "Assignment of ranks to members: random, or close to the members they exchange messages with.",
    ),
    "multicast": _O(
        Literal["copies", "tree"],
        ("--multicast",),
        NETWORK,
        "copies; tree on a wan-tree",
        "A multicast is n−1 unicasts, or one copy on each link of the shortest-path tree.",
    ),
    "queue_limit": _O(
        int, ("--queue-limit",), NETWORK, "0", "Queue capacity of a link in messages; more are dropped. 0: unlimited."
    ),
    "rounds": _O(int, ("--rounds", "-r"), ROUNDS, "1", "Number of rounds."),
    "delta_ms": _O(
        float, ("--delta-ms",), ROUNDS, "10; on a wan-tree about a round", "Δ, the pause between two rounds."
    ),
    "trigger": _O(
        Literal["delta", "buffer"],
        ("--trigger",),
        ROUNDS,
        "delta",
        "A round begins Δ after the previous one, or when buffers fill.",
    ),
    "trigger_messages": _O(
        int,
        ("--trigger-messages",),
        ROUNDS,
        "0",
        "With the trigger buffer: X, the unstable messages of a sender that start a round.",
    ),
    "repeat_ms": _O(
        float,
        ("--repeat-ms",),
        ROUNDS,
        "never; 20, or about a round, where messages can be lost",
        "Retransmission timeout for an unanswered message.",
    ),
    "deliver": _O(
        Literal["received", "stable"],
        ("--deliver",),
        DATA,
        "received",
        "Deliver a message when it is received, or when it is stable (atomic delivery).",
    ),
    "causal_stability": _O(
        bool,
        ("--causal-stability/--no-causal-stability",),
        DATA,
        "False",
        "Also detect causal stability: no message concurrent with it can still be delivered. Doubles the arrays.",
    ),
    "goal": _O(
        Literal["stability", "errors"],
        ("--goal",),
        PROTOCOL,
        "stability",
        "Detect what all members have (stability), or what any member has seen (errors).",
    ),
    "sequences": _O(
        int,
        ("--sequences",),
        PROTOCOL,
        "one per sender",
        "Number of sequences that the senders share; 1 for total order.",
    ),
    "changed_only": _O(
        bool, ("--changed-only/--no-changed-only",), PROTOCOL, "False", "Send only entries that differ from the last S."
    ),
    "piggyback_control": _O(
        bool,
        ("--piggyback-control/--no-piggyback-control",),
        PROTOCOL,
        "False",
        "Piggyback control messages on data messages.",
    ),
    "heartbeats": _O(
        int,
        ("--heartbeats",),
        PROTOCOL,
        "0",
        "Broadcast trees: heartbeats from which links are estimated; 0: exact values.",
    ),
    "loss": _O(float, ("--loss",), FAULTS, "0.0", "Probability that a link loses a message."),
    "duplicate": _O(float, ("--duplicate",), FAULTS, "0.0", "Probability that a link duplicates a message."),
    "reorder": _O(float, ("--reorder",), FAULTS, "0.0", "Probability that a message is delayed and overtaken."),
    "reorder_ms": _O(float, ("--reorder-ms",), FAULTS, "1.0", "Longest delay of a reordered message."),
    "losses_per_step": _O(
        int, ("--losses-per-step",), FAULTS, "0", "Gossip: messages lost at their senders in each step."
    ),
    "crashes": _O(
        list[str], ("--crash",), FAULTS, "none", "Crash members: 3@2ms, 3@2ms-5ms (recovers), 1+2+4@0ms. Repeatable."
    ),
    "suspicions": _O(
        list[str], ("--suspect",), FAULTS, "none", "Suspect a live member, so that it is excluded: 5@10ms. Repeatable."
    ),
    "partitions": _O(
        list[str], ("--partition",), FAULTS, "none", "Partition members from the others: 0-15@10ms-60ms. Repeatable."
    ),
    "detector": _O(
        str,
        ("--detector",),
        DETECTION,
        "model",
        "model (failures are reported after --detect-ms), or a protocol of the family failure.",
    ),
    "detect_ms": _O(float, ("--detect-ms",), DETECTION, "10.0", "Model: time from a crash to the first report."),
    "detect_spread_ms": _O(
        float, ("--detect-spread-ms",), DETECTION, "1.0", "Model: time within which all members get the report."
    ),
    "messages": _O(int, ("--messages",), DATA, "0", "Data messages per sender; 0: only the protocol runs."),
    "rate": _O(float, ("--rate",), DATA, "100.0", "Data messages per second of each sender."),
    "payload_bytes": _O(int, ("--payload",), DATA, "100", "Bytes of a data message."),
    "churn_per_s": _O(
        float, ("--churn",), CHURN, "no views", "A group with views: joins, leaves, crashes and returns per second."
    ),
    "churn_mix": _O(
        str, ("--churn-mix",), CHURN, "join=1,leave=1,crash=1,return=1", "Relative frequency of each kind of change."
    ),
    "churn_ms": _O(
        float, ("--churn-ms",), CHURN, "10000.0", "Duration of changes and multicasts; then the group settles."
    ),
    "batch_ms": _O(float, ("--batch-ms",), CHURN, "20.0", "How long a coordinator collects changes for one view."),
    "state_bytes": _O(int, ("--state-bytes",), CHURN, "0", "Size of the application state that a newcomer receives."),
    "stability": _O(str, ("--stability",), CHURN, "auto", "The stability protocol, if PROTOCOL is a data protocol."),
    "data": _O(str, ("--data",), CHURN, "auto", "The data protocol, if PROTOCOL is a stability protocol."),
    "transport": _O(
        str, ("--transport",), DATA, "auto", "Reliable multicast: `cubecast protocols --family transport` lists them."
    ),
    "buffer_messages": _O(
        int, ("--buffer-messages",), DATA, "0", "Unstable own messages at which a sender stops; 0: unlimited."
    ),
    "series_ms": _O(float, ("--series-ms",), DATA, "0.0", "Sampling interval of the buffers; 0: never."),
    "until_ms": _O(float, ("--until-ms",), LIMITS, "600000.0", "Simulated time after which an unfinished run fails."),
    "least_ms": _O(float, ("--least-ms",), LIMITS, "0.0", "Minimum simulated time of a run."),
    "packets_max": _O(
        int, ("--packets-max",), LIMITS, "4194304, or 32 per member", "Maximum number of message copies in flight."
    ),
    "measure": _O(bool, ("--measure/--no-measure",), LIMITS, "True", "Sample queues and load."),
}

_FAULT_KINDS = {
    "crashes": ("crash", False),
    "suspicions": ("suspicion", False),
    "partitions": ("partition", True),
    "joins": ("join", False),
    "leaves": ("leave", False),
}


def with_scenario(command: Callable[..., None], *, leave_out: tuple[str, ...] = ()) -> Callable[..., None]:
    """Add the options of a scenario to a command; those that were given are in its argument `settings`."""
    names = [name for name in OPTIONS if name not in leave_out]

    @wraps(command)
    def wrapper(**values: Any) -> None:
        given = {name: values.pop(name) for name in names}
        words, settings = values.pop(_CONTEXT).args, _settings(given)
        if (first := values.get("protocol", "")).startswith("--"):  # a parameter before the protocol
            values["protocol"], words = _take_protocol([first, *words])
        command(**values, settings=settings | _parameters(words, values.get("protocol"), settings))

    own = inspect.signature(command, eval_str=True).parameters
    parameters = [one.replace(kind=one.KEYWORD_ONLY) for one in own.values() if one.name != "settings"]
    parameters += [_option(name) for name in names]
    parameters.insert(0, inspect.Parameter(_CONTEXT, inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context))
    wrapper.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    wrapper.__annotations__ = {one.name: one.annotation for one in parameters}
    return with_protocol_files(wrapper)


def _option(name: str) -> inspect.Parameter:
    option = OPTIONS[name]
    required = not option.default
    reader, metavar = _READERS.get(option.type, (None, None))
    info = typer.Option(
        *option.flags,
        help=option.help,
        rich_help_panel=option.panel,
        show_default=option.default or False,
        parser=reader,
        metavar=metavar,
    )
    kind: Any = option.type if required else option.type | None
    default = inspect.Parameter.empty if required else None
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, info])


def _settings(given: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of the scenario that the user set; faults read as they are spelled."""
    settings = {name: value for name, value in given.items() if value not in (None, [])}
    faults = {name: settings[name] for name in _FAULT_KINDS if name in settings}
    if faults:
        from cubecast.sim.faults import parse_fault
    for name, texts in faults.items():
        what, needs_end = _FAULT_KINDS[name]
        settings[name] = tuple(parse_fault(text, what=what, needs_end=needs_end) for text in texts)
    return settings


def _take_protocol(words: list[str]) -> tuple[str, list[str]]:
    """The first word that is neither a parameter nor its value, and the others."""
    place = 0
    while place < len(words) and words[place].startswith("--"):
        _, given, known = _read_option(words[place], None, {})
        place += 1 if given is not None or bool in known.types else 2
    if place >= len(words):
        raise typer.BadParameter("Missing argument 'PROTOCOL'.")
    return words[place], words[:place] + words[place + 1 :]


def _read_option(word: str, protocol: str | None, settings: Mapping[str, Any]) -> tuple[str, str | None, ParameterInfo]:
    """The flat name, the value if it is in the same word, and the parameter of --name, --name=value, --no-flag."""
    from cubecast.sim.roles import parameter_of

    option, has_value, value = word.partition("=")
    if not option.startswith("--"):
        raise typer.BadParameter(f"unexpected argument {option!r}: parameters are written --name value.")
    name = option.removeprefix("--").replace("-", "_")
    for own in (name, name.removeprefix("no_")):
        known = parameter_of(own, protocol, settings)
        if known is not None:
            return name, value if has_value else None, known
    raise typer.BadParameter(f"no such option: {option}. `cubecast protocols NAME` lists the parameters of a protocol.")


def _parameters(words: list[str], protocol: str | None, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters of protocols among the words that are not options of a scenario."""
    found: dict[str, Any] = {}
    waiting = iter(words)
    for word in waiting:
        name, value, known = _read_option(word, protocol, settings)
        if value is None and bool in known.types:
            found[name.removeprefix("no_")] = not name.startswith("no_")
            continue
        if value is None and (value := next(waiting, None)) is None:
            raise typer.BadParameter(f"{word} needs a value.")
        from cubecast.protocol.parameters import read_text

        found[name] = read_text(known, value, protocol or "the protocols")
    return found

"""The options of a scenario, shared by every command that runs one.

`OPTIONS` is data: one entry for each field of `Scenario`, whose default an option left out keeps. The defaults are
written in the help only, so that `--help` needs not load the simulator; a test holds them to the fields.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Annotated, Any, Literal, NamedTuple

import typer


def whole_number(text: str) -> int:
    """Read an integer; the error names what stands there instead."""
    try:
        return int(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a whole number.") from None


def number(text: str) -> float:
    """Read a number; the error names what stands there instead."""
    try:
        return float(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a number.") from None


_READERS: dict[Any, tuple[Callable[[str], Any], str]] = {int: (whole_number, "INTEGER"), float: (number, "NUMBER")}


class ScenarioOption(NamedTuple):
    """An option as the command line shows it."""

    type: Any
    flags: tuple[str, ...]
    panel: str
    default: str
    help: str


GROUP, NETWORK, PROTOCOL, FAULTS, DATA, LIMITS = "Group", "Network", "Protocol", "Faults", "Data traffic", "Limits"

OPTIONS: dict[str, ScenarioOption] = {
    "members": ScenarioOption(int, ("--members", "-n"), GROUP, "", "Size n of the group, ranks 0 … n−1."),
    "senders": ScenarioOption(
        int, ("--senders", "-m"), GROUP, "all members, at most 50", "How many of them send: ranks 0 … m−1."
    ),
    "network": ScenarioOption(
        str, ("--network",), NETWORK, "random:p=0.02", "The physical network; `cubecast networks` lists the kinds."
    ),
    "routing": ScenarioOption(
        Literal["hops", "delay"], ("--routing",), NETWORK, "hops", "Shortest paths by links crossed or by total delay."
    ),
    "multicast": ScenarioOption(
        Literal["copies", "tree"],
        ("--multicast",),
        NETWORK,
        "copies",
        "A multicast is n−1 unicasts, or one copy on each link of the shortest-path tree.",
    ),
    "seed": ScenarioOption(int, ("--seed", "-s"), GROUP, "0", "One seed, one result."),
    "rounds": ScenarioOption(int, ("--rounds", "-r"), GROUP, "1", "Rounds until the run ends."),
    "delta_ms": ScenarioOption(float, ("--delta-ms",), PROTOCOL, "10.0", "Δ, the pause between two rounds."),
    "repeat_ms": ScenarioOption(
        float,
        ("--repeat-ms",),
        PROTOCOL,
        "20 where messages can be lost, else never",
        "When an unanswered message is sent again.",
    ),
    "tree_degree": ScenarioOption(
        int, ("--tree-degree",), PROTOCOL, "⌈log2 n⌉", "Children of an inner member of the logical tree."
    ),
    "loss": ScenarioOption(float, ("--loss",), FAULTS, "0.0", "Probability that a link loses a message."),
    "duplicate": ScenarioOption(float, ("--duplicate",), FAULTS, "0.0", "Probability that a link doubles a message."),
    "reorder": ScenarioOption(
        float, ("--reorder",), FAULTS, "0.0", "Probability that a message is held up after a link, and overtaken."
    ),
    "reorder_ms": ScenarioOption(float, ("--reorder-ms",), FAULTS, "1.0", "Held up for how long at most."),
    "queue_limit": ScenarioOption(
        int, ("--queue-limit",), NETWORK, "0", "Messages that may wait on a link, more are dropped; 0: any number."
    ),
    "crashes": ScenarioOption(
        list[str], ("--crash",), FAULTS, "none", "Crash members: 3@2ms, 3@2ms-5ms (recovers), 1+2+4@0ms. Repeatable."
    ),
    "suspicions": ScenarioOption(
        list[str], ("--suspect",), FAULTS, "none", "Suspect a live member, which is then put out: 5@10ms. Repeatable."
    ),
    "partitions": ScenarioOption(
        list[str], ("--partition",), FAULTS, "none", "Cut members off for a while: 0-15@10ms-60ms. Repeatable."
    ),
    "detect_ms": ScenarioOption(
        float, ("--detect-ms",), FAULTS, "10.0", "How long a member is down before failure detectors report it."
    ),
    "detect_spread_ms": ScenarioOption(
        float, ("--detect-spread-ms",), FAULTS, "1.0", "Within how long all the detectors report it."
    ),
    "messages": ScenarioOption(
        int, ("--messages",), DATA, "0", "Data messages each sender multicasts; 0: only the protocol itself runs."
    ),
    "rate": ScenarioOption(float, ("--rate",), DATA, "100.0", "Data messages a second, each sender."),
    "payload_bytes": ScenarioOption(int, ("--payload",), DATA, "100", "Bytes of a data message."),
    "until_ms": ScenarioOption(
        float, ("--until-ms",), LIMITS, "600000.0", "Simulated time after which a run that has not ended is given up."
    ),
    "packets_max": ScenarioOption(int, ("--packets-max",), LIMITS, "4194304", "Message copies in flight at most."),
    "measure": ScenarioOption(bool, ("--measure/--no-measure",), LIMITS, "True", "Sample queues and load."),
}

_FAULT_KINDS = {"crashes": ("crash", False), "suspicions": ("suspicion", False), "partitions": ("partition", True)}


def with_scenario(command: Callable[..., None], *, leave_out: tuple[str, ...] = ()) -> Callable[..., None]:
    """Give a command the options of a scenario; it finds those that were given in its argument `settings`."""
    names = [name for name in OPTIONS if name not in leave_out]

    @wraps(command)
    def wrapper(**values: Any) -> None:
        given = {name: values.pop(name) for name in names}
        command(**values, settings=_settings(given))

    own = inspect.signature(command, eval_str=True).parameters
    parameters = [one.replace(kind=one.KEYWORD_ONLY) for one in own.values() if one.name != "settings"]
    parameters += [_parameter(name) for name in names]
    wrapper.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    wrapper.__annotations__ = {one.name: one.annotation for one in parameters}
    return wrapper


def _parameter(name: str) -> inspect.Parameter:
    option = OPTIONS[name]
    required = not option.default
    text = option.help if required else f"{option.help} Default: {option.default}."
    reader, metavar = _READERS.get(option.type, (None, None))
    info = typer.Option(
        *option.flags, help=text, rich_help_panel=option.panel, show_default=False, parser=reader, metavar=metavar
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

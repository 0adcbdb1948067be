"""The command that a failed run prints runs exactly that scenario again."""

from __future__ import annotations

import json
import shlex
from typing import Any

import pytest
import typer
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st

from cubecast.cli.app import run
from cubecast.cli.options import OPTIONS, TAKES_PARAMETERS, with_scenario
from cubecast.errors import LocalProtocolError
from cubecast.protocol.parameters import ParameterInfo, describe
from cubecast.protocols.catalogue import list_protocols, protocol_named
from cubecast.sim.faults import Fault
from cubecast.sim.roles import MODEL, PARAMETER_FIELDS, roles_of
from cubecast.sim.scenario import Scenario
from cubecast.sim.simulate import simulate

MEMBERS = 6
times_ns = st.integers(0, 10**12)
ranks = st.lists(st.integers(0, MEMBERS - 1), min_size=1, max_size=3).map(tuple)


@st.composite
def faults(draw: st.DrawFn, *, ends: bool | None) -> Fault:
    at_ns = draw(times_ns)
    has_end = draw(st.booleans()) if ends is None else ends
    until_ns = at_ns + draw(st.integers(1, 10**12)) if has_end else -1
    return Fault(members=draw(ranks), at_ns=at_ns, until_ns=until_ns)


def some(fault: st.SearchStrategy[Fault]) -> st.SearchStrategy[tuple[Fault, ...]]:
    return st.lists(fault, max_size=2).map(tuple)


milliseconds = st.floats(0.001, 1e9)
probabilities = st.floats(0, 1, exclude_max=True)
flags = st.booleans()
SETTINGS: dict[str, st.SearchStrategy[Any]] = {
    "protocol": st.sampled_from([one.name for one in list_protocols() if one.family not in ("transport", "failure")]),
    "members": st.just(MEMBERS),
    "senders": st.none() | st.integers(1, MEMBERS),
    "network": st.sampled_from(["random:p=0.02", "star:delay=1ms", "file:a net's edges.txt", "flat:delay=exp:1ms"]),
    "routing": st.sampled_from(["hops", "delay"]),
    "multicast": st.sampled_from(["copies", "tree", None]),
    "seed": st.integers(0, 2**64 - 1),
    "rounds": st.integers(1, 100),
    "delta_ms": st.none() | milliseconds,
    "trigger": st.sampled_from(["delta", "buffer"]),
    "trigger_messages": st.integers(0, 5),
    "buffer_messages": st.sampled_from([0, 5, 9]),
    "series_ms": st.sampled_from([0.0, 1e6]),
    "repeat_ms": st.none() | milliseconds,
    "loss": st.just(0.0) | probabilities,
    "duplicate": st.just(0.0) | probabilities,
    "reorder": st.just(0.0) | probabilities,
    "reorder_ms": milliseconds,
    "queue_limit": st.integers(0, 1000),
    "losses_per_step": st.integers(0, 3),
    "crashes": some(faults(ends=None)),
    "suspicions": some(faults(ends=False)),
    "partitions": some(faults(ends=True)),
    "joins": st.just(()) | st.just((Fault(members=(MEMBERS - 1,), at_ns=7),)),
    "leaves": some(faults(ends=False)),
    "detect_ms": milliseconds,
    "detect_spread_ms": milliseconds,
    "detector": st.sampled_from([MODEL, "auto", *(one.name for one in list_protocols("failure"))]),
    "messages": st.integers(0, 100),
    "rate": st.floats(0.01, 1e6),
    "payload_bytes": st.integers(0, 10_000),
    "churn_per_s": st.none() | st.floats(0, 100),
    "churn_mix": st.sampled_from(["join=1,leave=1,crash=1,return=1", "crash=2, return=0.5"]),
    "churn_ms": st.sampled_from([10_000.0, 0.5]),
    "batch_ms": st.sampled_from([20.0, 0.0]),
    "state_bytes": st.sampled_from([0, 100]),
    "stability": st.sampled_from(["auto", *(one.name for one in list_protocols("stability"))]),
    "data": st.sampled_from(["auto", "overlay", "tree", "causal_rasm"]),
    "heartbeats": st.integers(0, 9),
    "transport": st.sampled_from(["auto", *(one.name for one in list_protocols("transport"))]),
    "deliver": st.sampled_from(["received", "stable"]),
    "causal_stability": flags,
    "goal": st.sampled_from(["stability", "errors"]),
    "sequences": st.none() | st.integers(1, MEMBERS),
    "changed_only": flags,
    "piggyback_control": flags,
    "until_ms": st.floats(1.0, 1e9),
    "least_ms": st.floats(0.0, 1.0),
    "packets_max": st.none() | st.integers(1, 10**6),
    "placement": st.sampled_from([None, "random", "bisection", "search"]),
    "measure": flags,
}


def values_of(info: ParameterInfo) -> st.SearchStrategy[Any]:
    """Any value that a parameter takes."""
    if info.choices:
        some_value: st.SearchStrategy[Any] = st.sampled_from(info.choices)
    elif bool in info.types:
        some_value = flags
    elif float in info.types:
        some_value = st.floats(max(info.at_least, 1e-9), min(info.at_most, 1e3))
    else:
        some_value = st.integers(round(max(info.at_least, 0)), 9)
    return st.none() | some_value if info.is_optional else some_value


@st.composite
def scenarios(draw: st.DrawFn) -> Scenario:
    """A scenario in which any number of settings differ from the defaults, as far as they go together."""
    always = {"protocol", "members"}
    chosen = draw(st.sets(st.sampled_from(sorted(set(SETTINGS) - always)), max_size=12))
    settings = {name: draw(SETTINGS[name]) for name in sorted(chosen | always)}
    if protocol_named(settings["protocol"]).carries_data and settings.get("churn_per_s") is None:
        settings["messages"] = draw(st.integers(1, 100))
    for role in roles_of(settings).values():
        known = describe(role.entry.parameters)
        given = draw(st.sets(st.sampled_from(sorted(known)))) if known else ()
        settings[role.field] = {name: draw(values_of(known[name])) for name in sorted(given)}
    try:
        return Scenario(**settings)
    except LocalProtocolError:
        reject()


def parsed(command: str) -> Scenario:
    """The scenario that the options of a command line spell, read by the options of `simulate`."""
    found: list[Scenario] = []

    def keep(protocol: str, settings: dict[str, Any]) -> None:
        found.append(Scenario.of(protocol, **settings))

    app = typer.Typer()
    app.command(context_settings=TAKES_PARAMETERS)(with_scenario(keep))
    program, subcommand, *words = shlex.split(command)
    assert (program, subcommand) == ("cubecast", "simulate")
    app(words, standalone_mode=False)
    return found[0]


@given(scenario=scenarios())
@settings(max_examples=150, suppress_health_check=[HealthCheck.filter_too_much])
def test_the_printed_command_spells_the_same_scenario(scenario: Scenario) -> None:
    assert parsed(scenario.command()) == scenario


def test_every_setting_of_a_scenario_has_an_option_with_its_default() -> None:
    fields = {
        name: field
        for name, field in Scenario.__dataclass_fields__.items()
        if name not in ("protocol", *PARAMETER_FIELDS)
    }
    assert set(SETTINGS) == {"protocol", *fields}, "the strategy above leaves a setting out"
    assert set(OPTIONS) == set(fields)
    for name, field in fields.items():
        default = OPTIONS[name].default
        if name == "members":
            assert default == ""
        elif field.default is None or field.default == ():
            assert default, f"the help of {name} does not say what happens without it"
        else:
            assert default == str(field.default)


@pytest.mark.parametrize(
    "settings",
    [
        {"protocol": "coord", "members": 7, "network": "star", "seed": 3},
        {"protocol": "full_dist", "members": 8, "loss": 0.05, "seed": 2, "rounds": 2},
        {"protocol": "s_coord", "members": 12, "multicast": "tree", "tree_degree": 2, "delta_ms": 0.5},
        {
            "protocol": "cube_full_dist",
            "members": 9,
            "messages": 3,
            "reorder": 0.1,
            "crashes": (Fault(members=(3, 4), at_ns=1_500_000), Fault(members=(1,), at_ns=1, until_ns=3_000_000)),
        },
    ],
    ids=lambda settings: str(settings["protocol"]),
)
def test_the_printed_command_gives_the_same_figures(
    settings: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    scenario = Scenario.of(**settings)
    expected = simulate(**settings).to_dict()
    assert run([*shlex.split(scenario.command())[1:], "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    for clock in ("wall_seconds", "packet_hops_per_second"):
        del printed[clock], expected[clock]
    assert printed == json.loads(json.dumps(expected))

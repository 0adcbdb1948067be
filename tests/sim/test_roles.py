"""Settings are written flat: the protocol of each parameter, and the error if no protocol has it."""

from __future__ import annotations

import shlex
from dataclasses import fields
from typing import Any

import pytest
import typer

from cubecast.cli.options import TAKES_PARAMETERS, with_scenario
from cubecast.errors import LocalProtocolError
from cubecast.protocol.parameters import describe
from cubecast.protocols.catalogue import list_protocols
from cubecast.sim.result import Result
from cubecast.sim.roles import PARAMETER_FIELDS, is_parameter, parameter_of, roles_of, split_settings
from cubecast.sim.scenario import Scenario
from cubecast.sim.simulate import simulate

FIELDS = {one.name for one in fields(Scenario)}
CHURN = {"churn_per_s": 1.0, "members": 5}


def split(lenient: bool = False, **flat: Any) -> dict[str, Any]:
    return split_settings({"members": 8} | flat, FIELDS, lenient=lenient)


# Whose parameter it is.


def test_a_field_of_the_scenario_stays_one() -> None:
    assert split(protocol="coord", loss=0.1) == {"protocol": "coord", "members": 8, "loss": 0.1}


def test_a_parameter_of_the_protocol_has_its_own_name() -> None:
    found = split(protocol="gossip", subset=2, ending="piggyback")
    assert found["parameters"] == {"subset": 2, "ending": "piggyback"}


@pytest.mark.parametrize(
    ("flat", "field", "own"),
    [
        ({"protocol": "coord", "transport": "nak", "transport_repair": "unicast"}, "transport_parameters", "repair"),
        ({"protocol": "coord", "transport_repair": "unicast"}, "transport_parameters", "repair"),
        ({"protocol": "coord", "detector": "gossip", "detector_subset": 2}, "detector_parameters", "subset"),
        ({"protocol": "coord", "detector": "auto", "detector_threshold": 9}, "detector_parameters", "threshold"),
        ({"protocol": "tree", "stability": "gossip", "stability_subset": 2} | CHURN, "other_parameters", "subset"),
        (
            {"protocol": "coord", "data": "causal_rasm", "data_announce_ms": 5.0} | CHURN,
            "other_parameters",
            "announce_ms",
        ),
    ],
)
def test_a_parameter_of_another_protocol_has_a_prefix(flat: dict[str, Any], field: str, own: str) -> None:
    name = next(one for one in flat if one.endswith(own))
    found = split(**flat)
    assert found[field] == {own: flat[name]}
    assert name not in found
    assert getattr(Scenario(**found), field) == Scenario(**found).roles[field].entry.make_parameters(found[field])


def test_the_same_name_may_belong_to_two_protocols() -> None:
    found = Scenario.of("gossip", members=8, subset=3, detector="gossip", detector_subset=2)
    assert (found.parameters.subset, found.detector_parameters.subset) == (3, 2)


def test_flat_settings_are_added_to_parameters_that_are_given_together() -> None:
    assert split(protocol="gossip", parameters={"subset": 2}, ending="piggyback")["parameters"] == {
        "subset": 2,
        "ending": "piggyback",
    }


def test_a_run_has_only_the_roles_that_its_settings_ask_for() -> None:
    assert set(roles_of({"protocol": "coord"})) == {"parameters", "transport_parameters"}
    assert set(roles_of({"protocol": "coord", "detector": "polling"})) == {
        "parameters",
        "transport_parameters",
        "detector_parameters",
    }
    assert set(roles_of({"protocol": "coord", "detector": "polling"} | CHURN)) == set(PARAMETER_FIELDS)
    other = roles_of({"protocol": "tree", "stability": "coord"} | CHURN)["other_parameters"]
    assert (other.entry.name, other.prefix) == ("coord", "stability_")


# What is wrong with it.


@pytest.mark.parametrize(
    ("flat", "said"),
    [
        ({"protocol": "gossip", "subsets": 2}, "unknown setting 'subsets' of gossip: did you mean subset?"),
        ({"protocol": "gossip", "los": 0.1}, "unknown setting 'los' of gossip: did you mean loss?"),
        ({"protocol": "coord", "subset": 2}, "unknown setting 'subset' of coord: its parameters are repeat_acks, "),
        (
            {"protocol": "coord", "repair": "unicast"},
            "unknown setting 'repair' of coord: did you mean transport_repair",
        ),
        ({"protocol": "coord", "detector_subset": 2}, "unknown setting 'detector_subset' of coord: "),
        (
            {"protocol": "train", "transport": "srm", "zzz": 1},
            "unknown setting 'zzz' of train: its parameters are none",
        ),
        ({"loss": 0.1}, "a scenario needs a protocol: name one"),
        ({"protocol": "magic"}, "unknown protocol 'magic': choose one of "),
    ],
)
def test_an_unknown_setting_is_one_line_with_a_suggestion(flat: dict[str, Any], said: str) -> None:
    with pytest.raises(LocalProtocolError) as raised:
        split(**flat)
    assert str(raised.value).startswith(said)
    assert "\n" not in str(raised.value)


def test_a_value_that_does_not_fit_names_the_protocol() -> None:
    with pytest.raises(LocalProtocolError, match=r"^subset = 0 of gossip: choose 1 or more$"):
        Scenario.of("gossip", members=8, subset=0)
    with pytest.raises(LocalProtocolError, match=r"^repair = 'both' of nak: choose multicast or unicast$"):
        Scenario.of("coord", members=8, transport="nak", transport_repair="both")
    with pytest.raises(LocalProtocolError, match=r"^parameters = 3 of gossip: give a dictionary$"):
        Scenario(protocol="gossip", members=8, parameters=3)


def test_a_subset_larger_than_the_group_means_all_others() -> None:
    def run(subset: int) -> Result:
        detector: dict[str, Any] = {"detector": "gossip", "detector_subset": subset, "detector_threshold": 90}
        detector |= {"least_ms": 500.0}
        return simulate("gossip", members=8, network="chain", seed=2, subset=subset, losses_per_step=1, **detector)

    every, more = run(7), run(500)
    assert (every.messages, every.rtt_last_ms, every.drops) == (more.messages, more.rtt_last_ms, more.drops)
    assert every.failure_bytes_per_member_s == more.failure_bytes_per_member_s


# One set of settings for several protocols.


def test_lenient_settings_drop_what_only_other_protocols_have() -> None:
    shared = {"subset": 2, "tree_degree": 3, "transport_repair": "unicast", "detector_threshold": 4}
    assert split(lenient=True, protocol="gossip", **shared) == {
        "protocol": "gossip",
        "members": 8,
        "parameters": {"subset": 2},
        "transport_parameters": {"repair": "unicast"},
    }
    assert split(lenient=True, protocol="s_coord", transport="srm", **shared)["parameters"] == {"tree_degree": 3}


def test_lenient_settings_refuse_what_nobody_has() -> None:
    with pytest.raises(LocalProtocolError, match="unknown setting 'subsets' of coord"):
        split(lenient=True, protocol="coord", subsets=2)


def test_every_parameter_is_known_by_its_flat_names() -> None:
    prefixes = {"stability": ("", "stability_"), "causal": ("", "data_"), "broadcast": ("",)}
    prefixes |= {"transport": ("transport_",), "failure": ("detector_",)}
    for entry in list_protocols():
        for name in describe(entry.parameters):
            assert all(is_parameter(prefix + name) for prefix in prefixes[entry.family])
    assert not is_parameter("loss")
    assert not is_parameter("data_subset")


def test_the_parameter_of_a_flat_name_is_that_of_the_protocols_that_run() -> None:
    found = parameter_of("detector_subset", "coord", {"members": 8, "detector": "gossip"})
    assert found is not None
    assert found.name == "subset"
    assert parameter_of("detector_subset", "coord", {"members": 8}) is None
    anybody = parameter_of("detector_subset", None, {})
    assert anybody is not None
    assert parameter_of("loss", None, {}) is None


# There and back.


def parsed(command: str) -> Scenario:
    """The scenario that a command line spells."""
    found: list[Scenario] = []

    def keep(protocol: str, settings: dict[str, Any]) -> None:
        found.append(Scenario.of(protocol, **settings))

    app = typer.Typer()
    app.command(context_settings=TAKES_PARAMETERS)(with_scenario(keep))
    app(shlex.split(command)[2:], standalone_mode=False)
    return found[0]


ROUND_TRIPS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("coord", {"repeat_acks": True}),
    ("gossip", {"subset": 3, "step_s": 1e-05, "ending": "piggyback"}),
    ("s_coord", {"tree_degree": 3, "group_size": 2, "shuffled": False}),
    ("s_coord", {"shuffled": True}),
    ("full_dist", {"scatter": True, "transport": "hybrid", "transport_ack_every": 3, "transport_repair": "unicast"}),
    ("coord", {"detector": "gossip", "detector_subset": 2, "detector_p_mistake": 1e-09, "detector_threshold": 5}),
    ("causal_rasm", {"messages": 1, "announce_ms": 2.5}),
    ("rasm", {"messages": 1, "quota": True}),
    ("tree", {"churn_per_s": 2.0, "stability": "s_gossip", "stability_controllers": 1, "stability_shuffled": True}),
    ("coord", {"churn_per_s": 2.0, "data": "causal_plumtree", "data_announce_ms": 7.0, "repeat_acks": True}),
)


@pytest.mark.parametrize(("protocol", "settings"), ROUND_TRIPS, ids=str)
def test_the_command_of_a_scenario_spells_its_parameters(protocol: str, settings: dict[str, Any]) -> None:
    scenario = Scenario.of(protocol, members=8, **settings)
    assert parsed(scenario.command()) == scenario
    for name, value in settings.items():
        assert scenario.to_dict()[name] == value


def test_what_has_its_default_is_not_spelled() -> None:
    assert Scenario.of("gossip", members=8, subset=1).command() == "cubecast simulate gossip --members 8 --seed 0"


@pytest.mark.parametrize(
    ("words", "value"),
    [
        ("--shuffled", True),
        ("--no-shuffled", False),
        ("--shuffled=true", True),
        ("--shuffled=False", False),
    ],
)
def test_a_flag_is_written_with_or_without_a_value(words: str, value: bool) -> None:
    assert parsed(f"cubecast simulate s_coord -n 8 {words}").parameters.shuffled is value


@pytest.mark.parametrize("words", ["--subset 2 gossip -n 8", "gossip --subset 2 -n 8", "-n 8 --subset=2 gossip"])
def test_parameters_stand_anywhere_on_the_command_line(words: str) -> None:
    found = parsed(f"cubecast simulate {words}")
    assert (found.protocol, found.parameters.subset) == ("gossip", 2)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("gossip -n 8 --subsets 2", "no such option: --subsets"),
        ("gossip -n 8 --subset", "--subset needs a value"),
        ("gossip -n 8 other", "unexpected argument 'other'"),
        ("coord -n 8 --subset 2", "no such option: --subset"),
    ],
)
def test_a_mistake_on_the_command_line_is_named(words: str, said: str) -> None:
    with pytest.raises(typer.BadParameter) as raised:
        parsed(f"cubecast simulate {words}")
    assert said in raised.value.message

"""The candidates: each protocol with the parameters, placement and Δ to try.

A protocol declares which values of its parameters are worth trying (`parameter(search=…)`); this module names no
protocol. Every combination is a configuration; a configuration with a pause Δ between rounds is a candidate.
Combinations that resolve to the same parameters in this group and network count once.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from cubecast.errors import LocalProtocolError
from cubecast.lab.advisor.question import GroupQuestion
from cubecast.networks.network import Network
from cubecast.networks.spec import build_network
from cubecast.protocol.definition import Protocol
from cubecast.protocol.parameters import ParameterInfo, describe
from cubecast.protocols.catalogue import list_protocols, protocol_named
from cubecast.sim.placement import MEMBERS_MAX
from cubecast.sim.resolve_defaults import resolve_defaults
from cubecast.sim.scenario import Scenario

DELTAS_MS = (0.0, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0)
"""The pauses between two rounds that are tried first; the race refines them."""
PLACEMENT = "search"
"""The best of the placements (docs/placement.md)."""

Parameters = tuple[tuple[str, Any], ...]


@dataclass(frozen=True, order=True)
class Configuration:
    """A protocol with parameters that differ from its defaults, and with or without a placement."""

    number: int
    protocol: str
    parameters: Parameters = ()
    placement: str = ""

    @property
    def settings(self) -> dict[str, Any]:
        """The settings of a simulation with this configuration."""
        found: dict[str, Any] = {"protocol": self.protocol, **dict(self.parameters)}
        return found | ({"placement": self.placement} if self.placement else {})


@dataclass(frozen=True, order=True)
class Candidate:
    """A configuration with its Δ."""

    configuration: Configuration
    delta_ms: float

    @property
    def label(self) -> str:
        """The name of the candidate in tables."""
        return ", ".join([protocol_named(self.configuration.protocol).title, *self.details])

    @property
    def details(self) -> list[str]:
        """Everything except the protocol."""
        words = [f"{name} {_value_text(value)}" for name, value in self.configuration.parameters]
        words += [f"placement {self.configuration.placement}"] if self.configuration.placement else []
        return [*words, f"Δ {self.delta_ms:g} ms"]


def _value_text(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:g}" if isinstance(value, float) else str(value)


@dataclass(frozen=True, kw_only=True)
class Choice:
    """All configurations, and the protocols that cannot serve this group, each with the reason."""

    configurations: list[Configuration]
    impossible: dict[str, str]


def candidates_of(question: GroupQuestion) -> Choice:
    """The configurations that a question leaves open."""
    network = build_network(question.network, members=question.members, seed=question.seed)
    entries = _asked(question)
    found: list[Configuration] = []
    impossible: dict[str, str] = {}
    for entry in entries:
        try:
            own = list(_of_protocol(question, entry, network, len(found)))
        except LocalProtocolError as error:
            if len(entries) == 1 or error.setting not in ("protocol", None):
                raise
            impossible[entry.name] = str(error)
            continue
        found += own
    return Choice(configurations=found, impossible=impossible)


def _asked(question: GroupQuestion) -> list[Protocol]:
    if not question.protocols:
        return list_protocols("stability")
    found = [protocol_named(name) for name in dict.fromkeys(question.protocols)]
    for entry in found:
        if entry.family != "stability":
            known = ", ".join(one.name for one in list_protocols("stability"))
            raise LocalProtocolError(f"{entry.name} does not detect stability: choose from {known}")
    return found


def _of_protocol(question: GroupQuestion, entry: Protocol, network: Network, first: int) -> Iterator[Configuration]:
    usual = resolve_defaults(scenario_with(question, {"protocol": entry.name}), network)
    known = describe(entry.parameters)
    values = [_values(info, getattr(usual.parameters, name)) for name, info in known.items()]
    seen = set()
    numbers = itertools.count(first)
    for combination in itertools.product(*values):
        given = dict(zip(known, combination, strict=True))
        if not all(_matters(info, given) for info in known.values()):
            continue
        own = {name: value for name, value in given.items() if value != known[name].default}
        try:
            resolved = resolve_defaults(scenario_with(question, {"protocol": entry.name} | own), network)
        except LocalProtocolError:  # not in a group of this size
            continue
        if resolved.parameters in seen:
            continue
        seen.add(resolved.parameters)
        for placement in _placements(question, entry, network):
            yield Configuration(next(numbers), entry.name, tuple(own.items()), placement)


def _values(info: ParameterInfo, resolved: Any) -> list[Any]:
    """The default value, then the values worth trying."""
    multiples = [float(f"{factor * resolved:.3g}") for factor in info.search_factors] if resolved else []
    return [info.default, *info.search, *multiples]


def _matters(info: ParameterInfo, given: dict[str, Any]) -> bool:
    """Is the value the default, or does it make a difference with the other parameters?"""
    if given[info.name] == info.default or info.matters_with is None:
        return True
    other, value = info.matters_with
    return bool(given[other] == value)


def _placements(question: GroupQuestion, entry: Protocol, network: Network) -> list[str]:
    places = question.placement and entry.traffic is not None
    return ["", PLACEMENT] if places and network.one_hop is None and network.members <= MEMBERS_MAX else [""]


def scenario_with(question: GroupQuestion, own: dict[str, Any]) -> Scenario:
    """A scenario with one message per sender, enough to validate the settings and to resolve the defaults."""
    return Scenario.of(**(question.common | {"messages": 1, "seed": question.seed} | own))

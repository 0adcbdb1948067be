"""The settings of a scenario for a group with views, validated."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from cubecast.errors import LocalProtocolError
from cubecast.protocols.catalogue import protocol_named

if TYPE_CHECKING:
    from cubecast.sim.scenario import Scenario

KINDS = ("join", "leave", "crash", "return")
"""Kinds of changes."""
MEMBERS_MIN = 3
RATE_MAX = 1e6
_ABSENT = {
    "messages": "senders multicast `rate` messages per second for churn_ms",
    "suspicions": "wrong suspicions come from partitions, loss and the failure detector",
    "duplicate": "the transport below a view delivers once",
    "losses_per_step": "the transport below a view loses nothing",
    "buffer_messages": "the window of a view bounds the unstable messages",
    "series_ms": "a run with views records no series",
    "sequences": "every sender has a sequence of its own",
    "changed_only": "whole arrays are sent",
    "piggyback_control": "control messages travel alone",
    "placement": "a new view gives new ranks",
    "least_ms": "churn_ms says how long it lasts",
}
"""Settings that a run with views does not have, and why."""
ONLY_WITH_VIEWS = ("churn_mix", "churn_ms", "batch_ms", "state_bytes", "stability", "data")
"""Settings that only a run with views has."""


def read_mix(text: str) -> dict[str, float]:
    """`join=1,leave=1,crash=2,return=2` as weights; a kind that is left out does not happen."""
    mix = dict.fromkeys(KINDS, 0.0)
    for part in text.split(","):
        kind, _, weight = part.partition("=")
        try:
            mix[kind.strip()] = float(weight)
        except ValueError:
            raise LocalProtocolError(f"churn_mix = {text!r}: write it as join=1,leave=1,crash=1,return=1") from None
    if set(mix) != set(KINDS) or min(mix.values()) < 0 or not 0 < sum(mix.values()) < math.inf:
        raise LocalProtocolError(f"churn_mix = {text!r}: give weights of {', '.join(KINDS)}, not all of them 0")
    return mix


def check_churn(scenario: Scenario) -> None:
    """Validate the settings of a run with views."""
    if scenario.churn_per_s is None:
        _check_absent(scenario)
        return
    for what, name, family in (
        ("data", scenario.data_protocol, "causal"),
        ("stability", scenario.stability_protocol, "stability"),
    ):
        protocol = protocol_named(name)
        if protocol.family != family or protocol.admits_joins:
            raise LocalProtocolError(
                f"{what} = {name!r} under churn: choose a {family} protocol without joins of its own"
            )
    for name, reason in _ABSENT.items():
        if getattr(scenario, name):
            raise LocalProtocolError(f"{name} under churn: {reason}; leave it out")
    if scenario.goal != "stability" or scenario.trigger != "delta" or scenario.multicast == "tree":
        raise LocalProtocolError("goal, trigger and multicast under churn: leave them at their defaults")
    if scenario.members < MEMBERS_MIN:
        raise LocalProtocolError(f"members = {scenario.members} under churn: give at least {MEMBERS_MIN}")
    _check_numbers(scenario)
    read_mix(scenario.churn_mix)


def _check_absent(scenario: Scenario) -> None:
    for name in ONLY_WITH_VIEWS:
        if getattr(scenario, name) != type(scenario).__dataclass_fields__[name].default:
            raise LocalProtocolError(
                f"{name} = {getattr(scenario, name)!r} without churn: set churn_per_s too, 0 for none"
            )


def _check_numbers(scenario: Scenario) -> None:
    if not 0 <= (scenario.churn_per_s or 0) <= RATE_MAX:
        raise LocalProtocolError(
            f"churn_per_s = {scenario.churn_per_s}: choose from 0 to {RATE_MAX:g} changes per second"
        )
    if not 0 < scenario.churn_ms < scenario.until_ms:
        raise LocalProtocolError(
            f"churn_ms = {scenario.churn_ms:g}: choose more than 0 and less than until_ms = {scenario.until_ms:g}"
        )
    if not 0 <= scenario.batch_ms <= scenario.until_ms:
        raise LocalProtocolError(f"batch_ms = {scenario.batch_ms:g}: choose from 0 to until_ms = {scenario.until_ms:g}")
    if not 0 <= scenario.state_bytes <= 1 << 30:
        raise LocalProtocolError(f"state_bytes = {scenario.state_bytes}: choose from 0 to {1 << 30}")

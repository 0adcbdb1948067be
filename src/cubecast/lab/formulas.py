"""Experiments that compute a formula of the models: exact, without a seed.

Each takes the settings of a run and returns metrics by name, like every experiment (`lab.experiments`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

from cubecast.errors import LocalProtocolError
from cubecast.models.causal_bytes import (
    crossover_payload_bytes,
    overlay_bytes,
    overlay_copies,
    paper_crossover_bytes,
    timestamp_bytes,
    timestamp_copies,
    worst_copies,
)
from cubecast.models.failure import k_fail_within
from cubecast.models.gossip_chain import GossipChain
from cubecast.models.overlay_shape import OverlayShape, hypercube_shape
from cubecast.models.trigger import TriggerCase, trigger
from cubecast.networks.network import MEMBERS_MAX
from cubecast.protocol.mail import HEADER_BYTES

Settings = Mapping[str, Any]
Metrics = dict[str, float]

CHAIN_METRICS = ("micro_steps", "steps")
TRIGGER_METRICS = ("level_messages",)
SHAPE_METRICS = tuple(field.name for field in fields(OverlayShape))
DETECTOR_METRICS = ("k_fail", "detection_s_max")
CAUSAL_METRICS = ("copies", "worst_copies", "control_bytes", "sent_bytes", "crossover_bytes", "paper_crossover_bytes")
_CAUSAL = {"timestamp": (timestamp_copies, timestamp_bytes), "overlay": (overlay_copies, overlay_bytes)}


def check_names(
    settings: Settings, names: tuple[str, ...], *, needed: tuple[str, ...] = (), text: tuple[str, ...] = ("protocol",)
) -> None:
    """Raise on a setting that the experiment does not have, one that it needs, and one that is no number."""
    for name in settings:
        if name not in names and name != "seed":
            raise LocalProtocolError(f"unknown parameter {name!r}: choose from {', '.join(names)}", setting=name)
    for name in needed:
        if name not in settings:
            raise LocalProtocolError(f"{name} is missing: give the parameters {', '.join(needed)}")
    check_numbers({name: value for name, value in settings.items() if name not in text})
    if settings.get("members", 0) > MEMBERS_MAX:
        raise LocalProtocolError(
            f"members = {settings['members']}: a group has at most {MEMBERS_MAX} members", setting="members"
        )


def check_numbers(settings: Settings) -> None:
    """Raise on a value that is not a finite number."""
    for name, value in settings.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise LocalProtocolError(f"{name} = {value!r}: write a number", setting=name)


def check_chain(settings: Settings, _: set[str]) -> None:
    """Validate the settings of a gossip chain."""
    check_names(settings, ("members", "subset", "arrival", "p_incomplete"), needed=("members", "p_incomplete"))
    _chain(settings)


def gossip_chain(settings: Settings) -> Metrics:
    """Micro-steps and steps until every member has the information of all (guo §4.2.5)."""
    micro_steps = _chain(settings).micro_steps_for(settings["p_incomplete"])
    return {"micro_steps": float(micro_steps), "steps": micro_steps / settings["members"]}


def _chain(settings: Settings) -> GossipChain:
    return GossipChain(
        members=settings["members"], subset=settings.get("subset", 1), arrival=settings.get("arrival", 1.0)
    )


def check_trigger(settings: Settings, _: set[str]) -> None:
    """Validate the settings of a trigger case."""
    _trigger_case(settings)


def trigger_level(settings: Settings) -> Metrics:
    """The level at which a round must start (guo ch. 6); a case without one has no metric."""
    answer = trigger(_trigger_case(settings))
    return {} if answer.level is None else {"level_messages": float(answer.level)}


def _trigger_case(settings: Settings) -> TriggerCase:
    needed = ("buffer_messages", "rate_per_s", "round_s")
    check_names(settings, (*needed, "stable_fraction"), needed=needed)
    return TriggerCase(**{name: value for name, value in settings.items() if name != "seed"})


def check_causal(settings: Settings, _: set[str]) -> None:
    """Validate the settings of a causal broadcast."""
    names = ("protocol", "members", "payload_bytes")
    check_names(settings, names, needed=names)
    causal_cost(settings)


def causal_cost(settings: Settings) -> Metrics:
    """Copies and bytes of one causal broadcast (causal Table 1), and the payload at which both protocols cost equal."""
    protocol, members = settings["protocol"], settings["members"]
    if not isinstance(protocol, str) or protocol not in _CAUSAL:
        raise LocalProtocolError(f"protocol = {protocol!r}: choose one of {', '.join(_CAUSAL)}", setting="protocol")
    copies, sent = _CAUSAL[protocol]
    return {
        "copies": float(copies(members)),
        "worst_copies": worst_copies(members),
        "control_bytes": sent(members, 0) / copies(members) - HEADER_BYTES,
        "sent_bytes": float(sent(members, settings["payload_bytes"])),
        "crossover_bytes": crossover_payload_bytes(members),
        "paper_crossover_bytes": paper_crossover_bytes(members),
    }


def check_shape(settings: Settings, _: set[str]) -> None:
    """Validate the settings of a hypercube."""
    check_names(settings, ("members",), needed=("members",))
    if settings["members"] < 3 or not isinstance(settings["members"], int):
        raise LocalProtocolError(
            f"members = {settings['members']!r}: choose a whole number, at least 3", setting="members"
        )


def overlay_shape(settings: Settings) -> Metrics:
    """Degrees, diameter and node-disjoint paths of the hypercube (cube §3.3)."""
    return {name: float(value) for name, value in asdict(hypercube_shape(settings["members"])).items()}


def check_detector(settings: Settings, _: set[str]) -> None:
    """Validate the settings of a failure threshold."""
    needed = ("members", "p_mistake", "bytes_per_s")
    check_names(settings, (*needed, "subset"), needed=needed)
    failure_threshold(settings)


def failure_threshold(settings: Settings) -> Metrics:
    """K_fail and the time to detect a failure, at constant bandwidth per member (guo §3.1.2)."""
    found = k_fail_within(**{name: value for name, value in settings.items() if name != "seed"})
    return {"k_fail": float(found.k_fail), "detection_s_max": found.detection_s_max}

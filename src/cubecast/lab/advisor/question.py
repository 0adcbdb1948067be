"""The user's question to the advisor, validated in one place."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from cubecast.errors import LocalProtocolError
from cubecast.lab.experiments import check_types
from cubecast.sim.scenario import SEED_MAX

Optimise = Literal["time-to-stable", "bytes", "buffer"]
WITHIN_MS = 1000.0
"""The limit of the time to stable if bytes are minimised: without a limit, the longest pause would win."""
SEEDS_MAX = 64
_CHOSEN = ("protocol", "parameters", "delta_ms", "messages", "until_ms")
"""Settings that the advisor determines for each candidate."""
_PREFIXES = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9}
_TIMES_MS = {"ms": 1.0, "s": 1e3}
_NUMBER = r"([0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?)"


@dataclass(frozen=True, kw_only=True)
class GroupQuestion:
    """A group, its network and load, and the limits that the answer must keep.

    Attributes:
        members: Members of the group.
        network: A spec as of `cubecast networks`, or a file with an edge list or GraphML.
        senders: Members that multicast; None: all up to 50, then 50.
        loss: Probability that a link loses a message.
        rate: Data messages per second of each sender.
        payload_bytes: Bytes of a data message.
        budget_bytes_per_s: What the stability protocol may send, per member; None: any amount.
        within_ms: The longest acceptable time to stable; None: any, or 1 s if bytes are minimised.
        optimise: What to minimise: the time until the last member knows that a message is stable, the bytes that the
            stability protocol sends, or the unstable messages that a member holds.
        protocols: The protocols to choose from; empty: all of the family stability.
        placement: May ranks be assigned to members by their place in the network?
        seed: The first seed of the simulations.
        settings: Other fields of `Scenario`, the same for all candidates: routing, multicast, transport, …
    """

    members: int
    network: str = "random:p=0.02"
    senders: int | None = None
    loss: float = 0.0
    rate: float = 100.0
    payload_bytes: int = 100
    budget_bytes_per_s: float | None = None
    within_ms: float | None = None
    optimise: Optimise = "time-to-stable"
    protocols: tuple[str, ...] = ()
    placement: bool = True
    seed: int = 0
    settings: tuple[tuple[str, Any], ...] = ()

    def __post_init__(self) -> None:
        """Validate what `Scenario` does not; the rest is validated when the first scenario is made."""
        if self.optimise not in get_args(Optimise):
            raise LocalProtocolError(f"optimise = {self.optimise!r}: choose one of {', '.join(get_args(Optimise))}")
        check_types({name: value for name, value in vars(self).items() if name != "placement"} | dict(self.settings))
        for name in _CHOSEN:
            if name in dict(self.settings):
                raise LocalProtocolError(f"{name}: the advisor determines it for each candidate; omit it")
        for name in ("budget_bytes_per_s", "within_ms"):
            value = getattr(self, name)
            if value is not None and not (type(value) in (int, float) and 0 < value < math.inf):
                raise LocalProtocolError(f"{name} = {value}: give a value above 0, or omit it")
        if not 0 <= self.seed <= SEED_MAX - SEEDS_MAX:
            raise LocalProtocolError(f"seed = {self.seed}: choose from 0 to {SEED_MAX - SEEDS_MAX}")
        object.__setattr__(self, "network", network_spec(self.network))
        if self.optimise == "bytes" and self.within_ms is None:
            object.__setattr__(self, "within_ms", WITHIN_MS)

    @property
    def common(self) -> dict[str, Any]:
        """The settings that the simulations of all candidates share."""
        found: dict[str, Any] = {
            "members": self.members,
            "network": self.network,
            "loss": float(self.loss),
            "rate": float(self.rate),
            "payload_bytes": self.payload_bytes,
            "measure": False,
        }
        return found | ({} if self.senders is None else {"senders": self.senders}) | dict(self.settings)


def network_spec(text: str) -> str:
    """The spec of a network; the name of a file means the network in it."""
    is_file = ":" not in text and ("/" in text or "." in text)
    if is_file and not Path(text).is_file():
        raise LocalProtocolError(f"network {text!r}: no such file, and no such kind in `cubecast networks`")
    return f"file:{text}" if is_file else text


def parse_rate(text: str) -> float:
    """Messages per second: "50/s" or "50".

    >>> parse_rate("50/s")
    50.0
    """
    found = re.fullmatch(_NUMBER + r"(/s)?", text.strip())
    if found is None or float(found[1]) == 0:
        raise LocalProtocolError(f"rate {text!r}: write messages per second, such as 50/s")
    return float(found[1])


def parse_budget(text: str) -> float:
    """Bytes per second: "30kb/s" are kilobits, "30kB/s" are kilobytes.

    >>> parse_budget("30kb/s"), parse_budget("30kB/s"), parse_budget("1.5Mbit/s")
    (3750.0, 30000.0, 187500.0)
    """
    found = re.fullmatch(_NUMBER + r" ?([kMG]?)(b|bit|B)/s", text.strip())
    if found is None or float(found[1]) == 0:
        raise LocalProtocolError(f"budget {text!r}: write bits or bytes per second, such as 30kb/s or 4kB/s")
    return float(found[1]) * _PREFIXES[found[2]] / (1 if found[3] == "B" else 8)


def parse_time_ms(text: str) -> float:
    """Milliseconds: "200ms" or "1.5s".

    >>> parse_time_ms("1.5s")
    1500.0
    """
    found = re.fullmatch(_NUMBER + r" ?(ms|s)", text.strip())
    if found is None or float(found[1]) == 0:
        raise LocalProtocolError(f"time {text!r}: write milliseconds or seconds, such as 200ms or 1.5s")
    return float(found[1]) * _TIMES_MS[found[2]]

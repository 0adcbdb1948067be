"""Dissemination and cascade without one of their safeguards each; prints which checkers noticed.

Run with `CUBECAST_JIT=off`: handlers are then plain functions, and breaking one is an assignment.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

from cubecast.jit.backend import COMPILED
from cubecast.protocol import handlers
from cubecast.protocols.stability import aggregation, cascade, dissemination
from cubecast.sim.scenario import Scenario
from tests.sim.broken_stability import broken, noticed

MODULES: dict[str, tuple[ModuleType, Any]] = {
    "dissemination": (dissemination, dissemination.DisseminationState),
    "cascade": (cascade, cascade.CascadeState),
}
OVERLAYS: dict[str, tuple[dict[str, Any], ...]] = {
    "dissemination": ({"radix": 2}, {"radix": 3}),
    "cascade": ({"overlay": "tree", "tree_degree": 2}, {"overlay": "dissemination"}, {"overlay": "hypercube"}),
}
SEEDS = 6
Breaking = Callable[[str], contextlib.AbstractContextManager[None]]


def scenarios(protocol: str, **settings: Any) -> Iterator[Scenario]:
    """Small runs over every overlay, several seeds each."""
    for seed in range(SEEDS):
        for own in OVERLAYS[protocol]:
            usual = {"members": 6, "network": "random:degree=3", "seed": seed, "rounds": 2, "until_ms": 200.0}
            yield Scenario.of(protocol, **usual | settings, **own)


def first_noticed(protocol: str, breaking: Breaking, **settings: Any) -> list[str]:
    """What the checkers say of the first run in which they say anything; with the safeguard it is clean."""
    for scenario in scenarios(protocol, **settings):
        with breaking(protocol):
            found = noticed(scenario)
        if found:
            assert noticed(scenario) == [], f"not clean with the safeguard: {scenario.command()}"
            return found
    return []


@contextlib.contextmanager
def handler(table: dict[type, Any], state: type, value: Any) -> Iterator[None]:
    """Another handler for a while."""
    before = table[state]
    table[state] = value
    try:
        yield
    finally:
        table[state] = before


@contextlib.contextmanager
def blind_to_views(protocol: str) -> Iterator[None]:
    """Minima of members that see another membership count as well."""
    _, state = MODULES[protocol]
    honest = handlers._RECEIVE[state]

    def receive(state: Any, row: int, now_ns: int, mail: Any, slot: int) -> None:
        mail.heads[slot].field_1 = state.links.view_seen[row]
        honest(state, row, now_ns, mail, slot)

    with handler(handlers._RECEIVE, state, receive):
        yield


@contextlib.contextmanager
def remembering(protocol: str) -> Iterator[None]:
    """What was heard before a membership change still counts afterwards."""
    module, _ = MODULES[protocol]

    def link(links: Any, group: Any, row: int) -> None:
        heard, heard_round = links.heard[row].copy(), links.heard_round[row].copy()
        aggregation.link(links, group, row)
        links.heard[row], links.heard_round[row] = heard, heard_round

    with broken(module, "link", link):
        yield


@contextlib.contextmanager
def without_last_input(protocol: str) -> Iterator[None]:
    """The minimum leaves out one input."""
    module, _ = MODULES[protocol]

    def compute_minima(links: Any, group: Any, row: int) -> None:
        links.input_count[row] -= 1
        honest(links, group, row)
        links.input_count[row] += 1

    honest: Any = aggregation.compute_minima
    with broken(aggregation, "compute_minima", compute_minima), broken(module, "compute_minima", compute_minima):
        yield


@contextlib.contextmanager
def not_restarting(protocol: str) -> Iterator[None]:
    """Members continue as if no member had been excluded."""
    _, state = MODULES[protocol]
    with handler(handlers._ON_LEAVE, state, lambda state, row, now_ns, mail, rank: None):
        yield


@contextlib.contextmanager
def not_asking_after_exclusions(protocol: str) -> Iterator[None]:
    """In a new view no member asks for what arrived too early."""
    module, _ = MODULES[protocol]
    with broken(module, "ask_missing", lambda links, group, row, mail, number: None):
        yield


@contextlib.contextmanager
def never_asking(protocol: str) -> Iterator[None]:
    """What was lost stays lost."""
    module, _ = MODULES[protocol]
    silent: Any = lambda *arguments: None  # noqa: E731
    with contextlib.ExitStack() as stack:
        for name in ("ask", "ask_missing"):
            if hasattr(module, name):
                stack.enter_context(broken(module, name, silent))
        yield


@contextlib.contextmanager
def never_answering(protocol: str) -> Iterator[None]:
    """Whoever is asked keeps silent."""
    module, _ = MODULES[protocol]
    with broken(module, "answer", lambda links, group, row, mail, rank, number, own: None):
        yield


EXCLUDING: dict[str, Any] = {
    "members": 9,
    "rounds": 12,
    "delta_ms": 0.0,
    "crashes": ("2@1ms", "4@2ms", "0@3ms"),
    "detect_ms": 1.0,
    "detect_spread_ms": 8.0,
}
LOSING: dict[str, Any] = {"loss": 0.2, "repeat_ms": 3.0, "delta_ms": 0.0}


def experiments() -> Iterator[tuple[str, list[str]]]:
    """What was removed, and which checkers noticed."""
    for protocol in MODULES:
        yield f"blind to views {protocol}", first_noticed(protocol, blind_to_views, **EXCLUDING)
        yield f"remembering {protocol}", first_noticed(protocol, remembering, **EXCLUDING)
        yield f"without last input {protocol}", first_noticed(protocol, without_last_input, members=6)
        yield f"not restarting {protocol}", first_noticed(protocol, not_restarting, **EXCLUDING)
        yield f"never asking {protocol}", first_noticed(protocol, never_asking, **LOSING)
        yield f"never answering {protocol}", first_noticed(protocol, never_answering, **LOSING)
    yield (
        "not asking after exclusions dissemination",
        first_noticed("dissemination", not_asking_after_exclusions, **EXCLUDING),
    )


def main() -> None:
    """Print a JSON object: what was removed, and which checkers noticed."""
    assert not COMPILED, "run this with CUBECAST_JIT=off"
    print(json.dumps(dict(experiments())))


if __name__ == "__main__":
    main()

"""Resolve defaults that depend on the network: the kind of multicast, time scales, parameters of protocols.

On a slow network a round takes seconds or minutes: at 30 kb/s every link near the root of the WAN tree carries n arrays
of 62 ms each. Messages repeated faster than that would only lengthen the queues in which they wait, and a next round
that begins at once would be counted with the first.
"""

from __future__ import annotations

from dataclasses import replace

from cubecast.networks.network import Network
from cubecast.protocol.context import Context, NetworkFacts
from cubecast.protocol.mail import HEADER_BYTES, NUMBER_BYTES, ROUND_BYTES
from cubecast.sim.network_facts import multicast_of, network_facts
from cubecast.sim.scenario import NS_PER_MS, REPEAT_NS, Scenario

DELTA_MS = 10.0
CROSSINGS = 8  # links of a long path, in both directions


def resolve_defaults(scenario: Scenario, network: Network) -> Scenario:
    """Return the scenario with all defaults resolved."""
    facts = network_facts(scenario, network)
    wan = network.tree_children > 0
    context = resolving_context(scenario, facts)
    round_ns = _round_ns(scenario, context)
    repeat_ns = max(REPEAT_NS, round_ns) if scenario.repeats else 0
    parameters = {
        role.field: role.entry.resolve(getattr(scenario, role.field), context) for role in scenario.roles.values()
    }
    return replace(
        scenario,
        multicast=multicast_of(scenario, network),
        delta_ms=_given(scenario.delta_ms, round_ns / NS_PER_MS if wan else DELTA_MS),
        repeat_ms=_given(scenario.repeat_ms, repeat_ns / NS_PER_MS),
        **parameters,
    )


def expected_round_ms(scenario: Scenario, network: Network) -> float:
    """Estimate how long a round of the scenario's protocol takes on a network."""
    return _round_ns(scenario, resolving_context(scenario, network_facts(scenario, network))) / NS_PER_MS


def resolving_context(scenario: Scenario, facts: NetworkFacts) -> Context:
    """The context in which parameters are resolved."""
    return Context(members=scenario.members, senders=scenario.sequence_count, seed=scenario.seed, network=facts)


def _given(value: float | None, otherwise: float) -> float:
    return otherwise if value is None else value


def _round_ns(scenario: Scenario, context: Context) -> int:
    """Estimate the length of a round: the time the busiest link needs for its messages."""
    size = HEADER_BYTES + ROUND_BYTES + NUMBER_BYTES * scenario.folded_count
    network = context.network
    messages = scenario.entry().round_messages(context) if network.tree_children else context.members
    return round(messages * network.service_ns(size) + CROSSINGS * network.crossing_ns(size))


def longest_transfer_ns(facts: NetworkFacts, size_bytes: int, copies: int) -> int:
    """How long the slowest link needs for this many copies of a message, and the longest route for one."""
    return round(copies * facts.service_ns(size_bytes) + CROSSINGS * facts.crossing_ns(size_bytes))

"""The experiment `processing_load`: how many messages each member sends and receives in a round (guo Table 4.1).

The messages are counted in the trace of a simulated round. A multicast is one message sent, and reaches its sender too,
as in the paper. The members are the root (rank 0, the coordinator), the inner members of the logical tree, and its
leaves; the members of protocols without a tree are divided in the same way. `processed_step_max` is what the busiest
member processes per iteration: its messages divided by the iterations of a round according to the formula. Protocols
without a formula do not have it.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from cubecast.errors import LocalProtocolError
from cubecast.models.complexity import PROTOCOLS, GroupSize, round_cost
from cubecast.networks.network import Network
from cubecast.protocol.overlays import paper_tree_degree
from cubecast.sim.resolve_defaults import resolve_defaults
from cubecast.sim.scenario import Scenario
from cubecast.sim.simulate import trace_scenario
from cubecast.trace.schema import CONTROL, EVERYONE, SEND

METRICS = (
    *("processed_root", "processed_inner_min", "processed_inner_max", "processed_leaf_min", "processed_leaf_max"),
    *("processed_max", "processed_step_max"),
)


def check(scenario: Scenario) -> None:
    """Require a scenario in which the messages of one round can be counted."""
    if scenario.carries_data or scenario.messages > 0 or scenario.rounds != 1:
        raise LocalProtocolError("processing_load is about one round of a stability protocol", setting="rounds")
    if scenario.loses_messages:
        raise LocalProtocolError("processing_load counts messages that arrive: drop loss and faults", setting="loss")


def measure(scenario: Scenario, network: Network) -> dict[str, float]:
    """Run one round and count."""
    counts = processed(scenario, network)
    known = vars(resolve_defaults(scenario, network).parameters).get("tree_degree") or network.tree_children
    degree = known or paper_tree_degree(scenario.members)
    inner_last = (scenario.members - 2) // degree
    inner, leaves = counts[1 : inner_last + 1], counts[inner_last + 1 :]
    found = {
        "processed_root": counts[0],
        "processed_leaf_min": leaves.min(),
        "processed_leaf_max": leaves.max(),
        "processed_max": counts.max(),
    }
    if scenario.protocol in PROTOCOLS:
        group = GroupSize(members=scenario.members, senders=scenario.sender_count, degree=degree)
        found["processed_step_max"] = counts.max() / round_cost(scenario.protocol, group).steps
    if len(inner):
        found |= {"processed_inner_min": inner.min(), "processed_inner_max": inner.max()}
    return {name: float(value) for name, value in found.items()}


def processed(scenario: Scenario, network: Network) -> npt.NDArray[np.int64]:
    """Messages sent plus messages received by each member, including messages received after the round is over."""
    counts = np.zeros(scenario.members, np.int64)
    for row in trace_scenario(scenario, network).events:
        if row["layer"] == CONTROL and row["event"] == SEND:
            counts[row["member"]] += 1
            counts[slice(None) if row["peer"] == EVERYONE else row["peer"]] += 1
    return counts

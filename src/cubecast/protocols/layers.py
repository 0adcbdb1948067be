"""The layers beside the stability protocol, by name: data layers (transports) and failure detectors.

A new one is one file and one entry here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from cubecast.errors import LocalProtocolError
from cubecast.protocol import handlers
from cubecast.protocol.group import Group
from cubecast.protocol.overlays import hypercube, of_ranks
from cubecast.protocols.failure import (
    gossip,
    heartbeat,
    live_array,
    no_detector,
    polling,
)
from cubecast.protocols.from_setup import from_setup
from cubecast.protocols.transport import (
    ack,
    hierarchical,
    hybrid,
    nak,
    nak_multicast,
    srm,
)


@dataclass(frozen=True, kw_only=True)
class LayerSetup:
    """What a layer needs to know before it starts."""

    members: int
    seed: int
    payload_bytes: int = 0
    repeat_ns: int = 0
    """0 in a reliable FIFO network; otherwise how long to wait before repeating what was not answered."""
    wait_ns: int = 0
    """How long a gap may last before it is a loss: links may reorder."""
    again_all: bool = True
    """Is a lost message multicast again, or sent to those who miss it?"""
    tree_degree: int = 2
    step_ns: int = 1
    subset: int = 1
    threshold: int = 1
    grace_steps: int = 0
    """How many steps more members may take to appear at the start."""


@dataclass(frozen=True, kw_only=True)
class Layer:
    """A layer as the simulator and the live runtime find it."""

    name: str
    title: str
    family: str
    paper: str
    summary: str
    state: type
    handlers: ModuleType | Any
    """The module (or any object) with start, receive, on_timer, on_leave, and publish or on_heard."""
    build: Callable[[Group, LayerSetup], Any]
    numbers: Callable[[LayerSetup], int] = field(default=lambda _setup: 0)
    """How many numbers its messages carry at most."""


REPORT_NS = 20_000_000  # between two reports to a designated receiver, where nothing is lost
TRANSPORT, DETECTOR = "reliable", "failure"
_LAYERS: dict[tuple[str, str], Layer] = {}


def add_layer(layer: Layer) -> None:
    """Make a layer known by its family and name; an existing one of that name is replaced."""
    handlers.register(layer.state, layer.handlers)
    _LAYERS[layer.family, layer.name] = layer


def layers(family: str) -> list[Layer]:
    """All layers of a family, in the order in which they were added."""
    return [layer for layer in _LAYERS.values() if layer.family == family]


def transport_named(name: str) -> Layer:
    """The data layer of that name."""
    return _named(TRANSPORT, "transport", name)


def detector_named(name: str) -> Layer:
    """The failure detector of that name."""
    return _named(DETECTOR, "failure detector", name)


def _named(family: str, what: str, name: str) -> Layer:
    found = _LAYERS.get((family, name.lower().replace("-", "_")))
    if found is None:
        known = ", ".join(layer.name for layer in layers(family))
        raise LocalProtocolError(f"unknown {what} {name!r}: choose one of {known}")
    return found


def _build_live_array(group: Group, setup: LayerSetup) -> live_array.LiveArrayState:
    return live_array.new_state(
        group,
        of_ranks(hypercube(setup.members), group.rank),
        members=setup.members,
        step_ns=setup.step_ns,
        threshold=setup.threshold,
        grace_steps=setup.grace_steps,
    )


def _build_hierarchical(group: Group, setup: LayerSetup) -> hierarchical.HierarchicalState:
    return hierarchical.new_state(
        group,
        members=setup.members,
        payload_bytes=setup.payload_bytes,
        degree=setup.tree_degree,
        announce_ns=setup.repeat_ns,
        report_ns=setup.repeat_ns or REPORT_NS,
        seed=setup.seed,
    )


handlers.register(no_detector.SilentState, no_detector)

add_layer(
    Layer(
        name="ack",
        title="ACK",
        family=TRANSPORT,
        paper="guo §2.1.1",
        summary="everybody acknowledges every message; the sender repeats what is not",
        state=ack.AckState,
        handlers=ack,
        build=from_setup(ack.new_state, resend_ns="repeat_ns"),
    )
)
add_layer(
    Layer(
        name="nak",
        title="NAK",
        family=TRANSPORT,
        paper="guo §2.1.2, first variation",
        summary="who misses a message asks its sender for it",
        state=nak.NakState,
        handlers=nak,
        build=from_setup(nak.new_state, nak_ns="repeat_ns"),
    )
)
add_layer(
    Layer(
        name="nak_multicast",
        title="Multicast NAK",
        family=TRANSPORT,
        paper="guo §2.1.2, second variation",
        summary="NAKs are multicast and speak for others; the sender answers",
        state=nak_multicast.NakMulticastState,
        handlers=nak_multicast,
        build=from_setup(nak_multicast.new_state, nak_ns="repeat_ns"),
    )
)
add_layer(
    Layer(
        name="srm",
        title="SRM",
        family=TRANSPORT,
        paper="guo §2.1.2, third variation",
        summary="NAKs are multicast and speak for others; anyone who can answers",
        state=srm.SrmState,
        handlers=srm,
        build=from_setup(srm.new_state, nak_ns="repeat_ns"),
    )
)
add_layer(
    Layer(
        name="hybrid",
        title="Hybrid",
        family=TRANSPORT,
        paper="guo §2.1.3",
        summary="NAKs for repair, ACKs for release",
        state=hybrid.HybridState,
        handlers=hybrid,
        build=from_setup(hybrid.new_state, nak_ns="repeat_ns"),
    )
)
add_layer(
    Layer(
        name="hierarchical",
        title="Hierarchical",
        family=TRANSPORT,
        paper="guo §2.1.4",
        summary="designated receivers repair and report for their subtree",
        state=hierarchical.HierarchicalState,
        handlers=hierarchical,
        build=_build_hierarchical,
    )
)
add_layer(
    Layer(
        name="heartbeat",
        title="Heartbeat",
        family=DETECTOR,
        paper="guo §3.1.1",
        summary="everybody multicasts that it is alive",
        state=heartbeat.HeartbeatState,
        handlers=heartbeat,
        build=from_setup(heartbeat.new_state),
    )
)
add_layer(
    Layer(
        name="polling",
        title="Polling",
        family=DETECTOR,
        paper="guo §3.1.1",
        summary="everybody asks everybody",
        state=polling.PollingState,
        handlers=polling,
        build=from_setup(polling.new_state),
    )
)
add_layer(
    Layer(
        name="gossip",
        title="Gossip-style detection",
        family=DETECTOR,
        paper="guo §3.1.2",
        summary="live arrays spread by gossip and merge by minimum",
        state=gossip.GossipDetectorState,
        handlers=gossip,
        build=from_setup(gossip.new_state),
        numbers=lambda setup: setup.members,
    )
)
add_layer(
    Layer(
        name="live_array",
        title="Live array",
        family=DETECTOR,
        paper="guo §3.3",
        summary="live arrays go to hypercube neighbours, and all drop the same members: what live groups run",
        state=live_array.LiveArrayState,
        handlers=live_array,
        build=_build_live_array,
        numbers=lambda setup: 2 * setup.members,
    )
)

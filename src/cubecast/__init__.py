"""Reliable, causally ordered multicast that knows when a message is everywhere, and the laboratory to choose it in.

A message is *stable* when every member of a group has it; then its buffers may be freed. Several protocols find that
out, and they differ by orders of magnitude in time, messages and queues. Simulate them, packet by packet:

    import cubecast

    result = cubecast.simulate("cube_full_dist", members=100, network="random:degree=5", seed=1)
    print(result.rtt_last_ms, result.messages, result.queue_max)

    comparison = cubecast.compare(members=[50, 100, 200], network="random:degree=5", repeat=3)
    comparison.plot("compare.html")

    cubecast.simulate("coord", members=20, loss=0.1, trace="run.parquet")
    assert cubecast.check_all(cubecast.read_trace("run.parquet")).ok

Where to look next:

    help(cubecast.simulate)    one run, and every setting of it: help(cubecast.Scenario)
    help(cubecast.Result)      what is measured
    help(cubecast.compare)     protocols side by side
    cubecast.protocols()       what there is to compare
    help(cubecast.check_all)   the promises that checkers hold a trace to

Then run the same protocols between real processes:

    async with cubecast.join("orders", listen="127.0.0.1:7001", peers=["127.0.0.1:7002"], credentials=...) as group:
        message = await group.multicast(b"hello")
        await message.stable(timeout=5)            # every current member has it
        async for delivery in group:               # causal order, each message once
            print(delivery.sender, delivery.payload)

help(cubecast.join) and docs/tutorial.md tell more; help(cubecast.Settings) lists every setting. Where members come and
go, one begins with `cubecast.found("orders", listen=...)`, and others join with `contact=` instead of `peers=`.

A protocol of your own is one file: functions over NumPy arrays, decorated with `cubecast.internal`, that read and write
messages through `cubecast.core.mail`, made known by `cubecast.add_protocol(cubecast.Protocol(...))`. The file
examples/doubling.py is one; docs/protocols.md explains it.

Whatever goes wrong by your hand raises a `cubecast.CubecastError` with one line that names the value and the fix.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from cubecast.errors import (
    CubecastError,
    ExcludedError,
    LocalProtocolError,
    PlanError,
    RemoteProtocolError,
    SimulationError,
)

if TYPE_CHECKING:
    from cubecast import core
    from cubecast.core.compiled import internal, jit
    from cubecast.core.group import Group
    from cubecast.core.registry import Protocol, add_protocol, protocols
    from cubecast.core.setup import Setup
    from cubecast.live.changing.events import ChangingDelivery, ViewChange
    from cubecast.live.changing.group import ChangingGroup, found
    from cubecast.live.changing.settings import ChangingSettings
    from cubecast.live.changing.sync import SyncChangingGroup, found_sync
    from cubecast.live.credentials import Credentials
    from cubecast.live.group import LiveGroup
    from cubecast.live.joining import join, join_sync
    from cubecast.live.settings import Settings
    from cubecast.live.sync import SyncGroup
    from cubecast.live.traffic import Delivery
    from cubecast.networks.network import Network
    from cubecast.networks.spec import build_network
    from cubecast.sim.checkers import Report, check_all
    from cubecast.sim.compare import Comparison, compare
    from cubecast.sim.faults import Fault, parse_fault
    from cubecast.sim.result import Result
    from cubecast.sim.scenario import Scenario
    from cubecast.sim.simulate import simulate
    from cubecast.trace import Trace, read_trace

__version__ = "0.1.0"

__all__ = [
    "ChangingDelivery",
    "ChangingGroup",
    "ChangingSettings",
    "Comparison",
    "Credentials",
    "CubecastError",
    "Delivery",
    "ExcludedError",
    "Fault",
    "Group",
    "LiveGroup",
    "LocalProtocolError",
    "Network",
    "PlanError",
    "Protocol",
    "RemoteProtocolError",
    "Report",
    "Result",
    "Scenario",
    "Settings",
    "Setup",
    "SimulationError",
    "SyncChangingGroup",
    "SyncGroup",
    "Trace",
    "ViewChange",
    "__version__",
    "add_protocol",
    "build_network",
    "check_all",
    "compare",
    "core",
    "found",
    "found_sync",
    "internal",
    "jit",
    "join",
    "join_sync",
    "parse_fault",
    "protocols",
    "read_trace",
    "simulate",
]

_HOMES = {
    "ChangingDelivery": "cubecast.live.changing.events",
    "ChangingGroup": "cubecast.live.changing.group",
    "ChangingSettings": "cubecast.live.changing.settings",
    "Comparison": "cubecast.sim.compare",
    "Credentials": "cubecast.live.credentials",
    "Delivery": "cubecast.live.traffic",
    "Fault": "cubecast.sim.faults",
    "Group": "cubecast.core.group",
    "LiveGroup": "cubecast.live.group",
    "Network": "cubecast.networks.network",
    "Protocol": "cubecast.core.registry",
    "Report": "cubecast.sim.checkers",
    "Result": "cubecast.sim.result",
    "Scenario": "cubecast.sim.scenario",
    "Settings": "cubecast.live.settings",
    "Setup": "cubecast.core.setup",
    "SyncChangingGroup": "cubecast.live.changing.sync",
    "SyncGroup": "cubecast.live.sync",
    "Trace": "cubecast.trace",
    "ViewChange": "cubecast.live.changing.events",
    "add_protocol": "cubecast.core.registry",
    "build_network": "cubecast.networks.spec",
    "check_all": "cubecast.sim.checkers",
    "compare": "cubecast.sim.compare",
    "found": "cubecast.live.changing.group",
    "found_sync": "cubecast.live.changing.sync",
    "internal": "cubecast.core.compiled",
    "jit": "cubecast.core.compiled",
    "join": "cubecast.live.joining",
    "join_sync": "cubecast.live.joining",
    "parse_fault": "cubecast.sim.faults",
    "protocols": "cubecast.core.registry",
    "read_trace": "cubecast.trace",
    "simulate": "cubecast.sim.simulate",
}
"""Where each public name lives. It is loaded when it is first asked for: a light member never loads the simulator."""


def __getattr__(name: str) -> Any:
    if name == "core":
        return import_module("cubecast.core")
    if name not in _HOMES:
        raise AttributeError(f"module 'cubecast' has no attribute {name!r}")
    found = getattr(import_module(_HOMES[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted(__all__)

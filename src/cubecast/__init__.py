"""Reliable, causally ordered multicast with stability detection, and a laboratory to choose the protocol.

A message is *stable* when every member of a group has it; its buffers can then be freed. Several protocols detect
stability. They differ by orders of magnitude in time, messages and queue lengths. Simulate them, packet by packet:

    import cubecast

    result = cubecast.simulate("cube_full_dist", members=100, network="random:degree=5", seed=1)
    print(result.rtt_last_ms, result.messages, result.queue_max)

    comparison = cubecast.compare(members=[50, 100, 200], network="random:degree=5", repeat=3)
    comparison.plot("compare.html")

    cubecast.simulate("coord", members=20, loss=0.1, trace="run.parquet")
    assert cubecast.check_all(cubecast.read_trace("run.parquet")).ok

Where to look next:

    help(cubecast.simulate)    one run; help(cubecast.Scenario) lists its settings
    help(cubecast.Result)      the metrics of a run
    help(cubecast.compare)     comparison of protocols
    help(cubecast.study)       sweeps and claims on Spark, as data frames
    cubecast.list_protocols()  the protocols to compare
    help(cubecast.check_all)   the promises that checkers verify in a trace

Then run the same protocols between real processes:

    async with cubecast.join("orders", listen="127.0.0.1:7001", peers=["127.0.0.1:7002"], credentials=...) as group:
        message = await group.multicast(b"hello")
        await message.stable(timeout=5)            # every current member has it
        async for delivery in group:               # causal order, each message once
            print(delivery.sender.name, delivery.payload)

See help(cubecast.join) and docs/tutorial.md; help(cubecast.Settings) lists every setting. Members may leave, join
(`contact=` instead of `peers=`), crash and return; with a journal they continue where they stopped.

A custom protocol is one file: functions over NumPy arrays, decorated with `linked`, that read and write messages with
the functions of `cubecast.protocol`, registered by `cubecast.add_protocol(cubecast.Protocol(...))`. The file
examples/doubling.py is an example; docs/protocols.md explains it.

Every user error raises a `cubecast.CubecastError` with one line that names the value and the fix; `cubecast.errors`
defines all of them. Other classes, and functions that build networks (`cubecast.networks`), are in their modules.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from cubecast.errors import (
    CubecastError,
    ExcludedError,
    JournalError,
    LocalProtocolError,
    SimulationError,
)
from cubecast.extras import named

if TYPE_CHECKING:
    from cubecast.lab.compare import Comparison, compare
    from cubecast.lab.study_result import study
    from cubecast.live.credentials import Credentials
    from cubecast.live.group import Group, join
    from cubecast.live.message import Message
    from cubecast.live.sync import SyncGroup, join_sync
    from cubecast.member.effects import Delivery, ViewChange
    from cubecast.member.settings import Settings
    from cubecast.protocol.definition import Protocol
    from cubecast.protocols.catalogue import add_protocol, list_protocols, load_protocol_file
    from cubecast.protocols.membership.views import MemberId, View
    from cubecast.sim.faults import parse_fault
    from cubecast.sim.result import Result
    from cubecast.sim.scenario import Scenario
    from cubecast.sim.simulate import simulate
    from cubecast.trace.checkers import check_all
    from cubecast.trace.files import read_trace

__version__ = "0.1.0"

__all__ = [
    "Comparison",
    "Credentials",
    "CubecastError",
    "Delivery",
    "ExcludedError",
    "Group",
    "JournalError",
    "LocalProtocolError",
    "MemberId",
    "Message",
    "Protocol",
    "Result",
    "Scenario",
    "Settings",
    "SimulationError",
    "SyncGroup",
    "View",
    "ViewChange",
    "__version__",
    "add_protocol",
    "check_all",
    "compare",
    "join",
    "join_sync",
    "list_protocols",
    "load_protocol_file",
    "parse_fault",
    "read_trace",
    "simulate",
    "study",
]

_HOMES = {
    "Comparison": "cubecast.lab.compare",
    "Credentials": "cubecast.live.credentials",
    "Delivery": "cubecast.member.effects",
    "Group": "cubecast.live.group",
    "MemberId": "cubecast.protocols.membership.views",
    "Message": "cubecast.live.message",
    "Protocol": "cubecast.protocol.definition",
    "Result": "cubecast.sim.result",
    "Scenario": "cubecast.sim.scenario",
    "Settings": "cubecast.member.settings",
    "SyncGroup": "cubecast.live.sync",
    "View": "cubecast.protocols.membership.views",
    "ViewChange": "cubecast.member.effects",
    "add_protocol": "cubecast.protocols.catalogue",
    "check_all": "cubecast.trace.checkers",
    "compare": "cubecast.lab.compare",
    "join": "cubecast.live.group",
    "join_sync": "cubecast.live.sync",
    "list_protocols": "cubecast.protocols.catalogue",
    "load_protocol_file": "cubecast.protocols.catalogue",
    "parse_fault": "cubecast.sim.faults",
    "read_trace": "cubecast.trace.files",
    "simulate": "cubecast.sim.simulate",
    "study": "cubecast.lab.study_result",
}
"""Where each public name lives. It is loaded when it is first asked for: a light member never loads the simulator."""


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'cubecast' has no attribute {name!r}")
    with named(f"cubecast.{name}"):
        found = getattr(import_module(_HOMES[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted(__all__)

"""Fill the code cache, so that later processes start quickly.

Many processes that start together (a test run, a study) should find a warm cache; a lock makes other processes wait
while one compiles.
"""

from __future__ import annotations

import fcntl
import hashlib
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

from cubecast.errors import LocalProtocolError
from cubecast.jit.backend import COMPILED, compiler
from cubecast.jit.compile_apart import Piece, compile_apart
from cubecast.jit.sources import code_directory, code_root, sources_of, sources_of_class
from cubecast.models.gossip_chain import GossipChain
from cubecast.networks.spec import build_network
from cubecast.protocol.bound import bind
from cubecast.protocols.catalogue import chosen, list_protocols
from cubecast.sim.build import Simulation, build_simulation
from cubecast.sim.faults import Fault
from cubecast.sim.runner import run_nothing
from cubecast.sim.scenario import Scenario
from cubecast.sim.simulate import simulate
from cubecast.sim.views import kernel
from cubecast.trace.checkers import check_all
from cubecast.trace.files import Trace, read_trace
from cubecast.trace.schema import (
    DELIVER,
    EXCLUDED,
    INSTALL,
    RESTART,
    RESTARTED,
    RESTORE,
    RETURNED,
    SENT,
    STABLE,
    VIEW,
    blank_events,
)

Progress = Callable[[int, int, str], None]
"""Called with the number of finished pieces, the number of all pieces, and the current one."""

SIMULATOR, VIEWS, CHECKERS, MODELS = "simulator", "views", "checkers", "models"


def warm(progress: Progress | None = None, more: Sequence[Piece] = ()) -> list[str]:
    """Compile what is not in the cache yet, and `more`, which may depend on it; return the compiled functions."""
    if not COMPILED:
        return []
    views = Piece(__name__, VIEWS, sources_of(Path(kernel.__file__)))
    first, last = pieces(), [Piece(__name__, CHECKERS), views, *more]
    total = len(first) + len(last)
    done, compiled = 0, []
    with _alone():
        mark = _mark([*first, *last])
        if mark.is_file():
            return []
        _report_progress(progress, 0, total, SIMULATOR)
        for family, names in chain(compile_apart(first), compile_apart(last)):
            done += len(family)
            compiled += names
            _report_progress(progress, done, total, ", ".join(piece.name for piece in family))
        mark.parent.mkdir(parents=True, exist_ok=True)
        mark.touch()
    return compiled


def pieces() -> list[Piece]:
    """The pieces that compile independently, the longest first. (Checkers and views need an entire run.)"""
    states = {protocol.state: f"{protocol.family} {protocol.name}" for protocol in reversed(list_protocols())}
    cores = [Piece(__name__, name, sources_of_class(state)) for state, name in states.items()]
    by_size = sorted(cores, key=lambda piece: sum(source.stat().st_size for source in piece.sources), reverse=True)
    return [Piece(__name__, SIMULATOR), *by_size, Piece(__name__, MODELS)]


def compile_piece(name: str) -> None:
    """Compile one of the pieces, or load it from the cache."""
    if name == SIMULATOR:
        run_nothing(_tiny(protocol=_any_protocol(), multicast="tree"))  # compiles the tree cover too
    elif name == VIEWS:
        _run_with_views()
    elif name == CHECKERS:
        _check_a_trace()
    elif name == MODELS:
        _use_models()
    else:
        simulation, state = _with_core(name)
        bind((state,), simulation.mail)


def _with_core(name: str) -> tuple[Simulation, Any]:
    """A small simulation with the protocol of that family and name, and its state."""
    family, _, own = name.partition(" ")
    if family == "transport":
        simulation = _tiny(protocol=_any_protocol(), transport=own)
        return simulation, simulation.data
    if family == "failure":
        simulation = _tiny(protocol=_any_protocol(), detector=own)
        return simulation, simulation.failure
    simulation = _tiny(protocol=own)
    return simulation, simulation.control if family == "stability" else simulation.data


def _any_protocol() -> str:
    """The name of some protocol, where any will do."""
    return chosen("stability").name


def _tiny(**settings: Any) -> Simulation:
    scenario = Scenario(members=4, messages=1, network="chain", **settings)
    network = build_network(scenario.network, members=scenario.members, seed=scenario.seed)
    return build_simulation(scenario, network, tracing=False)


def _run_with_views() -> None:
    """Run a view change, which calls everything that Python calls; the protocols are compiled already."""
    settings: dict[str, Any] = {"members": 4, "network": "chain", "churn_per_s": 0.0, "churn_ms": 200.0}
    simulate(_any_protocol(), crashes=(Fault(members=(3,), at_ns=1_000_000),), **settings)


def _check_a_trace() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "warm.parquet"
        simulate(_any_protocol(), members=4, network="chain", trace=path)
        check_all(read_trace(path))
    check_all(_trace_with_views())


def _trace_with_views() -> Trace:
    """A trace of two members: one restarts and excludes the other, a third joins. A broken promise calls the rest."""
    rows: list[dict[str, int]] = [
        *_install(1, (0, 1)),
        {"event": SENT, "member": 0, "sender": 0, "sequence": 1, "round": 1, "message": 1},
        {"event": DELIVER, "member": 0, "sender": 0, "sequence": 1},
        {"event": STABLE, "member": 0, "sender": 0, "sequence": 1},  # too early
        {"event": DELIVER, "member": 1, "sender": 0, "sequence": 1},
        {"event": RESTART, "member": 1},
        {"event": DELIVER, "member": 1, "sender": 0, "sequence": 1},
        {"event": RESTARTED, "member": 1},
        {"event": RETURNED, "member": 0, "sender": 0, "sequence": 2},
        {"event": EXCLUDED, "member": 0},
        *_install(2, (1, 2)),
        {"event": RESTORE, "member": 2, "sender": 0, "sequence": 1, "round": 2, "message": 2},
    ]
    events = blank_events(len(rows))
    events["time_ns"] = events["entered_ns"] = range(1, len(rows) + 1)
    for place, row in enumerate(rows):
        for column, value in row.items():
            events[column][place] = value
    return Trace(events=events, scenario={"members": 3, "family": "causal"}, metrics={})


def _install(number: int, members: tuple[int, ...]) -> list[dict[str, int]]:
    view = {"round": number, "message": number}
    ranks = [{"event": VIEW, "peer": member, "sequence": rank, **view} for rank, member in enumerate(members)]
    return ranks + [{"event": INSTALL, "member": member, **view} for member in members]


def _use_models() -> None:
    model = GossipChain(members=4)
    model.distribution(2)
    model.incomplete_course(2)
    model.micro_steps_for(0.1)


def _report_progress(progress: Progress | None, done: int, total: int, what: str) -> None:
    if progress is not None:
        progress(done, total, what)


def _mark(wanted: Sequence[Piece]) -> Path:
    """The marker file that records that these pieces are compiled."""
    names = hashlib.sha256("\n".join(sorted(piece.name for piece in wanted)).encode()).hexdigest()[:16]
    sources = sources_of(Path(__file__)).union(*(piece.sources for piece in wanted))
    return code_directory(sources) / f"warm-{compiler()}-{names}"


@contextmanager
def _alone() -> Iterator[None]:
    """Hold the lock of the cache; the system releases it when a process dies."""
    lock = code_root() / "warming.lock"
    try:
        lock.parent.mkdir(parents=True, exist_ok=True)
        file = lock.open("w")
    except OSError as error:
        raise LocalProtocolError(
            f"cannot keep compiled code in {lock.parent}: {error.strerror}; set CUBECAST_CACHE_DIR to a writable folder"
        ) from error
    with file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield

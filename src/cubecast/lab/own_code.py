"""User code: protocols, networks, metrics and checkers, declared in a Python file.

| name in the file | adds |
|---|---|
| `PROTOCOL`, `PROTOCOLS` | protocols (`cubecast.Protocol`) |
| `NETWORKS` | kinds of networks by name (`cubecast.networks.spec.NetworkKind`) |
| `METRIC`, `METRICS` | metrics of a run (`cubecast.lab.own_metrics.OwnMetric`) |
| `CHECKER`, `CHECKERS` | checkers of traces (`cubecast.trace.checkers.Checker`) |

A plan names such files in `[code] files`; they are loaded with the plan and sent to the workers
(`lab.spark.own_code`). A process loads a file once: if the file was edited since then, that is an error, because its
old functions are still loaded.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from cubecast.errors import LocalProtocolError
from cubecast.jit.sources import cache_root
from cubecast.lab.experiments import experiment_named
from cubecast.lab.own_metrics import OwnMetric, add_metric, metric_of
from cubecast.lab.remote import AnyPath
from cubecast.lab.whole_file import write_whole
from cubecast.networks.spec import NetworkKind, add_network
from cubecast.protocol.definition import Protocol
from cubecast.protocols.catalogue import add_file, declared_protocols, import_file, protocol_files
from cubecast.trace.checkers.registry import add_checker
from cubecast.trace.checkers.report import Checker

_CHECKER = ("NAME", "PROMISE", "check", "not_promised")


@dataclass(frozen=True, kw_only=True)
class CodeFile:
    """What a file declares."""

    digest: str
    protocols: list[Protocol] = field(default_factory=list)
    networks: dict[str, NetworkKind] = field(default_factory=dict)
    metrics: list[OwnMetric] = field(default_factory=list)
    checkers: list[Checker] = field(default_factory=list)


_FILES: dict[Path, CodeFile] = {}


def code_files() -> list[Path]:
    """The files from which user code was loaded."""
    return list(dict.fromkeys([*protocol_files(), *_FILES]))


def network_file(spec: str) -> Path | None:
    """The file that declares the kind of a network; None for a built-in kind."""
    kind = spec.partition(":")[0]
    return next((path for path, found in _FILES.items() if kind in found.networks), None)


def load_code_file(path: str | Path) -> CodeFile:
    """Import a Python file and add what it declares; its folder is added to the import path."""
    place = Path(path).expanduser().resolve()
    if place in _FILES:
        if _digest(place) != _FILES[place].digest:
            raise LocalProtocolError(f"code file {path} has changed since it was loaded: restart Python")
        return _FILES[place]
    try:
        module = import_file(Path(path), "code file")
    except SystemExit as error:
        raise LocalProtocolError(f"code file {path} cannot be imported: it exits Python") from error
    try:
        found = _read(module, place)
        _add(found, place)
    except LocalProtocolError:
        del sys.modules[place.stem]  # the file is read again once it is fixed
        raise
    _FILES[place] = found
    return found


def copy_of(path: AnyPath) -> Path:
    """Copy a file of a store to this machine, into a folder named after its content."""
    if isinstance(path, Path):
        return path
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise LocalProtocolError(f"code file {path}: no such file") from None
    folder = cache_root() / "own_code" / hashlib.sha256(content).hexdigest()[:16]
    return write_whole(folder / path.name, content)


def _read(module: ModuleType, place: Path) -> CodeFile:
    """The declarations of the module, validated."""
    networks = getattr(module, "NETWORKS", {})
    if not isinstance(networks, dict) or not all(isinstance(kind, NetworkKind) for kind in networks.values()):
        raise LocalProtocolError(f"{place}: write NETWORKS = {{name: NetworkKind(...)}}")
    found = CodeFile(
        digest=_digest(place),
        protocols=declared_protocols(module, place),
        networks=networks,
        metrics=_declared(module, place, "METRIC", lambda one: isinstance(one, OwnMetric)),
        checkers=_declared(module, place, "CHECKER", lambda one: all(hasattr(one, name) for name in _CHECKER)),
    )
    for metric in found.metrics:
        metric.check(experiment_named("simulate").metrics)
    if not (found.protocols or found.networks or found.metrics or found.checkers):
        raise LocalProtocolError(f"{place} declares nothing: end it with PROTOCOL, NETWORKS, METRIC or CHECKER = …")
    return found


def _declared(module: ModuleType, place: Path, name: str, fits: Callable[[Any], bool]) -> list[Any]:
    """The objects of one kind: those under the plural name, and the single one."""
    found = [*getattr(module, f"{name}S", ()), *([getattr(module, name)] if hasattr(module, name) else [])]
    for one in found:
        if not fits(one):
            raise LocalProtocolError(f"{place} has {name} = {one!r}: it is not a {name.lower()}")
    return found


def _add(found: CodeFile, place: Path) -> None:
    if found.protocols:
        add_file(place, found.protocols)
    for name, kind in found.networks.items():
        add_network(name, kind)
    for checker in found.checkers:
        add_checker(checker)
    for metric in (*found.metrics, *map(metric_of, found.checkers)):
        add_metric(metric, place)


def _digest(place: Path) -> str:
    return hashlib.sha256(place.read_bytes()).hexdigest()

"""The protocols by name.

The catalogue finds every module below `cubecast.protocols` that has `PROTOCOL` (or several in `PROTOCOLS`).
`add_protocol` adds others, `load_protocol_file` and the environment variable `CUBECAST_PROTOCOLS` (paths separated as
in PATH) load them from files; worker processes inherit the variable. This module names no protocol.
"""

from __future__ import annotations

import os
import sys
from functools import cache
from importlib import import_module, invalidate_caches, util
from pathlib import Path
from pkgutil import iter_modules
from traceback import extract_tb
from types import ModuleType

from cubecast.errors import LocalProtocolError
from cubecast.protocol import handlers
from cubecast.protocol.definition import FAMILIES, Protocol

ENVIRONMENT = "CUBECAST_PROTOCOLS"
_FOLDERS = ("stability", "causal", "broadcast", "transport", "failure")
_PROTOCOLS: dict[tuple[str, str], Protocol] = {}
_FILES: dict[Path, list[Protocol]] = {}


def add_protocol(protocol: Protocol) -> None:
    """Add a protocol by its name; it replaces an existing one of the same family and name."""
    _load()
    _add(protocol)


def _add(protocol: Protocol) -> None:
    protocol.check()
    handlers.register(protocol.state, protocol.handler_source())
    _PROTOCOLS[_space(protocol.family), protocol.name] = protocol


def _space(family: str) -> str:
    """Stability and data protocols share their names; transports and failure detectors have names of their own."""
    return family if family in ("transport", "failure") else "protocol"


def load_protocol_file(path: str | Path) -> list[Protocol]:
    """Import a Python file and add its `PROTOCOL` or `PROTOCOLS`; its folder is added to the import path."""
    _load()
    return _load_file(Path(path))


def protocol_files() -> list[Path]:
    """The files from which protocols were loaded, in the order of loading."""
    _load()
    return list(_FILES)


def file_of(protocol: Protocol) -> Path | None:
    """The file from which a protocol was loaded; None for a protocol of the package or one that a program added."""
    return next((path for path, found in _FILES.items() if any(one is protocol for one in found)), None)


def _load_file(path: Path) -> list[Protocol]:
    place = path.expanduser().resolve()
    if place not in _FILES:
        module = import_file(path)
        try:
            found = declared_protocols(module, path)
            if not found:
                raise LocalProtocolError(f"{path} has no PROTOCOL: end it with PROTOCOL = cubecast.Protocol(...)")
        except LocalProtocolError:
            del sys.modules[place.stem]  # once mended, it is read again
            raise
        add_file(place, found)
    return _FILES[place]


def add_file(place: Path, protocols: list[Protocol]) -> None:
    """Add the protocols of a file."""
    for protocol in protocols:
        _add(protocol)
    _FILES[place] = protocols


def import_file(path: Path, what: str = "protocol file") -> ModuleType:
    """Import a Python file under its own name, under which the code cache keeps it and workers import it too."""
    place = path.expanduser().resolve()
    if not place.is_file():
        raise LocalProtocolError(f"{what} {path}: there is no such file")
    if place.suffix != ".py" or not place.stem.isidentifier():
        raise LocalProtocolError(f"{what} {path}: give it the name of a Python module, such as mine.py")
    if str(place.parent) not in sys.path:
        sys.path.append(str(place.parent))
    invalidate_caches()
    spec = util.find_spec(place.stem)
    if spec is None or spec.loader is None or spec.origin is None or Path(spec.origin).resolve() != place:
        raise LocalProtocolError(f"{what} {place}: another module is called {place.stem!r}, rename the file")
    try:
        return import_module(place.stem)
    except Exception as error:
        raise LocalProtocolError(f"{what} {place} cannot be imported: {error}{_line_in(place, error)}") from error


def _line_in(place: Path, error: Exception) -> str:
    """The line of a file at which an error arose; a syntax error names it itself."""
    lines = [frame.lineno for frame in extract_tb(error.__traceback__) if frame.filename == str(place)]
    return f" (line {lines[-1]})" if lines else ""


def declared_protocols(module: ModuleType, path: Path) -> list[Protocol]:
    """The protocols that a module declares, validated."""
    if isinstance(getattr(module, "PROTOCOLS", ()), Protocol):
        raise LocalProtocolError(f"{path} has one protocol in PROTOCOLS: make it a tuple, or call it PROTOCOL")
    found = _declared(module)
    for protocol in found:
        if not isinstance(protocol, Protocol):
            raise LocalProtocolError(
                f"{path} has PROTOCOL = {protocol!r}: end it with PROTOCOL = cubecast.Protocol(...)"
            )
        protocol.check()
        if sum((one.family, one.name) == (protocol.family, protocol.name) for one in found) > 1:
            raise LocalProtocolError(f"{path} has two protocols {protocol.name}: give each a name of its own")
    return found


def _declared(module: ModuleType) -> list[Protocol]:
    found = [*getattr(module, "PROTOCOLS", ())]
    if hasattr(module, "PROTOCOL"):
        found.append(module.PROTOCOL)
    return found


@cache
def _load() -> None:
    """Import every module of the package that may declare a protocol, then the files that the environment names."""
    for folder in _FOLDERS:
        package = import_module(f"cubecast.protocols.{folder}")
        for module in iter_modules(package.__path__):
            for protocol in _declared(import_module(f"{package.__name__}.{module.name}")):
                _add(protocol)
    for path in filter(None, os.environ.get(ENVIRONMENT, "").split(os.pathsep)):
        _load_file(Path(path))


def plain_name(name: str) -> str:
    """Normalise a name to the catalogue's form: `full-dist` and `FULL_DIST` become `full_dist`."""
    return name.lower().replace("-", "_")


def protocol_named(name: str) -> Protocol:
    """The stability or data protocol of that name."""
    return _named("protocol", "protocol", name)


def transport_named(name: str, members: int = 0) -> Protocol:
    """The reliable transport of that name."""
    return chosen("transport", members) if name == AUTO else _named("transport", "transport", name)


def detector_named(name: str, members: int = 0) -> Protocol:
    """The failure detector of that name."""
    return chosen("failure", members) if name == AUTO else _named("failure", "failure detector", name)


def _named(space: str, what: str, name: str) -> Protocol:
    _load()
    found = _PROTOCOLS.get((space, plain_name(name)))
    if found is None:
        known = ", ".join(sorted(one for place, one in _PROTOCOLS if place == space))
        raise LocalProtocolError(f"unknown {what} {name!r}: choose one of {known}")
    return found


AUTO = "auto"


def chosen(family: str, members: int = 0) -> Protocol:
    """The default protocol of a family in a group of this size."""
    ready = [one for one in list_protocols(family) if one.auto_from is not None]
    fitting = [one for one in ready if (one.auto_from or 0) <= members]
    return max(fitting or ready, key=lambda one: one.auto_from or 0)


def list_protocols(family: str | None = None) -> list[Protocol]:
    """All protocols, or those of one family, sorted by family and name."""
    _load()
    if family is not None and family not in FAMILIES:
        raise LocalProtocolError(f"unknown family {family!r}: choose one of {', '.join(FAMILIES)}")
    order = list(FAMILIES)
    found = [one for one in _PROTOCOLS.values() if family in (None, one.family)]
    return sorted(found, key=lambda one: (order.index(one.family), one.name))

"""`--protocol-file`: custom protocols, for every command that takes the name of one."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer


def _load(files: list[Path] | None) -> list[Path] | None:
    """Register the protocols of these files in this process and, through the environment, in its child processes."""
    if not files:
        return files
    from cubecast.errors import LocalProtocolError
    from cubecast.protocols.catalogue import ENVIRONMENT, load_protocol_file

    for file in files:
        load_protocol_file(file)
        place = str(file.expanduser().resolve())
        named = [one for one in os.environ.get(ENVIRONMENT, "").split(os.pathsep) if one]
        if os.pathsep in place:
            raise LocalProtocolError(f"protocol file {place}: {os.pathsep!r} separates paths in {ENVIRONMENT}, move it")
        if place not in named:
            os.environ[ENVIRONMENT] = os.pathsep.join([*named, place])
    return files


_NAME = "protocol_file"
_OPTION = inspect.Parameter(
    _NAME,
    inspect.Parameter.KEYWORD_ONLY,
    default=None,
    annotation=Annotated[
        list[Path] | None,
        typer.Option(
            "--protocol-file",
            metavar="FILE",
            help="A Python file with a custom protocol. Repeatable.",
            callback=_load,
            is_eager=True,  # other options may be parameters of these protocols
            show_default=False,
        ),
    ],
)


def with_protocol_files(command: Callable[..., None]) -> Callable[..., None]:
    """Add the option to a command; the files are loaded before the command is called."""

    @wraps(command)
    def wrapper(**values: Any) -> None:
        del values[_NAME]
        command(**values)

    own = inspect.signature(command, eval_str=True).parameters.values()
    parameters = [*(one.replace(kind=one.KEYWORD_ONLY) for one in own), _OPTION]
    wrapper.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    wrapper.__annotations__ = {one.name: one.annotation for one in parameters}
    return wrapper

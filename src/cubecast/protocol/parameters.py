"""The parameters of a protocol: a frozen dataclass whose fields document their meaning and their valid values.

    @dataclass(frozen=True, kw_only=True)
    class Parameters:
        subset: int = parameter(1, "Members that a member sends to in one step.", at_least=1)

The command line, plans, `help()`, the validation and the advisor's search are derived from this; nothing else lists the
parameters of a protocol. A field takes int, float, bool, a choice (`Literal`), or None if `Protocol.resolve` chooses
it.

`search` are the values worth trying in addition to the default. If `resolve` chooses a number that depends on the
network, `search_factors` are multiples of that number.
"""

from __future__ import annotations

import math
import types
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from functools import cache
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

from cubecast.errors import LocalProtocolError


@dataclass(frozen=True, kw_only=True)
class NoParameters:
    """A protocol without parameters."""


class ParameterInfo(NamedTuple):
    """One parameter, as the command line and the documentation show it."""

    name: str
    types: frozenset[type]
    """bool, int, float, str; an int is also a float."""
    choices: tuple[str, ...]
    is_optional: bool
    default: Any
    help: str
    at_least: float
    at_most: float
    otherwise: str
    """The meaning of None."""
    search: tuple[Any, ...]
    """Values worth trying in addition to the default."""
    search_factors: tuple[float, ...]
    """Multiples of what `resolve` chooses that are worth trying."""
    matters_with: tuple[str, Any] | None
    """The other parameter and its value without which this one changes nothing."""


def parameter(
    default: Any,
    text: str,
    *,
    at_least: float = -math.inf,
    at_most: float = math.inf,
    otherwise: str = "",
    search: tuple[Any, ...] = (),
    search_factors: tuple[float, ...] = (),
    matters_with: tuple[str, Any] | None = None,
) -> Any:
    """A field of a protocol's parameters. `otherwise` says what is chosen where the default is None."""
    return field(
        default=default,
        metadata={
            "help": text,
            "at_least": at_least,
            "at_most": at_most,
            "otherwise": otherwise,
            "search": search,
            "search_factors": search_factors,
            "matters_with": matters_with,
        },
    )


@cache
def describe(kind: type) -> dict[str, ParameterInfo]:
    """The parameters of a class, by name."""
    hints = get_type_hints(kind)
    found = {}
    for one in fields(kind):
        if one.default is MISSING:
            raise LocalProtocolError(f"parameter {one.name} has no default: give one, or None for what resolve chooses")
        types_, choices, is_optional = _read_hint(one.name, hints[one.name])
        known: dict[str, Any] = {"help": "", "at_least": -math.inf, "at_most": math.inf, "otherwise": ""}
        known |= {"search": (), "search_factors": (), "matters_with": None}
        known |= one.metadata
        found[one.name] = ParameterInfo(one.name, types_, choices, is_optional, one.default, **known)
    for info in found.values():
        _check_search(info, found)
    return found


def _check_search(info: ParameterInfo, known: Mapping[str, ParameterInfo]) -> None:
    """Validate the values declared for the search."""
    if not isinstance(info.search, Iterable):
        raise LocalProtocolError(f"parameter {info.name} has search = {info.search!r}: give a tuple of values")
    for value in info.search:
        _validate(info, value, "the search")
    if info.search_factors and not (info.is_optional and float in info.types):
        raise LocalProtocolError(f"parameter {info.name}: search_factors need a number that resolve chooses")
    if info.matters_with is not None:
        pair: Any = info.matters_with
        if not isinstance(pair, Sequence) or len(pair) != 2:
            raise LocalProtocolError(
                f"parameter {info.name} has matters_with = {pair!r}: give a parameter and its value"
            )
        other, value = info.matters_with
        if other not in known:
            raise LocalProtocolError(f"parameter {info.name} matters with {other!r}: there is no such parameter")
        _validate(known[other], value, "matters_with")


def _read_hint(name: str, hint: Any) -> tuple[frozenset[type], tuple[str, ...], bool]:
    parts = list(get_args(hint)) if get_origin(hint) in (Union, types.UnionType) else [hint]
    is_optional = type(None) in parts
    choices = tuple(value for part in parts if get_origin(part) is Literal for value in get_args(part))
    plain = {part for part in parts if isinstance(part, type) and part is not type(None)}
    if choices:
        plain.add(str)
    if float in plain:
        plain.add(int)
    if not plain or not plain <= {bool, int, float, str} or not all(isinstance(one, str) for one in choices):
        raise LocalProtocolError(
            f"parameter {name} is of type {hint}: use int, float, bool, a Literal of texts, or one of them | None"
        )
    return frozenset(plain), choices, is_optional


def make_parameters(kind: type, given: Mapping[str, Any], owner: str) -> Any:
    """Parameters with these values, validated. `owner` is the protocol, for the error."""
    known = describe(kind)
    for name in given:
        if name not in known:
            raise LocalProtocolError(f"{owner} has no parameter {name!r}: {_list_names(known)}", setting=name)
    for name, value in given.items():
        _validate(known[name], value, owner)
    return kind(**given)


def _list_names(known: Mapping[str, ParameterInfo]) -> str:
    return f"choose from {', '.join(known)}" if known else "it has none"


def _validate(info: ParameterInfo, value: Any, owner: str) -> None:
    said = f"{info.name} = {value!r} of {owner}"
    if value is None and info.is_optional:
        return
    if type(value) not in info.types:
        wanted = " or ".join(sorted(one.__name__ for one in info.types))
        raise LocalProtocolError(f"{said}: give {wanted}", setting=info.name)
    if info.choices and value not in info.choices:
        raise LocalProtocolError(f"{said}: choose {' or '.join(info.choices)}", setting=info.name)
    if isinstance(value, str | bool):
        return
    if not math.isfinite(value):
        raise LocalProtocolError(f"{said}: give a finite number", setting=info.name)
    if not info.at_least <= value <= info.at_most:
        raise LocalProtocolError(f"{said}: choose {_range(info)}", setting=info.name)


def _range(info: ParameterInfo) -> str:
    if info.at_most == math.inf:
        return f"{info.at_least:g} or more"
    if info.at_least == -math.inf:
        return f"{info.at_most:g} or less"
    return f"from {info.at_least:g} to {info.at_most:g}"


def read_text(info: ParameterInfo, text: str, owner: str) -> Any:
    """Parse a value from a command line."""
    if bool in info.types and text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        if kind in info.types:
            try:
                return kind(text)
            except ValueError:
                continue
    if str in info.types:
        return text
    raise LocalProtocolError(f"{info.name} = {text!r} of {owner}: give {_spoken(info)}", setting=info.name)


def _spoken(info: ParameterInfo) -> str:
    if bool in info.types:
        return "true or false"
    return "a number" if float in info.types else "a whole number"

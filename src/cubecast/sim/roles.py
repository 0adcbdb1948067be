"""The protocols of a run, and the protocol to which each setting belongs.

In plans, on the command line and in `simulate(...)` settings are flat: fields of the scenario, parameters of its
protocol by their own names, parameters of other protocols with a prefix.

| field                | protocol                                                    | prefix                   |
|----------------------|-------------------------------------------------------------|--------------------------|
| parameters           | the one that is simulated                                   |                          |
| other_parameters     | under churn: the stability or data protocol beside it       | `stability_` or `data_`  |
| transport_parameters | the reliable transport below a stability protocol           | `transport_`             |
| detector_parameters  | the failure detector, where it is not just a model          | `detector_`              |
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from difflib import get_close_matches
from typing import Any, NamedTuple

from cubecast.errors import LocalProtocolError, blame
from cubecast.protocol.definition import Protocol
from cubecast.protocol.parameters import ParameterInfo, describe
from cubecast.protocols.catalogue import AUTO, chosen, detector_named, list_protocols, protocol_named, transport_named

MODEL = "model"
"""No protocol detects failures; they are reported after a delay."""
PARAMETER_FIELDS = ("parameters", "other_parameters", "transport_parameters", "detector_parameters")
_PREFIXES = {
    "stability": ("", "stability_"),
    "causal": ("", "data_"),
    "broadcast": ("",),
    "transport": ("transport_",),
    "failure": ("detector_",),
}


class Role(NamedTuple):
    """A protocol in a run."""

    field: str
    prefix: str
    entry: Protocol

    def complete(self, given: Any) -> Any:
        """Its parameters as its own dataclass, from that dataclass, a dictionary or None."""
        if given is None:
            return self.entry.parameters()
        if isinstance(given, self.entry.parameters):
            return given
        if isinstance(given, Mapping):
            try:
                return self.entry.make_parameters(dict(given))
            except LocalProtocolError as error:
                error.setting = self.prefix + (error.setting or "")
                raise
        raise LocalProtocolError(f"{self.field} = {given!r} of {self.entry.name}: give a dictionary")


def roles_of(values: Mapping[str, Any]) -> dict[str, Role]:
    """The protocols of a run by the field of their parameters, from the fields of a scenario."""
    return {role.field: role for role in _roles(values)}


def _roles(values: Mapping[str, Any]) -> Iterator[Role]:
    if "protocol" not in values:
        raise LocalProtocolError("a scenario needs a protocol: name one")
    members = values.get("members", 0)
    with blame("protocol"):
        main = protocol_named(values["protocol"])
    yield Role("parameters", "", main)
    with blame("transport"):
        transport = transport_named(values.get("transport", AUTO), members)
    yield Role("transport_parameters", "transport_", transport)
    if (detector := values.get("detector", MODEL)) != MODEL:
        with blame("detector"):
            entry = detector_named(detector, members)
        yield Role("detector_parameters", "detector_", entry)
    if values.get("churn_per_s") is not None:
        what, family = ("stability", "stability") if main.carries_data else ("data", "causal")
        name = values.get(what, AUTO)
        with blame(what):
            other = chosen(family, members) if name == AUTO else protocol_named(name)
        yield Role("other_parameters", f"{what}_", other)


def split_settings(flat: Mapping[str, Any], fields: Collection[str], *, lenient: bool = False) -> dict[str, Any]:
    """Flat settings as the fields of a scenario.

    `lenient` drops parameters that some other protocol has, so that one set of settings serves several protocols.
    """
    values = {name: value for name, value in flat.items() if name in fields}
    roles = list(_roles(values))
    _check_names(roles, fields)
    for name, value in flat.items():
        if name in fields:
            continue
        role = next((one for one in roles if _own_name(one, name) is not None), None)
        if role is not None:
            values[role.field] = dict(values.get(role.field) or {}) | {_own_name(role, name): value}
        elif not (lenient and is_parameter(name)):
            known = [*fields, *(_flat_names() if lenient else ())]
            raise LocalProtocolError(_unknown(roles, known, name), setting=name)
    return values


def _check_names(roles: list[Role], fields: Collection[str]) -> None:
    """Reject parameters that no flat setting could reach."""
    for role in roles:
        for name in describe(role.entry.parameters):
            if role.prefix + name in fields:
                raise LocalProtocolError(
                    f"parameter {name} of {role.entry.name} has the name of a setting of every run: rename it"
                )


def _own_name(role: Role, name: str) -> str | None:
    """The protocol's own name of a setting; None if it has no such parameter."""
    own = name.removeprefix(role.prefix)
    return own if name.startswith(role.prefix) and own in describe(role.entry.parameters) else None


def is_parameter(name: str) -> bool:
    """Is this the flat name of a parameter of any protocol?"""
    return any(_known(entry, name) is not None for entry in list_protocols())


def _flat_names() -> set[str]:
    """The flat names of all parameters of all protocols."""
    return {
        prefix + name
        for entry in list_protocols()
        for prefix in _PREFIXES[entry.family]
        for name in describe(entry.parameters)
    }


def _known(entry: Protocol, name: str) -> ParameterInfo | None:
    known = describe(entry.parameters)
    found = (name.removeprefix(prefix) for prefix in _PREFIXES[entry.family] if name.startswith(prefix))
    return next((known[own] for own in found if own in known), None)


def parameter_of(name: str, protocol: str | None, values: Mapping[str, Any]) -> ParameterInfo | None:
    """The parameter with this flat name, of the protocols of a scenario or, without a protocol, of any."""
    if protocol is None:
        return next(filter(None, (_known(entry, name) for entry in list_protocols())), None)
    for role in _roles({**values, "protocol": protocol}):
        own = _own_name(role, name)
        if own is not None:
            return describe(role.entry.parameters)[own]
    return None


def _unknown(roles: list[Role], others: Collection[str], name: str) -> str:
    own = [role.prefix + one for role in roles for one in describe(role.entry.parameters)]
    near = [one for one in own if one.endswith(f"_{name}")] or get_close_matches(name, {*own, *others}, n=3)
    hint = f"did you mean {' or '.join(near)}?" if near else f"its parameters are {', '.join(own) or 'none'}"
    return f"unknown setting {name!r} of {roles[0].entry.name}: {hint}"

"""Protocols built for tests that drive them by hand, without a scenario or a live member around them."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, NamedTuple

from cubecast.protocol.context import Context
from cubecast.protocol.definition import Protocol
from cubecast.protocol.group import GroupState
from cubecast.protocol.parameters import describe

_SURROUNDINGS = {one.name for one in fields(Context)}


class Core(NamedTuple):
    """A protocol before its first event."""

    state: Any
    numbers: int
    """How many numbers its messages carry at most."""


def build_core(
    entry: Protocol,
    group: GroupState,
    *,
    members: int,
    senders: int,
    where_known: dict[str, Any] | None = None,
    **settings: Any,
) -> Core:
    """The protocol of a catalogue entry, with these fields of its context and these parameters.

    `where_known` are parameters for those protocols that have them; any other unknown name in `settings` is an error.
    """
    known = describe(entry.parameters)
    own = {name: value for name, value in (where_known or {}).items() if name in known}
    around = {name: value for name, value in settings.items() if name in _SURROUNDINGS and name not in known}
    context = Context(members=members, senders=senders, **around)
    given = own | {name: value for name, value in settings.items() if name not in around}
    parameters = entry.resolve(entry.make_parameters(given), context)
    return Core(entry.build(group, context, parameters), entry.numbers(context, parameters))

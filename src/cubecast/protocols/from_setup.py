"""Builders that hand the fields of a set-up to the state of a protocol."""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from typing import Any

from cubecast.protocol.group import Group

Build = Callable[[Group, Any], Any]


def from_setup(new_state: Callable[..., Any], **named: str) -> Build:
    """A builder that calls `new_state(group, …)`.

    Each keyword of `new_state` gets the field of the set-up of the same name, or the one it is `named` to get. One
    that the set-up does not have keeps its default.
    """
    keywords = [one for one in signature(new_state).parameters.values() if one.kind is one.KEYWORD_ONLY]
    fields = {one.name: named.get(one.name, one.name) for one in keywords}
    required = {fields[one.name] for one in keywords if one.default is one.empty}

    def build(group: Group, setup: Any) -> Any:
        wanted = {keyword: field for keyword, field in fields.items() if field in required or hasattr(setup, field)}
        return new_state(group, **{keyword: getattr(setup, field) for keyword, field in wanted.items()})

    return build

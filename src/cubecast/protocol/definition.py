"""The definition of a protocol: one entry in its own file, for command line, simulator, laboratory and live groups.

Everything that other code needs to know about a protocol is in its entry; no other file refers to it by name. A
new protocol is one file with one `PROTOCOL = Protocol(...)`.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, is_dataclass
from typing import Any, Literal, NamedTuple

from cubecast.errors import LocalProtocolError
from cubecast.jit.backend import COMPILED
from cubecast.protocol.context import Context
from cubecast.protocol.group import GroupState
from cubecast.protocol.handlers import SIGNATURES
from cubecast.protocol.messages import MessageType, kinds_of
from cubecast.protocol.overlays import Overlay
from cubecast.protocol.parameters import NoParameters, describe, make_parameters
from cubecast.protocol.traffic import Traffic

Family = Literal["stability", "causal", "broadcast", "transport", "failure"]
FAMILIES: dict[str, str] = {
    "stability": "finds out which messages all members have",
    "causal": "multicasts the application's messages in causal order",
    "broadcast": "multicasts the application's messages along trees, in the order of arrival",
    "transport": "repairs lost data messages beneath a stability protocol",
    "failure": "detects failed members",
}
_RESERVED = ("auto", "model")  # choices of a user that are not protocols
_CHOICES = {"links": ("lossy", "reliable", "fifo"), "state_per_member": ("linear", "quadratic")}
_TEXTS = ("title", "paper", "summary")
_FUNCTIONS = {
    "build": ("group", "context", "parameters"),
    "resolve": ("parameters", "context"),
    "numbers": ("context", "parameters"),
    "round_messages": ("context",),
    "sends_per_member": ("members", "parameters"),
    "traffic": ("context", "parameters"),
    "steps": ("parameters", "context"),
}
"""The functions of an entry, with what they are called with."""
_CALLED_ONLY = {"publish": ("causal", "broadcast", "transport"), "on_heard": ("failure",)}
"""Handlers that only these families have."""


class Steps(NamedTuple):
    """The pace of a protocol that works in steps."""

    interval_ns: int
    sends: int
    """Messages that all members together send in a step."""


@dataclass(frozen=True, kw_only=True)
class LiveData:
    """How a data protocol serves live members."""

    linked: Callable[[Any], list[int]]
    """The ranks to which a state pushes messages at once."""
    overlay: Callable[[int], Overlay] | None = None
    """The links that carry messages in a group of this size without failures; None: between all members."""
    stamp_numbers: Callable[[int], int] = lambda _members: 0
    """How many numbers a message carries in a group of this size."""
    changes_numbers: bool = False
    """Does the last of them change at each hop?"""
    believe: Callable[[Any, int, float], None] | None = None
    """Set the failure probability of the link to a rank in a state."""
    compare_paths: tuple[int, int] = (0, 0)
    """Timers that request a new comparison of paths, after the link to the rank in the tag became better, or worse."""


@dataclass(frozen=True, kw_only=True)
class Protocol:
    """One protocol: its name, its requirements, and how it is built."""

    name: str
    title: str
    family: Family
    paper: str
    summary: str
    state: type
    """The NamedTuple of its arrays."""
    build: Callable[[GroupState, Context, Any], Any]
    """Makes its state before the first event, from the group, its context and the parameters."""
    messages: tuple[MessageType, ...] = ()
    """Its kinds of messages with their fields."""
    parameters: type = NoParameters
    handlers: Any = None
    """The object with start, receive, on_timer, …; default: the module of the state."""
    numbers: Callable[[Context, Any], int] = lambda context, _parameters: context.senders
    """How many numbers its messages carry at most."""
    resolve: Callable[[Any, Context], Any] = lambda parameters, _context: parameters
    """Choose open parameters; may reject parameters that do not fit the group."""
    links: Literal["lossy", "reliable", "fifo"] = "lossy"
    """The least it needs of the network: anything, no loss, or no loss and no reordering."""
    admits_joins: bool = False
    """Does it handle joins and leaves itself, while messages flow?"""
    floods: bool = False
    """Does a member forward everything it delivers, so that all deliver what one delivers, even after crashes?"""
    state_per_member: Literal["linear", "quadratic"] = "linear"
    """How the state of one member grows with the size of the group, the senders being members."""
    by_neighbour: tuple[str, ...] = ()
    """The arrays of its state that have one row per neighbour."""
    round_messages: Callable[[Context], float] = lambda context: context.members
    """Estimates how many messages of a round cross the busiest link of a tree-shaped network."""
    sends_per_member: Callable[[int, Any], float] = lambda _members, _parameters: 3.0
    """Estimates the messages that a member sends per round, or per multicast; for estimates of run time."""
    traffic: Callable[[Context, Any], Traffic] | None = None
    """The traffic between ranks, for placements; None: between all alike, or along the network's links."""
    steps: Callable[[Any, Context], Steps] | None = None
    """Its pace, if it works in steps."""
    live: LiveData | None = None
    """How it serves live members, for a data protocol that can."""
    auto_from: int | None = None
    """The default protocol of its family in groups of this size and more."""
    colour: str = ""
    """Its colour in figures."""

    @property
    def carries_data(self) -> bool:
        """Does it multicast the application's messages itself, rather than detect their stability?"""
        return self.family in ("causal", "broadcast")

    def handler_source(self) -> Any:
        """The module, or any object, that has the handlers."""
        return self.handlers if self.handlers is not None else sys.modules[self.state.__module__]

    def make_parameters(self, given: dict[str, Any]) -> Any:
        """Parameters with these values, validated."""
        return make_parameters(self.parameters, given, self.name)

    def check(self) -> None:
        """Reject an invalid entry with a one-line error that says what to change."""
        name: Any = self.name
        if not isinstance(name, str) or not re.fullmatch("[a-z][a-z0-9_]*", name) or name in _RESERVED:
            raise LocalProtocolError(f"name {self.name!r}: use small letters, digits and _, and not auto or model")
        if self.family not in FAMILIES:
            raise LocalProtocolError(f"family {self.family!r} of {self.name}: choose one of {', '.join(FAMILIES)}")
        state: Any = self.state
        if not (isinstance(state, type) and issubclass(state, tuple) and hasattr(state, "_fields")):
            raise LocalProtocolError(f"the state of {self.name} is {self.state!r}: use a NamedTuple of arrays")
        parameters: Any = self.parameters
        if not (isinstance(parameters, type) and is_dataclass(parameters)):
            raise LocalProtocolError(f"the parameters of {self.name} are {self.parameters!r}: use a frozen dataclass")
        self.make_parameters({info.name: info.default for info in describe(self.parameters).values()})
        for name in self.by_neighbour:
            if name not in state._fields:
                raise LocalProtocolError(f"by_neighbour of {self.name} names {name!r}, which is not in its state")
        _check_entry(self)
        _check_messages(self)
        _check_handlers(self)


def _check_entry(protocol: Protocol) -> None:
    for field in _TEXTS:
        text = getattr(protocol, field)
        if not isinstance(text, str) or not text:
            raise LocalProtocolError(f"{field} = {text!r} of {protocol.name}: give a text")
    for field, choices in _CHOICES.items():
        if (choice := getattr(protocol, field)) not in choices:
            raise LocalProtocolError(f"{field} = {choice!r} of {protocol.name}: choose {' or '.join(choices)}")
    if not isinstance(protocol.live, LiveData | None):
        raise LocalProtocolError(f"live = {protocol.live!r} of {protocol.name}: give a LiveData, or None")
    for field, arguments in _FUNCTIONS.items():
        function = getattr(protocol, field)
        if function is not None and not _takes(function, len(arguments)):
            wanted = f"{field}({', '.join(arguments)})"
            raise LocalProtocolError(f"{field} of {protocol.name} is called as {wanted}: give such a function")


def _takes(function: Any, count: int) -> bool:
    """Can this be called with so many arguments?"""
    if not callable(function):
        return False
    try:
        inspect.signature(function).bind(*range(count))
    except TypeError:
        return False
    return True


def _check_messages(protocol: Protocol) -> None:
    messages: Any = protocol.messages
    for one in messages if isinstance(messages, Sequence) else (messages,):
        if not isinstance(one, MessageType):
            raise LocalProtocolError(f"the messages of {protocol.name} contain {one!r}: use a tuple of message(...)")
    names = [one.name for one in protocol.messages]
    for name in names:
        if names.count(name) > 1:
            raise LocalProtocolError(f"{protocol.name} has two messages {name}: give each a name of its own")
    kinds = kinds_of(protocol.messages)
    for name, kind in zip(names, kinds, strict=True):
        if kinds.count(kind) > 1:
            raise LocalProtocolError(f"message {name} of {protocol.name} is not the only one of kind {kind}")


def _needed(protocol: Protocol) -> Iterator[str]:
    """The handlers without which the protocol cannot work."""
    if protocol.carries_data:
        yield "publish"
    if protocol.messages:
        yield "receive"


def _check_handlers(protocol: Protocol) -> None:
    source = protocol.handler_source()
    found = {name: getattr(source, name) for name in SIGNATURES if hasattr(source, name)}
    if "start" not in found and "receive" not in found:
        raise LocalProtocolError(f"{protocol.name} has neither start nor receive: a protocol handles at least one")
    for name in _needed(protocol):
        if name not in found:
            raise LocalProtocolError(f"{protocol.name} has no {name}: write {name}({', '.join(SIGNATURES[name])})")
    for name, handler in found.items():
        if not callable(handler):
            wanted = f"{name}({', '.join(SIGNATURES[name])})"
            raise LocalProtocolError(f"{protocol.name} has {name} = {handler!r}: write a function {wanted}")
        if name in _CALLED_ONLY and protocol.family not in _CALLED_ONLY[name]:
            raise LocalProtocolError(
                f"{protocol.name} has {name}, which is never called: its family is {protocol.family}"
            )
        given = tuple(inspect.signature(getattr(handler, "py_func", handler)).parameters)
        if given != SIGNATURES[name]:
            raise LocalProtocolError(
                f"{name}({', '.join(given)}) of {protocol.name}: write {name}({', '.join(SIGNATURES[name])})"
            )
        if COMPILED and not hasattr(handler, "py_func"):
            raise LocalProtocolError(f"{name} of {protocol.name} is not compiled: decorate it with @linked")
    for name in vars(source):
        if name.startswith("on_") and name not in SIGNATURES and callable(getattr(source, name)):
            known = ", ".join(one for one in SIGNATURES if one.startswith("on_"))
            raise LocalProtocolError(f"{protocol.name} has {name}, which is never called: the handlers are {known}")

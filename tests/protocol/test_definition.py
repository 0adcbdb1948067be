"""An entry that cannot work is refused when it is added, in one line that says what to change."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest

from cubecast.errors import LocalProtocolError
from cubecast.jit.backend import COMPILED
from cubecast.jit.decorators import linked
from cubecast.protocol.context import Context
from cubecast.protocol.definition import Protocol
from cubecast.protocol.group import GroupState
from cubecast.protocol.messages import message
from cubecast.protocol.parameters import NoParameters, parameter
from cubecast.protocols.catalogue import add_protocol, protocol_named
from tests.support.own_protocols import restored_catalogue


class IdleState(NamedTuple):
    """Nothing but the group."""

    group: GroupState
    neighbours: np.ndarray


@linked
def start(state, row, now_ns, mail):  # type: ignore[no-untyped-def]
    """The member begins, and does nothing."""


def build(group: GroupState, context: Context, parameters: NoParameters) -> IdleState:
    """Nothing to do."""
    return IdleState(group, np.zeros(1, np.int64))


IDLE = Protocol(
    name="idle",
    title="Idle",
    family="stability",
    paper="none",
    summary="does nothing",
    state=IdleState,
    build=build,
)


@dataclass(frozen=True, kw_only=True)
class BadDefault:
    """A default that its own range excludes."""

    subset: int = parameter(0, "Members that hear of it.", at_least=1)


@dataclass(frozen=True, kw_only=True)
class BadType:
    """A type that no command line spells."""

    ranks: tuple[int, ...] = parameter((), "Members that hear of it.")


@pytest.fixture(autouse=True)
def _own_catalogue() -> Iterator[None]:
    with restored_catalogue():
        yield


def handlers(**changed: Any) -> SimpleNamespace:
    return SimpleNamespace(**{"start": start} | changed)


def takes_too_little(state, row, now_ns, mail):  # type: ignore[no-untyped-def]
    """No slot."""


def names_it_otherwise(state, row, now, mail):  # type: ignore[no-untyped-def]
    """Another name of the time."""


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "a handler that takes too little": (
        {"handlers": handlers(receive=takes_too_little)},
        "receive(state, row, now_ns, mail) of idle: write receive(state, row, now_ns, mail, slot)",
    ),
    "a handler whose argument has another name": (
        {"handlers": handlers(start=names_it_otherwise)},
        "start(state, row, now, mail) of idle: write start(state, row, now_ns, mail)",
    ),
    "a compiled handler that takes too little": (
        {"handlers": handlers(on_timer=start)},
        "on_timer(state, row, now_ns, mail) of idle: write on_timer(state, row, now_ns, mail, timer, tag)",
    ),
    "a misspelt handler": (
        {"handlers": handlers(on_timers=start)},
        "idle has on_timers, which is never called: the handlers are on_timer, on_leave, on_join, on_heard",
    ),
    "no handler": (
        {"handlers": SimpleNamespace(publish=start)},
        "idle has neither start nor receive: a protocol handles at least one",
    ),
    "a state that is a class of another kind": (
        {"state": dict, "handlers": handlers()},
        "the state of idle is <class 'dict'>: use a NamedTuple of arrays",
    ),
    "a state that is a plain tuple": (
        {"state": tuple, "handlers": handlers()},
        "the state of idle is <class 'tuple'>: use a NamedTuple of arrays",
    ),
    "a state that is no class": (
        {"state": "IdleState", "handlers": handlers()},
        "the state of idle is 'IdleState': use a NamedTuple of arrays",
    ),
    "a name that nobody finds": (
        {"name": "Idle-1"},
        "name 'Idle-1': use small letters, digits and _, and not auto or model",
    ),
    "a name that means something else": (
        {"name": "auto"},
        "name 'auto': use small letters, digits and _, and not auto or model",
    ),
    "an unknown family": (
        {"family": "gossip"},
        "family 'gossip' of idle: choose one of stability, causal, broadcast, transport, failure",
    ),
    "an unknown array by neighbour": (
        {"by_neighbour": ("neighbours", "reached")},
        "by_neighbour of idle names 'reached', which is not in its state",
    ),
    "parameters that are no dataclass": (
        {"parameters": dict},
        "the parameters of idle are <class 'dict'>: use a frozen dataclass",
    ),
    "parameters that are an instance": (
        {"parameters": NoParameters()},
        "the parameters of idle are NoParameters(): use a frozen dataclass",
    ),
    "a handler that is no function": (
        {"handlers": handlers(on_leave=3)},
        "idle has on_leave = 3: write a function on_leave(state, row, now_ns, mail, rank)",
    ),
    "a name that is no text": (
        {"name": None},
        "name None: use small letters, digits and _, and not auto or model",
    ),
    "messages that are names": (
        {"messages": ("REPORT", message("RESULT", round=4))},
        "the messages of idle contain 'REPORT': use a tuple of message(...)",
    ),
    "one message instead of a tuple": (
        {"messages": message("REPORT", round=4)},
        "the messages of idle contain 'REPORT': use a tuple of message(...)",
    ),
    "messages that are a number": (
        {"messages": 2},
        "the messages of idle contain 2: use a tuple of message(...)",
    ),
    "an empty summary": ({"summary": ""}, "summary = '' of idle: give a text"),
    "a network that does not exist": (
        {"links": "loss"},
        "links = 'loss' of idle: choose lossy or reliable or fifo",
    ),
    "a live entry of another type": ({"live": True}, "live = True of idle: give a LiveData, or None"),
    "a build that takes too little": (
        {"build": lambda group, context: None},
        "build of idle is called as build(group, context, parameters): give such a function",
    ),
    "an estimate that is a number": (
        {"sends_per_member": 3.0},
        "sends_per_member of idle is called as sends_per_member(members, parameters): give such a function",
    ),
    "a data protocol that cannot publish": (
        {"family": "causal"},
        "idle has no publish: write publish(state, row, now_ns, mail)",
    ),
    "messages that nothing receives": (
        {"messages": (message("REPORT", round=4),)},
        "idle has no receive: write receive(state, row, now_ns, mail, slot)",
    ),
    "a handler that its family never calls": (
        {"handlers": handlers(publish=start)},
        "idle has publish, which is never called: its family is stability",
    ),
    "a default outside its range": (
        {"parameters": BadDefault},
        "subset = 0 of idle: choose 1 or more",
    ),
    "a parameter of a strange type": (
        {"parameters": BadType},
        "parameter ranks is of type tuple[int, ...]: use int, float, bool, a Literal of texts, or one of them | None",
    ),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_an_entry_that_cannot_work_is_refused_in_one_line(wrong: str) -> None:
    changed, said = WRONG[wrong]
    with pytest.raises(LocalProtocolError) as raised:
        add_protocol(replace(IDLE, **changed))
    assert str(raised.value) == said
    with pytest.raises(LocalProtocolError, match="unknown protocol 'idle'"):
        protocol_named("idle")


@pytest.mark.parametrize("size", ["4", -4, 4.5, True])
def test_a_field_of_a_message_has_a_size(size: Any) -> None:
    with pytest.raises(LocalProtocolError) as raised:
        message("REPORT", round=size)
    assert str(raised.value) == f"field round of message REPORT has the size {size!r}: give bytes or a Size"


@pytest.mark.skipif(not COMPILED, reason="nothing is compiled with CUBECAST_JIT=off")
def test_a_handler_is_compiled() -> None:
    def plain(state, row, now_ns, mail):  # type: ignore[no-untyped-def]
        pass

    with pytest.raises(LocalProtocolError, match=r"^start of idle is not compiled: decorate it with @linked$"):
        add_protocol(replace(IDLE, handlers=handlers(start=plain)))


def test_a_sound_entry_is_found_by_its_name_and_replaced_by_the_next_of_that_name() -> None:
    add_protocol(IDLE)
    assert protocol_named("idle") is IDLE
    other = replace(IDLE, title="Idler")
    add_protocol(other)
    assert protocol_named("Idle") is other


def test_the_handlers_are_those_of_the_module_of_the_state() -> None:
    assert IDLE.handler_source().start is start
    own = handlers()
    assert replace(IDLE, handlers=own).handler_source() is own


def test_a_data_protocol_is_one_that_multicasts_for_the_application() -> None:
    families = {"stability": False, "causal": True, "broadcast": True, "transport": False, "failure": False}
    for family, carries in families.items():
        assert replace(IDLE, family=family).carries_data is carries  # type: ignore[arg-type]

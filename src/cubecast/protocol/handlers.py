"""The handlers of a core, called by the class of its state.

A core is registered with one call, `register(State, module)`. `call_core(state, …)` then runs the right one: by a table
look-up in plain Python, by a direct and inlined call in compiled code.

Duties of the driver, for each local member (row):

- `call_core(…, START)` once, when the member begins;
- `call_core(…, RECEIVE, slot)` for every message, with the message in a slot of `mail`;
- `call_core(…, TIMER, timer, tag)` when a timer that the core set is due;
- `call_core(…, LEAVE, rank)` after it removed a rank from `group.members[row]`; a core that admits newcomers itself is
  also called with its own rank, when it should leave; it reports when it has left (`mail.depart`), and every other such
  core is then called for the timer −1 with that rank;
- `call_core(…, JOIN, rank)` after it added a newcomer, which has begun by then, to `group.members[row]`;
- `call_core(…, PUBLISH)`, for data cores, when the application multicasts;
- `call_core(…, HEARD, rank)`, for failure detectors, when a data message came from `rank`;
- after each call carry out the actions in `mail` in order, and empty it (`mail.clear_outbox`).
"""

from collections.abc import Callable
from types import ModuleType
from typing import Any

from cubecast.jit.decorators import chosen_by_state, inlined

SIGNATURES: dict[str, tuple[str, ...]] = {
    "start": ("state", "row", "now_ns", "mail"),
    "receive": ("state", "row", "now_ns", "mail", "slot"),
    "on_timer": ("state", "row", "now_ns", "mail", "timer", "tag"),
    "on_leave": ("state", "row", "now_ns", "mail", "rank"),
    "on_join": ("state", "row", "now_ns", "mail", "rank"),
    "publish": ("state", "row", "now_ns", "mail"),
    "on_heard": ("state", "row", "now_ns", "mail", "rank"),
}
"""The handlers that a protocol may have, and their arguments."""

_START: dict[type, Callable[..., Any]] = {}
_RECEIVE: dict[type, Callable[..., Any]] = {}
_ON_TIMER: dict[type, Callable[..., Any]] = {}
_ON_LEAVE: dict[type, Callable[..., Any]] = {}
_ON_JOIN: dict[type, Callable[..., Any]] = {}
_PUBLISH: dict[type, Callable[..., Any]] = {}
_ON_HEARD: dict[type, Callable[..., Any]] = {}


@inlined
def _no_start(state, row, now_ns, mail):
    pass


@inlined
def _no_receive(state, row, now_ns, mail, slot):
    pass


@inlined
def _no_timer(state, row, now_ns, mail, timer, tag):
    pass


@inlined
def _no_leave(state, row, now_ns, mail, rank):
    pass


@inlined
def _no_join(state, row, now_ns, mail, rank):
    pass


@inlined
def _no_publish(state, row, now_ns, mail):
    pass


@inlined
def _no_heard(state, row, now_ns, mail, rank):
    pass


def register(state: type, module: ModuleType | Any) -> None:
    """Make the functions of `module` (those it has) the handlers of `state`."""
    _START[state] = getattr(module, "start", _no_start)
    _RECEIVE[state] = getattr(module, "receive", _no_receive)
    _ON_TIMER[state] = getattr(module, "on_timer", _no_timer)
    _ON_LEAVE[state] = getattr(module, "on_leave", _no_leave)
    _ON_JOIN[state] = getattr(module, "on_join", _no_join)
    _PUBLISH[state] = getattr(module, "publish", _no_publish)
    _ON_HEARD[state] = getattr(module, "on_heard", _no_heard)


@chosen_by_state(_START)
def _start(state, row, now_ns, mail):
    """The member begins."""


@chosen_by_state(_RECEIVE)
def _receive(state, row, now_ns, mail, slot):
    """A message arrived, in this slot."""


@chosen_by_state(_ON_TIMER)
def _on_timer(state, row, now_ns, mail, timer, tag):
    """A timer is due."""


@chosen_by_state(_ON_LEAVE)
def _on_leave(state, row, now_ns, mail, rank):
    """`rank` has just been removed from the membership."""


@chosen_by_state(_ON_JOIN)
def _on_join(state, row, now_ns, mail, rank):
    """`rank` has just been added to the membership."""


@chosen_by_state(_PUBLISH)
def _publish(state, row, now_ns, mail):
    """The application multicasts one data message."""


@chosen_by_state(_ON_HEARD)
def _on_heard(state, row, now_ns, mail, rank):
    """A data message arrived from `rank`: it is alive."""


# The events for which a core is called.
RECEIVE, START, TIMER, LEAVE, PUBLISH, JOIN, HEARD = range(7)


@inlined
def call_core(state, row, now_ns, mail, what, a, b):
    """Call the core of `state` for one event; see the module for `a` and `b`."""
    if what == RECEIVE:
        _receive(state, row, now_ns, mail, a)
    elif what == TIMER:
        _on_timer(state, row, now_ns, mail, a, b)
    elif what == START:
        _start(state, row, now_ns, mail)
    elif what == LEAVE:
        _on_leave(state, row, now_ns, mail, a)
    elif what == JOIN:
        _on_join(state, row, now_ns, mail, a)
    elif what == HEARD:
        _on_heard(state, row, now_ns, mail, a)
    else:
        _publish(state, row, now_ns, mail)

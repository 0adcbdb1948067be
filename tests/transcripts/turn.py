"""One call of a core, as in a driver."""

from cubecast.jit.decorators import entry_point
from cubecast.protocol.bound import call_bound

SLOT = 1
"""Where a driver of these tests puts a message before a core receives it."""


@entry_point
def turn(cores, row, now_ns, what, a, b):  # type: ignore[no-untyped-def]
    """Call a core that is bound alone."""
    call_bound(cores, 0, row, now_ns, what, a, b)

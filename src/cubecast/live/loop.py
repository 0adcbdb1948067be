"""The event loop of a member: uvloop's where it is installed, asyncio's own otherwise; and a loop in a thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from cubecast.errors import LocalProtocolError

_Result = TypeVar("_Result")


def new_loop() -> asyncio.AbstractEventLoop:
    """A new event loop: uvloop's if it is installed."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def run(work: Coroutine[Any, Any, _Result]) -> _Result:
    """Run a coroutine on such a loop."""
    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(work)


def require_running_in(loop: asyncio.AbstractEventLoop | None) -> None:
    """A member belongs to the event loop in which it joined: another one would change its state at the same time."""
    if loop is not None and asyncio.get_running_loop() is not loop:
        raise LocalProtocolError(
            "this member joined in another event loop: call asyncio.run_coroutine_threadsafe(…, loop) with that loop"
        )


class LoopThread:
    """A loop in a thread of its own, for programs without asyncio."""

    def __init__(self) -> None:
        """Not started."""
        self._loop = new_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="cubecast", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def begin(self, work: Coroutine[Any, Any, _Result]) -> Future[_Result]:
        """Schedule a call in the loop without waiting for it."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def run(self, work: Coroutine[Any, Any, _Result]) -> _Result:
        """Run a call in the loop and wait for its result."""
        return self.begin(work).result()

    def end(self) -> None:
        """Stop the loop and the thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

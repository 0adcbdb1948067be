"""The event loop of a member: uvloop's where it is installed, asyncio's own otherwise."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

_Result = TypeVar("_Result")


def new_loop() -> asyncio.AbstractEventLoop:
    """The fastest loop there is."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def run(work: Coroutine[Any, Any, _Result]) -> _Result:
    """Run a program on that loop."""
    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(work)

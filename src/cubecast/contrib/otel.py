"""OpenTelemetry: spans of a message from its multicast to its deliveries and its stability, across processes.

    group = Traced(cubecast.join("orders", ...))
    async with group:
        message = await group.multicast(b"hello")
        async for delivery in group:
            with trace.use_span(group.span):
                ...

| span        | at            | from                           | to                           | parent           |
|-------------|---------------|--------------------------------|------------------------------|------------------|
| `multicast` | the sender    | the call                       | its return                   | the current span |
| `stable`    | the sender    | that return                    | every member has the message | `multicast`      |
| `deliver`   | each receiver | the application takes it       | it asks for the next event,  | `multicast`      |
|             |               |                                | or its member has left       |                  |

The context precedes the payload, in the format of the configured propagators (W3C by default). All members of a group
should be traced: a member that is not traced receives the context as part of the payload. What such a member sends is
delivered unchanged. Without an SDK, or for what is not sampled, no context is sent and no span is made. A payload that
leaves no room for the context in a message is sent without it, and has no `deliver` spans.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

import msgspec

from cubecast.errors import CubecastError
from cubecast.extras import named
from cubecast.live.application_state import Buffer, octets_of
from cubecast.live.group import Group
from cubecast.live.inbox import Entries, Event
from cubecast.live.message import Message
from cubecast.member.effects import Delivery

with named("cubecast.contrib.otel"):
    from opentelemetry import propagate, trace
    from opentelemetry.trace import Span, SpanKind, Status, StatusCode, TracerProvider

MARK = bytes.fromhex("9ff0e1a74c0b5d3fa2d6")
"""Precedes a context; no sensible payload begins with it."""
_LENGTH_BYTES = 2


class Traced:
    """A group whose messages are traced. All other attributes are those of the group."""

    def __init__(self, group: Group, *, tracer_provider: TracerProvider | None = None) -> None:
        """Trace a group that `cubecast.join` returned."""
        self.group = group
        self.span: Span = trace.INVALID_SPAN
        """The span of the delivery that the application is processing."""
        self._tracer = trace.get_tracer("cubecast", tracer_provider=tracer_provider)
        self._waiting: set[asyncio.Task[None]] = set()

    def __getattr__(self, name: str) -> Any:
        """The other attributes of the group."""
        return getattr(self.group, name)

    async def __aenter__(self) -> Self:
        """Enter the group."""
        await self.group.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Leave the group, and end all spans."""
        await self.leave(drain=kind is None)

    async def leave(self, *, drain: bool = True, timeout: float | None = None) -> None:
        """Leave as `Group.leave` does, and end all spans."""
        try:
            await self.group.leave(drain=drain, timeout=timeout)
        finally:
            self._dealt_with()
        await asyncio.gather(*self._waiting)

    # Sending.

    async def multicast(self, payload: Buffer) -> Message:
        """Multicast as `Group.multicast` does; the `payload` of the message has the context before it."""
        octets = octets_of(payload)
        attributes = self._attributes("send", octets)
        with self._tracer.start_as_current_span("multicast", kind=SpanKind.PRODUCER, attributes=attributes) as span:
            carrier: dict[str, str] = {}
            if span.is_recording():
                propagate.inject(carrier)
            limit = self.group.settings.payload_bytes_max
            message = await self.group.multicast(_with_context(carrier, octets, limit))
            if not span.is_recording():
                return message
            span.set_attribute("cubecast.sequence", message.sequence)
        self._watch(message, span)
        return message

    def _watch(self, message: Message, span: Span) -> None:
        stable = self._tracer.start_span("stable", context=trace.set_span_in_context(span))
        task = asyncio.get_running_loop().create_task(_end_when_stable(message, stable))
        self._waiting.add(task)
        task.add_done_callback(self._waiting.discard)

    # Receiving.

    def __aiter__(self) -> TracedEntries:
        """The deliveries, as of `Group`."""
        return TracedEntries(self, self.group.__aiter__())

    def events(self) -> TracedEntries:
        """As `Group.events`."""
        return TracedEntries(self, self.group.events())

    async def receive(self, timeout: float | None = None) -> Delivery:
        """As `Group.receive`."""
        self._dealt_with()
        return self._take(await self.group.receive(timeout))

    def _take(self, delivery: Delivery) -> Delivery:
        carrier, payload = _without_context(delivery.payload)
        if carrier is None:
            return delivery
        if carrier:
            self.span = self._tracer.start_span(
                "deliver",
                context=propagate.extract(carrier),
                kind=SpanKind.CONSUMER,
                attributes={
                    **self._attributes("process", payload),
                    "cubecast.sender": delivery.sender.name,
                    "cubecast.sequence": delivery.sequence,
                    "cubecast.view": delivery.view,
                },
            )
        head = delivery.record[: len(delivery.record) - len(delivery.payload)]
        return Delivery(delivery.sender, delivery.view, delivery.sequence, head + payload, delivery.is_history)

    def _dealt_with(self) -> None:
        self.span.end()
        self.span = trace.INVALID_SPAN

    def _attributes(self, operation: str, payload: bytes) -> dict[str, str | int]:
        return {
            "messaging.system": "cubecast",
            "messaging.destination.name": self.group.name,
            "messaging.operation.type": operation,
            "messaging.message.body.size": len(payload),
            "cubecast.member": self.group.address,
        }


class TracedEntries:
    """The entries of a group; the span of a delivery is open while the application processes it."""

    def __init__(self, traced: Traced, entries: Entries[Any]) -> None:
        """Created by `Traced`."""
        self._traced = traced
        self._entries = entries

    def __aiter__(self) -> Self:
        """Itself."""
        return self

    async def __anext__(self) -> Event:
        """The next entry."""
        self._traced._dealt_with()
        entry = await self._entries.__anext__()
        return self._traced._take(entry) if isinstance(entry, Delivery) else entry


async def _end_when_stable(message: Message, span: Span) -> None:
    try:
        await message.stable()
    except CubecastError as error:
        span.record_exception(error)
        span.set_status(Status(StatusCode.ERROR, str(error)))
    except asyncio.CancelledError:
        span.set_status(Status(StatusCode.ERROR, "the program ended before the message was stable"))
        raise
    finally:
        span.end()


def _with_context(carrier: Mapping[str, str], payload: bytes, bytes_max: int) -> bytes:
    """The context and the payload, or the payload alone if there is no context or no room for it.

    An empty context precedes a payload that would be taken for one with a context.
    """
    for context in (carrier, {}):
        if not context and _without_context(payload)[0] is None:
            break
        encoded = msgspec.msgpack.encode(context)
        if len(encoded) < 1 << 8 * _LENGTH_BYTES:
            whole = b"".join((MARK, len(encoded).to_bytes(_LENGTH_BYTES, "big"), encoded, payload))
            if len(whole) <= bytes_max:
                return whole
    return payload


def _without_context(octets: bytes) -> tuple[dict[str, str] | None, bytes]:
    """The context and the payload; None if there is no context, or none that can be read."""
    begin = len(MARK) + _LENGTH_BYTES
    if not octets.startswith(MARK) or len(octets) < begin:
        return None, octets
    end = begin + int.from_bytes(octets[len(MARK) : begin], "big")
    if end > len(octets):
        return None, octets
    try:
        return msgspec.msgpack.decode(octets[begin:end], type=dict[str, str]), octets[end:]
    except msgspec.DecodeError:
        return None, octets

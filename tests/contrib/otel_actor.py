"""One process of the tracing test: it multicasts, takes all messages, leaves, and prints its spans."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import cubecast
from cubecast.contrib.otel import Traced


async def main(task: dict[str, Any]) -> None:
    """Each process multicasts one message, under a span of its own, and takes that of every process."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer("test")
    group = Traced(
        cubecast.join("traced", listen=task["listen"], peers=task["peers"], plaintext=True), tracer_provider=provider
    )
    async with group:
        with tracer.start_as_current_span("request"):
            message = await group.multicast(task["listen"].encode())
        for _ in task["peers"]:
            delivery = await group.receive(60)
            assert delivery.payload == delivery.sender.name.encode()
            with trace.use_span(group.span), tracer.start_as_current_span("work"):
                await asyncio.sleep(0.01)
        await message.stable(60)
    for span in exporter.get_finished_spans():
        assert span.context is not None
        print(
            json.dumps(
                {
                    "name": span.name,
                    "trace": span.context.trace_id,
                    "span": span.context.span_id,
                    "parent": span.parent.span_id if span.parent else None,
                    "start": span.start_time,
                    "end": span.end_time,
                    "status": span.status.status_code.name,
                    **dict(span.attributes or {}),
                }
            ),
            flush=True,
        )


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1])))

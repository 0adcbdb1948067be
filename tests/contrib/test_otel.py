"""Spans of messages, across processes and in one."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("opentelemetry.sdk")
from opentelemetry import propagate
from opentelemetry.context import Context
from opentelemetry.propagators.textmap import TextMapPropagator, default_setter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON
from opentelemetry.trace import StatusCode

from cubecast.bus import Bus
from cubecast.contrib.otel import MARK, Traced
from cubecast.live.local import free_addresses
from tests.live.members import WAIT_S, groups_of, one, quick, vanish

pytestmark = pytest.mark.live

ROOT = Path(__file__).parents[2]


def test_a_message_has_one_trace_from_its_cause_to_every_delivery_and_to_stable() -> None:
    addresses = free_addresses(2)
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.contrib.otel_actor", json.dumps({"listen": at, "peers": addresses})],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "CUBECAST_JIT": "off"},
        )
        for at in addresses
    ]
    spans: list[dict[str, Any]] = []
    for process in processes:
        spans += map(json.loads, process.communicate(timeout=200)[0].splitlines())
        assert process.returncode == 0
    assert len({span["span"] for span in spans}) == len(spans)
    for sender in addresses:
        sent = next(span for span in spans if span["name"] == "multicast" and span["cubecast.member"] == sender)
        of_trace = [span for span in spans if span["trace"] == sent["trace"]]
        names = sorted(span["name"] for span in of_trace)
        assert names == ["deliver", "deliver", "multicast", "request", "stable", "work", "work"]
        by_name = {span["name"]: span for span in of_trace}
        delivered = [span for span in of_trace if span["name"] == "deliver"]
        assert sent["parent"] == by_name["request"]["span"]
        assert {span["cubecast.member"] for span in delivered} == set(addresses)
        assert {span["cubecast.sender"] for span in delivered} == {sender}
        assert {span["parent"] for span in (*delivered, by_name["stable"])} == {sent["span"]}
        assert {span["parent"] for span in of_trace if span["name"] == "work"} == {span["span"] for span in delivered}
        assert by_name["stable"]["start"] >= sent["start"]
        assert {span["messaging.message.body.size"] for span in (sent, *delivered)} == {len(sender)}
        assert {span["status"] for span in of_trace} == {"UNSET"}


def test_a_bus_over_a_traced_group_and_messages_without_a_context() -> None:
    async def run() -> None:
        exporter = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(exporter))
        group = Traced(one(found=True), tracer_provider=provider)
        async with Bus(group) as bus:  # type: ignore[arg-type]
            events = bus.subscribe("t")
            await bus.publish("t", b"traced")
            await group.group.multicast(b"not of the bus")
            await bus.publish("t", MARK + b"\xff\xff")
            assert [(await events.get(WAIT_S)).value for _ in range(2)] == [b"traced", MARK + b"\xff\xff"]
            assert bus.undecodable == 1
        names = [span.name for span in exporter.get_finished_spans()]
        assert [names.count(name) for name in ("multicast", "deliver", "stable")] == [2, 2, 2]

    asyncio.run(run())


@pytest.mark.parametrize("payload", [b"", b"plain", MARK, MARK + b"\x00\x05abc", MARK + b"\xff\xff\x80"])
def test_a_payload_that_was_not_traced_arrives_as_it_is(payload: bytes) -> None:
    async def run() -> None:
        group = Traced(one(found=True))
        async with group:
            await group.group.multicast(payload)
            delivery = await group.receive(WAIT_S)
            assert delivery.payload == payload
            await group.multicast(payload)  # without an SDK: no span, no context
            assert (await group.group.receive(WAIT_S)).payload == payload

    asyncio.run(run())


@asynccontextmanager
async def recorded(**settings: Any) -> AsyncIterator[tuple[Traced, InMemorySpanExporter]]:
    """A member alone whose spans are recorded."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    async with Traced(one(found=True, settings=quick(**settings)), tracer_provider=provider) as group:
        yield group, exporter


class Propagator(TextMapPropagator):
    """Injects what a test says."""

    def __init__(self, **fields: str) -> None:
        self._fields = fields

    def inject(self, carrier: Any, context: Any = None, setter: Any = default_setter) -> None:  # noqa: ARG002
        for key, value in self._fields.items():
            setter.set(carrier, key, value)

    def extract(self, carrier: Any, context: Any = None, getter: Any = None) -> Context:  # noqa: ARG002
        return context or Context()

    @property
    def fields(self) -> set[str]:
        return set(self._fields)


@pytest.mark.parametrize("fields", [{}, {"baggage": "x" * 70_000}], ids=["nothing", "too much"])
def test_whatever_a_propagator_injects_the_payload_arrives_as_it_was_sent(
    fields: dict[str, str],
) -> None:
    async def run() -> None:
        async with recorded() as (group, _):
            await group.multicast(b"order 7")
            assert (await group.receive(WAIT_S)).payload == b"order 7"

    before = propagate.get_global_textmap()
    propagate.set_global_textmap(Propagator(**fields))
    try:
        asyncio.run(run())
    finally:
        propagate.set_global_textmap(before)


@pytest.mark.parametrize("size", [4096, 4096 - len(MARK)])
def test_a_payload_that_leaves_no_room_for_a_context_is_sent_without_it(size: int) -> None:
    async def run() -> None:
        async with recorded(payload_bytes_max=4096) as (group, exporter):
            message = await group.multicast(bytes(size))
            await message.stable(WAIT_S)
            assert (await group.receive(WAIT_S)).payload == bytes(size)
        assert {span.name for span in exporter.get_finished_spans()} == {"multicast", "stable"}

    asyncio.run(run())


@pytest.mark.parametrize("payload", [MARK + b"\x00\x01\x80rest", MARK + b"\x00\x05\x81\xa1a\xa1b"])
def test_a_payload_that_looks_like_a_context_arrives_as_it_was_sent(payload: bytes) -> None:
    async def run() -> None:
        for sampler in (ALWAYS_ON, ALWAYS_OFF):
            provider = TracerProvider(sampler=sampler)
            async with Traced(one(found=True), tracer_provider=provider) as group:
                await group.multicast(payload)
                assert (await group.receive(WAIT_S)).payload == payload

    asyncio.run(run())


def test_a_message_that_was_not_stable_when_its_member_left_ends_with_an_error() -> None:
    async def run() -> None:
        exporter = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(exporter))
        async with groups_of(2, suspect_after_s=120.0) as (first, second):
            await vanish(second)
            group = Traced(first, tracer_provider=provider)
            await group.multicast(b"nobody else gets it")
            await group.receive(WAIT_S)
            await group.leave(timeout=0.1)
        (stable,) = [span for span in exporter.get_finished_spans() if span.name == "stable"]
        assert stable.status.status_code is StatusCode.ERROR
        assert {span.name for span in exporter.get_finished_spans()} == {"multicast", "deliver", "stable"}

    asyncio.run(run())


def test_all_spans_end_when_leaving_is_cancelled_or_the_loop_ends() -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))

    async def run() -> None:
        async with groups_of(2, suspect_after_s=120.0) as (first, second):
            await vanish(second)
            group = Traced(first, tracer_provider=provider)
            await group.multicast(b"nobody else gets it")
            await group.receive(WAIT_S)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await group.__aexit__(None, None, None)

    asyncio.run(run())
    assert {span.name for span in exporter.get_finished_spans()} == {"multicast", "deliver", "stable"}
    (stable,) = [span for span in exporter.get_finished_spans() if span.name == "stable"]
    assert stable.status.status_code is StatusCode.ERROR

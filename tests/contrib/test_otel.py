"""Spans of messages, across processes and in one."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("opentelemetry.sdk")
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from cubecast.bus import Bus
from cubecast.contrib.otel import MARK, Traced
from cubecast.live.local import free_addresses
from tests.live.members import WAIT_S, one

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

"""Uses that would break a bus: replies that are too large, presence that fits no message, subscribers of a dead bus."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest

from cubecast.bus import BusEvent, Codec, RequestError
from cubecast.bus.envelope import REPLY, Envelope, encode
from cubecast.errors import LocalProtocolError
from tests.bus.buses import buses_of, newcomer
from tests.live.members import WAIT_S, until

pytestmark = pytest.mark.live
SMALL = {"payload_bytes_max": 4096}


async def too_large(_event: BusEvent) -> bytes:
    return bytes(5000)


async def too_large_an_error(_event: BusEvent) -> bytes:
    raise RuntimeError("x" * 5000)


async def cancelled_inside(_event: BusEvent) -> bytes:
    raise asyncio.CancelledError


def not_asynchronous(_event: BusEvent) -> bytes:
    return b"x"


@pytest.mark.parametrize("function", [too_large, too_large_an_error, cancelled_inside, not_asynchronous])
def test_a_request_whose_answer_cannot_be_sent_fails_at_once(
    function: Callable[[BusEvent], Any], caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        async with buses_of(2, SMALL) as (one, two):
            two.serve("f", function)
            with pytest.raises(RequestError) as error:
                await one.request("f", b"", to=two.group.me, timeout=WAIT_S)
            assert len(str(error.value)) < 1000

    caplog.set_level(logging.CRITICAL)
    asyncio.run(run())


def test_a_request_that_the_other_member_cannot_decode_fails_at_once(caplog: pytest.LogCaptureFixture) -> None:
    def decode(octets: bytes) -> bytes:
        if octets == b"bad":
            raise ValueError("bad")
        return octets

    async def serve(event: BusEvent) -> bytes:
        return bytes(event.value)

    async def run() -> None:
        async with buses_of(2, codec=Codec("picky", bytes, decode)) as (one, two):
            two.serve("f", serve)
            with pytest.raises(RequestError, match="cannot be decoded as picky: bad"):
                await one.request("f", b"bad", to=two.group.me, timeout=WAIT_S)
            assert await one.request("f", b"good", to=two.group.me, timeout=WAIT_S) == b"good"

    caplog.set_level(logging.CRITICAL)
    asyncio.run(run())


def test_presence_of_more_topics_than_fit_into_a_message_reaches_members_and_newcomers() -> None:
    topics = [f"room {number} {'x' * 100}" for number in range(200)]

    async def run() -> None:
        async with buses_of(2, SMALL, presence=True) as (one, two):
            readers = [two.subscribe(topic) for topic in topics]
            await until(lambda: all(one.presence(topic) == {two.group.me: 1} for topic in topics))
            third = await newcomer(one, presence=True)
            async with third:
                await until(lambda: all(third.presence(topic) == {two.group.me: 1} for topic in topics))
                for reader in readers:
                    reader.end()
                await until(lambda: not any(bus.presence(topic) for bus in (one, third) for topic in topics))

    asyncio.run(run())


def test_a_bus_that_has_ended_takes_no_subscribers_and_no_requests() -> None:
    async def run() -> None:
        async with buses_of(1) as (bus,):
            pass
        with pytest.raises(LocalProtocolError, match="has ended"):
            bus.subscribe("t")
        with pytest.raises(LocalProtocolError):
            await bus.request("t", b"", timeout=None)
        with pytest.raises(LocalProtocolError):
            await bus.publish("t", b"")

    asyncio.run(run())


def test_polling_an_empty_subscription_leaves_nothing_behind() -> None:
    async def run() -> None:
        async with buses_of(1) as (bus,):
            reader = bus.subscribe("t")
            for _ in range(100):
                with pytest.raises(TimeoutError):
                    await reader.get(0)
            assert not reader._consumers
            await bus.publish("t", b"x")
            assert (await reader.get(WAIT_S)).value == b"x"

    asyncio.run(run())


def test_a_reply_to_a_request_of_an_earlier_process_answers_no_other() -> None:
    """A member that continues from its journal has the identity of its earlier process, and counts anew."""

    async def run() -> None:
        async with buses_of(2) as (one, two):
            asking = asyncio.create_task(one.request("f", b"", to=two.group.me, timeout=0.3))
            for number in range(3):
                late = Envelope(REPLY, "f", b"late", one.group.me, number)
                await two.group.multicast(encode(late))
            with pytest.raises(TimeoutError):
                await asking

    asyncio.run(run())


def test_a_request_of_a_member_that_is_excluded_fails_when_it_is_back() -> None:
    """The reply is for its earlier incarnation."""

    async def never(_event: BusEvent) -> None:
        await asyncio.Event().wait()

    async def run() -> None:
        async with buses_of(3) as (one, _, three):
            one.serve("f", never)
            asking = asyncio.create_task(three.request("f", b"", to=one.group.me, timeout=None))
            await asyncio.sleep(0.1)
            driver = three.group._entered()
            driver.call(lambda _: driver.member._go_out("a test says so"))
            with pytest.raises(RequestError, match="excluded"):
                await asyncio.wait_for(asking, WAIT_S)

    asyncio.run(run())


def test_leaving_does_not_wait_for_a_subscriber_that_does_not_read() -> None:
    async def run() -> None:
        async with buses_of(2) as (one, two):
            reader = two.subscribe("t", capacity=1, when_full="wait")
            for number in range(5):
                await one.publish("t", b"%d" % number)
            await until(lambda: len(reader) == 1)
            async with asyncio.timeout(5):
                await two.__aexit__(None, None, None)
            assert (await reader.get()).value == b"0"
            with pytest.raises(LocalProtocolError):
                await reader.get()

    asyncio.run(run())

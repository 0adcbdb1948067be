"""Uses that would break a bus: replies that are too large, presence that fits no message, subscribers of a dead bus."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cubecast.bus import Bus, BusEvent, Codec, RequestError
from cubecast.bus.envelope import REPLY, Envelope, encode
from cubecast.errors import LocalProtocolError
from cubecast.live.group import join
from cubecast.live.local import free_addresses
from tests.bus.buses import buses_of, newcomer
from tests.live.members import NEVER, WAIT_S, quick, until, vanish

pytestmark = pytest.mark.live
SMALL = {"payload_bytes_max": 4096}


class SilentError(Exception):
    """An error whose text raises."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


async def too_large(_event: BusEvent) -> bytes:
    return bytes(5000)


async def too_large_an_error(_event: BusEvent) -> bytes:
    raise RuntimeError("x" * 5000)


async def cancelled_inside(_event: BusEvent) -> bytes:
    raise asyncio.CancelledError


async def never(_event: BusEvent) -> None:
    await asyncio.Event().wait()


async def no_text(_event: BusEvent) -> None:
    raise SilentError


async def many_lines(_event: BusEvent) -> None:
    raise RuntimeError("one\ntwo\n" * 10)


def not_asynchronous(_event: BusEvent) -> bytes:
    return b"x"


@pytest.mark.parametrize(
    "function", [too_large, too_large_an_error, cancelled_inside, no_text, many_lines, not_asynchronous]
)
def test_a_request_whose_answer_cannot_be_sent_fails_at_once(
    function: Callable[[BusEvent], Any], caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        async with buses_of(2, SMALL) as (one, two):
            two.serve("f", function)
            with pytest.raises(RequestError) as error:
                await one.request("f", b"", to=two.group.me, timeout=WAIT_S)
            assert len(str(error.value)) < 1000
            assert len(str(error.value).splitlines()) == 1

    caplog.set_level(logging.CRITICAL)
    asyncio.run(run())


def test_a_request_that_the_other_member_cannot_decode_fails_at_once(caplog: pytest.LogCaptureFixture) -> None:
    def decode(octets: bytes) -> bytes:
        if octets == b"bad":
            raise ValueError("bad\nvalue")
        return octets

    async def serve(event: BusEvent) -> bytes:
        return bytes(event.value)

    async def run() -> None:
        async with buses_of(2, codec=Codec("picky", bytes, decode)) as (one, two):
            two.serve("f", serve)
            with pytest.raises(RequestError, match=r"cannot be decoded as picky: bad value$"):
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
            two.serve("f", never)
            asking = asyncio.create_task(one.request("f", b"", to=two.group.me, timeout=0.3))
            for number in range(3):
                late = Envelope(REPLY, "f", b"late", one.group.me, number)
                await two.group.multicast(encode(late))
            with pytest.raises(TimeoutError):
                await asking

    asyncio.run(run())


def test_a_request_of_a_member_that_is_excluded_fails_when_it_is_back() -> None:
    """The reply is for its earlier incarnation."""

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


def raises(error: type[BaseException]) -> Callable[[Any], Any]:
    def function(_value: Any) -> Any:
        raise error

    return function


@pytest.mark.parametrize("error", [SilentError, StopIteration, asyncio.CancelledError, RecursionError])
def test_a_codec_that_raises_whatever_costs_its_own_message_only(
    error: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    def decode(octets: bytes) -> bytes:
        return octets if octets != b"bad" else raises(error)(octets)

    async def run() -> None:
        async with buses_of(2, codec=Codec("moody", bytes, decode)) as (one, two):
            events = two.subscribe("t")
            await one.publish("t", b"bad")
            await one.publish("t", b"good")
            assert (await events.get(WAIT_S)).value == b"good"
            assert two.undecodable == 1
        async with buses_of(1, codec=Codec("moody", raises(error), bytes)) as (bus,):
            with pytest.raises(LocalProtocolError, match=f"cannot be encoded as moody: {error.__name__}"):
                await bus.publish("t", b"x")

    asyncio.run(run())
    assert f"cannot be decoded as moody: {error.__name__}" in caplog.text


def test_a_bus_is_entered_once() -> None:
    """A second loop of deliveries would break their order."""

    async def run() -> None:
        async with buses_of(1) as (bus,):
            with pytest.raises(LocalProtocolError, match="already entered"):
                await bus.__aenter__()
        with pytest.raises(LocalProtocolError, match="already entered"):
            await bus.__aenter__()

    asyncio.run(run())


def test_a_name_that_is_far_too_long_is_refused_in_a_short_line() -> None:
    async def run() -> None:
        async with buses_of(1) as (bus,):
            with pytest.raises(LocalProtocolError, match="is not a member") as error:
                await bus.send("x" * 100_000, "t", b"x")
            assert len(str(error.value)) < 500

    asyncio.run(run())


@pytest.mark.parametrize("who", [5, b"name", None, ("name",)])
def test_what_names_no_member_is_refused_in_one_line(who: Any) -> None:
    async def run() -> None:
        async with buses_of(1) as (bus,):
            with pytest.raises(LocalProtocolError, match="give a name, an address or a MemberId"):
                await bus.send(who, "t", b"x")

    asyncio.run(run())


def test_a_request_to_a_member_that_does_not_serve_the_topic_fails_at_once() -> None:
    async def run() -> None:
        async with buses_of(2) as (one, two):
            with pytest.raises(RequestError, match="failed to serve 'f': this member does not serve it"):
                await one.request("f", b"", to=two.group.me, timeout=None)
            with pytest.raises(LocalProtocolError, match="give an `async` function"):
                two.serve("f", 5)  # type: ignore[arg-type]

    asyncio.run(run())


def test_another_event_loop_can_use_no_part_of_a_bus() -> None:
    async def run() -> None:
        async with buses_of(2) as (one, _):
            events = one.subscribe("t")
            for work in (one.publish("t", b"x"), one.request("f", b"x"), events.get()):
                with pytest.raises(LocalProtocolError, match="joined in another event loop"):
                    await asyncio.to_thread(asyncio.run, work)
            assert not len(events)

    asyncio.run(run())


def test_an_error_of_the_bus_itself_ends_its_subscribers_and_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        async with buses_of(1) as (bus,):
            events = bus.subscribe("t")
            monkeypatch.setattr(bus, "_deliver", raises(KeyError))
            await bus.publish("t", b"x")
            with pytest.raises(LocalProtocolError, match="an error of its own: KeyError"):
                await events.get(WAIT_S)

    asyncio.run(run())
    assert "bus ended member=" in caplog.text


def test_a_process_that_restarts_from_its_journal_takes_back_what_the_earlier_one_announced(tmp_path: Path) -> None:
    async def run() -> None:
        addresses = free_addresses(2)

        def bus(place: int, **options: Any) -> Bus:
            journal = tmp_path / f"{place}.journal"
            group = join(
                "b", listen=addresses[place], peers=addresses, plaintext=True, settings=quick(**NEVER), journal=journal
            )
            return Bus(group, **options)

        one, two = bus(0), bus(1, name="billing", presence=True)
        await asyncio.gather(one.__aenter__(), two.__aenter__())
        two.subscribe("t")
        await until(lambda: one.names == {two.group.me: "billing"} and one.presence("t") == {two.group.me: 1})
        await vanish(two.group)
        again = bus(1)
        await again.__aenter__()
        assert again.group.me == two.group.me
        await until(lambda: one.names == {} and one.presence("t") == {})
        await asyncio.gather(one.group.leave(), again.group.leave())

    asyncio.run(run())

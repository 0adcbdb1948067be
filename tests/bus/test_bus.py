"""Topics over one group: who gets what, in which order, and what happens to those who do not read."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import numpy as np
import pytest

from cubecast.bus import BYTES, JSON, MSGPACK, Bus, BusEvent, Codec, RequestError, SlowSubscriberError
from cubecast.bus.envelope import TOPIC_CHARACTERS_MAX
from cubecast.errors import LocalProtocolError
from cubecast.live.group import join
from tests.bus.buses import buses_of, newcomer
from tests.live.members import WAIT_S, until, vanish

pytestmark = pytest.mark.live

STRANGE = ["a b", "ä/ö#+*", "\n\t\0", "🚲", "a" * TOPIC_CHARACTERS_MAX, "__presence__", "../../etc/passwd", "%s{}"]


def test_every_subscriber_of_the_topic_gets_each_event_once_in_the_order_of_its_publisher() -> None:
    async def run() -> None:
        async with buses_of(3) as (one, two, three):
            readers = [bus.subscribe("t") for bus in (one, two, three, three)]
            other = two.subscribe("another")
            for number in range(200):
                await one.publish("t", b"%d" % number)
            for reader in readers:
                got = [await reader.get(WAIT_S) for _ in range(200)]
                assert [event.value for event in got] == [b"%d" % number for number in range(200)]
                assert {event.sender for event in got} == {one.group.me}
                assert not len(reader)
            assert not len(other)

    asyncio.run(run())


def test_an_answer_published_on_another_topic_comes_after_its_question_everywhere() -> None:
    async def run() -> None:
        async with buses_of(3) as (one, two, three):
            questions, both = two.subscribe("question"), three.subscribe("question", "answer")

            async def answer() -> None:
                async for event in questions:
                    await two.publish("answer", event.value)

            task = asyncio.create_task(answer())
            for number in range(50):
                await one.publish("question", b"%d" % number)
            got = [await both.get(WAIT_S) for _ in range(100)]
            for number in range(50):
                places = [place for place, event in enumerate(got) if event.value == b"%d" % number]
                assert [got[place].topic for place in places] == ["question", "answer"]
            task.cancel()

    asyncio.run(run())


@pytest.mark.parametrize("topic", STRANGE, ids=range(len(STRANGE)))
def test_any_text_is_a_topic(topic: str) -> None:
    async def run() -> None:
        async with buses_of(1) as (bus,):
            reader = bus.subscribe(topic)
            await bus.publish(topic, b"x")
            assert (await reader.get(WAIT_S)).topic == topic

    asyncio.run(run())


@pytest.mark.parametrize("topic", ["", "a" * (TOPIC_CHARACTERS_MAX + 1), "\ud800", b"t", None, 7])
def test_what_is_no_text_or_too_long_is_refused_in_one_line(topic: Any) -> None:
    async def run() -> None:
        async with buses_of(1) as (bus,):
            with pytest.raises(LocalProtocolError, match="topic") as error:
                await bus.publish(topic, b"x")
            assert len(str(error.value).splitlines()) == 1
            with pytest.raises(LocalProtocolError, match="topic"):
                bus.subscribe(topic)

    asyncio.run(run())


def test_a_client_that_does_not_read_loses_the_oldest_and_others_lose_nothing() -> None:
    async def run() -> None:
        async with buses_of(2) as (one, two):
            slow, newest, quick = (
                two.subscribe("t", capacity=5),
                two.subscribe("t", capacity=5, when_full="drop_newest"),
                (two.subscribe("t")),
            )
            for number in range(20):
                await one.publish("t", b"%d" % number)
            assert [(await quick.get(WAIT_S)).value for _ in range(20)] == [b"%d" % number for number in range(20)]
            assert (slow.dropped, newest.dropped) == (15, 15)
            assert [(await slow.get()).value for _ in range(5)] == [b"%d" % number for number in range(15, 20)]
            assert [(await newest.get()).value for _ in range(5)] == [b"%d" % number for number in range(5)]

    asyncio.run(run())


def test_a_subscriber_that_chose_to_end_gets_the_error_after_what_was_queued() -> None:
    async def run() -> None:
        async with buses_of(1) as (bus,):
            ending, other = bus.subscribe("t", capacity=2, when_full="end"), bus.subscribe("t")
            for number in range(4):
                await bus.publish("t", b"%d" % number)
            assert [(await other.get(WAIT_S)).value for _ in range(4)] == [b"0", b"1", b"2", b"3"]
            assert [(await ending.get()).value for _ in range(2)] == [b"0", b"1"]
            with pytest.raises(SlowSubscriberError, match="capacity=2"):
                await ending.get()

    asyncio.run(run())


def test_publishers_wait_for_a_subscriber_that_waits_and_nothing_is_lost() -> None:
    async def run() -> None:
        settings = {"window_bytes": 1 << 16, "payload_bytes_max": 1 << 14, "backlog_bytes": 1 << 16}
        async with buses_of(2, settings) as (one, two):
            reader = two.subscribe("t", capacity=4, when_full="wait")
            published = 0

            async def publish() -> None:
                nonlocal published
                for number in range(100):
                    await one.publish("t", b"%03d" % number + bytes(8000))
                    published += 1

            task = asyncio.create_task(publish())
            await asyncio.sleep(1.0)
            assert published < 60, "the publisher did not wait"
            got = [(await reader.get(WAIT_S)).value[:3] for _ in range(100)]
            assert got == [b"%03d" % number for number in range(100)]
            assert reader.dropped == 0
            await task

    asyncio.run(run())


def test_a_reader_that_is_cancelled_loses_nothing() -> None:
    async def run() -> None:
        async with buses_of(1) as (bus,):
            reader = bus.subscribe("t")
            with pytest.raises(TimeoutError):
                await reader.get(0.01)
            first, second = (asyncio.create_task(reader.get()) for _ in range(2))
            await asyncio.sleep(0)
            reader.put(BusEvent("t", b"1", bus.group.me, 1))  # wakes the first, which is cancelled before it runs
            first.cancel()
            assert (await asyncio.wait_for(second, WAIT_S)).value == b"1"

    asyncio.run(run())


def test_a_subscriber_can_leave_out_what_its_own_member_publishes() -> None:
    async def run() -> None:
        async with buses_of(2) as (one, two):
            others, everything = one.subscribe("t", own=False), one.subscribe("t")
            await one.publish("t", b"mine")
            assert (await everything.get(WAIT_S)).value == b"mine"
            await two.publish("t", b"theirs")
            assert (await others.get(WAIT_S)).value == b"theirs"
            assert (await everything.get(WAIT_S)).value == b"theirs"

    asyncio.run(run())


def test_an_ended_subscription_ends_its_iteration_and_gets_nothing_more() -> None:
    async def run() -> None:
        async with buses_of(1) as (bus,):
            async with bus.subscribe("t") as reader:
                await bus.publish("t", b"1")
                await until(lambda: len(reader))
            await bus.publish("t", b"2")
            assert [event.value async for event in reader] == [b"1"]
            assert bus._subscribers == {}

    asyncio.run(run())


@pytest.mark.parametrize(
    ("codec", "value"),
    [
        (BYTES, b"\x00\xff"),
        (JSON, {"a": [1, None, "ä"], "b": 1.5}),
        (MSGPACK, {"a": b"\x00\xff", "b": [1, None]}),
        (Codec("text", lambda text: text.encode("utf-16"), lambda octets: octets.decode("utf-16")), "grün"),
    ],
    ids=["bytes", "json", "msgpack", "own"],
)
def test_values_arrive_as_they_were_published(codec: Codec, value: Any) -> None:
    async def run() -> None:
        async with buses_of(2, codec=codec) as (one, two):
            reader = two.subscribe("t")
            await one.publish("t", value)
            assert (await reader.get(WAIT_S)).value == value

    asyncio.run(run())


class Markup(str):
    """A string such as Django's SafeString, which `str` does not change."""

    __slots__ = ()

    def __str__(self) -> str:
        return self


@pytest.mark.parametrize(
    ("value", "arrives"),
    [
        (Markup("<b>"), "<b>"),
        ({Markup("a"): [Markup("b")]}, {"a": ["b"]}),
        ([np.float64(1.5), type("Id", (int,), {})(7), type("Octets", (bytes,), {})(b"x")], [1.5, 7, b"x"]),
    ],
)
def test_an_instance_of_a_subclass_arrives_as_the_basic_type(value: Any, arrives: Any) -> None:
    decoded = MSGPACK.from_bytes(MSGPACK.to_bytes(value))
    assert decoded == arrives
    assert "Markup" not in repr([type(one) for one in (decoded, *decoded)])


@pytest.mark.parametrize(
    ("codec", "value"),
    [
        (BYTES, "text"),
        (JSON, {1, 2}),
        (JSON, b"x"),
        (MSGPACK, object()),
        (MSGPACK, 1 << 70),
        (Codec("odd", lambda value: value.decode(), bytes), b"x"),
    ],
)
def test_a_value_that_cannot_be_encoded_is_refused_in_one_line_and_sends_nothing(codec: Codec, value: Any) -> None:
    async def run() -> None:
        async with buses_of(1, codec=codec) as (bus,):
            with pytest.raises(LocalProtocolError) as error:
                await bus.publish("t", value)
            assert len(str(error.value).splitlines()) == 1
            assert bus.group.stats["published"] == 0

    asyncio.run(run())


def test_messages_that_are_not_of_the_bus_are_skipped_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        async with buses_of(1, codec=JSON) as (bus,):
            reader = bus.subscribe("t")
            for payload in (b"", b"\xc1", b"\x95\x00\x01", b"text"):
                await bus.group.multicast(payload)
            foreign = Bus(bus.group)
            await foreign.publish("t", b"{")
            await bus.publish("t", 1)
            assert (await reader.get(WAIT_S)).value == 1
            assert bus.undecodable == 5

    with caplog.at_level(logging.ERROR):
        asyncio.run(run())
    assert not caplog.records


def test_a_message_to_one_member_reaches_no_other_and_keeps_the_order() -> None:
    async def run() -> None:
        async with buses_of(3) as (one, two, three):
            right, wrong = two.subscribe("t"), three.subscribe("t")
            for number in range(20):
                if number % 2:
                    await one.publish("t", b"%d" % number)
                else:
                    await one.send(two.group.me, "t", b"%d" % number)
            assert [(await right.get(WAIT_S)).value for _ in range(20)] == [b"%d" % number for number in range(20)]
            assert [(await wrong.get(WAIT_S)).value for _ in range(10)] == [b"%d" % n for n in range(1, 20, 2)]
            gone = two.group.me._replace(incarnation=1)
            with pytest.raises(LocalProtocolError, match="is not in the group"):
                await one.send(gone, "t", b"x")

    asyncio.run(run())


def test_a_request_gets_its_reply_from_the_member_that_it_names() -> None:
    async def run() -> None:
        async with buses_of(3, codec=JSON) as buses:
            for place, bus in enumerate(buses):

                async def serve(event: BusEvent, place: int = place) -> Any:
                    return [place, event.value]

                bus.serve("where", serve)
            replies = [await buses[0].request("where", "?", to=bus.group.me) for bus in buses]
            assert replies == [[0, "?"], [1, "?"], [2, "?"]]
            assert (await buses[0].request("where", "any"))[1] == "any"
            assert buses[0]._requests == {}

    asyncio.run(run())


def test_members_are_called_by_their_names_or_addresses() -> None:
    async def run() -> None:
        async with buses_of(2, codec=JSON) as (one, two):
            late = await newcomer(one, codec=JSON, name="billing")
            async with late:
                late.serve("who", lambda event: asyncio.sleep(0, "it is billing"))
                await until(lambda: two.names == one.names == late.names == {late.group.me: "billing"})
                events = late.subscribe("t")
                await two.send("billing", "t", 1)
                await two.send(late.group.address, "t", 2)
                assert [(await events.get(WAIT_S)).value for _ in range(2)] == [1, 2]
                assert await one.request("who", None, to="billing", timeout=WAIT_S) == "it is billing"
                with pytest.raises(LocalProtocolError, match="'sales' is not a member"):
                    await one.send("sales", "t", 3)
                double = await newcomer(one, codec=JSON, name="billing")
                async with double:
                    await until(lambda: len(one.names) == len(double.names) == 2)
                    with pytest.raises(LocalProtocolError, match="'billing' names 2 members, "):
                        await one.request("who", None, to="billing")
                await until(lambda: one.names == {late.group.me: "billing"})
                assert one.member("billing") == late.group.me
                assert one.presence("t") == {}  # a name alone announces no subscribers

    asyncio.run(run())


@pytest.mark.parametrize("name", ["", "10.0.0.1:7001", "x" * 256, 5])
def test_what_is_no_name_is_refused_in_one_line(name: Any) -> None:
    with pytest.raises(LocalProtocolError, match=r"^name "):
        Bus(join("b", listen="127.0.0.1:7001", found=True, plaintext=True), name=name)


async def never(event: BusEvent) -> Any:
    await asyncio.Event().wait()


def test_a_request_fails_with_the_reason(caplog: pytest.LogCaptureFixture) -> None:
    async def broken(event: BusEvent) -> Any:
        raise ValueError("no such order")

    async def unencodable(event: BusEvent) -> Any:
        return {1, 2}

    async def run() -> None:
        async with buses_of(2, codec=JSON) as (one, two):
            two.serve("broken", broken)
            two.serve("odd", unencodable)
            with pytest.raises(RequestError, match="ValueError: no such order"):
                await one.request("broken", 1)
            with pytest.raises(RequestError, match="cannot be encoded"):
                await one.request("odd", 1)
            with pytest.raises(TimeoutError, match=r"no reply to 'nobody' within 0.1 s from any member that serves it"):
                await one.request("nobody", 1, timeout=0.1)
            two.serve("never", never)
            with pytest.raises(TimeoutError, match=f"no reply to 'never' within 0.1 s from {two.group.address}"):
                await one.request("never", 1, to=two.group.me, timeout=0.1)

    asyncio.run(run())


def test_a_request_to_a_member_that_dies_fails_when_the_view_does_without_it() -> None:
    async def run() -> None:
        async with buses_of(3) as (one, _, three):
            three.serve("t", never)
            asked = asyncio.create_task(one.request("t", b"?", to=three.group.me, timeout=None))
            await asyncio.sleep(0.1)
            await vanish(three.group)
            with pytest.raises(RequestError, match="left the group"):
                await asyncio.wait_for(asked, WAIT_S)

    asyncio.run(run())


def test_presence_counts_subscribers_and_forgets_those_of_a_dead_member() -> None:
    async def run() -> None:
        async with buses_of(3, presence=True) as (one, two, three):
            readers = [two.subscribe("room"), two.subscribe("room"), three.subscribe("room")]
            both = {two.group.me: 2, three.group.me: 1}
            await until(lambda: all(bus.presence("room") == both for bus in (one, two, three)))
            readers[0].end()
            await until(lambda: one.presence("room") == {two.group.me: 1, three.group.me: 1})
            async with await newcomer(one, presence=True) as four:
                await until(lambda: four.presence("room") == {two.group.me: 1, three.group.me: 1})
                await vanish(three.group)
                await until(lambda: four.presence("room") == one.presence("room") == {two.group.me: 1})
            assert one.presence("elsewhere") == {}

    asyncio.run(run())


def test_a_callback_that_raises_is_logged_and_the_bus_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        async with buses_of(2, presence=True) as (one, two):
            one.on_presence(lambda: 1 // 0)
            reader = one.subscribe("t")
            await until(lambda: "callback failed event=presence" in caplog.text)
            await two.publish("t", b"x")
            assert (await reader.get(WAIT_S)).value == b"x"

    asyncio.run(run())


def test_a_subscriber_of_a_bus_that_leaves_gets_the_rest_and_ends() -> None:
    async def run() -> None:
        async with buses_of(2) as (one, two):
            reader = two.subscribe("t")
            await (await one.publish("t", b"1")).stable(WAIT_S)
            await two.group.leave()
            assert [event.value async for event in reader] == [b"1"]
            with pytest.raises(LocalProtocolError, match="left"):
                await two.publish("t", b"2")

    asyncio.run(run())

"""The behaviours that the specification of channel layers names, in the style of the in-memory layer's own tests.

Each is shown on one layer, and where two processes matter, on two layers of one group.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from channels.exceptions import ChannelFull
from django.utils.safestring import mark_safe

from cubecast.bus import Bus
from cubecast.contrib.channel_queue import ChannelQueue
from cubecast.contrib.channels import CubecastChannelLayer
from cubecast.errors import JournalError, LocalProtocolError
from cubecast.live.group import Group, join
from cubecast.live.local import free_addresses, free_ports
from tests.live.members import WAIT_S, quick, until

pytestmark = pytest.mark.live

Test = Callable[[CubecastChannelLayer], Awaitable[None]]


def joining(address: str, addresses: list[str]) -> Callable[[], Awaitable[Group]]:
    how: dict[str, Any] = {"peers": addresses} if len(addresses) > 1 else {"found": True}
    return lambda: join("c", listen=address, plaintext=True, settings=quick(quorum="any"), **how).__aenter__()


@asynccontextmanager
async def layers_of(count: int, **options: Any) -> AsyncIterator[list[CubecastChannelLayer]]:
    addresses = free_addresses(count)
    layers = [CubecastChannelLayer(join=joining(one, addresses), **options) for one in addresses]
    async with AsyncExitStack() as stack:
        for layer in layers:
            stack.push_async_callback(layer.close)
        await asyncio.gather(*(layer._bus() for layer in layers))
        yield layers
        await asyncio.gather(*(layer.close() for layer in layers))


def on_one_layer(**options: Any) -> Callable[[Test], Callable[[], None]]:
    """Run a test on one layer."""

    def decorate(test: Test) -> Callable[[], None]:
        async def run() -> None:
            async with layers_of(1, **options) as (layer,):
                await test(layer)

        def synchronous() -> None:
            asyncio.run(run())

        synchronous.__name__ = test.__name__
        return synchronous

    return decorate


async def receive(layer: CubecastChannelLayer, channel: str) -> dict[str, Any]:
    return await asyncio.wait_for(layer.receive(channel), WAIT_S)


async def require_nothing(layer: CubecastChannelLayer, channel: str) -> None:
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(layer.receive(channel), 0.3)


@on_one_layer()
async def test_send_and_receive(layer: CubecastChannelLayer) -> None:
    await layer.send("test-channel-1", {"type": "test.message", "text": "Ahoy-hoy!", "data": b"\x00", "n": [1, None]})
    message = await receive(layer, "test-channel-1")
    assert message == {"type": "test.message", "text": "Ahoy-hoy!", "data": b"\x00", "n": [1, None]}


@pytest.mark.parametrize("name", ["¯\\_(ツ)_/¯", "chat!!!", "a" * 101, 7, ""])
def test_a_strange_name_is_refused(name: Any) -> None:
    @on_one_layer()
    async def refuse(layer: CubecastChannelLayer) -> None:
        with pytest.raises(TypeError):
            await layer.send(name, {"type": "m"})
        with pytest.raises(TypeError):
            await layer.receive(name)
        with pytest.raises(TypeError):
            await layer.group_add(name, "channel")
        with pytest.raises(TypeError):
            await layer.group_send(name, {"type": "m"})

    refuse()


@on_one_layer()
async def test_what_a_template_returns_is_text(layer: CubecastChannelLayer) -> None:
    await layer.group_add("g", "c")
    await layer.group_send("g", {"type": "m", "html": mark_safe("<b>bold</b>")})
    assert await layer.receive("c") == {"type": "m", "html": "<b>bold</b>"}


@on_one_layer()
async def test_a_message_that_cannot_be_encoded_is_refused_at_the_sender(layer: CubecastChannelLayer) -> None:
    with pytest.raises(LocalProtocolError, match="cannot be encoded"):
        await layer.group_send("g", {"type": "m", "value": object()})
    with pytest.raises(LocalProtocolError, match="cannot be encoded"):
        await layer.send("c", {"type": "m", "value": object()})
    with pytest.raises(AssertionError):
        await layer.send("c", "text")  # type: ignore[arg-type]


@on_one_layer(capacity=3)
async def test_a_full_channel_refuses_more_and_takes_again_when_one_is_received(layer: CubecastChannelLayer) -> None:
    for _ in range(3):
        await layer.send("c", {"type": "m"})
    with pytest.raises(ChannelFull):
        await layer.send("c", {"type": "m"})
    await layer.send("another", {"type": "m"})
    await receive(layer, "c")
    await layer.send("c", {"type": "m"})


@on_one_layer(capacity=5, channel_capacity={"small.*": 1})
async def test_capacity_by_the_name_of_the_channel(layer: CubecastChannelLayer) -> None:
    await layer.send("small.one", {"type": "m"})
    with pytest.raises(ChannelFull):
        await layer.send("small.one", {"type": "m"})
    for _ in range(5):
        await layer.send("large", {"type": "m"})


@on_one_layer()
async def test_a_specific_channel_of_this_process(layer: CubecastChannelLayer) -> None:
    channel = await layer.new_channel()
    other = await layer.new_channel(prefix="mine")
    assert channel != other
    assert other.startswith("mine.")
    assert layer.require_valid_channel_name(channel)
    await layer.send(channel, {"type": "m", "n": 1})
    await layer.send(other, {"type": "m", "n": 2})
    assert (await receive(layer, channel))["n"] == 1
    assert (await receive(layer, other))["n"] == 2


@on_one_layer()
async def test_readers_of_different_channels_do_not_disturb_each_other(layer: CubecastChannelLayer) -> None:
    one, two = await layer.new_channel(), await layer.new_channel()
    waiting = [asyncio.create_task(receive(layer, name)) for name in (one, two)]
    await asyncio.sleep(0.05)
    await layer.send(two, {"type": "m", "n": 2})
    await layer.send(one, {"type": "m", "n": 1})
    assert [(await task)["n"] for task in waiting] == [1, 2]


@on_one_layer()
async def test_a_reader_that_is_cancelled_loses_no_message(layer: CubecastChannelLayer) -> None:
    channel = await layer.new_channel()
    waiting = asyncio.create_task(layer.receive(channel))
    await asyncio.sleep(0.05)
    await layer.send(channel, {"type": "m"})  # wakes the reader
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert await receive(layer, channel) == {"type": "m"}


@on_one_layer()
async def test_groups_take_channels_in_and_let_them_go(layer: CubecastChannelLayer) -> None:
    names = [await layer.new_channel() for _ in range(3)]
    for name in names:
        await layer.group_add("g", name)
    await layer.group_add("g", names[0])  # twice is once
    await layer.group_discard("g", names[1])
    await layer.group_discard("g", names[1])
    await layer.group_discard("unknown", names[1])
    await layer.group_send("g", {"type": "m", "text": "hello"})
    assert (await receive(layer, names[0]))["text"] == "hello"
    assert (await receive(layer, names[2]))["text"] == "hello"
    await require_nothing(layer, names[0])
    await require_nothing(layer, names[1])


@on_one_layer()
async def test_a_normal_channel_in_a_group(layer: CubecastChannelLayer) -> None:
    await layer.group_add("g", "worker")
    await layer.group_send("g", {"type": "m"})
    assert await receive(layer, "worker") == {"type": "m"}


@on_one_layer()
async def test_receivers_of_one_group_message_do_not_share_it(layer: CubecastChannelLayer) -> None:
    names = [await layer.new_channel() for _ in range(2)]
    for name in names:
        await layer.group_add("g", name)
    await layer.group_send("g", {"type": "m", "list": []})
    (await receive(layer, names[0]))["list"].append(1)
    assert (await receive(layer, names[1]))["list"] == []


@on_one_layer(capacity=2)
async def test_a_full_channel_of_a_group_is_skipped_and_the_others_are_not(layer: CubecastChannelLayer) -> None:
    full, empty = await layer.new_channel(), await layer.new_channel()
    await layer.group_add("g", full)
    for _ in range(2):
        await layer.send(full, {"type": "before"})
    await layer.group_add("g", empty)
    await layer.group_send("g", {"type": "m"})
    assert (await receive(layer, empty))["type"] == "m"
    assert [(await receive(layer, full))["type"] for _ in range(2)] == ["before", "before"]
    assert layer.dropped == 1


@on_one_layer(expiry=0.2)
async def test_a_message_expires(layer: CubecastChannelLayer) -> None:
    await layer.send("c", {"type": "m"})
    await asyncio.sleep(0.3)
    await require_nothing(layer, "c")


@on_one_layer(expiry=0.2, capacity=1)
async def test_a_message_that_expired_makes_room(layer: CubecastChannelLayer) -> None:
    await layer.send("c", {"type": "old"})
    await asyncio.sleep(0.3)
    await layer.send("c", {"type": "new"})
    assert (await receive(layer, "c"))["type"] == "new"


@on_one_layer(group_expiry=0.2)
async def test_a_channel_leaves_its_group_after_the_expiry_of_groups(layer: CubecastChannelLayer) -> None:
    channel = await layer.new_channel()
    await layer.group_add("g", channel)
    await asyncio.sleep(0.3)
    await layer.group_send("g", {"type": "m"})
    await require_nothing(layer, channel)


@on_one_layer()
async def test_channels_that_nobody_uses_leave_nothing_behind(layer: CubecastChannelLayer) -> None:
    for _ in range(50):
        channel = await layer.new_channel()
        await layer.group_add("g", channel)
        await layer.send(channel, {"type": "m"})
        await receive(layer, channel)
        await layer.group_discard("g", channel)
    assert layer._queues == {}
    assert layer._groups == {}


def test_from_synchronous_code_every_call_in_a_loop_of_its_own() -> None:
    layer = CubecastChannelLayer(join=joining(free_addresses(1)[0], []))
    try:
        channel = async_to_sync(layer.new_channel)()
        async_to_sync(layer.group_add)("g", channel)
        async_to_sync(layer.group_send)("g", {"type": "m"})
        assert async_to_sync(layer.receive)(channel) == {"type": "m"}
    finally:
        async_to_sync(layer.close)()


# Two processes.


def test_groups_reach_the_channels_of_all_processes_in_order() -> None:
    async def run() -> None:
        async with layers_of(3) as layers:
            channels = [await layer.new_channel() for layer in layers]
            for layer, channel in zip(layers, channels, strict=True):
                await layer.group_add("g", channel)
            for number in range(50):
                await layers[0].group_send("g", {"type": "m", "n": number})
            for layer, channel in zip(layers, channels, strict=True):
                assert [(await receive(layer, channel))["n"] for _ in range(50)] == list(range(50))

    asyncio.run(run())


def test_a_specific_channel_of_another_process_is_reached_and_grouped_there() -> None:
    async def run() -> None:
        async with layers_of(2) as (one, two):
            channel = await two.new_channel()
            await one.send(channel, {"type": "m", "n": 1})
            await one.group_add("g", channel)
            await one.group_send("g", {"type": "m", "n": 2})
            assert [(await receive(two, channel))["n"] for _ in range(2)] == [1, 2]
            await one.group_discard("g", channel)
            await one.group_send("g", {"type": "m", "n": 3})
            await one.send(channel, {"type": "m", "n": 4})
            assert (await receive(two, channel))["n"] == 4

    asyncio.run(run())


def test_each_message_of_a_normal_channel_reaches_one_process() -> None:
    async def run() -> None:
        async with layers_of(3) as layers:
            got: list[int] = []

            async def work(layer: CubecastChannelLayer) -> None:
                while True:
                    got.append((await layer.receive("tasks"))["n"])

            await layers[0].send("tasks", {"type": "m", "n": 0})  # nobody receives yet
            workers = [asyncio.create_task(work(layer)) for layer in layers[1:]]
            bus = await layers[0]._bus()
            await until(lambda: len(bus.presence("channel:tasks")) == 2)
            for number in range(1, 20):
                await layers[0].send("tasks", {"type": "m", "n": number})
            await until(lambda: len(got) >= 20)
            assert sorted(got) == list(range(20))
            for worker in workers:
                worker.cancel()

    asyncio.run(run())


def test_a_flush_empties_all_processes() -> None:
    async def run() -> None:
        async with layers_of(2) as (one, two):
            channel = await two.new_channel()
            await two.group_add("g", channel)
            await two.send(channel, {"type": "m"})
            await one.send("c", {"type": "m"})
            await one.flush()
            await require_nothing(one, "c")
            await one.group_send("g", {"type": "m"})
            await require_nothing(two, channel)

    asyncio.run(run())


def test_a_slow_channel_of_another_process_loses_its_own_messages_only() -> None:
    async def run() -> None:
        async with layers_of(2, capacity=4) as (one, two):
            slow, good = await two.new_channel(), await two.new_channel()
            for number in range(10):
                await one.send(slow, {"type": "m", "n": number})
            await one.send(good, {"type": "m"})
            assert await receive(two, good) == {"type": "m"}
            assert [(await receive(two, slow))["n"] for _ in range(4)] == [0, 1, 2, 3]
            assert two.dropped == 6

    asyncio.run(run())


def test_a_layer_that_cannot_join_tries_again_with_the_next_call_in_the_same_thread() -> None:
    (address,) = free_addresses(1)
    attempts = 0

    async def join_the_third_time() -> Group:
        nonlocal attempts
        attempts += 1
        if attempts < 3:
            raise LocalProtocolError(f"attempt {attempts}")
        return await joining(address, [address])()

    async def run() -> None:
        layer = CubecastChannelLayer(join=join_the_third_time)
        before = set(threading.enumerate())
        for attempt in (1, 2):
            with pytest.raises(LocalProtocolError, match=f"attempt {attempt}"):
                await layer.send("a", {"type": "x"})
        assert len(set(threading.enumerate()) - before) == 1
        await layer.send("a", {"type": "x"})
        assert await layer.receive("a") == {"type": "x"}
        await layer.close()

    asyncio.run(run())


def test_a_layer_that_never_joined_ends_its_thread() -> None:
    async def fail() -> Group:
        raise LocalProtocolError("no group")

    async def run() -> None:
        before = set(threading.enumerate())
        layer = CubecastChannelLayer(join=fail)
        with pytest.raises(LocalProtocolError, match="no group"):
            await layer.send("a", {"type": "x"})
        await layer.close()
        assert not set(threading.enumerate()) - before

    asyncio.run(run())


# Attacks.


@on_one_layer()
async def test_a_queue_that_another_thread_forgets_meanwhile_loses_no_message(layer: CubecastChannelLayer) -> None:
    channel = await layer.new_channel()

    class Slow(ChannelQueue):
        """While it is filled, a reader of another thread ends, and forgets the idle queue."""

        def put(self, message: bytes, *, capacity: int, expires_at: float) -> bool:
            other = threading.Thread(target=forget)
            other.start()
            other.join(0.1)
            return super().put(message, capacity=capacity, expires_at=expires_at)

    def forget() -> None:
        with layer._lock:
            layer._forget_idle(channel)

    layer._queues[channel] = Slow()
    await layer.send(channel, {"type": "m"})
    assert await receive(layer, channel) == {"type": "m"}


@on_one_layer(expiry=0.05)
async def test_a_channel_that_nobody_reads_leaves_its_groups_when_a_message_expires(
    layer: CubecastChannelLayer,
) -> None:
    dead, alive = await layer.new_channel(), await layer.new_channel()
    for channel in (dead, alive):
        await layer.group_add("g", channel)
    await layer.group_send("g", {"type": "m"})
    assert await receive(layer, alive) == {"type": "m"}
    await asyncio.sleep(0.1)
    await layer.group_send("g", {"type": "n"})
    assert await receive(layer, alive) == {"type": "n"}
    assert list(layer._groups["g"]) == [alive]


def test_a_layer_that_was_closed_announces_its_normal_channels_again_when_it_is_used() -> None:
    async def run() -> None:
        async with layers_of(2) as (one, two):
            reading = asyncio.create_task(receive(two, "work"))
            await asyncio.sleep(0.1)
            await one.send("work", {"type": "m"})
            assert await reading == {"type": "m"}
            await two.close()
            reading = asyncio.create_task(receive(two, "work"))  # joins again
            await asyncio.sleep(0.1)
            await one.send("work", {"type": "n"})
            assert await reading == {"type": "n"}

    asyncio.run(run())


def test_a_layer_whose_member_failed_for_good_joins_again_though_its_readers_only_wait(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("cubecast.contrib.channels.RETRY_S", 0.05)

    async def run() -> None:
        async with layers_of(2) as (one, two):
            channel = await two.new_channel()
            await two.group_add("g", channel)
            reading = [asyncio.create_task(receive(two, name)) for name in (channel, "work")]
            await asyncio.sleep(0.1)
            before = await two._bus()
            assert two._thread is not None
            two._thread.run(fail(before))
            while await two._bus() is before:
                await asyncio.sleep(0.01)
            await until(lambda: len(one._entering.result().group.view.members) == 2)  # type: ignore[union-attr]
            await one.group_send("g", {"type": "m"})
            assert await reading[0] == {"type": "m"}
            await until(lambda: one._entering.result().presence("channel:work"))  # type: ignore[union-attr]
            await one.send("work", {"type": "n"})
            assert await reading[1] == {"type": "n"}

    async def fail(bus: Bus) -> None:
        bus.group._entered().fail(JournalError("the disk is gone"))

    asyncio.run(run())
    assert "joins again error=the disk is gone" in caplog.text


FORKED = """
import asyncio, os, sys
from asgiref.sync import async_to_sync
from cubecast.contrib.channels import CubecastChannelLayer
layer = CubecastChannelLayer(workers=sys.argv[1], count=2, plaintext=True)
async_to_sync(layer.send)("a", {"type": "x"})
child = os.fork()
if not child:
    async def talk():
        channel = await layer.new_channel()
        await layer.group_add("g", channel)
        await layer.group_send("g", {"type": "m"})
        print(await layer.receive(channel), len((await layer._bus()).group.view.members), flush=True)
        await layer.close()
    asyncio.run(asyncio.wait_for(talk(), 20))
    os._exit(0)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), async_to_sync(layer.receive)("a"))
async_to_sync(layer.close)()
"""


def test_a_process_that_is_forked_off_joins_on_its_own() -> None:
    (first,) = free_ports(1)
    environment = {**os.environ, "CUBECAST_JIT": "off"}
    command = [sys.executable, "-W", "ignore", "-c", FORKED, f"127.0.0.1:{first}"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert done.stdout == "{'type': 'm'} 2\n0 {'type': 'x'}\n", done.stderr

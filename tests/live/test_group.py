"""The group's interface, with all members in this process: sending, order, windows, stability, callbacks, leaving."""

from __future__ import annotations

import asyncio
import logging
import random
import socket
from typing import Any

import pytest

from cubecast.errors import LocalProtocolError
from cubecast.live.group import Group, join
from cubecast.live.local import free_addresses
from cubecast.member.in_view import InView
from cubecast.member.settings import Settings, parse_address
from cubecast.protocols.membership.views import View
from tests.live.members import WAIT_S, drain, enter, groups_of, one, quick, take, until, vanish

pytestmark = pytest.mark.live


def test_a_message_is_delivered_once_to_everybody_and_becomes_stable() -> None:
    async def run() -> None:
        async with groups_of(4) as groups:
            message = await groups[1].multicast(b"hello")
            await message.stable(WAIT_S)
            assert (message.is_stable, message.sequence, message.payload) == (True, 1, b"hello")
            assert message.view == groups[1].view.number
            for group in groups:
                delivery = await group.receive(WAIT_S)
                assert (delivery.sender, delivery.sequence, delivery.payload) == (groups[1].me, 1, b"hello")
                await until(lambda group=group, delivery=delivery: group.is_stable(delivery))  # type: ignore[misc]
                assert not group.has_more
            assert groups[1].frontier[groups[1].me] == 1
            assert [group.rank for group in groups] == [0, 1, 2, 3]

    asyncio.run(run())


@pytest.mark.parametrize("payload", [b"bytes", bytearray(b"bytes"), memoryview(b"bytes")])
def test_octets_of_every_kind_are_payloads(payload: Any) -> None:
    async def run() -> None:
        async with one(found=True) as group:
            await group.multicast(payload)
            assert (await group.receive(WAIT_S)).payload == b"bytes"

    asyncio.run(run())


@pytest.mark.parametrize("payload", [5, [1, 2, 3], "text", None, True])
def test_what_is_not_octets_is_refused_with_its_type(payload: Any) -> None:
    async def run() -> None:
        async with one(found=True) as group:
            with pytest.raises(LocalProtocolError, match=f"of type {type(payload).__name__}: give bytes"):
                await group.multicast(payload)
            await group.multicast(b"fine")
            assert (await group.receive(WAIT_S)).payload == b"fine"

    asyncio.run(run())


def test_messages_are_sent_in_the_order_of_the_calls_under_gather_too() -> None:
    """A fast path must not overtake multicasts that wait."""

    async def run() -> None:
        async with groups_of(2, window_messages=300) as groups:
            count = 2000
            reading = asyncio.create_task(take(groups[1], count))
            own = asyncio.create_task(drain(groups[0]))
            await asyncio.gather(*(groups[0].multicast(str(number).encode()) for number in range(count)))
            assert [int(one.payload) for one in await reading] == list(range(count))
            own.cancel()

    asyncio.run(run())


def test_a_cancelled_multicast_sends_nothing_and_the_others_continue() -> None:
    async def run() -> None:
        async with groups_of(2, window_messages=4) as groups:
            await groups[1].leave(drain=False)
            calls = [asyncio.create_task(groups[0].multicast(str(number).encode())) for number in range(100)]
            await asyncio.sleep(0)
            waiting = [number for number, call in enumerate(calls) if not call.done()]
            gone = waiting[5::3]
            for number in gone:
                calls[number].cancel()
            found = await asyncio.gather(*calls, return_exceptions=True)
            assert all(isinstance(found[number], asyncio.CancelledError) for number in gone)
            taken = await take(groups[0], 100 - len(gone))
            assert [int(one.payload) for one in taken] == [number for number in range(100) if number not in gone]

    asyncio.run(run())


def test_the_window_holds_a_sender_back_and_a_slow_application_is_named() -> None:
    async def run() -> None:
        async with groups_of(3, window_messages=200, backlog_bytes=20_000, suspect_after_s=5.0) as groups:
            readers = [asyncio.create_task(drain(group)) for group in groups[:2]]
            sent = 0

            async def send() -> None:
                nonlocal sent
                while True:
                    await groups[0].multicast(bytes(200))
                    sent += 1

            sending = asyncio.create_task(send())
            stuck = -1
            while stuck != sent:
                stuck = sent
                await asyncio.sleep(0.4)
            assert sent < 1000
            assert groups[2].stats["backlog_bytes"] < 80_000
            assert groups[0].stats["own_unstable_messages"] <= 200
            await until(lambda: [one.member for one in groups[0].laggards()][:1] == [groups[2].me])
            readers.append(asyncio.create_task(drain(groups[2])))
            await until(lambda: sent > stuck + 300)
            for task in [sending, *readers]:
                task.cancel()

    asyncio.run(run())


def test_stability_frees_buffers_and_is_reported_and_exceptions_of_callbacks_stop_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Exceptions in on_stable must not stop stability."""

    async def run() -> None:
        seen: list[dict[Any, int]] = []

        def fail(_: object) -> None:
            raise RuntimeError("the application's mistake")

        async with groups_of(3) as groups:
            groups[0].on_stable(fail)
            groups[0].on_view(fail)
            groups[2].on_stable(seen.append)
            for _ in range(5):
                for _ in range(10):
                    last = await groups[0].multicast(b"x" * 100)
                await last.stable(WAIT_S, hurry=True)
            await until(lambda: seen and seen[-1].get(groups[0].me) == 50)
            await until(lambda: all(group.stats["unstable_messages"] == 0 for group in groups))
            await groups[1].leave()
            await until(lambda: len(groups[0].view.members) == 2)
            await (await groups[0].multicast(b"on")).stable(WAIT_S)

    asyncio.run(run())
    assert "callback failed event=stable" in caplog.text
    assert "the application's mistake" in caplog.text


def test_a_callback_that_reads_the_result_of_a_cancelled_task_stops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """CancelledError is not an Exception."""

    async def run() -> None:
        views: list[View] = []
        async with one(found=True) as group:
            cancelled: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            cancelled.cancel()
            group.on_view(lambda _view: cancelled.result())
            group.on_view(views.append)
            async with one(contact=group.address):
                await until(lambda: len(group.view.members) == 2)
                await until(lambda: views)

    asyncio.run(run())
    assert "callback failed event=view" in caplog.text


def test_a_message_that_is_not_stable_in_time_names_who_is_behind() -> None:
    async def run() -> None:
        async with groups_of(3, suspect_after_s=30.0) as groups:
            await vanish(groups[2])
            message = await groups[0].multicast(b"x")
            with pytest.raises(
                TimeoutError, match=r"not stable after 0\.5 s: message 1 has not reached every member; members behind"
            ):
                await message.stable(0.5)
            await vanish(groups[1])

    asyncio.run(run())


def test_a_message_that_waits_for_the_application_to_read_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(InView, "_may_overtake", lambda _: False)

    async def run() -> None:
        async with groups_of(2, backlog_bytes=1000, suspect_after_s=30.0) as groups:
            for _ in range(20):
                await groups[0].multicast(bytes(100))
            await until(lambda: groups[1].stats["backlog_bytes"] > 1000)
            message = await groups[1].multicast(b"x")
            with pytest.raises(TimeoutError, match="not sent yet; the application has not taken its deliveries"):
                await message.stable(0.2)
            for group in groups:
                await take(group, 20)
                group.ack()
            await message.stable(WAIT_S)

    asyncio.run(run())


def test_stable_messages_of_a_member_that_left_stay_stable() -> None:
    async def run() -> None:
        async with groups_of(3) as groups:
            messages = [await groups[2].multicast(b"bye") for _ in range(50)]
            waiting = [asyncio.create_task(message.stable()) for message in messages]
            await groups[2].leave()
            await asyncio.gather(*waiting)
            for message in messages:
                await message.stable(1)
            taken = await take(groups[0], 50)
            assert [one.sequence for one in taken] == list(range(1, 51))
            with pytest.raises(LocalProtocolError, match="has left group 'g'"):
                await groups[2].multicast(b"late")

    asyncio.run(run())


def test_a_member_that_leaves_is_out_of_the_view_and_is_not_called_excluded(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        async with groups_of(4) as groups:
            await (await groups[3].multicast(b"bye")).stable(WAIT_S)
            gone = groups[3].me
            await groups[3].leave()
            await until(lambda: all(len(group.view.members) == 3 for group in groups[:3]))
            assert gone not in groups[0].view.members
            await (await groups[0].multicast(b"on")).stable(WAIT_S, hurry=True)
            for group in groups[:3]:
                await group.leave()

    with caplog.at_level(logging.INFO):
        asyncio.run(run())
    assert "member left rank=3" in caplog.text
    assert "excluded" not in caplog.text
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_everybody_leaves_at_once_in_mid_stream_and_no_message_is_lost() -> None:
    async def run() -> None:
        async with groups_of(5, suspect_after_s=10.0) as groups:

            async def talk_and_leave(group: Group) -> list[bool]:
                messages = [await group.multicast(bytes(100)) for _ in range(40)]
                await group.leave()
                return [message.is_stable for message in messages]

            async with asyncio.timeout(60):
                found = await asyncio.gather(*map(talk_and_leave, groups))
            assert all(all(stable) for stable in found)

    asyncio.run(run())


def test_leaving_that_is_cancelled_closes_the_port() -> None:
    async def run() -> None:
        async with groups_of(3, suspect_after_s=30.0) as groups:
            for group in groups[1:]:
                await vanish(group)
            address = parse_address(groups[0].address)
            leaving = asyncio.create_task(groups[0].leave())
            await asyncio.sleep(0.2)
            assert not leaving.done()
            leaving.cancel()
            with pytest.raises(asyncio.CancelledError):
                await leaving
            await asyncio.sleep(0.1)
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(address, timeout=1)

    asyncio.run(run())


def test_no_message_is_lost_or_repeated_when_connections_break_again_and_again() -> None:
    async def run() -> None:
        chance = random.Random(3)
        async with groups_of(4, suspect_after_s=10.0) as groups:

            async def send(group: Group) -> None:
                for _ in range(600):
                    await group.multicast(bytes(chance.randrange(500)))
                    if chance.random() < 0.1:
                        await asyncio.sleep(0.005)

            async def cut() -> None:
                for _ in range(40):
                    await asyncio.sleep(0.03)
                    sockets = [one for group in groups for one in group._entered().connections._open.values()]
                    if sockets:
                        chance.choice(sockets).drop("cut by the test")

            takers = [asyncio.create_task(take(group, 2400)) for group in groups]
            await asyncio.wait_for(asyncio.gather(cut(), *(send(group) for group in groups)), 60)
            for taken in await asyncio.wait_for(asyncio.gather(*takers), 60):
                for sender in groups:
                    assert [one.sequence for one in taken if one.sender == sender.me] == list(range(1, 601))
            again = sum(link["reconnections"] for group in groups for link in group.stats["links"].values())
            assert again > 0

    asyncio.run(run())


def test_two_groups_in_one_process_do_not_mix() -> None:
    async def run() -> None:
        async with groups_of(2, "red") as red, groups_of(2, "blue") as blue:
            await red[0].multicast(b"red")
            await blue[0].multicast(b"blue")
            assert (await red[1].receive(WAIT_S)).payload == b"red"
            assert (await blue[1].receive(WAIT_S)).payload == b"blue"

    asyncio.run(run())


@pytest.mark.parametrize("data", ["star", "tree", "overlay", "causal_plumtree", "causal_rasm"])
def test_any_data_protocol_serves(data: str) -> None:
    async def run() -> None:
        async with groups_of(4, data=data, suspect_after_s=5.0) as groups:
            for group in groups:
                await (await group.multicast(b"x")).stable(WAIT_S)
            for group in groups:
                assert len(await take(group, 4)) == 4
            await groups[0].leave()
            await until(lambda: len(groups[1].view.members) == 3)
            await (await groups[2].multicast(b"y")).stable(WAIT_S)
            assert (await groups[3].receive(WAIT_S)).payload == b"y"

    asyncio.run(run())


@pytest.mark.parametrize("stability", ["coord", "full_dist", "s_coord", "dissemination", "cascade"])
def test_any_stability_protocol_serves(stability: str) -> None:
    async def run() -> None:
        async with groups_of(3, stability=stability, suspect_after_s=5.0) as groups:
            for _ in range(20):
                messages = [await group.multicast(b"x") for group in groups]
                await asyncio.sleep(0.01)
            for message in messages:
                await message.stable(WAIT_S)

    asyncio.run(run())


def test_what_cannot_be_is_refused_with_one_clear_line() -> None:
    one, two = "127.0.0.1:1", "127.0.0.1:2"
    with pytest.raises(LocalProtocolError, match="plaintext=True"):
        join("g", listen=one, peers=[two])
    with pytest.raises(LocalProtocolError, match="host:port"):
        join("g", listen="nowhere", peers=[two], plaintext=True)
    with pytest.raises(LocalProtocolError, match="host:port"):
        join("g", listen=one, peers=["127.0.0.1"], plaintext=True)
    with pytest.raises(LocalProtocolError, match="at least one member besides"):
        join("g", listen=one, peers=[], plaintext=True)
    with pytest.raises(LocalProtocolError, match="given: none of them"):
        join("g", listen=one, plaintext=True)
    with pytest.raises(LocalProtocolError, match="given: peers and contact"):
        join("g", listen=one, peers=[two], contact=two, plaintext=True)
    with pytest.raises(LocalProtocolError, match="given: contact and found"):
        join("g", listen=one, contact=two, found=True, plaintext=True)
    with pytest.raises(LocalProtocolError, match="this is the member itself"):
        join("g", listen=one, contact=one, plaintext=True)
    with pytest.raises(LocalProtocolError, match="together"):
        join("g", listen=one, found=True, snapshot=lambda: b"", plaintext=True)
    with pytest.raises(LocalProtocolError, match="choose one of"):
        Settings(data="magic")
    with pytest.raises(LocalProtocolError, match="async with"):
        _ = join("g", listen=one, found=True, plaintext=True).view


def test_a_payload_too_large_and_a_port_that_is_taken_are_refused() -> None:
    async def run() -> None:
        settings = quick(payload_bytes_max=10)
        async with one(found=True, settings=settings) as group:
            with pytest.raises(LocalProtocolError, match="11 bytes"):
                await group.multicast(bytes(11))
            with pytest.raises(LocalProtocolError, match=r"cannot listen at \S+ \(Address already in use\); choose"):
                await enter(found=True, listen=group.address)
            await group.multicast(bytes(10))
            assert (await group.receive(WAIT_S)).payload == bytes(10)

    asyncio.run(run())


def test_a_member_may_be_reached_by_another_address_than_it_listens_at() -> None:
    async def run() -> None:
        first, second = (int(address.split(":")[1]) for address in free_addresses(2))
        first_one = await enter(found=True, listen=f"0.0.0.0:{first}", advertise=f"127.0.0.1:{first}")
        two = await enter(contact=f"127.0.0.1:{first}", listen=f"0.0.0.0:{second}", advertise=f"127.0.0.1:{second}")
        assert [who.name for who in two.view.members] == [f"127.0.0.1:{first}", f"127.0.0.1:{second}"]
        await (await two.multicast(b"x")).stable(WAIT_S)
        assert (await first_one.receive(WAIT_S)).sender.name == f"127.0.0.1:{second}"
        await two.leave()
        await first_one.leave()

    asyncio.run(run())


def test_a_lone_member_forces_a_view_when_the_others_are_lost_for_good() -> None:
    async def run() -> None:
        async with groups_of(2, suspect_after_s=0.5) as groups:
            blocked: list[bool] = []
            groups[1].on_blocked(blocked.append)
            await vanish(groups[0])
            await until(lambda: groups[1].is_blocked)
            message = await groups[1].multicast(b"alone")
            groups[1].force()
            await message.stable(WAIT_S)
            assert len(groups[1].view.members) == 1
            assert blocked == [True, False]

    asyncio.run(run())

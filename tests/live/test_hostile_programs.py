"""Programs that cancel at the worst moment, call back into the group, or misuse the API: nothing breaks."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any

import pytest

from cubecast.errors import JournalError, LocalProtocolError
from cubecast.live.group import Group
from cubecast.live.journal import Journal
from cubecast.live.local import free_addresses
from cubecast.member.effects import Delivery
from cubecast.member.settings import parse_address
from cubecast.protocols.membership.views import View
from cubecast.wire import frame, handshake
from tests.live.members import WAIT_S, drain, enter, groups_of, one, quick, take, until, vanish
from tests.live.test_hostile_peers import hello, speak

pytestmark = pytest.mark.live


async def steps(count: int) -> None:
    """This many turns of the event loop."""
    for _ in range(count):
        await asyncio.sleep(0)


def is_free(address: str) -> bool:
    """Does nobody listen there?"""
    try:
        socket.create_server(parse_address(address)).close()
    except OSError:
        return False
    return True


async def require_stable(*groups: Group) -> None:
    """A message of each becomes stable."""
    for message in [await group.multicast(b"still here") for group in groups]:
        await message.stable(WAIT_S, hurry=True)


# Cancelled at any step.


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_joining_that_is_cancelled_at_any_step_leaves_nothing_open(tmp_path: Path) -> None:
    async def run() -> None:
        contact, address = free_addresses(2)
        async with one(listen=contact, found=True) as lone:
            reading = asyncio.create_task(drain(lone))
            for count in range(0, 120, 5):
                path = tmp_path / str(count)
                group = one(listen=address, contact=contact, journal=path)
                entering = asyncio.create_task(group.__aenter__())
                await until(lambda group=group: group._driver is not None)  # type: ignore[misc]
                await steps(count)
                entering.cancel()
                (entered,) = await asyncio.gather(entering, return_exceptions=True)
                if entered is group:
                    await group.leave(drain=False)
                assert is_free(address)
                Journal(path, group="g", member=address, sync="never").close()
            await until(lambda: len(lone.view.members) == 1)
            await require_stable(lone)
            reading.cancel()

    asyncio.run(run())


def test_leaving_that_is_cancelled_at_any_step_closes_the_port_and_ends_the_iteration() -> None:
    async def run() -> None:
        async with groups_of(2) as groups:
            (address,) = free_addresses(1)
            for count in range(1, 90, 6):
                group = await enter(listen=address, contact=groups[0].address)
                reading = asyncio.create_task(drain(group))
                await group.multicast(b"last words")
                leaving = asyncio.create_task(group.leave())
                await steps(count)
                leaving.cancel()
                await asyncio.gather(leaving, return_exceptions=True)
                await asyncio.wait_for(reading, WAIT_S)
                await until(lambda: is_free(address))
            await until(lambda: all(len(group.view.members) == 2 for group in groups))
            await require_stable(*groups)

    asyncio.run(run())


def test_a_task_that_stops_waiting_for_stability_disturbs_no_other() -> None:
    async def run() -> None:
        async with groups_of(3) as groups:
            for count in range(0, 100, 4):
                message = await groups[0].multicast(b"")
                waiting = [asyncio.create_task(message.stable(WAIT_S, hurry=bool(turn % 2))) for turn in range(4)]
                await steps(count)
                forgotten = await groups[0].multicast(b"")
                waiting.insert(0, asyncio.create_task(forgotten.stable(WAIT_S)))
                await asyncio.sleep(0)
                for task in waiting[:3]:
                    task.cancel()
                await asyncio.gather(*waiting[:3], return_exceptions=True)
                await asyncio.gather(*waiting[3:])
            assert not groups[0]._entered()._awaited

    asyncio.run(run())


def test_a_consumer_that_is_cancelled_again_and_again_still_gives_newcomers_the_state() -> None:
    async def run() -> None:
        async def snapshot() -> bytes:
            await steps(10)
            return b"state"

        contact, address = free_addresses(2)
        taken: list[bytes] = []
        async with one(listen=contact, found=True, snapshot=snapshot, restore=lambda _: None) as lone:
            consuming = asyncio.create_task(consume_impatiently(lone, taken))
            for turn in range(6):
                states: list[bytes] = []
                group = await enter(listen=address, contact=contact, snapshot=snapshot, restore=states.append)
                await lone.multicast(b"%d" % turn)
                assert (await group.receive(WAIT_S)).payload == b"%d" % turn
                assert states == [b"state"]
                await group.leave()
            await until(lambda: len(taken) == 6)
            consuming.cancel()
        assert taken == [b"%d" % turn for turn in range(6)]

    asyncio.run(run())


async def consume_impatiently(group: Group, taken: list[bytes]) -> None:
    """Take deliveries with an iteration that is cancelled and begun again, and is seldom long enough for a snapshot."""

    async def consume() -> None:
        async for delivery in group:
            taken.append(delivery.payload)

    turn = 0
    while True:
        turn += 1
        consuming = asyncio.create_task(consume())
        await steps(3 if turn % 30 else 20)
        consuming.cancel()
        await asyncio.gather(consuming, return_exceptions=True)


# Callbacks.


def test_callbacks_may_use_the_group() -> None:
    async def run() -> None:
        async with groups_of(3) as groups:
            sending: list[asyncio.Task[Any]] = []

            def use(group: Group) -> None:
                group.status()
                group.laggards()
                group.force()
                if len(sending) < 40:
                    sending.append(asyncio.create_task(group.multicast(b"from a callback")))

            for group in groups:
                group.on_view(lambda _, group=group: use(group))  # type: ignore[misc]
                group.on_stable(lambda _, group=group: use(group))  # type: ignore[misc]
            newcomer = await enter(contact=groups[0].address)
            await require_stable(*groups, newcomer)
            messages = await asyncio.gather(*sending)
            await asyncio.gather(*(message.stable(WAIT_S, hurry=True) for message in messages))
            assert len(messages) > 3
            await newcomer.leave()

    asyncio.run(run())


def test_a_member_may_leave_from_a_callback_of_the_view_that_brings_another_one() -> None:
    async def run() -> None:
        async with groups_of(3) as groups:
            leaving: list[asyncio.Task[None]] = []

            def leave(_: View) -> None:
                if not leaving:
                    leaving.append(asyncio.create_task(groups[2].leave()))

            groups[2].on_view(leave)
            newcomer = await enter(contact=groups[0].address)
            await until(lambda: leaving)
            await leaving[0]
            staying = [groups[0], groups[1], newcomer]
            await until(lambda: all(len(group.view.members) == 3 for group in staying))
            assert groups[2].me not in newcomer.view.members
            await require_stable(*staying)
            await newcomer.leave()

    asyncio.run(run())


# What should not be done.


def test_an_override_that_is_not_needed_changes_nothing() -> None:
    async def run() -> None:
        async with groups_of(3) as groups:
            for turn in range(6):
                groups[turn % 3].force()
                await require_stable(*groups)
            assert [(group.view.number, len(group.view.members)) for group in groups] == [(1, 3)] * 3

    asyncio.run(run())


def test_what_was_accepted_before_leaving_with_a_full_window_is_delivered_and_the_rest_is_refused() -> None:
    async def run() -> None:
        async with groups_of(3, window_messages=32) as groups:
            sending = [asyncio.create_task(groups[0].multicast(b"%d" % number)) for number in range(500)]
            await steps(1)
            await groups[0].leave()
            results = await asyncio.gather(*sending, return_exceptions=True)
            accepted = [b"%d" % number for number, one in enumerate(results) if not isinstance(one, BaseException)]
            refused = [one for one in results if isinstance(one, BaseException)]
            assert accepted
            assert len(refused) == 500 - len(accepted)
            assert all(isinstance(one, LocalProtocolError) for one in refused)
            assert [delivery.payload for delivery in await take(groups[1], len(accepted))] == accepted
            await require_stable(*groups[1:])
            queued = [entry.payload for entry in groups[1]._inbox.queue if type(entry) is Delivery]
            assert queued == [b"still here"] * 2

    asyncio.run(run())


def test_each_setting_that_all_share_is_named_when_it_differs() -> None:
    async def run() -> None:
        async with groups_of(2) as groups:
            agreed = groups[0].settings.agreed()
            for name in agreed:
                heard = await speak(groups[0].address, hello(groups[0], settings={**agreed, name: "another"}))
                (refused,) = frame.FrameReader(1 << 16).feed(heard)
                assert refused.kind == frame.REFUSE
                reason = handshake.decode(handshake.HandshakeRefusal, refused.body).reason
                assert f"{name}=another" in reason
                assert str(agreed[name]) in reason
            await require_stable(*groups)

    asyncio.run(run())


def test_a_journal_cut_anywhere_gives_the_application_a_prefix_or_is_refused(tmp_path: Path) -> None:
    path, copy = tmp_path / "journal", tmp_path / "copy"

    async def run() -> None:
        (address,) = free_addresses(1)
        settings = quick(sync="never")
        group = await enter(listen=address, found=True, journal=path, settings=settings)
        payloads = [b"%d " % number + bytes(9 * number) for number in range(12)]
        for payload in payloads:
            await (await group.multicast(payload)).stable(WAIT_S, hurry=True)
        await vanish(group)
        octets = path.read_bytes()
        lengths = []
        for size in range(1, len(octets), 53):
            copy.write_bytes(octets[:size])
            again = one(listen=address, journal=copy, found=True, settings=settings)
            try:
                await again.__aenter__()
            except JournalError:
                continue
            deliveries = [entry.payload for entry in again._inbox.queue if type(entry) is Delivery]
            assert deliveries == payloads[: len(deliveries)]
            lengths.append(len(deliveries))
            await vanish(again)
        assert lengths == sorted(lengths)
        assert lengths[-1] >= len(payloads) - 1

    asyncio.run(run())

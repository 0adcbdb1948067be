"""The group's interface, with all members in this process: links cut, slow applications, windows, several groups."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from cubecast.errors import LocalProtocolError
from cubecast.live.connection import Connection
from cubecast.live.group import LiveGroup, join
from cubecast.live.local import free_addresses
from cubecast.live.settings import CAUSAL, Settings
from cubecast.live.traffic import Delivery
from tests.live.harness import judge

pytestmark = pytest.mark.live


@asynccontextmanager
async def groups_of(
    members: int, name: str = "g", *, traces: Path | None = None, **settings: object
) -> AsyncIterator[list[LiveGroup]]:
    """All members of a group in this process."""
    addresses = free_addresses(members)
    chosen = Settings(**settings)  # type: ignore[arg-type]
    groups = [
        join(
            name,
            listen=address,
            peers=addresses,
            plaintext=True,
            settings=chosen,
            trace=traces / f"{rank}.rows" if traces else None,
        )
        for rank, address in enumerate(addresses)
    ]
    await asyncio.gather(*(group.__aenter__() for group in groups))
    try:
        yield groups
    finally:
        await asyncio.gather(*(group.leave(drain=False) for group in groups))


async def take(group: LiveGroup, count: int) -> list[Delivery]:
    """The next deliveries."""
    taken: list[Delivery] = []
    async for delivery in group:
        taken.append(delivery)
        if len(taken) == count:
            break
    return taken


def test_a_message_is_delivered_once_to_everybody_and_becomes_stable() -> None:
    async def run() -> None:
        async with groups_of(4) as groups:
            message = await groups[1].multicast(bytearray(b"hello"))
            await message.stable(5)
            assert message.is_stable
            for group in groups:
                (delivery,) = await asyncio.wait_for(take(group, 1), 5)
                assert (delivery.sender, delivery.sequence, delivery.payload) == (1, 1, b"hello")
                assert not group._member.traffic.queue  # type: ignore[union-attr]
            assert groups[1].frontier[1] == 1

    asyncio.run(run())


def test_no_message_is_lost_or_repeated_when_links_break_again_and_again() -> None:
    async def run() -> None:
        chance = random.Random(3)
        async with groups_of(5) as groups:

            async def send(group: LiveGroup) -> None:
                for _ in range(600):
                    await group.multicast(bytes(chance.randrange(500)))
                    if chance.random() < 0.1:
                        await asyncio.sleep(0.005)

            async def cut() -> None:
                for _ in range(60):
                    await asyncio.sleep(0.02)
                    links = [link for g in groups for link in g._member.transport.links.values() if link.is_up]  # type: ignore[union-attr]
                    if not links:
                        continue
                    link = chance.choice(links)
                    assert isinstance(link.connection, Connection)
                    link.connection.abort("cut by the test")

            takers = [asyncio.create_task(take(group, 3000)) for group in groups]
            await asyncio.wait_for(asyncio.gather(cut(), *(send(group) for group in groups)), 60)
            for taken in await asyncio.wait_for(asyncio.gather(*takers), 60):
                for sender in range(5):
                    assert [d.sequence for d in taken if d.sender == sender] == list(range(1, 601))
            again = sum(link["reconnections"] for group in groups for link in group.stats["links"].values())
            assert again > 0

    asyncio.run(run())


def test_a_slow_application_holds_the_senders_back_within_bounds_and_is_named() -> None:
    async def run() -> None:
        async with groups_of(3, window_messages=200, backlog_bytes=20_000, gossip_every_s=0.1) as groups:

            async def drain(group: LiveGroup) -> None:
                async for _ in group:
                    pass

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
            assert groups[0].stats["unstable_messages"] <= 200
            assert groups[0].laggards()[0].rank == 2
            readers.append(asyncio.create_task(drain(groups[2])))
            async with asyncio.timeout(20):
                while sent == stuck:
                    await asyncio.sleep(0.01)
            for task in [sending, *readers]:
                task.cancel()

    asyncio.run(run())


def test_the_frontier_is_told_and_buffers_are_freed() -> None:
    async def run() -> None:
        seen: list[tuple[int, ...]] = []
        async with groups_of(3) as groups:
            groups[2].on_stable(seen.append)
            last = None
            for _ in range(50):
                last = await groups[0].multicast(b"x" * 100)
            assert last is not None
            await last.stable(5, hurry=True)
            await asyncio.sleep(0.5)
            assert seen[-1] == (50, 0, 0)
            assert all(group.stats["unstable_bytes"] == 0 for group in groups)

    asyncio.run(run())


@pytest.mark.parametrize("stability", ["coord", "full_dist", "s_coord"])
def test_any_stability_protocol_serves(stability: str, tmp_path: Path) -> None:
    async def run() -> None:
        async with groups_of(3, stability=stability, traces=tmp_path) as groups:
            for _ in range(20):
                messages = [await group.multicast(b"x") for group in groups]
                await asyncio.sleep(0.01)
            for message in messages:
                await message.stable(20)

    asyncio.run(run())
    report = judge(tmp_path, 3)
    assert report.ok, report.violations[:5]


def test_a_member_that_leaves_is_out_of_the_view_and_the_others_go_on() -> None:
    async def run() -> None:
        async with groups_of(4) as groups:
            await (await groups[3].multicast(b"bye")).stable(5)
            await groups[3].leave()
            await asyncio.sleep(0.2)
            assert groups[0].view.members == (0, 1, 2)
            assert groups[0].view.number == 2
            await (await groups[0].multicast(b"on")).stable(5, hurry=True)
            with pytest.raises(LocalProtocolError, match="not in group"):
                await groups[3].multicast(b"late")

    asyncio.run(run())


def test_two_groups_in_one_process_do_not_mix() -> None:
    async def run() -> None:
        async with groups_of(2, "red") as red, groups_of(2, "blue") as blue:
            await red[0].multicast(b"red")
            await blue[0].multicast(b"blue")
            assert (await take(red[1], 1))[0].payload == b"red"
            assert (await take(blue[1], 1))[0].payload == b"blue"

    asyncio.run(run())


def test_what_cannot_be_is_refused_with_one_clear_line() -> None:
    with pytest.raises(LocalProtocolError, match="plaintext=True"):
        join("g", listen="127.0.0.1:1", peers=["127.0.0.1:2"])
    with pytest.raises(LocalProtocolError, match="host:port"):
        join("g", listen="nowhere", peers=["127.0.0.1:2"], plaintext=True)
    with pytest.raises(LocalProtocolError, match="at least one member"):
        join("g", listen="127.0.0.1:1", peers=[], plaintext=True)
    with pytest.raises(LocalProtocolError, match="choose one of"):
        Settings(causal="magic")  # type: ignore[arg-type]
    with pytest.raises(LocalProtocolError, match="above 0"):
        Settings(window_messages=0)

    async def run() -> None:
        async with groups_of(2, payload_bytes_max=10) as groups:
            with pytest.raises(LocalProtocolError, match="payload of 11 bytes"):
                await groups[0].multicast(bytes(11))

    asyncio.run(run())


def test_who_leaves_the_choice_open_and_who_names_what_is_chosen_are_of_one_group() -> None:
    assert Settings().agreed(32) == Settings(causal="timestamp").agreed(32)
    assert Settings().agreed(33) == Settings(causal="tree").agreed(33)
    assert len({Settings(causal=way).agreed(8) for way in CAUSAL}) == len(CAUSAL) - 1


@pytest.mark.parametrize("causal", ["overlay", "plumtree", "rasm"])
def test_messages_find_another_way_before_the_dead_is_excluded(causal: str) -> None:
    async def run() -> None:
        async with groups_of(8, suspect_after_s=120, causal=causal) as groups:
            await (await groups[0].multicast(b"grow the tree")).stable(20)
            gone = groups[1]._member
            assert gone is not None
            await gone.transport.close()
            living = [group for group in groups if group.rank != 1]
            for group in living:
                await group.multicast(b"after")
            async with asyncio.timeout(30):
                while not all(sum(group.received) >= 8 for group in living):
                    await asyncio.sleep(0.02)
            assert all(len(group.view.members) == 8 for group in living)

    asyncio.run(run())

"""Atomic delivery: no application gets a message before all members have it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest

from cubecast.errors import LocalProtocolError
from cubecast.live.atomic import AtomicDelivery, HeldDeliveries
from cubecast.live.group import Group
from cubecast.live.local import free_addresses
from cubecast.member.effects import Delivery, ViewChange
from cubecast.protocols.membership.views import MemberId, View
from tests.live.members import WAIT_S, enter, quick, until, vanish

A, B = MemberId("a", 1), MemberId("b", 1)


def _is_among(stable: set[tuple[MemberId, int]], one: Delivery) -> bool:
    return (one.sender, one.sequence) in stable


def test_the_longest_stable_prefix_is_released_in_order() -> None:
    """Against a model in which each message is released when all before it, and it, are stable."""
    for seed in range(100):
        draw = random.Random(seed)
        held, given, order = HeldDeliveries(), list[Delivery](), list[Delivery]()
        stable: set[tuple[MemberId, int]] = set()
        for number in range(60):
            if draw.random() < 0.6:
                one = Delivery(draw.choice([A, B]), 1, number, b"", is_history=draw.random() < 0.1)
                order.append(one)
                held.add(one)
            elif order:
                chosen = draw.choice(order)
                stable.add((chosen.sender, chosen.sequence))
            given += held.release(partial(_is_among, stable))
            blocked = [one for one in order if not one.is_history and (one.sender, one.sequence) not in stable]
            assert given == (order[: order.index(blocked[0])] if blocked else order)
        assert given + held.release_all() == order
        assert not held.waiting


def test_what_an_excluded_member_had_not_taken_is_dropped_until_it_is_in_a_view_again() -> None:
    """Its deliveries and views from before the exclusion come after it was told of it."""
    atomic = AtomicDelivery()
    again = MemberId("a", 2)
    before, after = (
        ViewChange(view=View(number, 0, 0, members, (), (), (0, 0)), pause_s=0.0)
        for number, members in ((1, (A, B)), (2, (B, again)))
    )
    late, new = Delivery(B, 1, 2, b""), Delivery(B, 2, 3, b"")
    atomic._accept(Delivery(B, 1, 1, b""), A)
    atomic._drop()
    for event in (late, before, late, after, new):
        atomic._accept(event, again)
    assert list(atomic._ready) == [before, after]
    assert list(atomic._held.waiting) == [new]


class Bank:
    """An application with a state: the payloads it was given, in order."""

    def __init__(self) -> None:
        self.entries: list[str] = []
        self.atomic = AtomicDelivery(snapshot=self.snapshot, restore=self.restore)
        self.events: list[Delivery | ViewChange] = []
        self.group: Group | None = None
        self.was_stable: list[bool] = []

    async def snapshot(self) -> bytes:
        entries = ",".join(self.entries).encode()
        await asyncio.sleep(0.01)
        return entries

    def restore(self, octets: bytes) -> None:
        self.entries = [one for one in octets.decode().split(",") if one]

    async def consume(self) -> None:
        async for event in self.atomic:
            assert self.group is not None
            self.events.append(event)
            if isinstance(event, Delivery):
                self.was_stable.append(event.is_history or self.group.is_stable(event))
                self.entries.append(event.payload.decode())

    async def run(self, *, done: asyncio.Event, **options: Any) -> None:
        """A member until the test is done."""
        async with self.atomic.join("bank", plaintext=True, settings=quick(), **options) as group:
            self.group = group
            consuming = asyncio.create_task(self.consume())
            await done.wait()
            consuming.cancel()

    async def multicast(self, text: str) -> None:
        assert self.group is not None
        await self.group.multicast(text.encode())


def entries_of(banks: list[Bank]) -> list[list[str]]:
    return [one.entries for one in banks]


@asynccontextmanager
async def founded(count: int, *, addresses: list[str]) -> AsyncIterator[tuple[list[Bank], asyncio.Event]]:
    """Banks at the first addresses; all addresses are founders."""
    done, banks = asyncio.Event(), [Bank() for _ in range(count)]
    members = [
        asyncio.create_task(one.run(done=done, listen=address, peers=addresses))
        for one, address in zip(banks, addresses, strict=False)
    ]
    await until(lambda: all(one.group is not None for one in banks))
    try:
        yield banks, done
    finally:
        done.set()
        await asyncio.gather(*members)


@pytest.mark.timeout(200)
def test_all_members_are_given_all_messages_once_they_are_stable() -> None:
    async def play() -> None:
        async with founded(3, addresses=free_addresses(3)) as (banks, _):
            for number in range(10):
                for place, one in enumerate(banks):
                    await one.multicast(f"{place}.{number}")
            await until(lambda: all(len(one.entries) == 30 for one in banks))
            assert all(all(one.was_stable) for one in banks)
            for one in banks:
                for place in range(3):
                    own = [text for text in one.entries if text.startswith(f"{place}.")]
                    assert own == [f"{place}.{number}" for number in range(10)]

    asyncio.run(play())


@pytest.mark.timeout(200)
def test_a_message_that_a_silent_member_may_lack_waits_until_it_is_out_and_a_newcomer_gets_it_once() -> None:
    async def play() -> None:
        addresses = free_addresses(3)
        silent = asyncio.create_task(
            enter("bank", listen=addresses[2], peers=addresses, snapshot=bytes, restore=lambda _state: None)
        )
        async with founded(2, addresses=addresses) as (banks, done):
            third, first = await silent, banks[0]
            assert first.group is not None
            group = first.group
            await until(lambda: len(group.view.members) == 3)
            await first.multicast("before")
            await until(lambda: entries_of(banks) == [["before"]] * 2)
            await vanish(third)
            await first.multicast("held")
            await asyncio.sleep(0.1)
            if len(group.view.members) == 3:
                assert first.entries == ["before"], "the third member may not have it"
            late = Bank()
            running = asyncio.create_task(late.run(done=done, listen=free_addresses(1)[0], contact=addresses[0]))
            everybody = [*banks, late]
            await until(lambda: entries_of(everybody) == [["before", "held"]] * 3, 2 * WAIT_S)
            assert addresses[2] not in {member.name for member in group.view.members}
            await late.multicast("after")
            await until(lambda: entries_of(everybody) == [["before", "held", "after"]] * 3)
            done.set()
            await running

    asyncio.run(play())


def test_a_block_that_ends_with_an_exception_does_not_wait_for_the_others(caplog: pytest.LogCaptureFixture) -> None:
    """The group is blocked: no member can agree on a view without this one."""

    async def play() -> None:
        addresses = free_addresses(2)
        options: dict[str, Any] = {"peers": addresses, "plaintext": True, "settings": quick()}
        leading = asyncio.create_task(enter("bank", listen=addresses[0], **options))

        async def follow() -> None:
            async with AtomicDelivery().join("bank", listen=addresses[1], **options) as group:
                await until(lambda: len(group.view.members) == 2)
                await vanish(await leading)
                await until(lambda: group.is_blocked)
                await group.multicast(b"x")
                raise KeyError

        with pytest.raises(KeyError):
            await follow()

    asyncio.run(play())
    assert "left without the others' agreement" not in caplog.text  # the warning of a leave that waited in vain


def test_impossible_uses_are_refused() -> None:
    async def play() -> None:
        with pytest.raises(LocalProtocolError, match="not joined a group yet"):
            await anext(AtomicDelivery())
        with pytest.raises(LocalProtocolError, match="journal= with atomic delivery needs snapshot="):
            async with AtomicDelivery().join("bank", listen="127.0.0.1:1", found=True, journal="x", plaintext=True):
                pass
        state: dict[str, Any] = {"snapshot": bytes, "restore": print}
        with pytest.raises(LocalProtocolError, match=r"(snapshot|restore)= of join: give it to AtomicDelivery"):
            async with AtomicDelivery().join("bank", listen="127.0.0.1:1", found=True, plaintext=True, **state):
                pass
        with pytest.raises(LocalProtocolError, match="give snapshot= and restore= together"):
            AtomicDelivery(snapshot=bytes)
        numbered = AtomicDelivery(snapshot=lambda: 5, restore=print)  # type: ignore[arg-type,return-value]
        numbered._asking.set()
        with pytest.raises(LocalProtocolError, match=r"what snapshot\(\) returned is of type int"):
            await numbered._take_state()

    asyncio.run(play())

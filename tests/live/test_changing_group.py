"""A group that changes, its members in one process: what a program sees of joining, leaving, waiting and refusals."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import cubecast
from cubecast.core.membership import View
from cubecast.errors import LocalProtocolError
from cubecast.live.keys import init, issue
from cubecast.live.local import free_addresses
from cubecast.live.status import StatusServer

pytestmark = pytest.mark.live

QUICK = {"tick_s": 0.05, "suspect_after_s": 1.0, "patience_s": 0.4, "takeover_s": 0.6, "batch_s": 0.0}


def settings(**other: Any) -> cubecast.ChangingSettings:
    return cubecast.ChangingSettings(**QUICK | other)


def run(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(30):
            await work()

    asyncio.run(bounded())


@asynccontextmanager
async def group_of(count: int, *, options: dict[str, Any] | None = None, **other: Any) -> AsyncIterator[list[Any]]:
    """Members of one group; each joins by the one before it."""
    addresses = free_addresses(count)
    common: dict[str, Any] = {"plaintext": True, "settings": settings(**other), **(options or {})}
    groups: list[cubecast.ChangingGroup] = []
    try:
        for place, address in enumerate(addresses):
            if place:
                groups.append(cubecast.join("test", listen=address, contact=addresses[place - 1], **common))
            else:
                groups.append(cubecast.found("test", listen=address, **common))
            await groups[-1].__aenter__()
        yield groups
    finally:
        for group in groups:
            if group._driver is not None:
                await vanish(group)


async def vanish(group: cubecast.ChangingGroup) -> None:
    """Be gone without a word, as a process that is killed."""
    driver = group._driver
    assert driver is not None
    await driver.stop()
    group._driver = None


async def until(is_so: Callable[[], bool], seconds: float = 10.0) -> None:
    """Wait for it."""
    async with asyncio.timeout(seconds):
        while not is_so():
            await asyncio.sleep(0.02)


async def take(group: cubecast.ChangingGroup, count: int) -> list[Any]:
    """The next deliveries."""
    found = []
    async with asyncio.timeout(10):
        async for delivery in group:
            found.append(delivery)
            if len(found) == count:
                break
    return found


def test_messages_reach_all_become_stable_and_views_stand_at_their_place_among_them() -> None:
    async def work() -> None:
        async with group_of(3) as (one, two, three):
            assert [group.view.number for group in (one, two, three)] == [3, 3, 3]
            message = await three.multicast(memoryview(b"hello"))
            await message.stable(timeout=5)
            assert message.is_stable
            (delivery,) = await take(one, 1)
            assert (delivery.sender, delivery.view, delivery.sequence) == (three.me, 3, 1)
            assert delivery.payload == b"hello"
            await until(lambda: one.is_stable(delivery))
            assert one.frontier == {one.me: 0, two.me: 0, three.me: 1}
            seen: list[View] = []
            one.on_view(seen.append)
            await two.leave()
            await until(lambda: one.view.number == 4)
            assert [view.number for view in seen] == [4]
            await one.multicast(b"after")
            events = [event async for event in _until_after(one)]
            assert [getattr(event, "payload", None) or event.view.number for event in events] == [4, b"after"]

    run(work)


async def _until_after(group: cubecast.ChangingGroup) -> AsyncIterator[Any]:
    async for event in group.events():
        yield event
        if isinstance(event, cubecast.ChangingDelivery):
            return


def test_a_newcomer_gets_the_state_in_pieces_and_then_the_tail() -> None:
    state = {"one": bytearray(b"x" * 5000), "two": bytearray()}

    async def work() -> None:
        addresses = free_addresses(2)
        common: dict[str, Any] = {"plaintext": True, "settings": settings(chunk_bytes=512)}
        one = cubecast.found(
            "test", listen=addresses[0], snapshot=lambda: bytes(state["one"]), restore=state["one"].extend, **common
        )
        two = cubecast.join(
            "test",
            listen=addresses[1],
            contact=addresses[0],
            snapshot=lambda: bytes(state["two"]),
            restore=state["two"].extend,
            **common,
        )
        progress: list[tuple[int, int]] = []
        two.on_progress(progress.append)
        async with one:
            await one.multicast(b"early")

            async def apply() -> None:
                async for delivery in one:
                    state["one"] += delivery.payload

            applying = asyncio.create_task(apply())
            async with two:
                assert bytes(state["two"]) == b"x" * 5000 + b"early"
                assert progress == [(piece, 10) for piece in range(1, 11)]
                await one.multicast(b"late")
                assert [delivery.payload for delivery in await take(two, 1)] == [b"late"]
            applying.cancel()

    run(work)


@pytest.mark.parametrize(("keep", "payloads"), [("none", []), (2, [b"1", b"2"]), ("all", [b"0", b"1", b"2"])])
def test_without_snapshots_a_newcomer_gets_the_history_that_is_kept(keep: Any, payloads: list[bytes]) -> None:
    async def work() -> None:
        async with group_of(1, keep=keep) as (one,):
            for number in range(3):
                await one.multicast(b"%d" % number)
            (address,) = free_addresses(1)
            contact = one.me.name
            async with cubecast.join(
                "test", listen=address, contact=contact, plaintext=True, settings=settings(keep=keep)
            ) as two:
                await one.multicast(b"new")
                found = await take(two, len(payloads) + 1)
                assert [delivery.payload for delivery in found] == [*payloads, b"new"]
                assert [delivery.is_history for delivery in found] == [*[True] * len(payloads), False]

    run(work)


def test_a_minority_is_blocked_says_so_and_multicast_waits_when_the_budget_is_used_up() -> None:
    async def work() -> None:
        async with group_of(3, window_bytes=1000, payload_bytes_max=1000) as (one, two, three):
            told: list[bool] = []
            three.on_blocked(told.append)
            await vanish(one)
            await vanish(two)
            await until(lambda: three.is_blocked)
            assert told == [True]
            assert three.status()["blocked"]
            seen = await _ask(three, "/metrics")
            assert 'cubecast_blocked{group="test",rank="2"} 1.0' in seen
            assert json.loads(await _ask(three, "/status.json"))["members"][2]["address"] == three.me.name
            message = await three.multicast(bytes(1000))
            assert (message.view, message.is_stable) == (0, False)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(three.multicast(b"x"), 0.3)
            with pytest.raises(TimeoutError, match="not stable after"):
                await message.stable(timeout=0.1)

    run(work)


async def _ask(group: cubecast.ChangingGroup, path: str) -> str:
    (address,) = free_addresses(1)
    async with StatusServer(group, address):
        reader, writer = await asyncio.open_connection(*address.rsplit(":", 1))
        writer.write(f"GET {path} HTTP/1.1\r\n\r\n".encode())
        answer = (await reader.read()).decode()
        writer.close()
    return answer.split("\r\n\r\n", 1)[1]


def test_a_slow_application_holds_stability_back_and_is_named() -> None:
    async def work() -> None:
        async with group_of(2, backlog_bytes=2000, window_bytes=4000, payload_bytes_max=1000) as (one, two):
            taking = asyncio.create_task(take(one, 1000))
            sending = asyncio.create_task(_send(one, 12))
            await asyncio.sleep(0.5)
            assert not sending.done()
            await until(lambda: [laggard.who for laggard in one.laggards()] == [two.me])
            await take(two, 12)
            await sending
            await until(lambda: one.stats["own_unstable_messages"] == 0)
            taking.cancel()

    run(work)


async def _send(group: cubecast.ChangingGroup, count: int) -> None:
    for _ in range(count):
        await group.multicast(bytes(1000))


def test_a_member_that_is_too_slow_is_excluded_where_that_is_the_policy() -> None:
    async def work() -> None:
        async with group_of(3, slow="exclude", behind_messages=40, backlog_bytes=10, rejoin=False) as (one, two, three):
            keep_up = [asyncio.create_task(take(group, 1000)) for group in (one, two)]
            ends: list[Any] = []
            three.on_excluded(ends.append)
            for _ in range(60):
                await one.multicast(bytes(10))
                await asyncio.sleep(0.01)
            await until(lambda: bool(ends))
            with pytest.raises(cubecast.ExcludedError, match="excluded"):
                await three.multicast(b"x")
            await until(lambda: len(one.view.members) == 2)
            for task in keep_up:
                task.cancel()

    run(work)


def test_strangers_are_refused_with_a_reason_and_the_group_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "cubecast.live")

    async def refused(contact: str, reason: str, name: str = "test", **options: Any) -> None:
        (address,) = free_addresses(1)
        group = cubecast.join(name, listen=address, contact=contact, **options)
        with pytest.raises(LocalProtocolError, match="nobody took this member in"):
            await group.__aenter__()
        assert reason in caplog.text
        caplog.clear()

    async def work() -> None:
        short = settings(join_timeout_s=0.5)
        async with group_of(1) as (one,):
            contact = one.me.name
            await refused(contact, "of group 'other'", name="other", plaintext=True, settings=short)
            await refused(contact, "settings differ", plaintext=True, settings=settings(join_timeout_s=0.5, keep="all"))
            for garbage in (b"GET / HTTP/1.1\r\n\r\n", b"\0" * 64):
                with socket.create_connection(contact.rsplit(":", 1)) as raw:
                    raw.sendall(garbage)
                    await asyncio.sleep(0.1)
            assert one.stats["refused_connections"] >= 4
            await (await one.multicast(b"still here")).stable(timeout=5)

    run(work)


def test_members_prove_their_addresses_by_certificates(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "cubecast.live")
    addresses = free_addresses(3)
    init(tmp_path)
    keys = {address: issue(tmp_path, address) for address in addresses}

    def credentials(address: str) -> cubecast.Credentials:
        return cubecast.Credentials.load(keys[address], ca=tmp_path / "group.pem")

    async def work() -> None:
        first, second, third = addresses
        async with cubecast.found("test", listen=first, credentials=credentials(first), settings=settings()) as one:
            async with cubecast.join(
                "test", listen=second, contact=first, credentials=credentials(second), settings=settings()
            ):
                await (await one.multicast(b"over TLS")).stable(timeout=5)
            liar = cubecast.join(
                "test",
                listen=third,
                contact=first,
                credentials=credentials(second),
                settings=settings(join_timeout_s=0.7),
            )
            with pytest.raises(LocalProtocolError, match="nobody took this member in"):
                await liar.__aenter__()
            assert f"its certificate is for {second}, not for {third}" in caplog.text

    run(work)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({}, "peers= .all members. or contact="),
        ({"contact": "127.0.0.1:1"}, "plaintext=True"),
        ({"contact": "127.0.0.1:7001", "plaintext": True}, "this member itself"),
        ({"contact": "nowhere", "plaintext": True}, "host:port"),
        ({"contact": "127.0.0.1:1", "plaintext": True, "snapshot": bytes}, "together"),
    ],
)
def test_what_cannot_be_is_one_clear_line(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(LocalProtocolError, match=complaint):
        cubecast.join("test", listen="127.0.0.1:7001", **options)


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        ({"slow": "shout"}, "slow='shout'"),
        ({"keep": "some"}, "keep='some'"),
        ({"keep": -1}, "keep=-1"),
        ({"sync": "often"}, "sync='often'"),
        ({"tick_s": 0}, "tick_s=0"),
        ({"window_bytes": 10}, "window_bytes=10"),
        ({"suspect_after_s": 0.1}, "suspect_ns"),
    ],
)
def test_settings_that_cannot_be_are_refused(wrong: dict[str, Any], complaint: str) -> None:
    with pytest.raises(LocalProtocolError, match=complaint):
        cubecast.ChangingSettings(**wrong)


def test_who_is_started_again_from_its_log_goes_on_wherever_it_was(tmp_path: Path) -> None:
    """In the group; asking a contact that is gone to be taken in; on its way out; or out."""

    async def work() -> None:
        first, second, nobody = free_addresses(3)
        common: dict[str, Any] = {"plaintext": True, "settings": settings(keep="all", sync="never", rejoin=True)}
        log = tmp_path / "second.log"

        def again(contact: str = first) -> cubecast.ChangingGroup:
            return cubecast.join("test", listen=second, contact=contact, log=log, **common)

        async with cubecast.found("test", listen=first, log=tmp_path / "first.log", **common) as one:
            lost = again(nobody)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(lost.__aenter__(), 0.3)
            two = await again().__aenter__()
            await (await two.multicast(b"a")).stable(timeout=5)
            life = two.me
            await vanish(two)
            two = await again().__aenter__()
            assert two.me == life
            assert [delivery.payload for delivery in await take(two, 1)] == [b"a"]
            await (await two.multicast(b"b")).stable(timeout=5)
            two._driver.leave()  # type: ignore[union-attr]
            await vanish(two)
            two = await again().__aenter__()
            await (await two.multicast(b"c")).stable(timeout=5)
            await two.leave()
            two = await again().__aenter__()
            assert two.me.incarnation > life.incarnation
            await (await two.multicast(b"d")).stable(timeout=5)
            assert [delivery.payload for delivery in await take(one, 4)] == [b"a", b"b", b"c", b"d"]
            await vanish(two)

    run(work)


def test_what_waited_while_it_was_cut_off_is_multicast_in_the_next_life() -> None:
    async def work() -> None:
        async with group_of(3) as (one, two, three):
            await (await three.multicast(b"before")).stable(timeout=5)
            ends: list[Any] = []
            three.on_excluded(ends.append)
            await _cut_off(three, lambda: len(one.view.members) == 2 and three.is_blocked)
            waiting = await three.multicast(b"waited")
            assert waiting.view == 0
            await until(lambda: len(two.view.members) == 3)
            await waiting.stable(timeout=5)
            assert [end.returned for end in ends] == [(b"waited",)]
            assert waiting.view == one.view.number
            assert [delivery.payload for delivery in await take(one, 2)] == [b"before", b"waited"]

    run(work)


async def _cut_off(group: cubecast.ChangingGroup, is_enough: Callable[[], bool]) -> None:
    """Nothing leaves a member and nothing reaches it, for a while."""
    driver = group._driver
    assert driver is not None
    links = driver.links
    send, links.send = links.send, lambda *_, **__: None  # type: ignore[method-assign]
    hear, links._on_batch = links._on_batch, lambda *_: None
    await until(is_enough)
    links.send, links._on_batch = send, hear  # type: ignore[method-assign]


def test_a_changing_group_without_asyncio() -> None:
    first, second = free_addresses(2)
    state = {"one": b"", "two": b""}
    common: dict[str, Any] = {"plaintext": True, "settings": settings()}

    def own(name: str) -> dict[str, Any]:
        def restore(octets: bytes) -> None:
            state[name] = octets

        return {"snapshot": lambda: state[name], "restore": restore, **common}

    with cubecast.found_sync("sync", listen=first, **own("one")) as one:
        one.multicast(b"a").stable(timeout=5)
        joining = threading.Thread(target=lambda: entered.append(two.__enter__()))
        two = cubecast.join_sync("sync", listen=second, contact=first, **own("two"))
        entered: list[Any] = []
        joining.start()
        for event in one.events(timeout=3):
            if isinstance(event, cubecast.ChangingDelivery):
                state["one"] += event.payload
            elif len(event.view.members) == 2:
                break
        next(one.events(timeout=0.3), None)  # the snapshot is taken while this one waits
        joining.join(10)
        assert state["two"] == b"a"
        assert entered[0].view.members == one.view.members
        message = two.multicast(b"b")
        message.stable(timeout=5)
        assert [event.payload for event in one.events(timeout=0.5)] == [b"b"]  # type: ignore[union-attr]
        two.__exit__(None, None, None)

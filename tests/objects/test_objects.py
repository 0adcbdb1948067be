"""Shared objects of members in this process, over real sockets: dictionaries, counters, locks, leaders."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cubecast.errors import ExcludedError, LocalProtocolError
from cubecast.live.local import free_addresses
from cubecast.objects import Space, Token
from cubecast.objects.space import DEPTH_MAX
from tests.live.members import WAIT_S, drain, founded, one, quick, until, vanish

pytestmark = pytest.mark.live

_NO_STATE: dict[str, Any] = {"snapshot": lambda: b"", "restore": lambda _state: None}
"""Of a member that is in the group of the spaces without being one."""


@asynccontextmanager
async def spaces_of(members: int, **settings: Any) -> AsyncIterator[list[Space]]:
    """Members that found a group together."""
    spaces = [Space() for _ in range(members)]
    async with founded(spaces, "objects", **settings):
        yield spaces


@pytest.mark.parametrize("wins", ["last", "add"])
def test_random_writes_end_in_the_same_dictionary_and_no_tombstones(wins: Any) -> None:
    async def run() -> None:
        draw = random.Random(3)
        async with spaces_of(3) as spaces:
            dicts = [space.dict("d", wins) for space in spaces]
            for _ in range(300):
                one, key = draw.choice(dicts), f"k{draw.randrange(12)}"
                await (one.delete(key) if draw.random() < 0.4 else one.set(key, draw.randrange(1000)))
                if draw.random() < 0.1:
                    await asyncio.sleep(0.002)
            last = await dicts[0].set("end", True)
            await last.stable(WAIT_S, level="processed")
            await until(lambda: not any(one.tombstones for one in dicts))
            assert dicts[0].items() == dicts[1].items() == dicts[2].items()
            newcomer = Space()
            async with newcomer.join(
                "objects",
                listen=free_addresses(1)[0],
                contact=spaces[1].group.address,
                plaintext=True,
                settings=quick(),
            ):
                assert newcomer.dict("d", wins).items() == dicts[0].items()

    asyncio.run(run())


def test_of_a_concurrent_write_and_deletion_the_rule_decides() -> None:
    async def run() -> None:
        async with spaces_of(2) as (first, second):
            for wins in ("last", "add"):
                one, other = (space.dict(f"d {wins}", wins) for space in (first, second))
                await one.set("k", 0)
                await until(lambda other=other: "k" in other)  # type: ignore[misc]
                await asyncio.gather(one.set("k", 1), other.delete("k"))  # neither knows of the other
                for space in (first, second):
                    await (await space.counter("done").add()).stable(WAIT_S, level="processed")
                assert one.get("k") == other.get("k")
                assert wins == "last" or one["k"] == 1

    asyncio.run(run())


@pytest.mark.parametrize("wins", ["last", "add"])
def test_a_program_that_asks_late_for_an_object_finds_what_happened_before(wins: Any) -> None:
    """An operation is applied by the rule of its object, whatever this program has asked for until then."""

    async def run() -> None:
        async with spaces_of(2) as (first, second):
            one = first.dict("d", wins)
            await one.set("k", 0)
            await (await one.delete("k")).stable(WAIT_S, level="processed")  # before the write came back
            await (await one.set("l", 1)).stable(WAIT_S, level="processed")
            other = second.dict("d", wins)
            assert other.items() == one.items() == [("l", 1)]
            other_rule = {"last": "add", "add": "last"}[wins]
            with pytest.raises(LocalProtocolError, match=f"the dictionary 'd' already has wins='{wins}'"):
                second.dict("d", other_rule)  # type: ignore[arg-type]

    asyncio.run(run())


def test_a_value_of_a_subclass_is_the_basic_type_at_every_member() -> None:
    text = type("Markup", (str,), {"__str__": lambda self: self})("<b>")

    async def run() -> None:
        async with spaces_of(2) as (one, two):
            await one.dict("d").set(text, [text])
            for space in (one, two):
                await until(lambda space=space: space.dict("d").items() == [("<b>", ["<b>"])])  # type: ignore[misc]
                ((key, (value,)),) = space.dict("d").items()
                assert type(key) is type(value) is str

    asyncio.run(run())


def test_all_additions_count_and_what_is_no_number_is_refused() -> None:
    async def run() -> None:
        async with spaces_of(3) as spaces:
            await asyncio.gather(*(space.counter("c").add(place - 1) for place, space in enumerate(spaces * 20)))
            await until(lambda: all(space.counter("c").value == sum(range(-1, 59)) for space in spaces))
            with pytest.raises(LocalProtocolError, match="give a whole number"):
                await spaces[0].counter("c").add(1.5)  # type: ignore[arg-type]
            with pytest.raises(LocalProtocolError, match="this value cannot be sent"):
                await spaces[0].dict("d").set("k", object())
            with pytest.raises(LocalProtocolError, match="keys are strings"):
                await spaces[0].dict("d").set(5, 1)  # type: ignore[arg-type]

    asyncio.run(run())


def test_a_lock_has_one_holder_at_a_time_and_its_tokens_grow() -> None:
    async def run() -> None:
        async with spaces_of(3) as spaces:
            inside = 0
            tokens: list[Token] = []

            async def work(space: Space) -> None:
                nonlocal inside
                for _ in range(4):
                    async with space.lock("l") as token:
                        inside += 1
                        assert inside == 1, "two holders"
                        tokens.append(token)
                        await asyncio.sleep(0.005)
                        inside -= 1

            async with asyncio.timeout(60):
                await asyncio.gather(*(work(space) for space in spaces))
            assert tokens == sorted(set(tokens))
            assert len(tokens) == 12
            await until(lambda: all(space.lock("l").holder is None for space in spaces))

    asyncio.run(run())


def test_a_lock_passes_on_when_its_holder_is_gone_or_its_waiter_gives_up() -> None:
    async def run() -> None:
        async with spaces_of(3) as spaces:
            first = await spaces[2].lock("l").acquire(WAIT_S)
            holder = spaces[2].group.address
            with pytest.raises(TimeoutError, match=f"^lock 'l' not granted within 0.5 s: {holder} holds it$"):
                await spaces[0].lock("l").acquire(0.5)
            waiting = asyncio.create_task(spaces[1].lock("l").acquire())
            await vanish(spaces[2].group)
            async with asyncio.timeout(WAIT_S):
                second = await waiting
            assert second > first
            await until(lambda: spaces[0].lock("l").holder == spaces[1].group.me)
            await spaces[1].lock("l").release()
            assert await spaces[0].lock("l").acquire(WAIT_S) > second
            with pytest.raises(LocalProtocolError, match="not held here"):
                await spaces[1].lock("l").release()

    asyncio.run(run())


def test_an_excluded_member_loses_the_locks_it_waits_for() -> None:
    async def run() -> None:
        async with spaces_of(3) as spaces:
            await spaces[0].lock("l").acquire(WAIT_S)
            waiting = asyncio.create_task(spaces[2].lock("l").acquire())
            await until(lambda: len(spaces[0].lock("l")._queue) == 2)
            driver = spaces[2].group._driver
            assert driver is not None
            driver.call(lambda _now_ns: driver.member._go_out("as if excluded"))
            with pytest.raises(ExcludedError):
                async with asyncio.timeout(WAIT_S):
                    await waiting
            await until(lambda: len(spaces[0].lock("l")._queue) == 1)

    asyncio.run(run())


def test_a_block_whose_lock_was_lost_does_not_release_the_lock_of_another_task() -> None:
    async def run() -> None:
        async with spaces_of(3) as spaces:
            lock = spaces[2].lock("l")
            may_end = asyncio.Event()

            async def hold() -> None:
                async with lock:
                    await may_end.wait()

            before = asyncio.create_task(hold())
            await until(lambda: lock._held is not None)
            driver = spaces[2].group._driver
            assert driver is not None
            driver.call(lambda _now_ns: driver.member._go_out("as if excluded"))
            await until(lambda: lock._held is None)
            await lock.acquire(WAIT_S)
            may_end.set()
            await before
            with pytest.raises(TimeoutError):
                await spaces[0].lock("l").acquire(0.5)
            await lock.release()
            await spaces[0].lock("l").acquire(WAIT_S)

    asyncio.run(run())


def test_a_cancelled_release_passes_the_lock_on() -> None:
    async def run() -> None:
        slow_settings = quick(window_messages=2, backlog_bytes=1)
        async with spaces_of(2, window_messages=2) as spaces:
            contact = spaces[0].group.address
            async with one("objects", contact=contact, settings=slow_settings, **_NO_STATE) as slow:
                reading = asyncio.create_task(drain(slow))
                lock = spaces[0].lock("l")
                await lock.acquire(WAIT_S)
                await until(lambda: spaces[0].group.stats["own_unstable_messages"] == 0)
                reading.cancel()  # soon it accepts no more, nothing becomes stable, and the window is full
                filling = [asyncio.create_task(spaces[0].counter("c").add()) for _ in range(9)]
                await asyncio.sleep(0.5)
                assert not all(task.done() for task in filling)
                releasing = asyncio.create_task(lock.release())
                await asyncio.sleep(0.1)
                assert releasing.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await releasing
                reading = asyncio.create_task(drain(slow))
                await spaces[1].lock("l").acquire(WAIT_S)
                assert spaces[1].group.view.number == 2, "only a view change passed it on"
                await asyncio.gather(*filling)
                await vanish(slow)
                await reading

    asyncio.run(run())


def test_a_task_that_waits_for_a_lock_learns_that_its_member_left() -> None:
    async def run() -> None:
        async with spaces_of(2) as spaces:
            await spaces[0].lock("l").acquire(WAIT_S)
            waiting = asyncio.create_task(spaces[1].lock("l").acquire())
            await until(lambda: len(spaces[0].lock("l")._queue) == 2)
            await spaces[1].group.leave()
            with pytest.raises(LocalProtocolError, match="left while it waited for the lock 'l'"):
                async with asyncio.timeout(WAIT_S):
                    await waiting

    asyncio.run(run())


def test_a_process_that_restarts_from_its_journal_does_not_keep_the_lock_for_ever(tmp_path: Path) -> None:
    async def run() -> None:
        addresses = free_addresses(2)
        options: dict[str, Any] = {"peers": addresses, "plaintext": True, "settings": quick(suspect_after_s=5.0)}
        first, second = Space(), Space()
        async with AsyncExitStack() as stack:
            entering = [
                stack.enter_async_context(first.join("o", listen=addresses[0], **options)),
                stack.enter_async_context(second.join("o", listen=addresses[1], journal=tmp_path / "j", **options)),
            ]
            await asyncio.gather(*entering)
            await second.lock("l").acquire(WAIT_S)
            await vanish(second.group)
            again = Space()
            async with again.join("o", listen=addresses[1], journal=tmp_path / "j", **options):
                await first.lock("l").acquire(WAIT_S)
                await vanish(again.group)
            await vanish(first.group)

    asyncio.run(run())


def test_the_first_rank_leads_and_the_token_grows() -> None:
    async def run() -> None:
        async with spaces_of(3) as spaces:
            leaders = [space.leader() for space in spaces]
            assert [one.is_me for one in leaders] == [True, False, False]
            token = leaders[1].token
            await vanish(spaces[0].group)
            await until(lambda: leaders[1].member == leaders[2].member != spaces[0].group.me)
            assert leaders[1].token == leaders[2].token > token
            assert leaders[1].is_me != leaders[2].is_me

    asyncio.run(run())


@pytest.mark.parametrize("name", [5, None, b"x"])
def test_an_object_whose_name_is_no_text_is_refused(name: Any) -> None:
    """Its operations would be skipped everywhere."""
    space = Space()
    for function in (space.dict, space.counter, space.lock, space.leader):
        with pytest.raises(LocalProtocolError, match="the name must be a string"):
            function(name)


def test_a_space_is_used_once_and_keeps_the_state_itself() -> None:
    async def run() -> None:
        space = Space()
        with pytest.raises(LocalProtocolError, match="has not joined a group yet"):
            await space.counter("c").add()
        with pytest.raises(LocalProtocolError, match="snapshot=: the space holds the state"):
            async with space.join("o", listen=free_addresses(1)[0], found=True, snapshot=lambda: b""):
                pass
        async with space.join("o", listen=free_addresses(1)[0], found=True, plaintext=True, settings=quick()):
            await space.counter("c").add(5)
            await until(lambda: space.counter("c").value == 5)
            with pytest.raises(LocalProtocolError, match="has already joined a group"):
                async with space.join("o", listen=free_addresses(1)[0], found=True):
                    pass

    asyncio.run(run())


FOREIGN = [
    b"no operation",
    ["counter", "c", "a clock", 1],
    ["counter", "c", 1, "a text"],
    ["counter", ["a list"], 1, 1],
    [["a list"], "c", 1, 1],
    ["dict", "d", 1, ["set", ["a list"], 1]],
    ["dict", "d", 1, 7],
    ["lock", "l", 1, 7],
    ["lock", "l", 1, ["acquire", {}]],
    b"\x94\xa4dict\xa1d\x01" + b"\x91" * 5000 + b"\x01",
]


def test_messages_that_are_no_operations_are_skipped_everywhere_and_the_objects_go_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def run() -> None:
        async with spaces_of(2) as (first, second):
            for foreign in FOREIGN:
                payload = foreign if isinstance(foreign, bytes) else msgspec.msgpack.encode(foreign)
                await first.group.multicast(payload)
            await first.counter("c").add(2)
            async with asyncio.timeout(WAIT_S), second.lock("l"):
                await until(lambda: second.counter("c").value == first.counter("c").value == 2)

    asyncio.run(run())
    assert caplog.text.count("invalid operation") >= 2 * (len(FOREIGN) - 1)


def nested(depth: int, *, in_dicts: bool) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = {"a": value} if in_dicts else [value]
    return value


@dataclass(frozen=True)
class NoKey:
    """A key that msgpack encodes as a dictionary, which no member can decode as a key."""

    x: int = 1


def endless() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


@pytest.mark.parametrize(
    "value",
    [
        nested(DEPTH_MAX + 1, in_dicts=False),
        nested(DEPTH_MAX + 1, in_dicts=True),
        nested(980, in_dicts=False),
        nested(100_000, in_dicts=False),
        endless(),
        {NoKey(): 1},
        {"a": object()},
        1 << 64,
        "\ud800",
    ],
    ids=["list", "dict", "deep", "too deep", "endless", "key", "object", "number", "surrogate"],
)
def test_a_value_that_no_member_could_store_is_refused_in_one_line(value: Any) -> None:
    async def run() -> None:
        async with spaces_of(2) as (space, _):
            for wins in ("last", "add"):
                with pytest.raises(LocalProtocolError, match=r"dict 'd.*': this value cannot be sent") as error:
                    await space.dict(f"d{wins}", wins).set("key", value)
                assert len(str(error.value).splitlines()) == 1
            assert space.group.stats["published"] == 0

    asyncio.run(run())


@pytest.mark.parametrize("in_dicts", [False, True])
def test_the_deepest_value_reaches_newcomers(in_dicts: bool) -> None:
    async def run() -> None:
        async with spaces_of(2) as (first, second):
            for wins in ("last", "add"):
                await first.dict(f"d{wins}", wins).set("key", nested(DEPTH_MAX, in_dicts=in_dicts))
            await until(lambda: "key" in second.dict("dlast") and "key" in second.dict("dadd", "add"))
            newcomer = Space()
            address, contact = free_addresses(1)[0], first.group.address
            async with newcomer.join("objects", listen=address, contact=contact, plaintext=True, settings=quick()):
                assert newcomer.dict("dadd", "add")["key"] == nested(DEPTH_MAX, in_dicts=in_dicts)
                assert newcomer.dict("dlast")["key"] == nested(DEPTH_MAX, in_dicts=in_dicts)

    asyncio.run(run())


def test_a_counter_beyond_64_bits_reaches_newcomers() -> None:
    async def run() -> None:
        async with spaces_of(2) as (first, second):
            for _ in range(4):
                await first.counter("c").add((1 << 63) - 1)
            await until(lambda: second.counter("c").value == 4 * ((1 << 63) - 1))
            newcomer = Space()
            address, contact = free_addresses(1)[0], first.group.address
            async with newcomer.join("objects", listen=address, contact=contact, plaintext=True, settings=quick()):
                assert newcomer.counter("c").value == second.counter("c").value

    asyncio.run(run())


def test_a_block_that_ends_with_an_exception_waits_for_nobody(caplog: pytest.LogCaptureFixture) -> None:
    """The group is blocked: nobody can agree on a view without this member."""

    async def run() -> None:
        addresses = free_addresses(2)
        first, second = Space(), Space()
        options: dict[str, Any] = {"peers": addresses, "plaintext": True, "settings": quick()}

        async def lead() -> None:
            async with first.join("o", listen=addresses[0], **options):
                await asyncio.Event().wait()

        async def follow() -> None:
            async with second.join("o", listen=addresses[1], **options) as group:
                await until(lambda: len(group.view.members) == 2)
                await vanish(first.group)
                await until(lambda: group.is_blocked)
                await second.counter("c").add()
                raise KeyError

        leading = asyncio.create_task(lead())
        with pytest.raises(KeyError):
            await follow()
        assert "left without the others' agreement" not in caplog.text  # the warning of a leave that waited in vain
        leading.cancel()
        await asyncio.gather(leading, return_exceptions=True)

    asyncio.run(run())


def test_a_task_that_is_cancelled_at_the_end_of_the_block_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """The events that are left may take a while to apply."""

    async def forever(_: Space) -> None:
        await asyncio.Event().wait()

    async def run() -> None:
        monkeypatch.setattr(Space, "_apply_all", forever)
        space, has_left = Space(), asyncio.Event()
        went_on: list[bool] = []

        async def member() -> None:
            async with space.join("o", listen=free_addresses(1)[0], found=True, plaintext=True, settings=quick()):
                has_left.set()
            went_on.append(True)

        running = asyncio.create_task(member())
        await has_left.wait()
        await until(lambda: space.group._entered().is_ended)
        await asyncio.sleep(0.5)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert not went_on

    asyncio.run(run())

"""Ways into a group: founders, contacts, journals; and the errors of a member that cannot join."""

from __future__ import annotations

import asyncio
import logging
import re
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cubecast.errors import JournalError, LocalProtocolError
from cubecast.live.credentials import Credentials
from cubecast.live.keys import init, issue, revoke
from cubecast.live.local import free_addresses
from cubecast.member.settings import parse_address
from tests.live.members import WAIT_S, drain, enter, groups_of, one, quick, take, until, vanish

pytestmark = pytest.mark.live

SHORT = quick(join_timeout_s=1.5)


# A member that cannot join fails with the reason; it never founds a group alone by mistake.


def test_a_founder_without_the_others_fails_and_names_the_missing_ones(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        own, *others = free_addresses(3)
        with pytest.raises(LocalProtocolError) as raised:
            await enter(listen=own, peers=others, settings=SHORT)
        for other in others:
            assert f"{other} (no process listens there)" in str(raised.value)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(parse_address(own), timeout=1)

    with caplog.at_level(logging.INFO):
        asyncio.run(run())
    assert "waiting member=" in caplog.text


def test_a_member_whose_protocols_are_being_compiled_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("cubecast.live.group.LOADING_LOG_S", 0.05)
    monkeypatch.setattr("cubecast.live.group.load", lambda *_protocols: time.sleep(0.5))
    reasons: list[str] = []

    async def run() -> None:
        group = one(found=True)
        group.on_waiting(reasons.append)
        await group.__aenter__()
        await vanish(group)

    with caplog.at_level(logging.INFO):
        asyncio.run(run())
    assert reasons == ["loading Timestamp and CubeFullDist, compiled on first use"]
    assert "reason=loading Timestamp" in caplog.text


def refusals(**changes: Any) -> Callable[[str, str], tuple[dict[str, Any], dict[str, Any]]]:
    """Options of two founders that differ."""
    return lambda first, second: ({"listen": first, "peers": [second]}, {"listen": second, "peers": [first], **changes})


def named_otherwise(first: str, second: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """One member uses another name for the other."""
    return (
        {"listen": first, "peers": [second.replace("127.0.0.1", "localhost")]},
        {"listen": second, "peers": [first]},
    )


DIFFERENCES: dict[str, tuple[Callable[[str, str], Any], str]] = {
    "a setting": (
        refusals(settings=quick(join_timeout_s=1.5, window_bytes=1 << 21)),
        r"the settings differ: window_bytes=\d+ at \S+, \d+ at ",
    ),
    "another group": (refusals(name="other"), "is in group 'other'"),
    "another name of the host": (named_otherwise, "localhost.*use the same address|dialled localhost"),
}


@pytest.mark.parametrize("difference", DIFFERENCES)
def test_founders_that_differ_refuse_each_other_with_the_reason(difference: str) -> None:
    make, reason = DIFFERENCES[difference]

    async def run() -> None:
        first, second = make(*free_addresses(2))
        entered = await asyncio.gather(
            *(enter(options.pop("name", "g"), **{"settings": SHORT, **options}) for options in (first, second)),
            return_exceptions=True,
        )
        assert all(isinstance(error, LocalProtocolError) for error in entered), entered
        said = " | ".join(map(str, entered))
        assert re.search(reason, said), said

    asyncio.run(run())


def test_tls_and_plaintext_do_not_meet_and_both_say_so(tmp_path: Path) -> None:
    async def run() -> None:
        first, second = free_addresses(2)
        init(tmp_path)
        credentials = Credentials.load(issue(tmp_path, first), ca=tmp_path / "group.pem")
        entered = await asyncio.gather(
            enter(listen=first, peers=[second], credentials=credentials, settings=SHORT),
            enter(listen=second, peers=[first], settings=SHORT),
            return_exceptions=True,
        )
        assert all(isinstance(error, LocalProtocolError) for error in entered), entered
        assert "TLS" in str(entered[0])
        assert "TLS" in str(entered[1])

    asyncio.run(run())


def test_a_contact_that_is_not_there_is_named() -> None:
    async def run() -> None:
        (nobody,) = free_addresses(1)
        with pytest.raises(LocalProtocolError, match=rf"{nobody} \(no process listens there\)"):
            await enter(contact=nobody, settings=SHORT)

    asyncio.run(run())


# A later process that differs is refused, and the group is not affected.


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"name": "other"}, "is in group"),
        ({"settings": quick(join_timeout_s=1.5, payload_bytes_max=1000)}, "payload_bytes_max="),
    ],
)
def test_a_newcomer_that_differs_is_refused_and_disturbs_nobody(options: dict[str, Any], reason: str) -> None:
    async def run() -> None:
        async with groups_of(2) as groups:
            with pytest.raises(LocalProtocolError, match=reason):
                await enter(
                    options.get("name", "g"), contact=groups[0].address, settings=options.get("settings", SHORT)
                )
            await (await groups[1].multicast(b"still here")).stable(WAIT_S)
            assert len(groups[0].view.members) == 2

    asyncio.run(run())


def test_founders_need_a_quorum_and_not_more() -> None:
    async def run() -> None:
        addresses = free_addresses(3)
        groups = await asyncio.gather(*(enter(listen=one, peers=addresses) for one in addresses[:2]))
        await (await groups[0].multicast(b"two of three")).stable(WAIT_S)
        late = await enter(listen=addresses[2], peers=addresses)
        await until(lambda: all(len(group.view.members) == 3 for group in (*groups, late)))
        await (await late.multicast(b"three")).stable(WAIT_S)
        assert [got.payload for got in await take(groups[1], 2)] == [b"two of three", b"three"]
        await asyncio.gather(*(group.leave(drain=False) for group in (*groups, late)))

    asyncio.run(run())


# State.


@pytest.mark.parametrize(("quorum", "lines"), [("majority", 1), ("any", 0)])
def test_each_member_of_a_group_of_two_logs_once_that_it_depends_on_the_first_rank(
    quorum: str, lines: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        first = await enter(found=True, settings=quick(quorum=quorum))
        for _ in range(2):  # the second time it is a group of two again
            second = await enter(contact=first.address, settings=quick(quorum=quorum))
            await until(lambda: len(first.view.members) == 2)
            said = [one.getMessage() for one in caplog.records if "group of two" in one.getMessage()]
            for group in (first, second):
                assert sum(f"member={group.address} " in line for line in said) == lines
            assert all(f"first_rank={first.address}" in line for line in said)
            await second.leave()
        await first.leave()

    with caplog.at_level(logging.INFO):
        asyncio.run(run())


def test_a_newcomer_gets_the_state_at_its_place_among_the_messages() -> None:
    async def run() -> None:
        log: list[bytes] = []
        founder = await enter(found=True, snapshot=lambda: b"|".join(log), restore=lambda _: None)

        async def apply() -> None:
            async for delivery in founder:
                log.append(delivery.payload)

        applying = asyncio.create_task(apply())
        for number in range(100):
            await founder.multicast(str(number).encode())
        states: list[bytes] = []

        async def restore(state: bytes) -> None:
            await asyncio.sleep(0.01)
            states.append(state)

        newcomer = await enter(contact=founder.address, snapshot=lambda: b"", restore=restore)
        (state,) = states
        began = [int(word) for word in state.split(b"|")]
        await founder.multicast(b"after")
        rest: list[bytes] = []
        while not rest or rest[-1] != b"after":
            rest.append((await newcomer.receive(WAIT_S)).payload)
        assert [*began, *(int(word) for word in rest[:-1])] == list(range(100))
        applying.cancel()
        await newcomer.leave()
        await founder.leave()

    asyncio.run(run())


def test_a_snapshot_that_raises_is_requested_again(caplog: pytest.LogCaptureFixture) -> None:
    """A failed snapshot is requested again, else the newcomer would wait for ever."""

    async def run() -> None:
        tries = 0

        async def snapshot() -> bytes:
            nonlocal tries
            tries += 1
            if tries < 3:
                raise RuntimeError("not now")
            return b"state"

        founder = await enter(found=True, snapshot=snapshot, restore=lambda _: None)
        applying = asyncio.create_task(drain(founder))
        states: list[bytes] = []
        newcomer = await enter(contact=founder.address, snapshot=lambda: b"", restore=states.append)
        assert states == [b"state"]
        applying.cancel()
        await newcomer.leave()
        await founder.leave()

    asyncio.run(run())
    assert "snapshot failed" in caplog.text


def test_a_member_that_has_left_is_not_asked_for_its_state() -> None:
    calls: list[None] = []

    def snapshot() -> bytes:
        calls.append(None)
        raise RuntimeError

    async def run() -> None:
        state: dict[str, Any] = {"snapshot": snapshot, "restore": lambda _state: None}
        first = await enter(found=True, **state)
        joining = asyncio.create_task(enter(contact=first.address, **state))
        await until(lambda: len(first.view.members) == 2)
        await first.leave(drain=False)
        assert [event async for event in first] == []
        joining.cancel()
        await asyncio.gather(joining, return_exceptions=True)

    asyncio.run(run())
    assert calls == []


def test_a_restore_that_raises_reaches_the_caller() -> None:
    async def run() -> None:
        founder = await enter(found=True, snapshot=lambda: b"state", restore=lambda _: None)
        applying = asyncio.create_task(drain(founder))

        def restore(_: bytes) -> None:
            raise RuntimeError("cannot read this state")

        with pytest.raises(RuntimeError, match="cannot read this state"):
            await enter(contact=founder.address, snapshot=lambda: b"", restore=restore)
        await until(lambda: len(founder.view.members) == 1)
        applying.cancel()
        await founder.leave()

    asyncio.run(run())


def test_without_snapshots_a_newcomer_gets_the_kept_history_in_slices_of_the_loop() -> None:
    async def run() -> None:
        settings = quick(keep="all", suspect_after_s=3.0)
        founder = await enter(found=True, settings=settings)
        applying = asyncio.create_task(drain(founder))
        count = 20_000
        for number in range(count):
            await founder.multicast(str(number).encode())
        newcomer = await enter(contact=founder.address, settings=settings)
        longest = 0.0

        async def watch() -> None:
            nonlocal longest
            loop = asyncio.get_running_loop()
            while True:
                began = loop.time()
                await asyncio.sleep(0)
                longest = max(longest, loop.time() - began)

        watching = asyncio.create_task(watch())
        await asyncio.sleep(0.05)
        taken = await take(newcomer, count)
        assert [int(got.payload) for got in taken] == list(range(count))
        assert all(got.is_history for got in taken)
        await founder.multicast(b"now")
        fresh = await newcomer.receive(WAIT_S)
        assert (fresh.payload, fresh.is_history) == (b"now", False)
        print(f"the loop was held for at most {1e3 * longest:.1f} ms")
        for task in (watching, applying):
            task.cancel()
        await newcomer.leave()
        await founder.leave()

    asyncio.run(run())


def test_the_last_messages_are_kept_for_a_newcomer() -> None:
    async def run() -> None:
        settings = quick(keep=5)
        async with one(found=True, settings=settings) as founder:
            for number in range(20):
                await founder.multicast(str(number).encode())
            await take(founder, 20)
            async with one(contact=founder.address, settings=settings) as newcomer:
                assert [int(got.payload) for got in await take(newcomer, 5)] == list(range(15, 20))

    asyncio.run(run())


# Coming back.


def test_a_member_that_vanished_comes_back_under_its_address() -> None:
    """Its return must not end the healthy members with ExcludedError."""

    async def run() -> None:
        async with groups_of(3) as groups:
            await (await groups[2].multicast(b"before")).stable(WAIT_S)
            await vanish(groups[2])
            again = await enter(listen=groups[2].address, peers=[group.address for group in groups])
            await until(lambda: all(len(group.view.members) == 3 for group in (*groups[:2], again)))
            assert again.me.incarnation > groups[2].me.incarnation
            await (await again.multicast(b"after")).stable(WAIT_S)
            assert [got.payload for got in await take(groups[0], 2)] == [b"before", b"after"]
            await (await groups[1].multicast(b"healthy")).stable(WAIT_S)
            await again.leave()

    asyncio.run(run())


def test_a_member_with_a_journal_continues_where_it_was(tmp_path: Path) -> None:
    async def run() -> None:
        def journal(place: int) -> dict[str, Any]:
            return {"journal": tmp_path / f"{place}.journal"}

        async with groups_of(3, each=journal, suspect_after_s=10.0) as groups:
            for number in range(10):
                await groups[2].multicast(str(number).encode())
            taken = await take(groups[2], 10)
            await until(lambda: groups[2].is_stable(taken[-1]))
            await vanish(groups[2])
            meanwhile = await groups[0].multicast(b"meanwhile")
            again = await enter(listen=groups[2].address, journal=tmp_path / "2.journal", settings=groups[2].settings)
            assert again.me == groups[2].me
            await meanwhile.stable(WAIT_S)
            seen = [got.payload for got in await take(again, 11)]
            assert seen[:10] == [str(number).encode() for number in range(10)]
            assert seen[10] == b"meanwhile"
            await (await again.multicast(b"after")).stable(WAIT_S)
            everything = [got.payload for got in await take(groups[1], 12)]
            assert everything == [*(str(number).encode() for number in range(10)), b"meanwhile", b"after"]
            await again.leave()

    asyncio.run(run())


def test_a_lone_founder_with_a_journal_has_after_a_restart_what_was_stable(tmp_path: Path) -> None:
    """The restarted founder delivers all of them again."""

    async def run() -> None:
        journal = tmp_path / "journal"
        group = await enter(found=True, journal=journal)
        address = group.address
        for number in range(5):
            await (await group.multicast(str(number).encode())).stable(WAIT_S)
        await vanish(group)
        again = await enter(listen=address, journal=journal)
        assert [int(got.payload) for got in await take(again, 5)] == list(range(5))
        await again.leave()

    asyncio.run(run())


def test_checkpoints_replace_a_long_journal(tmp_path: Path) -> None:
    async def run() -> None:
        settings = quick(journal_bytes=20_000, sync="interval")
        log: list[int] = []
        options: dict[str, Any] = {
            "snapshot": lambda: ",".join(map(str, log)).encode(),
            "restore": lambda state: log.__setitem__(slice(None), [int(word) for word in state.split(b",") if word]),
            "journal": tmp_path / "journal",
            "settings": settings,
        }
        group = await enter(found=True, **options)
        address = group.address

        async def apply() -> None:
            async for delivery in group:
                log.append(int(delivery.payload))

        applying = asyncio.create_task(apply())
        for number in range(2000):
            await group.multicast(str(number).encode())
            if number % 100 == 0:
                await asyncio.sleep(0.005)
        await until(lambda: len(log) == 2000)
        await until(lambda: group.stats["journal_bytes"] < 40_000)
        applying.cancel()
        await vanish(group)
        kept = list(log)
        log.clear()
        again = await enter(listen=address, **options)
        while len(log) < len(kept):
            log.append(int((await again.receive(WAIT_S)).payload))
        assert log == kept
        await again.leave()

    asyncio.run(run())


# Journals that are not this member's.


def test_a_journal_of_another_member_or_group_or_in_use_is_refused(tmp_path: Path) -> None:
    async def run() -> None:
        journal = tmp_path / "journal"
        async with one(found=True, journal=journal):
            with pytest.raises(JournalError, match="in use by another process"):
                await enter(found=True, journal=journal)
        with pytest.raises(JournalError, match="belongs to member"):
            await enter(found=True, journal=journal)
        group = one("other", found=True, journal=journal)
        with pytest.raises(JournalError):
            await group.__aenter__()

    asyncio.run(run())


@pytest.mark.parametrize("place", [0.3, 0.6])
def test_a_damaged_journal_is_refused_and_left_as_it_is(tmp_path: Path, place: float) -> None:
    async def run() -> None:
        journal = tmp_path / "journal"
        group = await enter(found=True, journal=journal)
        for number in range(200):
            await (await group.multicast(str(number).encode())).stable(WAIT_S)
        await take(group, 200)
        await vanish(group)
        data = bytearray(journal.read_bytes())
        at = int(len(data) * place)
        data[at : at + 64] = bytes(64)
        journal.write_bytes(data)
        with pytest.raises(JournalError, match=str(journal)):
            await enter(listen=group.address, journal=journal)
        assert journal.read_bytes() == data

    asyncio.run(run())


def test_an_empty_journal_needs_a_way_in(tmp_path: Path) -> None:
    async def run() -> None:
        with pytest.raises(LocalProtocolError, match="or a journal= to continue from"):
            await enter(journal=tmp_path / "journal")

    asyncio.run(run())


def test_a_journal_whose_disk_fails_ends_the_member_with_one_error(tmp_path: Path) -> None:
    async def run() -> None:
        def journal(place: int) -> dict[str, Any]:
            return {"journal": tmp_path / "journal"} if place == 0 else {}

        async with groups_of(3, each=journal) as groups:
            await (await groups[0].multicast(b"before")).stable(WAIT_S)

            def fail() -> None:
                raise JournalError("cannot write the journal: No space left on device")

            driver = groups[0]._entered()
            assert driver.journal is not None
            driver.journal.write = fail  # type: ignore[method-assign]
            message = await groups[0].multicast(b"lost")
            with pytest.raises(JournalError, match="No space left"):
                await message.stable(WAIT_S)
            with pytest.raises(JournalError, match="No space left"):
                await groups[0].multicast(b"more")
            with pytest.raises(JournalError, match="No space left"):
                async for _ in groups[0]:
                    pass
            await until(lambda: all(len(group.view.members) == 2 for group in groups[1:]))
            assert (await groups[1].receive(1)).payload == b"before"
            with pytest.raises(TimeoutError):
                await groups[1].receive(0.3)

    asyncio.run(run())


# Certificates.


def test_members_with_certificates_form_a_group_and_a_revoked_one_loses_its_connections(tmp_path: Path) -> None:
    async def run() -> None:
        init(tmp_path)
        addresses = free_addresses(3)
        files = {address: issue(tmp_path, address) for address in addresses}

        def credentials(place: int) -> Credentials:
            return Credentials.load(files[addresses[place]], ca=tmp_path / "group.pem")

        groups = await asyncio.gather(
            *(
                enter(listen=address, peers=addresses, credentials=credentials(place))
                for place, address in enumerate(addresses)
            )
        )
        await (await groups[0].multicast(b"x")).stable(WAIT_S)
        revoke(tmp_path, files[addresses[2]])
        for group in groups[:2]:
            group.refresh_credentials()
        await until(lambda: all(len(group.view.members) == 2 for group in groups[:2]))
        await (await groups[0].multicast(b"without it")).stable(WAIT_S)
        await asyncio.gather(*(group.leave(drain=False) for group in groups))

    asyncio.run(run())


def test_an_own_certificate_that_nobody_would_accept_is_refused_at_the_start(tmp_path: Path) -> None:
    async def run() -> None:
        init(tmp_path)
        first, second = free_addresses(2)
        other = Credentials.load(issue(tmp_path, second), ca=tmp_path / "group.pem")
        with pytest.raises(LocalProtocolError, match=f"its certificate is for {second}, not for {first}"):
            await enter(listen=first, found=True, credentials=other)

    asyncio.run(run())


def test_a_dialler_says_why_a_certificate_is_refused(tmp_path: Path) -> None:
    async def run() -> None:
        init(tmp_path / "one")
        init(tmp_path / "two")
        addresses = free_addresses(2)
        credentials = [
            Credentials.load(issue(tmp_path / folder, address), ca=tmp_path / folder / "group.pem")
            for folder, address in zip(("one", "two"), addresses, strict=True)
        ]
        entered = await asyncio.gather(
            *(
                enter(listen=address, peers=addresses, credentials=own, settings=SHORT)
                for address, own in zip(addresses, credentials, strict=True)
            ),
            return_exceptions=True,
        )
        assert all(isinstance(error, LocalProtocolError) for error in entered), entered
        assert any("certificate is not of" in str(error) for error in entered), entered

    asyncio.run(run())


# Strangers.


def test_eighty_idle_sockets_lock_nobody_out() -> None:
    async def run() -> None:
        async with groups_of(2) as groups:
            crowd = [socket.create_connection(parse_address(groups[0].address)) for _ in range(80)]
            newcomer = await enter(contact=groups[0].address)
            await (await newcomer.multicast(b"in")).stable(WAIT_S)
            assert len(groups[0].view.members) == 3
            for idle in crowd:
                idle.close()
            await newcomer.leave()

    asyncio.run(run())

"""The whole group from any member: the others are asked over the ports at which members accept each other."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import ssl
import subprocess
import sys
import time
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from cubecast.live import connections, member_report, whole_group
from cubecast.live.group import Group
from cubecast.live.keys import init, issue
from cubecast.live.local import free_addresses
from cubecast.live.member_report import MemberReport, ReceivedCount, Reporter, report_of
from cubecast.live.status import StatusServer
from cubecast.live.view_history import VIEWS_MAX, ViewHistory
from cubecast.live.whole_group import AskedMember, WholeGroup, count_lacking
from cubecast.protocols.membership.views import MemberId, founding_view, next_view
from tests.live.members import NEVER, WAIT_S, enter, groups_of, quick, until, vanish
from tests.live.test_hostile_peers import pair

pytestmark = pytest.mark.live

LIGHT = {**os.environ, "CUBECAST_JIT": "off"}


def asked(address: str, received: dict[str, int] | None) -> AskedMember:
    """A member that reported these counts, or nothing."""
    who = MemberId(address, 1)
    if received is None:
        return AskedMember(who, None, "no answer")
    counts = [ReceivedCount(name, 2 if name.endswith("again") else 1, count) for name, count in received.items()]
    report = MemberReport(
        group="g", address=address, incarnation=1, view=1, phase="member", blocked=False, changing=False,
        received=counts, delivered=0, multicasts=0, unstable_messages=0, unstable_bytes=0, inbox_entries=0,
        journal=None, first_view=1,
    )  # fmt: skip
    return AskedMember(who, report)


def test_a_receiver_lacks_what_any_other_member_has() -> None:
    members = [asked("a", {"a": 10, "b": 5, "c": 7}), asked("b", {"a": 4, "b": 5, "c": 0}), asked("c", None)]
    # c does not answer, but a has seven messages of it.
    assert count_lacking(members) == [[0, 0, 0], [6, 0, 7], [None, None, None]]


def test_no_member_lacks_messages_of_its_own_though_another_one_answered_later() -> None:
    assert count_lacking([asked("a", {"a": 10, "b": 5}), asked("b", {"a": 13, "b": 5})]) == [[0, 0], [0, 0]]


def test_another_view_or_incarnation_is_unknown_and_not_counted() -> None:
    members = [asked("a", {"a": 10, "b": 3}), asked("b", {"b": 3}), asked("again", {"a": 10, "again": 900})]
    assert count_lacking(members) == [[0, 0, None], [None, 0, None], [0, None, None]]


def hold_up(group: Group) -> None:
    """Let a member receive nothing more over the connections that it has; new ones are served."""
    for connection in group._entered().connections._open.values():
        assert connection._transport is not None
        connection._transport.pause_reading()


def test_a_member_shows_who_lacks_how_much_of_whom_though_only_it_has_a_status_page() -> None:
    async def run() -> None:
        async with groups_of(3, **NEVER) as groups:
            whole = WholeGroup(groups[0])
            hold_up(groups[2])
            for _ in range(30):
                await groups[1].multicast(b"x")
            await until(lambda: groups[0].status()["members"][1]["received"] == 30)
            found = await whole.status()
            assert found["lacking"] == [[0, 0, 0], [0, 0, 0], [0, 30, 0]]
            assert [one["rank"] for one in found["members"]] == [0, 1, 2]
            assert [one["report"]["delivered"] for one in found["members"]] == [30, 30, 0]
            assert found["spread_ms"] > 0
            whole.close()

    asyncio.run(run())


def test_a_member_that_is_gone_is_shown_with_the_reason_and_holds_up_nobody() -> None:
    async def run() -> None:
        async with groups_of(3, **NEVER) as groups:
            await vanish(groups[2])
            found = await WholeGroup(groups[0]).status()
            assert [one["reason"] for one in found["members"][:2]] == ["", ""]
            assert "no process listens there" in found["members"][2]["reason"]
            assert found["lacking"][2] == [None, None, None]

    asyncio.run(run())


def test_a_newcomer_shows_the_views_before_it_joined_and_who_left_was_excluded_and_restarted(tmp_path: Path) -> None:
    async def run() -> tuple[list[dict[str, Any]], dict[str, str]]:
        async with groups_of(4) as groups:
            names = {word: groups[place].address for word, place in (("left", 3), ("excluded", 2))}
            await groups[3].leave()
            await until(lambda: groups[0].view.number == 2)
            await vanish(groups[2])
            await until(lambda: groups[0].view.number == 3)
            newcomer = await enter(contact=groups[0].address, settings=quick())
            names["joined"] = newcomer.address
            assert [one.number for one in newcomer._notices.history.views] == [4]
            found = await WholeGroup(newcomer).status()
            await newcomer.leave()
            return found["views"], names

    began_s = time.time()
    views, names = asyncio.run(run())
    assert [(view["number"], view["members"]) for view in views] == [(1, 4), (2, 3), (3, 2), (4, 3)]
    assert [how for how, _ in views[0]["changes"]] == ["joined"] * 4
    for view, how in zip(views[1:], ("left", "excluded", "joined"), strict=True):
        assert [tuple(change) for change in view["changes"]] == [(how, names[how])]
    times = [view["time_s"] for view in views]
    assert began_s < times[0] < times[1] < times[2] < times[3] < time.time()


def test_another_incarnation_at_the_same_address_restarted() -> None:
    old, other, new = MemberId("a:1", 1), MemberId("b:1", 1), MemberId("a:1", 2)
    first = founding_view([old, other])
    second = next_view(first, [other], [new, MemberId("c:1", 1)], (0, 0))
    history = ViewHistory()
    history.add(None, first)
    history.add(first, second)
    assert [view.changes for view in history.views] == [
        [("joined", "a:1"), ("joined", "b:1")],
        [("restarted", "a:1"), ("joined", "c:1")],
    ]


def test_the_history_is_bounded_and_completed_by_a_longer_one() -> None:
    view = founding_view([MemberId("a:1", 1), MemberId("b:1", 1)])
    history, longer = ViewHistory(), ViewHistory()
    for number in range(1, 101):
        view = view._replace(number=number)
        longer.add(view, view)
        if number > 98:
            history.add(view, view)
    assert len(longer.views) == VIEWS_MAX
    assert [one.number for one in history.with_earlier(list(longer.views))] == list(range(37, 101))


def test_with_tls_the_whole_group_is_seen_and_nobody_without_a_certificate_is_answered(tmp_path: Path) -> None:
    async def knock(address: str, context: ssl.SSLContext | None) -> bytes:
        host, port = address.split(":")
        try:
            async with asyncio.timeout(5):
                reader, writer = await asyncio.open_connection(host, int(port), ssl=context)
                writer.write(b"GET /report HTTP/1.1\r\n\r\n")
                answer = await reader.read()
                writer.close()
        except OSError:
            return b""
        return answer

    async def run() -> None:
        async with pair(tmp_path) as groups:
            found = await WholeGroup(groups[0]).status()
            assert [one["reason"] for one in found["members"]] == ["", ""]
            credentials = groups[1]._credentials
            assert credentials is not None
            address = groups[0].address
            assert b"200 OK" in await knock(address, credentials.client)
            assert b"report" not in await knock(address, None)
            nobody = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            nobody.check_hostname, nobody.verify_mode = False, ssl.CERT_NONE
            assert await knock(address, nobody) == b""
            strangers = tmp_path / "strangers"
            init(strangers)
            nobody.load_cert_chain(issue(strangers, groups[1].address))
            assert await knock(address, nobody) == b""

    asyncio.run(run())


def test_a_certificate_of_another_address_answers_for_nobody_else(tmp_path: Path, monkeypatch: Any) -> None:
    async def run() -> None:
        async with pair(tmp_path) as groups:
            monkeypatch.setattr(whole_group, "addresses_of", lambda _: ("10.0.0.9:7001",))
            found = await WholeGroup(groups[0]).status()
            assert f"its certificate is not for {groups[1].address}" in found["members"][1]["reason"]

    asyncio.run(run())


async def ask(address: str, path: str, *, reads: bool = True) -> tuple[bytes, asyncio.StreamWriter]:
    host, port = address.split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(f"GET {path} HTTP/1.1\r\n\r\n".encode())
    return await asyncio.wait_for(reader.read(), WAIT_S) if reads else b"", writer


def test_other_paths_are_refused_as_any_stranger_is() -> None:
    async def run() -> None:
        async with groups_of(2, handshake_timeout_s=0.3) as (one, _):
            assert b"200 OK" in (await ask(one.address, "/report"))[0]
            assert b"200 OK" in (await ask(one.address, "/views"))[0]
            assert one.stats["refused_connections"] == 0
            for path in ("/", "/reports", "/status.json", "//report"):
                assert b"200 OK" not in (await ask(one.address, path))[0]
            assert one.stats["refused_connections"] == 4

    asyncio.run(run())


def test_requests_that_nobody_reads_are_limited_and_harm_no_link(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Reporter, "answer", lambda *_: bytes(8 << 20))

    async def run() -> None:
        async with groups_of(2) as (one, two):
            writers = [(await ask(one.address, "/report", reads=False))[1] for _ in range(40)]
            answering = one._entered().connections._answering
            await until(lambda: answering)
            for _ in range(50):
                await asyncio.sleep(0.01)
                assert len(answering) <= connections.ANSWERS_MAX
            await (await two.multicast(b"x")).stable(WAIT_S)
            assert one.view.number == 1
            for writer in writers:
                writer.transport.abort()
            await until(lambda: not answering)

    asyncio.run(run())


def test_a_flood_of_requests_costs_one_report_per_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = []

    def report(group: Group) -> MemberReport:
        counted.append(1)
        return report_of(group)

    async def run() -> None:
        async with groups_of(2) as (one, _):
            monkeypatch.setattr(member_report, "report_of", report)
            monkeypatch.setattr(member_report, "REPORT_AGE_S", 60.0)
            answers = await asyncio.gather(*(ask(one.address, "/report") for _ in range(30)))
            assert all(b"200 OK" in answer for answer, _ in answers)
            assert len(counted) == 1

    asyncio.run(run())


def test_nobody_is_asked_unless_somebody_watches_and_viewers_share_a_round(monkeypatch: pytest.MonkeyPatch) -> None:
    requests: list[bytes] = []
    answer = Reporter.answer

    def count(reporter: Reporter, request: bytes) -> bytes:
        requests.append(request)
        return answer(reporter, request)

    monkeypatch.setattr(Reporter, "answer", count)

    async def run() -> None:
        (address,) = free_addresses(1)
        async with groups_of(3) as groups, StatusServer(groups[0], address):
            await asyncio.sleep(1.5)
            assert not requests
            found = await asyncio.gather(*(asyncio.to_thread(fetch, address) for _ in range(5)))
            assert {len(one["members"]) for one in found} == {3}
            assert len(requests) == 2

    asyncio.run(run())


def test_a_large_group_is_asked_in_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(whole_group, "ASKED_MAX", 2)

    async def run() -> None:
        async with groups_of(4, **NEVER) as groups:
            hold_up(groups[3])
            for _ in range(5):
                await groups[1].multicast(b"x")
            await until(lambda: groups[0].laggards() and groups[0].laggards()[0].member == groups[3].me)
            found = await WholeGroup(groups[0]).status()
            assert found["members_of_view"] == 4
            assert {one["rank"] for one in found["members"]} == {0, 3}

    asyncio.run(run())


@pytest.mark.parametrize("body", [b"{}", b"[1", b'{"address": 7}'])
def test_a_report_that_cannot_be_read_is_named(body: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Reporter, "answer", lambda *_: b"HTTP/1.1 200 OK\r\n\r\n" + body)

    async def run() -> None:
        async with groups_of(2) as (one, _):
            found = await WholeGroup(one).status()
            assert found["members"][1]["reason"] == "its report cannot be read"

    asyncio.run(run())


def fetch(address: str) -> dict[str, Any]:
    with urllib.request.urlopen(f"http://{address}/group.json", timeout=10) as answer:
        found: dict[str, Any] = json.load(answer)
    return found


def test_real_processes_are_seen_from_one_of_them_with_journals_and_a_silent_one(tmp_path: Path) -> None:
    *addresses, status = free_addresses(4)
    node = [sys.executable, "-c", "from cubecast.cli import main; main()", "node", "g", "--plaintext", "--quiet"]
    processes = []
    for place, address in enumerate(addresses):
        options = ["--listen", address, "--rate", "20", "--suspect-after", "60", "--heartbeat", "0.1"]
        options += [word for peer in addresses for word in ("--peer", peer)]
        options += ["--journal", str(tmp_path / f"{place}.journal")] if place else ["--status", status]
        processes.append(
            subprocess.Popen([*node, *options], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=LIGHT)
        )

    def seen_when(condition: Any) -> dict[str, Any]:
        deadline = time.monotonic() + 100
        while True:
            found: dict[str, Any] = {}
            with suppress(OSError):
                found = fetch(status)
            if found and condition(found):
                return found
            assert time.monotonic() < deadline, found
            time.sleep(0.3)

    try:
        full = seen_when(
            lambda found: (
                len(found["members"]) == 3
                and all(one["report"] and one["report"]["delivered"] > 10 for one in found["members"])
            )
        )
        journals = [one["report"]["journal"] for one in full["members"]]
        assert journals[0] is None
        for journal in journals[1:]:
            assert journal["bytes"] > 0
            assert journal["sync"] == "always"
            assert abs(journal["synced_at_s"] - time.time()) < 30
        assert [view["number"] for view in full["views"]] == [1]
        processes[2].send_signal(signal.SIGSTOP)
        silent = seen_when(lambda found: found["members"][2]["report"] is None)
        assert "no answer within" in silent["members"][2]["reason"]
        assert all(one["report"] for one in silent["members"][:2])
        processes[2].send_signal(signal.SIGCONT)
        seen_when(lambda found: found["members"][2]["report"] is not None)
    finally:
        for process in processes:
            process.kill()
            process.wait()

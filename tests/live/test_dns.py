"""Contacts from the DNS, with a server of our own on loopback."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable

import pytest

from cubecast.errors import LocalProtocolError
from cubecast.live import contacts, dns
from cubecast.live.dialling import connect_first
from cubecast.live.dns import ResolveError, parse_contact, resolve_contacts
from cubecast.live.local import free_ports
from tests.live.dns_server import AAAA, SRV, A, DnsServer, dns_server
from tests.live.members import enter, one, quick, until

pytestmark = pytest.mark.live


@pytest.fixture(autouse=True)
def _short_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dns, "TIMEOUT_S", 0.3)
    monkeypatch.setattr(contacts, "RESOLVE_S", 0.1)


def resolved(records: dict[tuple[str, int], list[object]], contact: str) -> list[str]:
    async def run() -> list[str]:
        async with dns_server() as server:
            server.records = dict(records)
            return await resolve_contacts([f"{contact}?server={server.address}"])

    return asyncio.run(run())


def test_all_addresses_of_both_families_are_contacts() -> None:
    records: dict[tuple[str, int], list[object]] = {
        ("g.example", A): ["10.0.0.1", "10.0.0.2", "10.0.0.1"],
        ("g.example", AAAA): ["fd00::1"],
    }
    assert resolved(records, "dns://g.example:7001") == ["10.0.0.1:7001", "10.0.0.2:7001", "[fd00::1]:7001"]


def test_a_service_names_targets_and_ports() -> None:
    records: dict[tuple[str, int], list[object]] = {
        ("_c._tcp.example", SRV): [("a.example", 7001), ("b.example", 7002)]
    }
    assert resolved(records, "dns://_c._tcp.example") == ["a.example:7001", "b.example:7002"]


def test_a_name_that_does_not_exist_has_no_contacts() -> None:
    assert resolved({}, "dns://nobody.example:7001") == []


def test_the_system_resolver_knows_localhost() -> None:
    assert "127.0.0.1:7001" in asyncio.run(resolve_contacts(["dns://localhost:7001"]))
    assert asyncio.run(resolve_contacts(["10.0.0.9:7001"])) == ["10.0.0.9:7001"]


def spoil(*changes: Callable[[bytes], bytes]) -> str:
    """Resolve at a server that spoils its answers; returns the error."""

    async def run() -> str:
        async with dns_server() as server:
            server.records["g", A] = ["10.0.0.1"]
            server.spoils = changes[0] if changes else None
            server.is_silent = not changes
            with pytest.raises(ResolveError) as error:
                await resolve_contacts([f"dns://g:7001?server={server.address}"])
            return str(error.value)

    return asyncio.run(run())


def test_a_server_that_does_not_answer_or_answers_nonsense_is_named_with_the_reason() -> None:
    assert "does not answer" in spoil()
    assert "does not answer" in spoil(lambda answer: b"\x00\x00" + answer[2:] if answer[:2] != b"\0\0" else b"\x01\x01")
    assert "cannot be used" in spoil(lambda answer: answer[:14])
    assert "cannot be used" in spoil(lambda answer: answer[:-2])
    assert "error code 2" in spoil(lambda answer: answer[:2] + struct.pack(">H", 0x8182) + answer[4:])
    assert "another question" in spoil(lambda answer: answer[:12] + b"\x01h" + answer[14:])
    loops = spoil(lambda answer: answer[:19] + b"\xc0\x13" + answer[21:])
    assert "cannot be used" in loops


@pytest.mark.parametrize(
    "contact",
    [
        "dns://",
        "dns://g",
        "dns://g:0",
        "dns://g:7001?port=1",
        "dns://g..h:7001",
        "dns://g:7001?server=x",
        "dns://ä:7001",
    ],
)
def test_a_contact_that_is_no_name_is_refused(contact: str) -> None:
    with pytest.raises(LocalProtocolError):
        parse_contact(contact)


def test_a_member_joins_through_a_name_whose_records_come_later_and_change() -> None:
    async def run() -> None:
        async with dns_server() as server:
            (port,) = free_ports(1)
            founder = await enter(listen=f"127.0.0.2:{port}", found=True)
            newcomer = one(
                listen=f"127.0.0.3:{port}",
                contact=f"dns://g:{port}?server={server.address}",
                settings=quick(join_timeout_s=15),
            )
            waited: list[str] = []
            newcomer.on_waiting(waited.append)
            entering = asyncio.create_task(newcomer.__aenter__())
            await until(lambda: waited)
            assert "no address of another member" in waited[0]
            server.records["g", A] = ["127.0.0.3"]  # itself
            await until(lambda: len(waited) > 3)
            server.records["g", A] = ["127.0.0.3", "127.0.0.4"]  # a member that is gone
            await until(lambda: any("127.0.0.4" in line for line in waited))
            server.records["g", A] = ["127.0.0.3", "127.0.0.2"]
            await asyncio.wait_for(entering, 15)
            assert len(newcomer.view.members) == 2
            asked = len(server.questions)
            await asyncio.sleep(0.4)
            assert len(server.questions) <= asked + 2, "a member that is in the group resolves no more"
            await newcomer.leave()
            await founder.leave()

    asyncio.run(run())


def test_a_name_without_records_fails_with_the_reason_after_the_timeout() -> None:
    async def run(server: DnsServer, is_silent: bool) -> str:
        server.is_silent = is_silent
        newcomer = one(contact=f"dns://g:7001?server={server.address}", settings=quick(join_timeout_s=0.5))
        with pytest.raises(LocalProtocolError) as error:
            await newcomer.__aenter__()
        return str(error.value)

    async def both() -> None:
        async with dns_server() as server:
            assert "no address of another member" in await run(server, False)
            assert "does not answer" in await run(server, True)

    asyncio.run(both())


def test_the_addresses_of_a_host_are_tried_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []

    async def connect(address: str) -> str:
        tried.append(address)
        if address != "10.0.0.3":
            raise ConnectionRefusedError(address)
        return "connected"

    async def run(*addresses: str) -> str:
        async def getaddrinfo(*_: object, **__: object) -> list[object]:
            return [(2, 1, 6, "", (address, 7001)) for address in addresses]

        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo)
        return await connect_first("g.example", 7001, connect)

    assert asyncio.run(run("10.0.0.1", "10.0.0.1", "10.0.0.3", "10.0.0.4")) == "connected"
    assert tried == ["10.0.0.1", "10.0.0.3"]
    with pytest.raises(ConnectionRefusedError, match=r"10\.0\.0\.2"):
        asyncio.run(run("10.0.0.1", "10.0.0.2"))

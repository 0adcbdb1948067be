"""Certificates, keys and CRLs that change while a member runs, its own certificate at the start, and why TLS failed."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import ssl
import time
from pathlib import Path

import pytest
from cryptography import x509

from cubecast.errors import LocalProtocolError, RemoteProtocolError
from cubecast.live.connections import addresses_of
from cubecast.live.credentials import Credentials, explain_tls_error
from cubecast.live.keys import init, issue, revoke
from tests.live.test_listener import Driver, greet, greet_in_vain, listening, until

pytestmark = pytest.mark.live

SERVER, CLIENT = "127.0.0.1:7001", "127.0.0.1:7002"


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    """A group with a server and a client, and another group with the same."""
    for group in (tmp_path, tmp_path / "other"):
        init(group)
        issue(group, SERVER, name="server")
        issue(group, CLIENT, name="client")
    return tmp_path


def credentials(keys: Path, name: str) -> Credentials:
    """The files of one member."""
    return Credentials.load(keys / f"{name}.pem", ca=keys / "group.pem")


def der(path: Path) -> bytes:
    """The certificate in a file."""
    return ssl.PEM_cert_to_DER_cert(path.read_text().partition("-----BEGIN PRIVATE")[0])


# Refresh.


def test_unchanged_files_keep_their_contexts(keys: Path) -> None:
    own = credentials(keys, "server")
    before = own.server
    assert not own.refresh()
    assert own.server is before


def test_a_new_crl_refuses_new_connections_and_names_established_ones(keys: Path) -> None:
    async def work() -> None:
        own = credentials(keys, "server")
        async with listening(own) as (driver, listener):
            client = credentials(keys, "client").client
            assert await greet(listener, client) == b"hello"
            certificate = driver.made[0].certificate
            assert certificate is not None
            assert not own.is_revoked(certificate)
            revoke(keys, keys / "client.pem")
            assert own.refresh()
            assert not own.refresh()
            assert own.is_revoked(certificate)
            assert own.is_revoked(der(keys / "client.pem"))
            assert not own.is_revoked(der(keys / "server.pem"))
            assert not own.is_revoked(None)
            await greet_in_vain(listener, client)
            await until(lambda: driver.refused)
            assert driver.refused[0][1] == "the peer's certificate is revoked"

    asyncio.run(work())


def test_a_new_certificate_is_used_for_new_connections(keys: Path) -> None:
    async def work() -> None:
        own = credentials(keys, "server")
        async with listening(own) as (_, listener):

            async def serial() -> int:
                reader, writer = await asyncio.open_connection(*listener.name, ssl=credentials(keys, "client").client)
                found = writer.get_extra_info("peercert")["serialNumber"]
                writer.close()
                assert await reader.read() == b""
                return int(found, 16)

            before = await serial()
            issue(keys, SERVER, name="server", replace=True)
            assert own.refresh()
            assert await serial() not in (before, 0)
            own.require_own(SERVER)

    asyncio.run(work())


def test_a_change_that_keeps_size_and_mtime_is_seen(keys: Path) -> None:
    own = credentials(keys, "server")
    found = (keys / "group.crl").stat()
    shutil.copy(keys / "group.crl", keys / "copy")
    os.utime(keys / "copy", ns=(found.st_atime_ns, found.st_mtime_ns))
    (keys / "copy").replace(keys / "group.crl")
    assert own.refresh()


@pytest.mark.parametrize("fault", ["garbage", "half", "no CRL", "foreign CRL", "certificate as CRL", "foreign CA"])
def test_bad_new_files_are_logged_once_and_the_old_contexts_stay(
    fault: str, keys: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        own = credentials(keys, "server")
        client = credentials(keys, "client").client
        revoke(keys, keys / "client.pem")
        if fault == "garbage":
            (keys / "server.pem").write_text("garbage")
        elif fault == "half":
            (keys / "group.crl").write_bytes((keys / "group.crl").read_bytes()[:100])
        elif fault == "no CRL":
            (keys / "group.crl").unlink()
        elif fault == "foreign CRL":
            shutil.copy(keys / "other" / "group.crl", keys / "group.crl")
        elif fault == "certificate as CRL":
            shutil.copy(keys / "group.pem", keys / "group.crl")
        else:
            shutil.copy(keys / "other" / "group.pem", keys / "group.pem")
            shutil.copy(keys / "other" / "group.crl", keys / "group.crl")
        before = own.server, own.client
        assert not own.refresh()
        assert not own.refresh()
        assert (own.server, own.client) == before
        async with listening(own) as (_, listener):
            assert await greet(listener, client) == b"hello"

    with caplog.at_level(logging.WARNING):
        asyncio.run(work())
    assert [one.getMessage() for one in caplog.records if "not refreshed" in one.getMessage()] == [
        record.getMessage() for record in caplog.records
    ]
    assert len(caplog.records) == 1


def test_a_group_that_changes_its_key_is_taken_when_all_files_are_there(keys: Path) -> None:
    own = credentials(keys, "server")
    for name in ("group.pem", "group.crl"):
        shutil.copy(keys / "other" / name, keys / name)
        assert not own.refresh()
    shutil.copy(keys / "other" / "server.pem", keys / "server.pem")
    assert own.refresh()
    own.require_own(SERVER)


def test_a_bad_file_that_is_mended_is_taken(keys: Path) -> None:
    own = credentials(keys, "server")
    good = (keys / "server.pem").read_bytes()
    (keys / "server.pem").write_text("garbage")
    assert not own.refresh()
    (keys / "server.pem").write_bytes(good)
    assert own.refresh()


# The own certificate.


def test_a_good_own_certificate_passes(keys: Path) -> None:
    credentials(keys, "server").require_own(SERVER)
    credentials(keys, "server").require_own(SERVER, time.time())


def test_an_own_certificate_of_another_address_is_an_error(keys: Path) -> None:
    with pytest.raises(LocalProtocolError, match=rf"server\.pem.*for {SERVER}, not for {CLIENT}.*keys issue {CLIENT}"):
        credentials(keys, "server").require_own(CLIENT)


@pytest.mark.parametrize(
    ("days", "words"), [(400, "expired at 20.*--replace"), (-1, "not valid before 20.*set the clock")]
)
def test_an_own_certificate_outside_its_time_is_an_error(days: int, words: str, keys: Path) -> None:
    with pytest.raises(LocalProtocolError, match=rf"server\.pem: .*{words}"):
        credentials(keys, "server").require_own(SERVER, time.time() + days * 86400)


def test_a_revoked_own_certificate_is_an_error(keys: Path) -> None:
    revoke(keys, keys / "server.pem")
    serial = x509.load_pem_x509_certificate((keys / "server.pem").read_bytes()).serial_number
    with pytest.raises(LocalProtocolError, match=rf"group\.crl revokes .*{serial:x}.*--replace"):
        credentials(keys, "server").require_own(SERVER)


def test_a_running_member_whose_certificate_is_revoked_says_so(keys: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The others close its connections and tell it nothing: to them it is a stranger."""
    own, other = credentials(keys, "server"), credentials(keys, "client")
    revoke(keys, keys / "server.pem")
    assert own.refresh()
    assert other.refresh()
    (record,) = caplog.records
    assert record.getMessage().startswith(f"own certificate revoked file={keys / 'server.pem'} serial=")


def test_an_own_certificate_of_another_group_is_an_error(keys: Path) -> None:
    with pytest.raises(LocalProtocolError, match=r"not signed by .*group\.pem"):
        Credentials.load(keys / "other" / "server.pem", ca=keys / "group.pem").require_own(SERVER)


# Explanations.


async def why_dialling_fails(server: Credentials | None, client: Credentials) -> str:
    """The dialler's explanation."""
    driver = Driver()
    async with listening(server) as (answering, listener):
        # A plaintext member answers at once, and not with TLS.
        answering.on_made = lambda connection: connection.write(b"plain") if server is None else None  # type: ignore[method-assign]
        try:
            _, connection = await asyncio.get_running_loop().create_connection(
                driver.new_connection, *listener.name, ssl=client.client
            )
            return f"no error: connected to {', '.join(addresses_of(connection.certificate))}"
        except (OSError, RemoteProtocolError) as error:
            return explain_tls_error(error)
        finally:
            for one in driver.made:
                one.abort("the test ends")


def test_a_dialler_says_why_it_rejects_the_server(keys: Path) -> None:
    client = credentials(keys, "client")
    server = credentials(keys, "server")
    foreign = credentials(keys / "other", "server")
    expired = Credentials.load(issue(keys, SERVER, name="expired", days=0), ca=keys / "group.pem")
    assert asyncio.run(why_dialling_fails(foreign, client)).startswith("the peer's certificate is not of this group")
    assert asyncio.run(why_dialling_fails(expired, client)).startswith("the peer's certificate has expired")
    assert asyncio.run(why_dialling_fails(server, client)) == f"no error: connected to {SERVER}"
    assert asyncio.run(why_dialling_fails(None, client)).startswith("the peer does not speak TLS")
    revoke(keys, keys / "server.pem")
    client.refresh()
    assert asyncio.run(why_dialling_fails(server, client)) == "the peer's certificate is revoked"


def test_a_dialler_that_the_server_rejects_after_tls_is_pointed_to_the_certificate(keys: Path) -> None:
    async def work() -> None:
        own = credentials(keys, "server")
        client = credentials(keys, "client")
        revoke(keys, keys / "client.pem")
        own.refresh()
        driver = Driver()
        async with listening(own) as (_, listener):
            await asyncio.get_running_loop().create_connection(
                lambda: driver.new_connection(SERVER), *listener.name, ssl=client.client
            )
            await until(lambda: driver.lost)
            assert "refused this member's certificate" in driver.lost[0][1]

    asyncio.run(work())


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ConnectionRefusedError(111, "Connection refused"), "no process listens there"),
        (ConnectionResetError(), "the peer closed the connection"),
        (TimeoutError(), "the peer did not answer in time"),
        (OSError(113, "No route\nto host"), "[Errno 113] No route to host"),
        (ValueError(), "ValueError"),
    ],
)
def test_other_errors_are_explained_in_one_line(error: Exception, line: str) -> None:
    assert explain_tls_error(error) == line

"""The listener and its connections: real sockets, real TLS, and strangers that take every place they can get."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Collection, Coroutine
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from cubecast.errors import LocalProtocolError
from cubecast.live import listener as listener_module
from cubecast.live.credentials import Credentials
from cubecast.live.keys import init, issue, revoke
from cubecast.live.listener import Listener
from cubecast.live.loop import new_loop
from cubecast.live.rate_limited_log import RateLimitedLog
from cubecast.live.socket_connection import SocketConnection

pytestmark = pytest.mark.live

Run = Callable[[Coroutine[Any, Any, None]], None]
SERVER, CLIENT = "127.0.0.1:7001", "127.0.0.1:7002"


@pytest.fixture(params=["asyncio", "fastest"])
def run(request: pytest.FixtureRequest) -> Run:
    """Run a coroutine on asyncio's loop, and on the one that members use."""

    def start(work: Coroutine[Any, Any, None]) -> None:
        factory = asyncio.new_event_loop if request.param == "asyncio" else new_loop
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(asyncio.wait_for(work, 60))

    return start


@pytest.fixture(scope="session")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A group with a server, a client, an expired and a revoked client, and another group with a client."""
    folder = tmp_path_factory.mktemp("keys")
    for group in (folder, folder / "other"):
        init(group)
        issue(group, CLIENT, name="client")
    issue(folder, SERVER, name="server")
    issue(folder, CLIENT, name="expired", days=0)
    revoke(folder, issue(folder, CLIENT, name="revoked"))
    return folder


def credentials(keys: Path, name: str) -> Credentials:
    """The files of one member."""
    return Credentials.load(keys / f"{name}.pem", ca=keys / "group.pem")


def trusting(keys: Path, name: str | None) -> ssl.SSLContext:
    """A client that trusts every server, so that only the server judges."""
    if name is None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
    else:
        context = Credentials.load((keys / name).with_suffix(".pem"), ca=(keys / name).with_name("group.pem")).client
    context.verify_mode = ssl.CERT_NONE
    return context


class Driver:
    """Records every callback; a connection is established by the word "hello", which it echoes."""

    def __init__(self, **limits: float) -> None:
        self.listener: Listener | None = None
        self.events: list[tuple[int, str]] = []
        self.made: list[SocketConnection] = []
        self.lost: list[tuple[SocketConnection, str]] = []
        self.refused: list[tuple[str, str]] = []
        self.data: dict[int, bytearray] = {}
        self.limits = {"high_water": 1 << 16, "socket_bytes": 1 << 16, "stall_s": 10.0} | limits

    def new_connection(self, dialled: str = "") -> SocketConnection:
        """A connection that reports to this driver."""
        return SocketConnection(
            on_made=self.on_made,
            on_data=self.on_data,
            on_lost=self.on_lost,
            on_pause=lambda one: self.events.append((one.number, "pause")),
            on_resume=lambda one: self.events.append((one.number, "resume")),
            dialled=dialled,
            **self.limits,  # type: ignore[arg-type]
        )

    def on_made(self, connection: SocketConnection) -> None:
        """Remember it."""
        self.made.append(connection)
        self.events.append((connection.number, "made"))

    def on_data(self, connection: SocketConnection, data: bytes) -> None:
        """Establish a connection that greets."""
        self.events.append((connection.number, "data"))
        self.data.setdefault(connection.number, bytearray()).extend(data)
        if data == b"hello" and self.listener is not None:
            self.listener.established(connection)
            connection.write(b"hello")

    def on_lost(self, connection: SocketConnection, reason: str) -> None:
        """Remember why."""
        self.lost.append((connection, reason))
        self.events.append((connection.number, "lost"))

    def on_refused(self, address: str, reason: str) -> None:
        """Remember why."""
        self.refused.append((address, reason))


@asynccontextmanager
async def listening(
    own: Credentials | None = None,
    *,
    driver: Driver | None = None,
    known_peers: Collection[str] = (),
    **limits: Any,
) -> AsyncIterator[tuple[Driver, Listener]]:
    """A listener at 127.0.0.1."""
    driver = driver or Driver()
    listener = Listener(
        credentials=own,
        new_connection=driver.new_connection,
        on_refused=driver.on_refused,
        known_peers=lambda: known_peers,
        **({"timeout_s": 30.0} | limits),
    )
    driver.listener = listener
    await listener.start("127.0.0.1", 0)
    try:
        yield driver, listener
    finally:
        await listener.close()


async def until(condition: Callable[[], object]) -> None:
    """Wait for it; the test's own timeout ends a wait that never succeeds."""
    while not condition():
        await asyncio.sleep(0.005)


@contextmanager
def silent_sockets() -> Any:
    """Open sockets that say nothing; all are closed at the end."""
    opened: list[socket.socket] = []

    async def open_one(listener: Listener, source: str = "127.0.0.1") -> socket.socket:
        one = socket.socket()
        opened.append(one)
        try:
            one.bind((source, 0))
        except OSError:
            pytest.skip(f"this machine has no address {source}")
        one.setblocking(False)
        before = listener.handshakes
        await asyncio.get_running_loop().sock_connect(one, listener.name)
        for _ in range(5):
            await asyncio.sleep(0.002)
            if listener.handshakes > before:
                break
        return one

    try:
        yield open_one
    finally:
        for one in opened:
            one.close()


def is_closed(one: socket.socket) -> bool:
    """Has the other side closed it?"""
    try:
        return one.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


async def greet(listener: Listener, context: ssl.SSLContext | None = None) -> bytes:
    """Act as a member: connect, greet, read the answer, close."""
    reader, writer = await asyncio.open_connection(*listener.name, ssl=context)
    try:
        writer.write(b"hello")
        return await asyncio.wait_for(reader.read(5), 10)
    finally:
        writer.close()


async def greet_in_vain(listener: Listener, context: ssl.SSLContext | None = None) -> None:
    """The same, and the listener closes the connection."""
    with suppress(OSError):
        assert await greet(listener, context) != b"hello"


# Accepting.


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ECONNABORTED, errno.ENOBUFS])
def test_an_error_of_accept_is_logged_once_and_survived(
    number: int, run: Run, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    accept = socket.socket.accept
    failures = 2

    def fail_twice(one: socket.socket) -> tuple[socket.socket, Any]:
        nonlocal failures
        if failures:
            failures -= 1
            raise OSError(number, "injected")
        return accept(one)

    async def work() -> None:
        async with listening() as (_, listener):
            assert await greet(listener) == b"hello"
        assert failures == 0

    monkeypatch.setattr(socket.socket, "accept", fail_twice)
    run(work())
    assert caplog.text.count("WARNING") == 2  # the first failure, and "1 more like this" when the listener closes
    assert "… 1 more like this, the last: accept failed" in caplog.text


def test_an_error_of_a_callback_costs_one_connection_not_the_listener(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        driver = Driver()
        make, calls = driver.new_connection, 0

        def fail_once() -> SocketConnection:
            nonlocal calls
            calls += 1
            if calls == 1:
                raise ValueError("injected")
            return make()

        driver.new_connection = fail_once  # type: ignore[assignment]
        async with listening(driver=driver) as (_, listener):
            await greet_in_vain(listener)
            assert await greet(listener) == b"hello"

    run(work())
    assert "accepted connection discarded" in caplog.text


def test_an_address_in_use_is_a_local_error_that_names_it(run: Run) -> None:
    async def work() -> None:
        async with listening() as (driver, listener):
            other = Listener(
                credentials=None, new_connection=driver.new_connection, on_refused=print, known_peers=tuple
            )
            with pytest.raises(LocalProtocolError, match=rf"127\.0\.0\.1:{listener.name[1]}"):
                await other.start(*listener.name)
            await other.close()

    run(work())


def test_closing_ends_handshakes_frees_the_port_and_keeps_established_connections(run: Run, keys: Path) -> None:
    async def work() -> None:
        with silent_sockets() as open_one:
            async with listening(credentials(keys, "server")) as (driver, listener):
                reader, writer = await asyncio.open_connection(*listener.name, ssl=credentials(keys, "client").client)
                writer.write(b"hello")
                assert await reader.read(5) == b"hello"
                idle = await open_one(listener)
                await listener.close()
                await until(lambda: is_closed(idle))
                assert driver.refused == []
                with closing(socket.create_server(listener.name)):
                    driver.made[0].write(b"more")
                    assert await reader.read(4) == b"more"
                writer.close()
                await until(lambda: driver.lost)

    run(work())


def test_a_listener_that_is_closed_at_once_frees_its_port(run: Run) -> None:
    async def work() -> None:
        async with listening() as (_, listener):
            pass
        with closing(socket.create_server(listener.name)):
            await listener.close()

    run(work())


# TLS.


def test_a_member_is_authenticated_before_its_connection_is_made(run: Run, keys: Path) -> None:
    async def work() -> None:
        async with listening(credentials(keys, "server")) as (driver, listener):
            assert await greet(listener, credentials(keys, "client").client) == b"hello"
            (connection,) = driver.made
            assert connection.certificate is not None
            assert connection.certificate["subjectAltName"] == (("URI", f"cubecast:{CLIENT}"),)
            assert connection.dialled == ""
            assert connection.address.startswith("127.0.0.1:")
            await until(lambda: driver.lost)
            assert driver.refused == []

    run(work())


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        (None, "the peer sent no certificate"),
        ("other/client", "not of this group"),
        ("expired", "has expired"),
        ("revoked", "is revoked"),
    ],
)
def test_a_bad_certificate_is_refused_with_its_reason(
    name: str | None, reason: str, run: Run, keys: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        async with listening(credentials(keys, "server")) as (driver, listener):
            await greet_in_vain(listener, trusting(keys, name))
            await until(lambda: driver.refused)
            assert reason in driver.refused[0][1]
            assert len(driver.refused) == 1
            assert driver.made == []
            assert listener.handshakes == 0
            assert await greet(listener, credentials(keys, "client").client) == b"hello"

    run(work())
    assert reason in caplog.text


def test_plaintext_towards_tls_is_refused_with_its_reason(run: Run, keys: Path) -> None:
    async def work() -> None:
        async with listening(credentials(keys, "server")) as (driver, listener):
            await greet_in_vain(listener)
            await until(lambda: driver.refused)
            assert "does not speak TLS" in driver.refused[0][1]

    run(work())


# Limits.


def test_eighty_idle_sockets_without_a_certificate_do_not_lock_a_member_out(run: Run, keys: Path) -> None:
    async def work() -> None:
        async with listening(credentials(keys, "server"), handshakes_max=32, timeout_s=300.0) as (driver, listener):
            with silent_sockets() as open_one:
                for _ in range(80):
                    await open_one(listener)
                assert listener.handshakes == 32
                assert len(driver.refused) == 48
                assert await greet(listener, credentials(keys, "client").client) == b"hello"
                assert listener.handshakes <= 32

    run(work())


@pytest.mark.parametrize("tls", [False, True])
def test_the_oldest_handshake_is_displaced_not_the_new_one(tls: bool, run: Run, keys: Path) -> None:
    async def work() -> None:
        own = credentials(keys, "server") if tls else None
        async with listening(own, handshakes_max=3) as (driver, listener):
            with silent_sockets() as open_one:
                opened = [await open_one(listener) for _ in range(4)]
                await until(lambda: is_closed(opened[0]))
                assert [is_closed(one) for one in opened] == [True, False, False, False]
                host, port = opened[0].getsockname()
                assert driver.refused[0][0] == f"{host}:{port}"
                assert "displaced" in driver.refused[0][1]
                assert len(driver.lost) == (not tls)  # the driver knows of it once TLS is done

    run(work())


def test_sockets_without_a_certificate_do_not_displace_a_member_that_has_proved_its_own(run: Run, keys: Path) -> None:
    async def work() -> None:
        async with listening(credentials(keys, "server"), handshakes_max=3) as (driver, listener):
            reader, writer = await asyncio.open_connection(*listener.name, ssl=credentials(keys, "client").client)
            await until(lambda: driver.made)
            with silent_sockets() as open_one:
                for _ in range(10):
                    await open_one(listener)
                writer.write(b"hello")
                assert await reader.read(5) == b"hello"
            writer.close()

    run(work())


@pytest.fixture
def only_127_0_0_1_is_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    """127.0.0.2 and so on are the strangers."""
    monkeypatch.setattr(listener_module, "_is_loopback", lambda ip: ip == "127.0.0.1")


@pytest.mark.usefixtures("only_127_0_0_1_is_loopback")
def test_a_stranger_holds_few_places_and_a_known_address_is_exempt(run: Run) -> None:
    async def work() -> None:
        async with listening(handshakes_max=20, handshakes_per_address=2, known_peers=["127.0.0.3"]) as (_, listener):
            with silent_sockets() as open_one:
                strangers = [await open_one(listener, "127.0.0.2") for _ in range(5)]
                await until(lambda: is_closed(strangers[2]))
                assert [is_closed(one) for one in strangers] == [True, True, True, False, False]
                for known in ("127.0.0.3", "127.0.0.1"):
                    opened = [await open_one(listener, known) for _ in range(5)]
                    assert not any(is_closed(one) for one in opened)
                assert listener.handshakes == 12

    run(work())


@pytest.mark.usefixtures("only_127_0_0_1_is_loopback")
def test_strangers_do_not_displace_a_known_peer(run: Run) -> None:
    async def work() -> None:
        async with listening(handshakes_max=8, known_peers=["::ffff:127.0.0.9"]) as (_, listener):
            with silent_sockets() as open_one:
                known = [await open_one(listener, "127.0.0.9"), await open_one(listener)]
                for number in range(20):
                    await open_one(listener, f"127.0.0.{20 + number}")
                assert listener.handshakes == 8
                assert [is_closed(one) for one in known] == [False, False]

    run(work())


@pytest.mark.usefixtures("only_127_0_0_1_is_loopback")
def test_known_peers_leave_a_quarter_of_the_places_to_strangers(run: Run) -> None:
    async def work() -> None:
        async with listening(handshakes_max=8) as (_, listener):
            with silent_sockets() as open_one:
                strangers = [await open_one(listener, f"127.0.0.{20 + number}") for number in range(3)]
                for _ in range(20):
                    await open_one(listener)
                assert [is_closed(one) for one in strangers] == [True, False, False]

    run(work())


@pytest.mark.parametrize("stage", ["TLS", "greeting"])
def test_a_handshake_that_does_not_finish_in_time_is_ended(stage: str, run: Run, keys: Path) -> None:
    async def work() -> None:
        own = credentials(keys, "server") if stage == "TLS" else None
        async with listening(own, timeout_s=0.3) as (driver, listener):
            with silent_sockets() as open_one:
                idle = await open_one(listener)
                await until(lambda: is_closed(idle))
            assert [reason for _, reason in driver.refused] == ["TLS and greeting not finished within 0.3 s"]
            await until(lambda: len(driver.lost) == len(driver.made))
            assert listener.handshakes == 0

    run(work())


def test_an_established_connection_has_no_deadline(run: Run, keys: Path) -> None:
    async def work() -> None:
        async with listening(credentials(keys, "server"), timeout_s=0.3) as (driver, listener):
            reader, writer = await asyncio.open_connection(*listener.name, ssl=credentials(keys, "client").client)
            writer.write(b"hello")
            assert await reader.read(5) == b"hello"
            await asyncio.sleep(0.6)
            writer.write(b"still here")
            await until(lambda: driver.data[driver.made[0].number].endswith(b"still here"))
            assert driver.lost == []
            assert driver.refused == []
            writer.close()

    run(work())


@pytest.mark.parametrize("tls", [False, True])
def test_a_connection_that_the_driver_aborts_when_made_is_refused_once_and_reports_nothing_more(
    tls: bool, run: Run, keys: Path
) -> None:
    async def work() -> None:
        driver = Driver()
        driver.on_made = lambda connection: connection.abort("not wanted")  # type: ignore[method-assign]
        own, context = (credentials(keys, "server"), credentials(keys, "client").client) if tls else (None, None)
        async with listening(own, driver=driver) as (_, listener):
            await greet_in_vain(listener, context)
            await asyncio.sleep(0.05)
            assert [reason for _, reason in driver.refused] == ["not wanted"]
            assert driver.events == []
            assert listener.handshakes == 0

    run(work())


def test_a_peer_that_closes_before_it_greets_is_reported_to_both(run: Run) -> None:
    async def work() -> None:
        async with listening() as (driver, listener):
            with silent_sockets() as open_one:
                await open_one(listener)
            await until(lambda: driver.lost)
            assert [reason for _, reason in driver.lost] == ["the peer closed the connection"]
            assert [reason for _, reason in driver.refused] == ["the peer closed the connection"]

    run(work())


def test_a_flood_of_refusals_writes_few_log_lines(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        async with listening(handshakes_max=1) as (driver, listener):
            with silent_sockets() as open_one:
                for _ in range(41):
                    await open_one(listener)
                assert len(driver.refused) == 40

    with caplog.at_level(logging.WARNING):
        run(work())
    assert len(caplog.records) == 4
    assert "… 37 more like this, the last: connection refused" in caplog.text


# Connections.


@asynccontextmanager
async def joined(**limits: float) -> AsyncIterator[tuple[Driver, SocketConnection, socket.socket]]:
    """A connection that dialled a plain socket, and that socket."""
    driver = Driver(**limits)
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        server.setblocking(False)
        loop = asyncio.get_running_loop()
        name = server.getsockname()
        _, connection = await loop.create_connection(lambda: driver.new_connection("peer:1"), *name)
        peer, _ = await loop.sock_accept(server)
        with closing(peer):
            yield driver, connection, peer
            connection.abort("the test ends")


async def read_to_end(peer: socket.socket) -> bytes:
    """All that arrives until the other side closes."""
    loop, got = asyncio.get_running_loop(), bytearray()
    while piece := await loop.sock_recv(peer, 1 << 16):
        got += piece
    return bytes(got)


def test_close_sends_what_was_written_and_then_reports_its_reason_once(run: Run) -> None:
    async def work() -> None:
        async with joined() as (driver, connection, peer):
            connection.write(b"a" * 3_000_000)
            connection.writelines([b"b", b"c"])
            connection.close("enough")
            connection.write(b"ignored")
            assert await read_to_end(peer) == b"a" * 3_000_000 + b"bc"
            await until(lambda: driver.lost)
            assert driver.lost == [(connection, "enough")]
            assert (connection.dialled, connection.certificate) == ("peer:1", None)

    run(work())


def test_close_does_not_wait_for_ever_for_a_peer_that_does_not_read(run: Run) -> None:
    async def work() -> None:
        async with joined(stall_s=0.3) as (driver, connection, _):
            connection.write(b"a" * 30_000_000)
            connection.close("enough")
            await until(lambda: driver.lost)
            assert driver.lost == [(connection, "enough")]

    run(work())


def test_close_does_not_wait_for_a_peer_that_does_not_answer_the_end_of_tls(run: Run, keys: Path) -> None:
    async def work() -> None:
        context = credentials(keys, "client").client
        async with listening(credentials(keys, "server"), driver=Driver(stall_s=0.3)) as (driver, listener):

            def connect() -> ssl.SSLSocket:
                return context.wrap_socket(socket.create_connection(listener.name))

            with closing(await asyncio.to_thread(connect)):
                await until(lambda: driver.made)
                listener.established(driver.made[0])
                driver.made[0].close("enough")
                # asyncio itself gives up after 30 s.
                await asyncio.wait_for(until(lambda: driver.lost), 10)
                assert driver.lost == [(driver.made[0], "enough")]

    run(work())


def test_nothing_is_called_back_after_abort(run: Run) -> None:
    async def work() -> None:
        async with joined() as (driver, connection, peer):
            connection.write(b"a" * 30_000_000)
            await asyncio.get_running_loop().sock_sendall(peer, b"unread")
            before = list(driver.events)
            connection.abort("at once")
            connection.close("later")
            connection.write(b"ignored")
            await asyncio.sleep(0.1)
            assert driver.events == before
            connection.data_received(b"late")
            connection.resume_writing()
            connection.connection_lost(None)
            assert driver.events == before

    run(work())


def test_no_data_is_passed_on_after_close(run: Run) -> None:
    async def work() -> None:
        async with joined() as (driver, connection, _):
            connection.close("enough")
            connection.data_received(b"late")
            await until(lambda: driver.lost)
            assert "data" not in [event for _, event in driver.events]

    run(work())


def test_a_full_buffer_pauses_and_an_empty_one_resumes(run: Run) -> None:
    async def work() -> None:
        async with joined() as (driver, connection, peer):
            connection.write(b"a" * 30_000_000)
            await until(lambda: connection.is_paused)
            assert (connection.number, "pause") in driver.events
            assert connection._transport is not None
            assert connection._transport.get_write_buffer_size() > 1 << 16
            reading = asyncio.create_task(read_to_end(peer))
            await until(lambda: not connection.is_paused)
            assert (connection.number, "resume") in driver.events
            connection.close("enough")
            assert len(await reading) == 30_000_000

    run(work())


def test_a_connection_has_its_socket_options_and_a_number_of_its_own(run: Run) -> None:
    async def work() -> None:
        async with joined(stall_s=7.0) as (_, one, _), joined() as (_, other, _):
            assert one.number != other.number
            assert one._transport is not None
            raw = one._transport.get_extra_info("socket")
            assert raw.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0
            if hasattr(socket, "TCP_USER_TIMEOUT"):
                assert raw.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 7000

    run(work())


# The log.


def test_a_key_is_limited_per_interval_and_the_rest_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    limited = RateLimitedLog(logging.getLogger("limited"), messages_max=2, interval_s=10.0, clock=lambda: now)
    for number in range(39):
        limited.warning("one", "event number=%d", number)
    limited.warning("two", "other")
    assert caplog.messages == ["event number=0", "event number=1", "other"]
    now = 10.0
    limited.sweep()
    assert caplog.messages[3:] == ["… 37 more like this, the last: event number=38"]
    limited.warning("one", "event number=%d", 40)
    assert caplog.messages[4:] == ["event number=40"]


def test_the_number_of_keys_is_bounded(caplog: pytest.LogCaptureFixture) -> None:
    limited = RateLimitedLog(logging.getLogger("limited"), messages_max=1, keys_max=5, clock=lambda: 0.0)
    for number in range(100):
        limited.warning(str(number), "event number=%d", number)
    assert len(limited._windows) == 6
    limited.flush()
    assert caplog.messages[-1] == "… 94 more like this, the last: event number=99"
    assert limited._windows == {}

"""The probes of an orchestrator: /livez and /readyz."""

from __future__ import annotations

import asyncio

import pytest

from cubecast.live.local import free_addresses
from tests.live.members import enter, one, quick, until, vanish

pytestmark = pytest.mark.live


async def probe(address: str, path: str, method: str = "GET") -> tuple[int, str]:
    """The status code and the body of one request."""
    host, port = address.split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(f"{method} {path} HTTP/1.1\r\n\r\n".encode())
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    return int(head.split()[1]), body.decode().strip()


def test_a_member_is_live_at_once_ready_when_it_is_in_the_group_and_not_ready_while_it_is_blocked() -> None:
    async def run() -> None:
        first, second, status = free_addresses(3)
        waiting = one(listen=second, peers=[first, second], status=status, settings=quick())
        entering = asyncio.create_task(waiting.__aenter__())
        await until(lambda: waiting.is_entered)
        async with asyncio.timeout(10):
            while True:
                try:
                    assert await probe(status, "/livez") == (200, "ok")
                    break
                except ConnectionRefusedError:
                    await asyncio.sleep(0.01)
        code, reason = await probe(status, "/readyz")
        assert code == 503
        assert first in reason
        coordinator = await enter(listen=first, peers=[first, second], settings=quick())
        await entering
        assert await probe(status, "/readyz") == (200, "ok")
        await vanish(coordinator)  # half of two with the first rank would be a quorum; the other half is none
        await until(lambda: waiting.is_blocked)
        assert await probe(status, "/readyz") == (503, "blocked: too few members reachable")
        assert await probe(status, "/livez") == (200, "ok")
        assert await probe(status, "/livez", "HEAD") == (200, "")
        assert await probe(status, "/readyz", "HEAD") == (503, "")
        assert (await probe(status, "/livez", "POST"))[0] == 404
        await vanish(waiting)

    asyncio.run(run())

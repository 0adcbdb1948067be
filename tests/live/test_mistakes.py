"""What a program gives `cubecast.join`, or calls too early, is refused with the value and the remedy."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from cubecast.errors import LocalProtocolError
from cubecast.live.group import join

ADDRESS = "127.0.0.1:7001"

OPTIONS: dict[str, tuple[dict[str, Any], str]] = {
    "every interface": ({"listen": "0.0.0.0:7001"}, r"0\.0\.0\.0:7001 means every interface .* advertise=HOST:7001"),
    "every interface, IPv6": ({"listen": "[::]:7001"}, r"\[::\]:7001 means every interface"),
    "advertised": ({"advertise": "0.0.0.0:7001"}, r"0\.0\.0\.0:7001 means every interface"),
    "text for credentials": ({"credentials": "one.pem", "plaintext": False}, r"credentials='one\.pem': give Cred"),
    "no function": ({"snapshot": b"", "restore": print}, "snapshot=b'': give a function"),
    "one function": ({"snapshot": bytes}, "give snapshot= and restore= together"),
}


@pytest.mark.parametrize("mistake", OPTIONS)
def test_an_option_that_cannot_work_is_refused(mistake: str) -> None:
    options, reason = OPTIONS[mistake]
    with pytest.raises(LocalProtocolError, match=reason):
        join("g", **{"listen": ADDRESS, "found": True, "plaintext": True, **options})


@pytest.mark.parametrize("name", ["", "é" * 128, None])
def test_a_group_has_a_name_of_1_to_255_bytes(name: Any) -> None:
    with pytest.raises(LocalProtocolError, match="give a text of 1 to 255 bytes"):
        join(name, listen=ADDRESS, found=True, plaintext=True)


def test_a_member_behind_every_interface_has_the_name_it_advertises() -> None:
    assert join("g", listen="0.0.0.0:7001", advertise=ADDRESS, found=True, plaintext=True).address == ADDRESS


def test_nothing_is_received_before_the_group_is_entered() -> None:
    async def run() -> None:
        group = join("g", listen=ADDRESS, found=True, plaintext=True)
        for early in (group.receive, group.__aiter__, group.events):
            with pytest.raises(LocalProtocolError, match="use it inside `async with`"):
                async with asyncio.timeout(5):
                    await early()  # type: ignore[misc]

    asyncio.run(run())


def test_a_callback_that_could_never_run_is_refused() -> None:
    async def awaited(_view: object) -> None:
        raise AssertionError

    group = join("g", listen=ADDRESS, found=True, plaintext=True)
    with pytest.raises(LocalProtocolError, match=r"on_stable.*awaited.*an `async` function is not awaited here"):
        group.on_stable(awaited)
    with pytest.raises(LocalProtocolError, match=r"on_view.'text'.: give a function"):
        group.on_view("text")  # type: ignore[arg-type]

"""Ports of servers that a test starts on loopback."""

from __future__ import annotations

import socket
import time

import pytest


def wait_for_port(port: int, what: str, seconds: float) -> None:
    """Until something listens there; the test fails when nothing does."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        with socket.socket() as one:
            if one.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.2)
    pytest.fail(f"no {what} on port {port} after {seconds} s")

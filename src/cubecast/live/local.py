"""Free addresses of this machine, for demonstrations, benchmarks and tests.

A port that is free now may be taken a moment later, though that is rare.
"""

from __future__ import annotations

import socket


def free_ports(count: int) -> list[int]:
    """Ports that are free now, in ascending order."""
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = sorted(one.getsockname()[1] for one in sockets)
    for one in sockets:
        one.close()
    return ports


def free_addresses(count: int) -> list[str]:
    """Addresses of free ports, in the order of the ranks they get."""
    return [f"127.0.0.1:{port}" for port in free_ports(count)]

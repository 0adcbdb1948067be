"""Addresses for the worker processes of one machine, which all start with the same configuration.

`uvicorn --workers 4` starts four processes that cannot be told apart. Each claims the first address of a range that no
other process holds: a lock on a file in the system's folder for temporary files, which the system releases when the
process ends, however it ends. A worker that is started again gets the address of the one that died.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from pathlib import Path
from typing import Any

from cubecast.errors import LocalProtocolError
from cubecast.live.group import Group, join
from cubecast.member.settings import Settings, parse_address

_held: list[int] = []
"""Locks of this process; they stay until it ends."""


def worker_group(name: str, first: str, *, count: int, settings: Settings | None = None, **options: Any) -> Group:
    """The group of `count` workers on one machine, at the ports from `first` ("127.0.0.1:7100") on.

    The workers found the group together, and a majority of them is enough; one that is started again joins. Unless
    `settings` say otherwise, those that are left continue, however few they are (`quorum="any"`). The other options are
    those of `cubecast.join`. Not entered yet: give it to a `Bus`.
    """
    host, port = parse_address(first)
    if type(count) is not int or not 1 <= count <= 256 or port + count > 1 << 16:
        raise LocalProtocolError(f"count={count!r}: give the number of workers, from 1 to 256")
    shown = f"[{host}]" if ":" in host else host
    addresses = [f"{shown}:{port + place}" for place in range(count)]
    how: dict[str, Any] = {"peers": addresses} if count > 1 else {"found": True}
    return join(name, listen=_claim(addresses), settings=settings or Settings(quorum="any"), **how, **options)


def _claim(addresses: list[str]) -> str:
    folder = Path(tempfile.gettempdir()) / f"cubecast-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    for address in addresses:
        handle = os.open(folder / f"{address.replace(':', '_')}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(handle)
            continue
        _held.append(handle)
        return address
    raise LocalProtocolError(
        f"all {len(addresses)} addresses from {addresses[0]} on are taken: raise count= to the number of workers"
    )

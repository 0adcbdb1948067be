"""A group of worker processes on one machine, which all start with the same configuration.

`uvicorn --workers 4` starts four of them, and none knows which of the others are running. They coordinate by files in
the temporary directory: a process locks two files while it is in the group, and the system releases the locks when the
process ends for any reason.

| file                 | locked by                                                                            |
|----------------------|--------------------------------------------------------------------------------------|
| `ADDRESS.lock`       | the worker at this address, of whatever group                                        |
| `ADDRESS.GROUP.lock` | the same worker: those of its group may join through this address                    |
| `FIRST.GROUP.turn`   | the worker that enters: those of one group enter one at a time                       |

1. It claims the first address that no process holds, and at which no other program listens.
2. It joins through the addresses that others of its group hold; if there are none, it founds the group. It begins again
   if these all end before it has joined, as when old workers are replaced by new ones.

So two workers never found a group each, a worker that replaces a dead one gets its address, and two groups of workers
may share a range of ports.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import hashlib
import logging
import os
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple

from cubecast.errors import LocalProtocolError
from cubecast.live.group import Group, join
from cubecast.live.join_options import require_name
from cubecast.live.listener import bind
from cubecast.live.warm import load
from cubecast.member.settings import Settings, parse_address

log = logging.getLogger("cubecast.live")

WORKERS_MAX = 256
POLL_S = 0.02
"""How often a worker looks whether it is its turn to enter."""
LOOK_S = 0.2
"""How often a worker looks whether those through which it joins still run."""
GONE_S = 1.0
"""How long a worker still tries to join through others that have all ended: it may be in their last view."""


async def join_workers(name: str, first: str, *, count: int, settings: Settings | None = None, **options: Any) -> Group:
    """Join the group of at most `count` workers of this machine, on the ports starting at `first` ("127.0.0.1:7100").

    By default the remaining workers continue, regardless of their number (`quorum="any"` in `settings`). The other
    options are those of `cubecast.join`. The returned group is entered; leave it with `leave`.
    """
    require_name(name)
    addresses = _addresses(first, count)
    settings = settings or Settings(quorum="any")
    await asyncio.to_thread(load, settings.data_for(2).name, settings.stability_entry.name)  # not while others wait
    files = _Files(_folder(), name)
    turn = await _wait_for_turn(files.turn(addresses[0]), settings.join_timeout_s)
    try:
        while True:
            own, others, locks = await _claim(files, addresses)
            how: dict[str, Any] = {"contact": others} if others else {"found": True}
            try:
                group = join(name, listen=own, settings=settings, **how, **options)
                has_joined = await _enter(group, [files.member(other) for other in others])
            except BaseException:
                _close_all(locks)
                raise
            if has_joined:
                group._stack.callback(_close_all, locks)
                return group
            _close_all(locks)
    finally:
        os.close(turn)


async def _enter(group: Group, others: list[Path]) -> bool:
    """Join through others, who lock these files, or found the group; False if all of them have ended meanwhile."""
    entering = asyncio.create_task(group.__aenter__())
    gone_s = 0.0
    try:
        while not entering.done() and gone_s < GONE_S:
            await asyncio.wait({entering}, timeout=LOOK_S)
            gone_s = 0.0 if not others or any(map(_is_locked, others)) else gone_s + LOOK_S
    except asyncio.CancelledError:
        await _stop(entering)
        if not entering.cancelled() and entering.exception() is None:
            await group.leave(drain=False)
        raise
    await _stop(entering)
    if entering.cancelled():
        return False
    entering.result()
    return True


async def _stop(task: asyncio.Task[Group]) -> None:
    task.cancel()
    await asyncio.wait({task})


def join_function(
    join: Callable[[], Awaitable[Group]] | None, name: str, first: str, *, count: int, options: dict[str, Any]
) -> Callable[[], Awaitable[Group]]:
    """The function that a program gave, or `join_workers` with its options."""
    if join is None:
        return lambda: join_workers(name, first, count=count, **options)
    if options:
        raise LocalProtocolError(f"join= together with {', '.join(options)}=: set these options in the function join")
    return join


def _addresses(first: str, count: int) -> list[str]:
    host, port = parse_address(first)
    if type(count) is not int or not 1 <= count <= WORKERS_MAX or port + count > 1 << 16:
        raise LocalProtocolError(f"count={count!r}: give the number of workers, from 1 to {WORKERS_MAX}")
    shown = f"[{host}]" if ":" in host else host
    return [f"{shown}:{port + place}" for place in range(count)]


def _folder() -> Path:
    folder = Path(tempfile.gettempdir()) / f"cubecast-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.stat().st_uid != os.getuid():
        raise LocalProtocolError(f"{folder} belongs to another user: set TMPDIR to your own folder")
    return folder


class _Files(NamedTuple):
    """The files of one group of workers."""

    folder: Path
    group: str

    def address(self, address: str) -> Path:
        """Locked by the worker at an address, of whatever group."""
        return self.folder / f"{_file_name(address)}.lock"

    def member(self, address: str) -> Path:
        """Locked by the worker at an address if it is of this group."""
        return self.folder / f"{_file_name(address)}.{self._mark}.lock"

    def turn(self, first: str) -> Path:
        """Locked by the worker that enters this group."""
        return self.folder / f"{_file_name(first)}.{self._mark}.turn"

    @property
    def _mark(self) -> str:
        return hashlib.sha256(self.group.encode()).hexdigest()[:16]


def _file_name(address: str) -> str:
    return address.replace(":", "_")


def _close_all(handles: list[int]) -> None:
    for handle in handles:
        os.close(handle)


async def _wait_for_turn(file: Path, timeout_s: float) -> int:
    try:
        async with asyncio.timeout(timeout_s):
            while (lock := _try_lock(file)) is None:
                await asyncio.sleep(POLL_S)
    except TimeoutError:
        raise LocalProtocolError(
            f"another worker has been joining the group for join_timeout_s={timeout_s:g} ({file} is locked)"
        ) from None
    return lock


async def _claim(files: _Files, addresses: list[str]) -> tuple[str, list[str], list[int]]:
    """The first free address, those that other workers of this group hold, and the locks on the former."""
    own: str | None = None
    locks: list[int] = []
    others: list[str] = []
    foreign: list[str] = []
    for address in addresses:
        if _is_locked(files.member(address)):
            others.append(address)
        elif own is None:
            locks = await _try_take(files, address)
            if locks:
                own = address
            else:
                foreign.append(address)
    if foreign:
        log.warning("worker addresses in use by other programs addresses=%s", ",".join(foreign))
    if own is None:
        by_others = f", {len(foreign)} of them by other programs ({', '.join(foreign[:3])})" if foreign else ""
        raise LocalProtocolError(
            f"all {len(addresses)} addresses from {addresses[0]} are taken{by_others}: "
            "raise count= to the number of workers"
        )
    return own, others, locks


async def _try_take(files: _Files, address: str) -> list[int]:
    """The locks on an address; none if another program has it."""
    locks: list[int] = []
    is_taken = False
    try:
        for file in (files.address(address), files.member(address)):
            lock = _try_lock(file)
            if lock is None:
                return []
            locks.append(lock)
        is_taken = await _is_free(address)
    finally:
        if not is_taken:
            _close_all(locks)
    return locks if is_taken else []


async def _is_free(address: str) -> bool:
    """Does no program listen there? Any other reason why it cannot be bound is reported when the worker joins."""
    try:
        (await bind(*parse_address(address))).close()
    except LocalProtocolError as error:
        return not (isinstance(error.__cause__, OSError) and error.__cause__.errno == errno.EADDRINUSE)
    return True


def _is_locked(file: Path) -> bool:
    handle = _try_lock(file)
    if handle is not None:
        os.close(handle)
    return handle is None


def _try_lock(file: Path) -> int | None:
    handle = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        return None
    return handle

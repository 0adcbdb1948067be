"""`cubecast.join` and `join_sync`: one door to groups of fixed members and to groups that change, loaded late."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from cubecast.errors import LocalProtocolError

if TYPE_CHECKING:
    from cubecast.live.changing.group import ChangingGroup, Restore, Snapshot
    from cubecast.live.changing.recording import HistoryRecorder
    from cubecast.live.changing.settings import ChangingSettings
    from cubecast.live.changing.sync import SyncChangingGroup
    from cubecast.live.credentials import Credentials
    from cubecast.live.group import LiveGroup
    from cubecast.live.settings import Settings
    from cubecast.live.sync import SyncGroup


@overload
def join(
    name: str,
    *,
    listen: str,
    peers: Sequence[str],
    credentials: Credentials | None = None,
    plaintext: bool = False,
    settings: Settings | None = None,
    trace: str | Path | None = None,
) -> LiveGroup: ...


@overload
def join(
    name: str,
    *,
    listen: str,
    contact: str | Sequence[str],
    credentials: Credentials | None = None,
    plaintext: bool = False,
    settings: ChangingSettings | None = None,
    snapshot: Snapshot | None = None,
    restore: Restore | None = None,
    log: str | Path | None = None,
    history: str | Path | HistoryRecorder | None = None,
) -> ChangingGroup: ...


def join(name: str, *, listen: str, **options: Any) -> LiveGroup | ChangingGroup:
    """Be a member of a group: `async with cubecast.join(...) as group`.

    `listen` is this member's address as all others name it. With `peers` all members are known at the start; with
    `contact`, one address or several of a group that somebody founded (`cubecast.found`), this one is taken in. TLS
    with `credentials`, or no protection at all when `plaintext=True` says so. `trace` (with `peers`) names a file for
    this member's event trace; `snapshot`, `restore`, `log` and `history` (with `contact`) are those of
    `cubecast.found`.
    """
    if _is_founded(options):
        from cubecast.live.changing.group import join_changing

        return join_changing(name, listen=listen, **options)
    from cubecast.live.group import join as join_fixed

    return join_fixed(name, listen=listen, **options)


@overload
def join_sync(name: str, *, listen: str, peers: Sequence[str], **options: Any) -> SyncGroup: ...


@overload
def join_sync(name: str, *, listen: str, contact: str | Sequence[str], **options: Any) -> SyncChangingGroup: ...


def join_sync(name: str, *, listen: str, **options: Any) -> SyncGroup | SyncChangingGroup:
    """Be a member of a group from a program without asyncio; the options are those of `join`."""
    if _is_founded(options):
        from cubecast.live.changing.sync import join_founded_sync

        return join_founded_sync(name, listen=listen, **options)
    from cubecast.live.sync import join_sync as join_fixed_sync

    return join_fixed_sync(name, listen=listen, **options)


def _is_founded(options: dict[str, Any]) -> bool:
    """Is it a group that somebody founded, or one of fixed members?"""
    if ("peers" in options) == ("contact" in options):
        raise LocalProtocolError("give peers= (all members) or contact= (one member of a group that was founded)")
    return "contact" in options

"""The contacts of a joining member: addresses, and DNS names that are resolved repeatedly until it is in the group.

A name may have no record yet, only that of this member, or records of members that are gone: all of these are common
when members start together. So a name is resolved until it names another member, and then again while this member is
joining; it also contacts the members that appear later.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

from cubecast.errors import LocalProtocolError
from cubecast.live.dns import SCHEME, ResolveError, resolve_contacts
from cubecast.live.driver import Driver

RESOLVE_S = 1.0
"""How often names are resolved."""


class Contacts:
    """How one member finds another of its group."""

    def __init__(self, group: str, me: str, contacts: Sequence[str]) -> None:
        """`contacts` are addresses, or names as in `live/dns.py`."""
        self._group = group
        self._me = me
        self._contacts = contacts
        self._has_names = any(one.startswith(SCHEME) for one in contacts)

    async def first(self, timeout_s: float, *, is_needed: bool, on_waiting: Callable[[str], None]) -> Sequence[str]:
        """Return the addresses; if one is needed, wait for it. Raises LocalProtocolError after `timeout_s`."""
        if not self._has_names:
            return self._contacts
        deadline = time.monotonic() + timeout_s
        while True:
            found, reason = await self._resolve()
            if found or not is_needed:
                return found
            if time.monotonic() >= deadline:
                raise LocalProtocolError(
                    f"not in group {self._group!r} after join_timeout_s={timeout_s:g}: waiting for {reason}"
                )
            on_waiting(f"waiting for {reason}")
            await asyncio.sleep(RESOLVE_S)

    async def follow(self, driver: Driver) -> None:
        """While the member is joining, pass it the addresses that appear later."""
        member = driver.member
        while self._has_names and not driver.is_ended and member.phase != "member":
            await asyncio.sleep(RESOLVE_S)
            found = [one for one in (await self._resolve())[0] if one not in member.contacts]
            if found and member.phase == "joining":
                driver.call(lambda now_ns, found=found: member.add_contacts(found, now_ns))  # type: ignore[misc]

    async def _resolve(self) -> tuple[list[str], str]:
        """The addresses of other members, and the reason if there are none."""
        try:
            found = await resolve_contacts(self._contacts)
        except ResolveError as error:
            return [], str(error)
        return [one for one in found if one != self._me], f"{', '.join(self._contacts)}: no address of another member"

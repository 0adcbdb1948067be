"""The whole group as seen by one member: its own report and those of the others, requested at the same time.

First a connection to every member is opened, then all requests are sent at once, so that the reports are of nearly the
same moment: `spread_ms` bounds by how much they differ. A member that does not answer in time is shown with the reason.
One round of requests serves all viewers of the page; without viewers there are no requests.

In a group of more than `ASKED_MAX` members, only those that delay stability the most and the first ranks are asked.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from cubecast.errors import CubecastError, RemoteProtocolError
from cubecast.live import http
from cubecast.live.connections import addresses_of
from cubecast.live.credentials import Credentials, explain_tls_error
from cubecast.live.dialling import connect_first
from cubecast.live.member_report import REPORT, VIEWS, MemberReport, decode_report, decode_views, report_of
from cubecast.live.view_history import InstalledView
from cubecast.member.settings import parse_address
from cubecast.protocols.membership.views import MemberId

if TYPE_CHECKING:
    from cubecast.live.group import Group

ASKED_MAX = 64
CONNECT_S = 1.0
ANSWER_S = 1.0
ANSWER_BYTES_MAX = 4 << 20
FRESH_S = 1.0
"""Reports younger than this are shown again: several viewers cost the group as much as one."""


@dataclass(frozen=True)
class AskedMember:
    """A member of the view with its report, or the reason why there is none."""

    member: MemberId
    report: MemberReport | None
    reason: str = ""


def count_lacking(asked: Sequence[AskedMember]) -> list[list[int | None]]:
    """By receiver and sender: the messages of the sender that the receiver lacks and another member has.

    None where the receiver did not answer, or does not have that sender in its view. No member lacks its own
    messages: another one that seems to have more of them answered later.
    """
    known = [
        {MemberId(one.address, one.incarnation): one.messages for one in member.report.received}
        if member.report is not None
        else {}
        for member in asked
    ]
    most = {sender.member: max((one.get(sender.member, 0) for one in known), default=0) for sender in asked}
    return [
        [
            None if sender.member not in one else 0 if sender is receiver else most[sender.member] - one[sender.member]
            for sender in asked
        ]
        for receiver, one in zip(asked, known, strict=True)
    ]


class WholeGroup:
    """Asks the members of a group for their reports, for the status page of one of them."""

    def __init__(self, group: Group) -> None:
        """No request is sent yet."""
        self._group = group
        self._asking: asyncio.Task[dict[str, Any]] | None = None
        self._asked_at_s = 0.0

    async def status(self) -> dict[str, Any]:
        """The members of the view with their reports, who lacks how much of whom, and the views."""
        now_s = time.monotonic()
        if self._asking is None or (self._asking.done() and now_s - self._asked_at_s > FRESH_S):
            self._asked_at_s = now_s
            self._asking = asyncio.get_running_loop().create_task(self._ask_all())
        return await asyncio.shield(self._asking)

    def close(self) -> None:
        """Cancel the requests that are under way."""
        if self._asking is not None:
            self._asking.cancel()

    async def _ask_all(self) -> dict[str, Any]:
        driver = self._group._entered()
        view, me = driver.member.view, driver.member.me
        members = view.members if view is not None else (me,)
        others = [who for who in self._choose(members) if who != me]
        questions = [_Question(who, driver.credentials) for who in others]
        await asyncio.gather(*(one.connect() for one in questions))
        began_s = time.monotonic()
        for one in questions:
            one.send(REPORT)
        own = AskedMember(me, report_of(self._group))
        answers = await asyncio.gather(*(one.read_report() for one in questions))
        spread_s = max((one.took_s for one in questions), default=0.0)
        asked = sorted([own, *answers], key=lambda one: members.index(one.member) if one.member in members else -1)
        ranks = {who: rank for rank, who in enumerate(members)}
        return {
            "time": time.time(),
            "spread_ms": 1e3 * min(spread_s, time.monotonic() - began_s),
            "members_of_view": len(members),
            "members": [
                {
                    "rank": ranks.get(one.member, -1),
                    "address": one.member.name,
                    "reason": one.reason,
                    "report": msgspec.to_builtins(one.report),
                }
                for one in asked
            ],
            "lacking": count_lacking(asked),
            "views": msgspec.to_builtins(await self._views(asked)),
        }

    def _choose(self, members: Sequence[MemberId]) -> list[MemberId]:
        """All members, or, of many, those furthest behind and the first ranks."""
        slow = [who for who, _ in self._group._entered().member.laggards()]
        return list(dict.fromkeys([*slow[: ASKED_MAX // 2], *members]))[:ASKED_MAX]

    async def _views(self, asked: Sequence[AskedMember]) -> list[InstalledView]:
        """The views that this member saw, and the earlier ones that the member with the longest memory saw."""
        history = self._group._notices.history
        able = [one for one in asked if one.report is not None and one.report.first_view]
        eldest = min(able, key=lambda one: one.report.first_view if one.report else 0, default=None)
        if eldest is None or eldest.report is None or eldest.report.first_view >= history.first:
            return list(history.views)
        question = _Question(eldest.member, self._group._entered().credentials)
        await question.connect()
        question.send(VIEWS)
        return history.with_earlier(await question.read_views())


class _Question:
    """Requests to one member."""

    def __init__(self, who: MemberId, credentials: Credentials | None) -> None:
        self._who = who
        self._credentials = credentials
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._reason = ""
        self._sent_s = self.took_s = 0.0

    async def connect(self) -> None:
        """Open a connection as members do; a failure becomes the reason of the missing report."""
        try:
            host, port = parse_address(self._who.name)
            tls: dict[str, Any] = {}
            if self._credentials is not None:
                tls = {"ssl": self._credentials.client, "server_hostname": host}
            async with asyncio.timeout(CONNECT_S):
                self._streams = await connect_first(
                    host, port, lambda address: asyncio.open_connection(address, port, **tls)
                )
            certificate = self._streams[1].get_extra_info("peercert")
            if tls and self._who.name not in addresses_of(certificate):
                raise RemoteProtocolError(f"its certificate is not for {self._who.name}")
        except TimeoutError:
            self._fail(f"no connection within {CONNECT_S:g} s")
        except (OSError, CubecastError) as error:
            self._fail(explain_tls_error(error))

    def send(self, path: str) -> None:
        """Send a request."""
        self._sent_s = time.monotonic()
        if self._streams is not None:
            self._streams[1].write(http.encode_request(path, self._who.name))

    async def read_report(self) -> AskedMember:
        """Its report, or the reason why there is none."""
        body = await self._read()
        try:
            report = None if body is None else decode_report(body)
        except msgspec.MsgspecError:
            return AskedMember(self._who, None, "its report cannot be read")
        if report is not None and report.address == self._who.name:
            return AskedMember(self._who, report)
        return AskedMember(self._who, None, self._reason or "it answers as another member")

    async def read_views(self) -> list[InstalledView]:
        """The views that it installed; empty if it does not answer."""
        body = await self._read()
        try:
            return [] if body is None else decode_views(body)
        except msgspec.MsgspecError:
            return []

    async def _read(self) -> bytes | None:
        if self._streams is None:
            return None
        reader, _ = self._streams
        answer = b""
        try:
            async with asyncio.timeout(ANSWER_S):
                while chunk := await reader.read(1 << 16):
                    answer += chunk
                    if len(answer) > ANSWER_BYTES_MAX:
                        raise RemoteProtocolError("its answer is too long")
        except TimeoutError:
            self._fail(f"no answer within {ANSWER_S:g} s")
            return None
        except (OSError, CubecastError) as error:
            self._fail(explain_tls_error(error))
            return None
        self.took_s = time.monotonic() - self._sent_s
        body = http.body_of(answer)
        self._fail("it does not serve reports" if body is None else "")
        return body

    def _fail(self, reason: str) -> None:
        """Close, with the reason why there is no answer, if there is none."""
        self._reason = reason
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None

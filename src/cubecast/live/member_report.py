"""The report that a member sends to another member, so that every status page shows the whole group.

The request comes over the port at which members accept each other: its first bytes are those of an HTTP GET, which no
frame can be (as a length they exceed every limit). So there is no further address to configure, and with TLS only
holders of a certificate of the group get an answer. A connection with a request is never a link: the sans-I/O member
does not see it. Requests are sent only while a status page is viewed (`live/whole_group.py`).

| path      | gives                                  |
|-----------|----------------------------------------|
| `/report` | a `MemberReport`                       |
| `/views`  | the views that this member saw, a list |
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from cubecast.errors import CubecastError
from cubecast.live import http
from cubecast.live.view_history import InstalledView
from cubecast.protocols.membership.views import MemberId

if TYPE_CHECKING:
    from cubecast.live.group import Group
    from cubecast.member.member import Member

REPORT, VIEWS = "/report", "/views"
REQUESTS = tuple(f"GET {path} ".encode() for path in (REPORT, VIEWS))
"""How requests begin. All other bytes go to the member, which refuses anything but a greeting."""
REPORT_AGE_S = 0.02
"""A report younger than this is sent again, so that many requests cost little."""


class ReceivedCount(NamedTuple):
    """How many messages of one member another one has."""

    address: str
    incarnation: int
    messages: int


class JournalReport(msgspec.Struct, frozen=True, kw_only=True):
    """The journal of a member; times are in seconds since 1970, None before the first."""

    bytes: int
    sync: str
    synced_at_s: float | None
    checkpoint_at_s: float | None


class MemberReport(msgspec.Struct, frozen=True, kw_only=True):
    """One member, at the moment of the request."""

    group: str
    address: str
    incarnation: int
    view: int
    phase: str
    blocked: bool
    changing: bool
    received: list[ReceivedCount]
    """By rank of its view."""
    delivered: int
    multicasts: int
    unstable_messages: int
    unstable_bytes: int
    inbox_entries: int
    journal: JournalReport | None
    first_view: int
    """The oldest view of its history; 0 if there is none."""


_REPORT, _VIEWS = msgspec.json.Decoder(MemberReport), msgspec.json.Decoder(list[InstalledView])


def decode_report(body: bytes) -> MemberReport:
    """Raises msgspec.MsgspecError."""
    return _REPORT.decode(body)


def decode_views(body: bytes) -> list[InstalledView]:
    """Raises msgspec.MsgspecError."""
    return _VIEWS.decode(body)


def received_by(member: Member) -> dict[MemberId, int]:
    """How many messages of each member of the view a member has."""
    view, delivered = member.view, member.delivered()
    if view is None or len(delivered) != len(view.members):
        return {}
    return {who: sent + count for who, sent, count in zip(view.members, view.sent, delivered, strict=True)}


def journal_report(group: Group) -> JournalReport | None:
    """The journal of this member; None without one."""
    journal = group._entered().journal
    if journal is None:
        return None
    return JournalReport(
        bytes=journal.bytes,
        sync=group.settings.sync,
        synced_at_s=journal.synced_at_s,
        checkpoint_at_s=journal.checkpoint_at_s,
    )


def report_of(group: Group) -> MemberReport:
    """The report of this member."""
    member = group._entered().member
    return MemberReport(
        group=group.name,
        address=member.me.name,
        incarnation=member.me.incarnation,
        view=member.view.number if member.view is not None else 0,
        phase=member.phase,
        blocked=member.is_blocked,
        changing=member.is_changing,
        received=[ReceivedCount(*who, count) for who, count in received_by(member).items()],
        delivered=member.delivered_count,
        multicasts=member.own.count,
        unstable_messages=member.log.unstable,
        unstable_bytes=member.log.bytes,
        inbox_entries=len(group._inbox.queue),
        journal=journal_report(group),
        first_view=group._notices.history.first,
    )


class Reporter:
    """Answers the requests of other members."""

    def __init__(self, group: Group) -> None:
        """The status is read at the first request."""
        self._group = group
        self._encoded: dict[str, bytes] = {}
        self._encoded_at_s = 0.0

    def answer(self, request: bytes) -> bytes:
        """The complete answer to a request."""
        path = http.path_of(request)
        now_s = time.monotonic()
        if now_s - self._encoded_at_s > REPORT_AGE_S:
            self._encoded, self._encoded_at_s = {}, now_s
        if path not in self._encoded:
            self._encoded[path] = self._encode(path)
        return self._encoded[path]

    def _encode(self, path: str) -> bytes:
        try:
            found = report_of(self._group) if path == REPORT else list(self._group._notices.history.views)
        except CubecastError as error:
            return http.encode_answer(http.UNAVAILABLE, http.TEXT, str(error).encode())
        return http.encode_answer(http.OK, http.JSON, msgspec.json.encode(found))

"""The log lines of a member: one line per event, its values by name.

Strangers can provoke refusals, and a bad network link events, so the number of their lines is limited. Nothing in an
orderly start or end is a warning.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from cubecast.live.rate_limited_log import RateLimitedLog
from cubecast.live.view_history import ViewHistory, how_gone
from cubecast.member.effects import Excluded, Notice
from cubecast.member.member import Member
from cubecast.protocols.membership.views import MemberId, View

log = logging.getLogger("cubecast.live")

RECENT_MAX = 64
"""Members that left or were excluded, as the status page shows them."""


class NoticeLog:
    """Writes notices, and remembers the views and the members that left or were excluded."""

    def __init__(self, me: str) -> None:
        """Nothing happened yet."""
        self.gone: dict[str, dict[str, Any]] = {}
        """By address: when a member left or was excluded, and in which view."""
        self.exclusions = self.views = 0
        self.history = ViewHistory()
        self._me = me
        self._view: View | None = None
        self._limited = RateLimitedLog(log)
        self._writers: dict[str, Callable[[Any, Member], None]] = {
            "view": self._installed,
            "blocked": self._blocked,
            "excluded": self._excluded,
            "left": self._left,
            "refused": self._refused,
            "link": self._link,
            "slow": self._slow,
            "backlog": self._backlog,
            "suspected": self._suspected,
        }

    def write(self, notice: Notice, member: Member) -> None:
        """Log one notice."""
        writer = self._writers.get(notice.what)
        if writer is not None:
            writer(notice.value, member)

    def _installed(self, view: View, member: Member) -> None:
        before, self._view = self._view, view
        log.info("view installed member=%s view=%d members=%d", self._me, view.number, len(view.members))
        if before is not None and before.group_id != view.group_id:
            before = None
        self.views += 1
        self.history.add(before, view)
        if before is None:
            return
        for rank, who in enumerate(before.members):
            if who not in view.members and who != member.me:
                self._gone(rank, who, view)
        for who in view.joined:
            self.gone.pop(who.name, None)
            log.info("member joined rank=%d view=%d member=%s", view.members.index(who), view.number, who.name)

    def _gone(self, rank: int, who: MemberId, view: View) -> None:
        how = how_gone(who, view)
        level = logging.WARNING if how == "excluded" else logging.INFO
        log.log(level, "member %s rank=%d view=%d member=%s", how, rank, view.number, who.name)
        self.gone.pop(who.name, None)
        self.gone[who.name] = {"address": who.name, "rank": rank, "view": view.number, "how": how}
        while len(self.gone) > RECENT_MAX:
            del self.gone[next(iter(self.gone))]

    def _blocked(self, is_blocked: bool, member: Member) -> None:
        view = member.view.number if member.view is not None else 0
        if is_blocked:
            log.warning("blocked member=%s view=%d reason=too few members reachable", self._me, view)
        else:
            log.info("unblocked member=%s view=%d", self._me, view)

    def _excluded(self, excluded: Excluded, _: Member) -> None:
        self._view = None
        self.exclusions += 1
        log.warning(
            "excluded member=%s reason=%s returned_messages=%d certain=%s",
            self._me,
            excluded.reason,
            len(excluded.returned),
            excluded.certain,
        )

    def _left(self, _: None, __: Member) -> None:
        log.info("left member=%s", self._me)

    def _refused(self, refused: tuple[str, str], member: Member) -> None:
        """The listener logs refusals of accepted connections; this logs those of dialled ones."""
        peer, reason = refused
        if peer in member.links.failures:
            self._limited.info(
                f"{peer.rpartition(':')[0]} {reason}", "handshake failed peer=%s reason=%s", peer, reason
            )

    def _link(self, link: tuple[str, str, str], _: Member) -> None:
        peer, state, reason = link
        self._limited.info(f"{peer} {state}", "link %s peer=%s%s", state, peer, f" reason={reason}" if reason else "")

    def _slow(self, who: MemberId, member: Member) -> None:
        messages = dict(member.laggards()).get(who, 0)
        log.warning("member slow member=%s behind_messages=%d", who.name, messages)

    def _backlog(self, _: None, member: Member) -> None:
        log.warning(
            "application slow member=%s backlog_bytes=%d reason=it does not take its deliveries; senders wait for it",
            self._me,
            member.stats()["backlog_bytes"],
        )

    def _suspected(self, who: MemberId, _: Member) -> None:
        log.info("member suspected member=%s", who.name)

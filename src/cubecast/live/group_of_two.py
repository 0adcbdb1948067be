"""A group of two that needs a majority depends on its first rank: while that one is down, the other is blocked.

Exactly half of a view with its first rank decides (`docs/guarantees.md`), so only the second rank may crash.
"""

from __future__ import annotations

import logging

from cubecast.protocols.membership.views import View

log = logging.getLogger("cubecast.live")


def depends_on_first_rank(view: View, quorum: str) -> bool:
    """Does a crash of the first rank block the only other member?"""
    return quorum == "majority" and len(view.members) == 2


class GroupOfTwoLog:
    """Logs the first view in which the group depends on one member."""

    def __init__(self, me: str, quorum: str) -> None:
        """Nothing is logged yet."""
        self._me = me
        self._quorum = quorum
        self._is_logged = False

    def installed(self, view: View) -> None:
        """A view was installed."""
        if not self._is_logged and depends_on_first_rank(view, self._quorum):
            self._is_logged = True
            log.info(
                "group of two is blocked while its first rank is down member=%s view=%d first_rank=%s",
                self._me,
                view.number,
                view.members[0].name,
            )

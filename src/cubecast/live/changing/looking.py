"""What can be seen of a member of a changing group: counts, sizes, who is behind; all of it for the status page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cubecast.core.membership import MemberId
from cubecast.live.changing.driver import Driver


@dataclass(frozen=True, kw_only=True)
class ChangingLaggard:
    """A member that keeps `behind` messages from becoming stable, as far as is known."""

    who: MemberId
    behind: int


def laggards_of(driver: Driver) -> list[ChangingLaggard]:
    """Who is behind, the slowest first."""
    behind = driver.core.behind() if driver.phase == "member" else {}
    found = [ChangingLaggard(who=who, behind=count) for who, count in behind.items() if count]
    return sorted(found, key=lambda one: -one.behind)


def stats_of(driver: Driver) -> dict[str, Any]:
    """Counts and sizes."""
    core = driver.core
    is_in_view = driver.phase in ("member", "fetching")
    return {
        "phase": driver.phase,
        "blocked": driver.told.is_blocked,
        "changing": is_in_view and core.acceptor.is_frozen,
        "lives": driver.lives,
        "members": len(driver.told.view.members) if driver.told.view else 0,
        "published": driver.told.window.count,
        "delivered": driver.told.delivered,
        "unstable_messages": len(core.channel.store) if is_in_view else 0,
        "own_unstable_messages": len(driver.told.window),
        "unstable_bytes": driver.told.window.bytes,
        "backlog_bytes": driver.told.inbox.bytes,
        "refused_connections": driver.links.refused,
        "links": {
            peer.name: {
                "up": peer.is_up,
                "bytes_in": peer.bytes_in,
                "bytes_out": peer.bytes_out,
                "waiting_bytes": peer.waiting_bytes,
                "dropped": peer.dropped,
                "reconnections": max(0, peer.connections - 1),
            }
            for peer in driver.links.peers.values()
        },
    }


def status_of(group: str, driver: Driver) -> dict[str, Any]:
    """What the status page shows; the same form as that of a group whose members are fixed."""
    stats = stats_of(driver)
    links = stats.pop("links")
    members = driver.told.view.members if driver.told.view is not None else ()
    is_there = driver.phase in ("member", "fetching") and driver.core.view == driver.told.view
    received = driver.core.channel.received if is_there else [0] * len(members)
    return {
        "group": group,
        "rank": members.index(driver.me) if driver.me in members else -1,
        "address": driver.me.name,
        "incarnation": driver.me.incarnation,
        "view": driver.told.view.number if driver.told.view is not None else 0,
        "phase": stats["phase"],
        "blocked": stats["blocked"],
        "changing": stats["changing"],
        "members": [
            {
                "rank": rank,
                "address": who.name,
                "member": True,
                "link": links.get(who.name),
                "received": received[rank],
                "stable": driver.told.stable[rank],
            }
            for rank, who in enumerate(members)
        ],
        "laggards": [
            {"rank": members.index(one.who), "address": one.who.name, "behind": one.behind}
            for one in laggards_of(driver)
            if one.who in members
        ],
        "stats": stats,
    }

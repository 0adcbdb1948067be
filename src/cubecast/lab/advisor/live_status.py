"""A question to the advisor, derived from the status of a running member (`/status.json`, live/status.py).

| setting | from the status |
|---|---|
| members | the members of the view |
| senders | the members from which anything was received |
| rate | messages delivered per second in the last minutes, per sender |
| payload | bytes per unstable message, over the same time |
| loss | the share of segments that TCP sent again; half of it on each of the two links of a path |
| network | a star whose centre is not a member, with half the round-trip time between this member and each other one |

A member knows only the round-trip times of its own links. Half the one-way delay to the nearest member is assigned to
its own link to the centre, and the rest of each delay to the other member's link; a member to which it has no link
gets the median. Placement is not considered: a live group cannot choose its ranks.
"""

from __future__ import annotations

import json
import statistics
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

from cubecast.errors import LocalProtocolError
from cubecast.lab.whole_file import write_whole

TIMEOUT_S = 5.0
NETWORK = "network.edges"
ACCESS_MS_MIN = 0.001
_NOT_A_STATUS = "not the status of a member of this version"

Status = dict[str, Any]


def read_status(address: str) -> Status:
    """The status that a member serves at an address."""
    try:
        with urlopen(f"http://{address}/status.json", timeout=TIMEOUT_S) as answer:
            found = json.load(answer)
    except (URLError, HTTPException, OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise LocalProtocolError(
            f"--from {address}: no status at this address ({reason}); "
            "give the address that a member serves with --status"
        ) from None
    if not isinstance(found, dict):
        raise LocalProtocolError(f"--from {address}: {_NOT_A_STATUS}")
    return found


def settings_of_status(status: Status, folder: Path) -> dict[str, Any]:
    """The settings of `advise` that a status gives; the network is written into the folder."""
    try:
        return _settings(status, folder)
    except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as error:
        raise LocalProtocolError(f"--from: {_NOT_A_STATUS}: {type(error).__name__} {error}") from error


def _settings(status: Status, folder: Path) -> dict[str, Any]:
    members = len(status["members"])
    if members < 2:
        raise LocalProtocolError(f"the group of this member has {members} members: there is nothing to choose")
    senders = sum(one["received"] > 0 for one in status["members"])
    rate, payload_bytes = _load(status["course"])
    path = write_whole(folder / NETWORK, _star(status))
    return {
        "members": members,
        "senders": max(senders, 1),
        "rate": float(f"{rate / max(senders, 1):.3g}"),
        "payload_bytes": payload_bytes,
        "loss": _loss(status) / 2,
        "network": f"file:{path}",
        "placement": False,
        "current": {name: status["stability"][name] for name in ("protocol", "parameters", "round_every_s")},
    }


def _load(course: list[dict[str, float]]) -> tuple[float, int]:
    """Messages of all senders per second, and the bytes of one."""
    grown = course[-1]["delivered"] - course[0]["delivered"] if course else 0.0
    seconds = course[-1]["time"] - course[0]["time"] if course else 0.0
    if grown <= 0 or seconds <= 0:
        raise LocalProtocolError(
            "this member has delivered nothing while it was watched: ask again while the group is busy, or describe "
            "the group with --members, --rate and --network"
        )
    held = sum(one["lag"] for one in course)
    payload = round(sum(one["bytes"] for one in course) / held) if held else 100
    return grown / seconds, max(payload, 1)


def _loss(status: Status) -> float:
    links = _links(status)
    segments = sum(link["segments"] for link in links)
    return float(f"{sum(link['retransmitted'] for link in links) / segments:.3g}") if segments else 0.0


def _links(status: Status) -> list[dict[str, Any]]:
    return [one["link"] for one in status["members"] if one["link"] is not None]


def _star(status: Status) -> str:
    """The edges from each member to the centre, whose node number follows the last rank."""
    half_ms = {
        one["rank"]: one["link"]["rtt_ms"] / 2
        for one in status["members"]
        if one["link"] is not None and one["link"].get("rtt_ms") is not None
    }
    if not half_ms:
        raise LocalProtocolError("the status has no round-trip times (only Linux measures them): give --network")
    own_ms = min(half_ms.values()) / 2
    usual_ms = statistics.median(half_ms.values())
    lines = [f"# {len(half_ms)} round-trip times of {status['address']}"]
    for one in status["members"]:
        mine = one["rank"] == status["rank"]
        access_ms = own_ms if mine else half_ms.get(one["rank"], usual_ms) - own_ms
        lines.append(f"{one['rank']} {len(status['members'])} {max(access_ms, ACCESS_MS_MIN):.6f}")
    return "\n".join(lines) + "\n"

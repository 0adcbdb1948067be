"""Themes of histories with fault points: where faults are injected, and which group makes such moments frequent.

Some bugs show only when two or three faults occur within one step of the protocol. A theme draws from fewer kinds of
moments and of faults than there are, so that such coincidences are frequent; place, time, target and duration stay
random.

| theme     | moments                                            | what it combines                                    |
|-----------|----------------------------------------------------|-----------------------------------------------------|
| ANYTHING  | all                                                | everything, each rarely                             |
| AGREEMENT | a view is proposed, accepted, decided              | rival coordinators out of contact, and members      |
|           |                                                    | that restart between two ballots                    |
| TRANSFER  | pieces of the state                                | holders that go or restart between two pieces       |
| LINKS     | a decision that is late, data, acknowledgements    | data of a view before it is installed, restarts,    |
|           |                                                    | connections that cross                              |
| LATE_VIEWS | a decision that is late                           | a restart after data of the next view; on request   |
| LATE_HANDSHAKES | a handshake that is late                     | a restart before it arrives; on request             |
| BRANCHES  | a view is decided in a part of a divided group     | parts that continue, and joins; on request          |
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cubecast.fuzz import changes
from cubecast.protocols.catalogue import chosen

MESSAGES = {
    "HELLO": 2,
    "WELCOME": 2,
    "REFUSE": 2,
    "DATA": 2,
    "CONTROL": 1,
    "ACK": 1,
    "Join": 1,
    "ChangeReport": 1,
    "Prepare": 2,
    "Promise": 3,
    "Refusal": 1,
    "Flush": 2,
    "Pull": 2,
    "Missing": 2,
    "Flushed": 2,
    "Accept": 4,
    "Accepted": 4,
    "Decide": 5,
    "Gone": 2,
    "AskState": 1,
    "State": 3,
    "NoState": 1,
    "Ready": 2,
    "Probe": 1,
    "Present": 1,
    "AskLevel": 1,
    "LevelReached": 1,
}
WRITTEN, ARRIVES, JOURNALLED = "written", "arrives", "journalled"
RECORDS = {
    "Incarnation": 2,
    "Entered": 3,
    "Promised": 3,
    "Adopted": 3,
    "Delivered": 2,
    "Recovered": 2,
    "Settled": 1,
    "Pending": 1,
    "Restored": 2,
    "Kept": 1,
    "Over": 2,
    "Checkpoint": 2,
    "StatePiece": 1,
}
"""How often a moment is of this kind."""


@dataclass(frozen=True, kw_only=True)
class Theme:
    """The fault points of a history, and its group."""

    name: str
    where: tuple[str, ...] = (WRITTEN, WRITTEN, ARRIVES, JOURNALLED)
    messages: Mapping[str, int] = field(default_factory=lambda: MESSAGES)
    records: Mapping[str, int] = field(default_factory=lambda: RECORDS)
    nth: tuple[int, ...] = (1, 1, 1, 2, 2, 3)
    """Which occurrence of its kind; besides these, twice any up to `nth_max`."""
    nth_max: int = 12
    target: tuple[str, ...] = ("kill", "kill", "power", "stop", "alone", "mute", "deaf", "leave", "reset all", "", "")
    connection: tuple[str, ...] = ("", "reset", "hold")
    others: tuple[str, ...] = ("", "", "", "kill", "kill one", "stop", "divide", "multicast", "leave")
    source: float = 0.6
    """How often the target is the writer."""
    later: float = 0.1
    """How often the target is hit a while after the moment."""
    chains: tuple[tuple[int, ...], ...] = ((1,), (2,), (3,), (1, 1), (2, 1), (2, 2), (1, 1, 1))
    """Lengths of the chains."""
    changes: Mapping[changes.Change, int] = field(default_factory=lambda: changes.AT_FAULT_POINTS)
    """Changes at random times besides; `counts`: how many."""
    counts: tuple[int, ...] = (1, 2, 2, 3)
    founders: tuple[int, ...] = ()
    spans_ms: tuple[tuple[int, int], ...] = ((60, 250), (60, 250), (60, 250), (200, 500), (400, 900))
    """How long faults may occur."""
    durable: float = 0.55
    snapshots: float = 0.8
    settings: Mapping[str, Any] = field(default_factory=dict)
    first: Theme | None = None
    """The theme from which the first fault point of a chain is drawn; None: this one."""


ANYTHING = Theme(name="anything")
AGREEMENT = Theme(
    name="agreement",
    where=(WRITTEN, WRITTEN, WRITTEN, JOURNALLED),
    messages={"Promise": 1, "Accept": 3, "Accepted": 1, "Decide": 6},
    records={"Promised": 1, "Adopted": 3, "Entered": 1},
    nth=(1, 1, 1, 2),
    nth_max=4,
    target=("alone", "alone", "alone", "alone", "kill", "kill", "mute", "stop", ""),
    connection=("", "", "", "reset"),
    others=("", "", "kill one", "kill one", "kill"),
    source=0.75,
    chains=((2,), (2,), (3,), (2, 1)),
    changes={changes.join: 3, changes.leave: 1, changes.kill: 1, changes.reset: 1, changes.stop: 1},
    founders=(3, 3, 3, 3, 4, 5),
    spans_ms=((150, 400),),
    durable=0.8,
    settings={
        "quorum": "majority",
        "heartbeat_s": 0.02,
        "suspect_after_s": 0.06,
        "patience_s": 0.01,
        "takeover_s": 0.015,
    },
    first=Theme(
        name="a coordinator that is out of reach",
        where=(WRITTEN,),
        messages={"Accept": 4, "Decide": 4, "Accepted": 1},
        nth_max=4,
        target=("alone", "alone", "alone", "alone", "mute", "stop", "kill"),
        connection=("", "", "", "reset"),
        others=("", "", "", "kill", "kill one"),
        source=0.9,
        later=0.0,
    ),
)
TRANSFER = Theme(
    name="transfer",
    messages={"State": 8, "AskState": 2, "NoState": 1, "Decide": 1, "WELCOME": 1},
    records={"Restored": 1, "Entered": 1, "Delivered": 1, "Kept": 1},
    nth=(1, 2),
    nth_max=50,
    target=("kill", "kill", "kill", "kill", "power", "alone", "stop", "reset all"),
    connection=("", "", "reset", "hold"),
    others=("", "", "multicast", "stop"),
    source=0.85,
    chains=((1,), (1, 1), (2,), (1, 1, 1)),
    changes={changes.join: 6, changes.come_back: 1, changes.kill_and_erase: 1, changes.talk: 2},
    counts=(2, 3, 4),
    founders=(2, 3, 3, 4),
    durable=0.7,
    snapshots=0.95,
    settings={"quorum": "majority", "piece_bytes": 8},
)
LINKS = Theme(
    name="links",
    messages={"Decide": 6, "DATA": 3, "ACK": 2, "CONTROL": 1, "HELLO": 1, "WELCOME": 2},
    records={"Entered": 2, "Delivered": 1, "Promised": 1},
    nth_max=8,
    target=("kill", "kill", "kill", "reset all", "alone", ""),
    connection=("hold", "hold", "hold", "reset", ""),
    others=("multicast", "multicast", "multicast", ""),
    source=0.3,
    later=0.6,
    changes={changes.join: 3, changes.leave: 1, changes.reset: 3, changes.talk: 2, changes.kill: 1},
    counts=(2, 3, 4),
    founders=(3, 3, 4, 5),
    durable=0.75,
    settings={"quorum": "majority"},
    first=Theme(
        name="a member that learns of a view late, and restarts",
        where=(WRITTEN,),
        messages={"Decide": 1},
        nth_max=8,
        target=("kill", "kill", "kill", "power", "reset all", "", ""),
        connection=("hold", "hold", "hold", ""),
        others=("multicast", "multicast", "multicast", ""),
        source=0.15,
        later=0.85,
    ),
)
LATE_VIEWS = Theme(
    name="late views",
    where=(WRITTEN,),
    messages={"Decide": 1},
    nth=(1, 2, 3, 4),
    nth_max=8,
    target=("kill",),
    connection=("hold",),
    others=("multicast",),
    source=0.0,
    later=1.0,
    chains=((1,),),
    changes={changes.join: 1, changes.talk: 6},
    counts=(4, 6),
    founders=(3, 4),
    durable=1.0,
    snapshots=1.0,
    settings={
        "quorum": "majority",
        "data": chosen("causal").name,
        "heartbeat_s": 0.02,
        "suspect_after_s": 1.0,
        "patience_s": 0.5,
        "takeover_s": 0.6,
    },
)
"""A member restarts that has received data of a view which it has not installed. No member is suspected meanwhile:
another view would recover what its links have lost. On request only, because few histories reach this state."""
LATE_HANDSHAKES = Theme(
    name="late handshakes",
    where=(WRITTEN,),
    messages={"WELCOME": 2, "HELLO": 1},
    nth_max=30,
    target=("kill",),
    connection=("hold",),
    others=("multicast",),
    source=1.0,
    later=0.7,
    chains=((1,), (1, 1), (2,)),
    changes={changes.reset: 3, changes.talk: 3, changes.join: 4, changes.kill: 1},
    counts=(4, 6, 8),
    founders=(3, 4),
    durable=1.0,
    snapshots=1.0,
    settings=LATE_VIEWS.settings,
)
"""A process restarts while one of its handshakes is on its way, and continues its incarnation in a new session. No
member is suspected meanwhile: another incarnation would end what a late handshake confuses. On request only."""
BRANCHES = Theme(
    name="branches",
    where=(WRITTEN,),
    messages={"Accept": 2, "Decide": 4, "Join": 2},
    nth=(1, 1, 2, 3),
    nth_max=8,
    target=("alone", "leave", "kill", "mute", ""),
    connection=("", "reset"),
    others=("divide", "divide", "", "kill one"),
    chains=((1,), (2,), (1, 1), (2, 1)),
    changes={
        changes.divide: 4,
        changes.join: 4,
        changes.come_back: 3,
        changes.cut: 2,
        changes.kill: 1,
        changes.heal: 2,
    },
    counts=(4, 6, 8),
    founders=(3, 3, 4, 5),
    spans_ms=((200, 500), (400, 900)),
    durable=0.3,
    settings={"quorum": "any", "suspect_after_s": 0.06, "heartbeat_s": 0.02, "patience_s": 0.01, "takeover_s": 0.015},
)
"""Every part of a divided group continues, and the parts meet again while members come and go. On request only, because
most groups decide by majority."""
THEMES = (ANYTHING, ANYTHING, AGREEMENT, AGREEMENT, TRANSFER, LINKS)

"""What happened to a group, as its applications saw it: one row an event, in the order of execution.

| event     | data                                                                                     |
|-----------|------------------------------------------------------------------------------------------|
| multicast | the payload; the application gave it to its member                                       |
| sent      | (view, number, payload)                                                                  |
| deliver   | (view, sender, number, payload)                                                          |
| install   | the view                                                                                 |
| restore   | the payloads that the state held                                                         |
| stable    | (view, how many messages of each rank)                                                   |
| blocked   | the number of the view; `unblocked` alike                                                |
| left      | nothing; `crash` alike                                                                   |
| stop      | nothing; a crash that leaves the disk                                                    |
| resume    | nothing; what was told after the last checkpoint is told again                           |
| resumed   | nothing; from here on it is new                                                          |
| stroke    | what strikes there, at a moment of the protocol                                          |
| excluded  | (payloads that were returned, whether it is certain that nobody delivers them)           |
"""

from __future__ import annotations

from typing import Any, NamedTuple

from cubecast.core.membership import MemberId


class Row(NamedTuple):
    """One event at one member."""

    time_ns: int
    who: MemberId
    event: str
    data: Any


History = list[Row]

"""Agreement, and no loss among the members that stay: they all deliver the same messages.

What a member that stays delivered, its own messages included, every member that stays must deliver by the end of the
run. With fewer crashes than the smallest degree of the hypercube this holds even for what only members that crashed
have delivered, when messages flood the hypercube: whoever delivers one has passed it on to several (causal §4). Not so
where nobody passes it on, or along one path only, nor live, where a process may be killed between a delivery and the
sending.

*Stays* means up at the end. A member that comes later (its trace begins with a crash, and it recovers when it joins)
holds from then on what its host held.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from cubecast.core.compiled import allocating
from cubecast.sim.checkers.deliveries import number_messages
from cubecast.sim.checkers.report import Violation
from cubecast.sim.checkers.rows import LISTED_MAX, at, listed, well_formed
from cubecast.trace import CRASH, DELIVER, RECOVER, Events, Trace

NAME = "agreement"
PROMISE = "the members that stay up deliver the same messages, among them all that one of them sent"


def not_promised(trace: Trace) -> str | None:
    """Only causal protocols deliver everything everywhere by themselves."""
    family = trace.scenario.get("family", "stability")
    return None if family == "causal" else f"{family} protocols do not promise delivery"


def check(trace: Trace) -> list[Violation]:
    """Find messages that some member delivered and a member that stays did not."""
    events, members = well_formed(trace)
    first = number_messages(events)
    if first[-1] == 0:
        return []
    stays = _up_at_the_end(events, members)
    witness = np.full(first[-1], -1, np.int64)
    got = np.zeros((members, int(first[-1])), np.bool_)
    _scan(events, first, stays | (_few_crashes(stays) and _passes_on(trace)), witness, got)
    missing = ~got[stays] & (witness >= 0)
    places = np.argwhere(missing)
    ranks = np.flatnonzero(stays)
    told = [_tell(events, first, int(ranks[place]), int(number), witness) for place, number in places[:LISTED_MAX]]
    return listed(NAME, len(places), told)


def _up_at_the_end(events: Events, members: int) -> npt.NDArray[np.bool_]:
    up = np.ones(members, np.bool_)
    fates = events[(events["event"] == CRASH) | (events["event"] == RECOVER)]
    up[fates["member"]] = fates["event"] == RECOVER  # of several fates of a member the last one holds
    return up


def _passes_on(trace: Trace) -> bool:
    """Has whoever delivered a message sent it to several members already?"""
    return not trace.scenario.get("live") and trace.scenario.get("protocol") in ("overlay", "pc_overlay")


def _few_crashes(stays: npt.NDArray[np.bool_]) -> bool:
    """Fewer than ⌈log2 n⌉ − 1, the smallest degree of the hypercube: the others stay connected whoever crashed."""
    return int((~stays).sum()) < (len(stays) - 1).bit_length() - 1


def _tell(
    events: Events, first: npt.NDArray[np.int64], member: int, number: int, witness: npt.NDArray[np.int64]
) -> Violation:
    sender = int(np.searchsorted(first, number, side="right")) - 1
    row = int(witness[number])
    message = (
        f"member {member} stays up and never delivers message {number - first[sender] + 1} of sender {sender}, "
        f"which member {events['member'][row]} delivered ({at(events, row)})"
    )
    return Violation(checker=NAME, message=message, rows=(row,), time_ns=int(events["time_ns"][-1]))


@allocating
def _scan(events: Any, first: Any, counts: Any, witness: Any, got: Any) -> None:
    """Mark who delivered what, and for each message the first row of a member whose deliveries count."""
    for row in range(len(events)):
        sequence = events["sequence"][row]
        if events["event"][row] != DELIVER or sequence < 1:
            continue
        member = events["member"][row]
        sender = events["sender"][row]
        number = first[sender] + sequence - 1
        lowest = first[sender] if events["peer"][row] >= 0 else number
        for held in range(lowest, number + 1):
            got[member, held] = True
        if witness[number] < 0 and counts[member]:
            witness[number] = row

"""Numbers for the data messages of a trace, so that a scan can keep one entry for each of them in an array.

Message `sequence` of `sender` has the number first[sender] + sequence − 1. A deliver row with a peer stands for a state
transfer from that peer to a member that joined: it holds everything up to there. So does a restore row.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from cubecast.errors import LocalProtocolError
from cubecast.jit.decorators import allocating
from cubecast.trace.checkers.rows import senders_in
from cubecast.trace.schema import (
    DELIVER,
    RESTORE,
    RETURNED,
    SENT,
    Events,
)


def number_messages(events: Events) -> npt.NDArray[np.int64]:
    """Return the first number of every sender's messages, and behind them how many messages there are."""
    highest = np.zeros(senders_in(events), np.int64)
    _find_highest(events, highest)
    if highest.sum() > 16 * len(events) + 65_536:
        sender = int(highest.argmax())
        raise LocalProtocolError(
            f"the trace names message {highest[sender]} of sender {sender} in {len(events)} rows: some are missing"
        )
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(highest)])


@allocating
def _find_highest(events: Any, highest: Any) -> None:
    for row in range(len(events)):
        kind = events["event"][row]
        if kind == DELIVER or kind == SENT or kind == RESTORE or kind == RETURNED:
            sender = events["sender"][row]
            highest[sender] = max(highest[sender], events["sequence"][row])

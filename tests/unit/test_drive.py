"""How a live member calls a data core: what it cannot do is told, not done wrongly."""

from __future__ import annotations

from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pytest

from cubecast.core import dispatch
from cubecast.core.compiled import internal
from cubecast.core.mail import deliver
from cubecast.live.cores import DataCore
from cubecast.wire import data


class HoldingState(NamedTuple):
    held: np.ndarray


@internal
def _receive(state, row, now_ns, mail, slot):  # type: ignore[no-untyped-def]
    """Deliver the message before this one: this one is held back."""
    if state.held[0] > 0:
        deliver(mail, mail.heads[slot].sender, state.held[0])
    state.held[0] = mail.heads[slot].sequence


dispatch.register(HoldingState, SimpleNamespace(receive=_receive))


def test_a_core_that_delivers_what_came_earlier_is_not_given_the_wrong_bytes() -> None:
    core = DataCore(HoldingState(np.zeros(1, np.int64)), width=2, words=1, room=8)
    body = b"".join(data.encode_record(0, 1, sequence, b"payload") for sequence in (1, 2))
    table = data.new_table()
    count = data.decode_batch(body, table, 2, 100)
    assert core.receive(0, 1, body, table, 0, 1) == 1
    assert core.results() == ([], [])
    core.receive(0, 1, body, table, 1, count)
    with pytest.raises(AssertionError, match="could not go on"):
        core.results()

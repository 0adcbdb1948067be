"""How the state of a member grows with its group is what the protocol says of itself."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from cubecast.protocol.definition import Protocol
from cubecast.protocol.group import new_group
from cubecast.protocols.catalogue import list_protocols
from tests.support.cores import build_core

MEMBERS = (64, 128, 256)
LINEAR_MAX = 2.3
"""A state that doubles with the group, and a little for what grows like its logarithm."""


def bytes_of(value: Any) -> int:
    """The arrays of a state, at any depth."""
    if isinstance(value, tuple):
        return sum(bytes_of(one) for one in value)
    return value.nbytes if isinstance(value, np.ndarray) else 0


def state_bytes(protocol: Protocol, members: int) -> int:
    """The state of one member of a group in which everybody sends; few messages are under way."""
    group = new_group(members=members, senders=members, ranks=np.array([5]))
    core = build_core(protocol, group, members=members, senders=members, room=16, window=4, is_live=True)
    return bytes_of(core.state)


@pytest.mark.parametrize(
    "protocol",
    [*list_protocols("stability"), *list_protocols("causal")],
    ids=lambda one: f"{one.name} {one.state_per_member}",
)
def test_the_state_of_a_member_grows_as_declared(protocol: Protocol) -> None:
    sizes = [state_bytes(protocol, members) for members in MEMBERS]
    growth = [after / before for before, after in pairwise(sizes)]
    if protocol.state_per_member == "linear":
        assert max(growth) <= LINEAR_MAX
    else:
        assert min(growth) > LINEAR_MAX

"""The cost of causal broadcast in messages and bytes (causal §4, Table 1), exactly and as the paper estimates it.

Timestamp sends a message to each of the n − 1 others, with n numbers of 4 bytes. Overlay sends it over every link of
the hypercube in both directions, except back to the neighbour it first came from: 2·links − (n − 1) copies.
"""

from __future__ import annotations

import math

from cubecast.models.checks import require_whole
from cubecast.protocol.mail import HEADER_BYTES, NUMBER_BYTES
from cubecast.protocol.overlays import hypercube


def timestamp_copies(members: int) -> int:
    """How many copies of one message Timestamp sends."""
    require_whole("members", members, least=2)
    return members - 1


def overlay_copies(members: int) -> int:
    """How many copies of one message all members send with Overlay."""
    require_whole("members", members, least=2)
    return len(hypercube(members).neighbours) - (members - 1)


def worst_copies(members: int) -> float:
    """n·log2 n: an upper bound on the copies of Overlay, as if each member sent to every neighbour (causal §4)."""
    require_whole("members", members, least=2)
    return members * math.log2(members)


def timestamp_bytes(members: int, payload_bytes: int) -> int:
    """Bytes of one message with Timestamp, counted once for each logical send."""
    return timestamp_copies(members) * (HEADER_BYTES + NUMBER_BYTES * members + payload_bytes)


def overlay_bytes(members: int, payload_bytes: int) -> int:
    """Bytes of one message with Overlay."""
    return overlay_copies(members) * (HEADER_BYTES + payload_bytes)


def crossover_payload_bytes(members: int) -> float:
    """The payload below which Overlay sends fewer bytes; infinite where it does not send more copies."""
    more = overlay_copies(members) - timestamp_copies(members)
    if more <= 0:
        return math.inf
    return (timestamp_bytes(members, 0) - overlay_bytes(members, 0)) / more


def paper_crossover_bytes(members: int) -> float:
    """d < n/(log2 n − 1) in numbers of 4 bytes, the paper's rough worst case (causal §4)."""
    require_whole("members", members, least=3)
    return NUMBER_BYTES * members / (math.log2(members) - 1)

"""The interface for protocols: pure functions over NumPy arrays, without their own clock, randomness or I/O.

An author of a protocol imports everything from here; docs/protocols.md explains it with an example.
"""

from cubecast.jit.decorators import linked
from cubecast.protocol import overlays, rank_sets
from cubecast.protocol.context import Context, NetworkFacts
from cubecast.protocol.definition import LiveData, Protocol, Steps
from cubecast.protocol.group import (
    ERRORS,
    STABILITY,
    GroupState,
    copy_numbers,
    fold,
    is_lowest,
    learn_stable,
    raise_numbers,
)
from cubecast.protocol.mail import (
    Mail,
    begin_round,
    deliver,
    draft,
    end_round,
    hold_back,
    multicast,
    rest,
    send,
    set_timer,
    suspect,
)
from cubecast.protocol.messages import (
    MessageType,
    bit_set,
    member_set,
    message,
    message_sizes,
    payload,
    per_member,
    per_sender,
    where_lossy,
)
from cubecast.protocol.parameters import NoParameters, parameter
from cubecast.protocol.random import below, new_stream, new_streams, uniform

__all__ = [
    "ERRORS",
    "STABILITY",
    "Context",
    "GroupState",
    "LiveData",
    "Mail",
    "MessageType",
    "NetworkFacts",
    "NoParameters",
    "Protocol",
    "Steps",
    "begin_round",
    "below",
    "bit_set",
    "copy_numbers",
    "deliver",
    "draft",
    "end_round",
    "fold",
    "hold_back",
    "is_lowest",
    "learn_stable",
    "linked",
    "member_set",
    "message",
    "message_sizes",
    "multicast",
    "new_stream",
    "new_streams",
    "overlays",
    "parameter",
    "payload",
    "per_member",
    "per_sender",
    "raise_numbers",
    "rank_sets",
    "rest",
    "send",
    "set_timer",
    "suspect",
    "uniform",
    "where_lossy",
]

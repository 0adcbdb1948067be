"""Timestamp, broken on purpose: each lacks one thing that makes it survive crashes. Somebody must notice."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from cubecast.jit.decorators import linked
from cubecast.protocol import rank_sets
from cubecast.protocol.context import Context
from cubecast.protocol.group import GroupState
from cubecast.protocol.mail import (
    deliver,
    draft,
    hold_back,
    multicast,
    send,
)
from cubecast.protocols.catalogue import add_protocol, protocol_named
from cubecast.protocols.causal import timestamp
from cubecast.protocols.causal.hold_back import accept, draft_have, stamp_again
from cubecast.protocols.causal.timestamp import ASK, DATA, TimestampState

_FIELDS: list[tuple[str, Any]] = list(TimestampState.__annotations__.items())


@linked
def silent_on_leave(state, row, now_ns, mail, rank):
    """Announces nothing."""


@linked
def gullible_receive(state, row, now_ns, mail, slot):
    """Accepts messages of a crashed sender that the others never learn of."""
    if mail.heads[slot].kind == DATA:
        accept(state.order, state.group, row, mail, slot)
    else:
        timestamp.receive(state, row, now_ns, mail, slot)


@linked
def modest_receive(state, row, now_ns, mail, slot):
    """Never answers that it has more than the sender of a HAVE."""
    kind = mail.heads[slot].kind
    if kind in (DATA, ASK):
        timestamp.receive(state, row, now_ns, mail, slot)
        return
    for sender in range(state.requested.shape[1]):
        number = mail.numbers[slot, sender]
        if not rank_sets.contains(state.group.members[row], sender) and timestamp._is_wanted(
            state, row, sender, number
        ):
            timestamp._request(state, row, mail, slot, mail.heads[slot].source)
            return


@linked
def trusting_on_leave(state, row, now_ns, mail, rank):
    """Still waits for the answer of a crashed member."""
    multicast(mail, draft_have(state.order, row, mail, timestamp.HAVE))


@linked
def hoarding_receive(state, row, now_ns, mail, slot):
    """Sends stable messages again, though their records were freed."""
    if mail.heads[slot].kind != ASK:
        timestamp.receive(state, row, now_ns, mail, slot)
        return
    for sender in range(state.requested.shape[1]):
        has = np.int64(mail.numbers[slot, sender])
        for sequence in range(has + 1, np.int64(state.order.have[row, sender]) + 1):
            again = draft(mail, DATA, -1, state.sizes[DATA])
            stamp_again(state.order, mail, again, sender, sequence)
            send(mail, again, mail.heads[slot].source)


@linked
def discreet_receive(state, row, now_ns, mail, slot):
    """Does not announce that an answer closed a gap."""
    if mail.heads[slot].kind != DATA:
        timestamp.receive(state, row, now_ns, mail, slot)
    elif rank_sets.contains(state.group.members[row], mail.heads[slot].source):
        accept(state.order, state.group, row, mail, slot)
        hold_back(mail, state.order.waiting[row], False)


@linked
def hasty_receive(state, row, now_ns, mail, slot):
    """Delivers without a look at the stamp."""
    sender = mail.heads[slot].sender
    sequence = mail.heads[slot].sequence
    if mail.heads[slot].kind != DATA:
        timestamp.receive(state, row, now_ns, mail, slot)
    elif sequence == state.group.received[row, sender] + 1:
        state.group.received[row, sender] = sequence
        state.order.have[row, sender] = sequence
        deliver(mail, sender, sequence)


BROKEN = {
    "silent": {"on_leave": silent_on_leave},
    "gullible": {"receive": gullible_receive},
    "modest": {"receive": modest_receive},
    "trusting": {"on_leave": trusting_on_leave},
    "hoarding": {"receive": hoarding_receive},
    "discreet": {"receive": discreet_receive},
    "hasty": {"receive": hasty_receive},
}


def register_broken_timestamps() -> None:
    """Add them to the protocols, as ones that promise nothing of delivery, so that every run of theirs ends."""
    for name, changed in BROKEN.items():
        kind = NamedTuple(f"{name.title()}TimestampState", _FIELDS)  # type: ignore[misc]
        handlers = {one: getattr(timestamp, one) for one in ("publish", "receive", "on_leave")} | changed

        def build(group: GroupState, context: Context, parameters: Any, kind: Any = kind) -> Any:
            return kind(*protocol_named("timestamp").build(group, context, parameters))

        add_protocol(
            replace(
                protocol_named("timestamp"),
                name=f"{name}_timestamp",
                links="lossy",
                state=kind,
                handlers=SimpleNamespace(**handlers),
                build=build,
            )
        )

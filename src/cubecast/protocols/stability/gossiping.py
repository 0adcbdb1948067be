"""The common part of the gossip protocols: choose targets, and merge what was received (guo §4.2.4, Figs 4.5–4.6)."""

from typing import Protocol

from cubecast.errors import LocalProtocolError
from cubecast.jit.decorators import linked
from cubecast.protocol import rank_sets
from cubecast.protocol.context import Context
from cubecast.protocol.group import copy_numbers, fold
from cubecast.protocol.messages import member_set, message, per_sender
from cubecast.protocol.overlays import BUSIEST_LINK_SHARE, Overlay
from cubecast.protocol.random import below

TRIES = 32  # draws before the next eligible rank is taken instead: only in groups that have mostly crashed

LIVE_STEP_NS_MIN = 1_000_000

TABLE_5_1: dict[int, dict[int, float]] = {
    1: {50: 0.1, 100: 0.2, 200: 0.5, 300: 0.6, 400: 0.9, 500: 1.0},
    50: {50: 0.7, 100: 0.7, 200: 3.0, 300: 3.0, 400: 4.0, 500: 5.0},
}
"""guo Table 5.1, the near-optimal step interval of Gossip: senders → members → seconds."""

_LONGEST = message("GOSSIP", round=4, minimum=per_sender(4), heard=member_set())
"""The largest message of a step; with a local group's bitmap it is shorter."""


@linked
def merge_news(group, minimum, heard, numbers, others):
    """Merge (M', W'): ignore a subset of W, adopt a superset of W, otherwise M = min and W = or."""
    if rank_sets.covers(heard, others):
        return
    if rank_sets.covers(others, heard):
        copy_numbers(minimum, numbers)
        rank_sets.copy(heard, others)
        return
    fold(group, minimum, numbers)
    rank_sets.merge(heard, others)


@linked
def is_among(targets, chosen, rank):
    """Is this rank among the first `chosen` targets?"""
    for k in range(chosen):
        if targets[k] == rank:
            return True
    return False


@linked
def choose_subset(stream, order, first, size, members, me, targets):
    """Fill `targets` with distinct live members of `order[first : first + size]`, not `me`; return how many.

    There are fewer than wanted only if there are no more live members.
    """
    chosen = 0
    while chosen < targets.shape[0]:
        rank = _choose_one(stream, order, first, size, members, me, targets, chosen)
        if rank < 0:
            break
        targets[chosen] = rank
        chosen += 1
    return chosen


@linked
def _choose_one(stream, order, first, size, members, me, targets, chosen):
    place = 0
    for _ in range(TRIES):
        place = below(stream, size)
        rank = order[first + place]
        if rank != me and rank_sets.contains(members, rank) and not is_among(targets, chosen, rank):
            return rank
    for step in range(size):
        rank = order[first + (place + step) % size]
        if rank != me and rank_sets.contains(members, rank) and not is_among(targets, chosen, rank):
            return rank
    return -1


def scope(overlay: Overlay, rank: int, ttl: int) -> list[int]:
    """The other members within `ttl` hops, which an IP packet with that time-to-live reaches (guo §4.2.4)."""
    reached, frontier = {rank}, [rank]
    for _ in range(ttl):
        beyond = {
            int(other)
            for node in frontier
            for other in overlay.neighbours[overlay.offsets[node] : overlay.offsets[node + 1]]
        }
        frontier = sorted(beyond - reached)
        reached |= beyond
    return sorted(reached - {rank})


def others_at_most(subset: int, members: int) -> int:
    """The size of the subset, but at most all other members."""
    return max(1, min(subset, members - 1))


def step_ns(context: Context, gossiping: int, subset: int) -> int:
    """The step interval at which `gossiping` members just fill the busiest link.

    A live member does not know its network, and takes a quarter of the time between two rounds.
    """
    if context.is_live:
        return max(LIVE_STEP_NS_MIN, context.delta_ns // 4)
    size = _LONGEST.size_bytes(context)
    messages = BUSIEST_LINK_SHARE * gossiping * subset
    return round(max(messages * context.network.service_ns(size), context.network.crossing_ns(size), 1))


def table_step_s(members: int, senders: int) -> float:
    """The step interval of guo Table 5.1 for this many members that gossip with each other."""
    if members not in TABLE_5_1.get(senders, {}):
        sizes = ", ".join(map(str, TABLE_5_1[50]))
        raise LocalProtocolError(
            f"step_rule = table with {members} gossiping members and {senders} senders: guo Table 5.1 has {sizes} "
            "members and 1 or 50 senders; give step_s, or leave step_rule automatic",
            setting="step_rule",
        )
    return TABLE_5_1[senders][members]


class StepParameters(Protocol):
    """How a gossip protocol chooses its step interval."""

    @property
    def step_s(self) -> float | None: ...
    @property
    def step_rule(self) -> str: ...
    @property
    def step_scale(self) -> float: ...


def resolve_step_s(parameters: StepParameters, context: Context, gossiping: int, subset: int) -> float:
    """The given step interval, or else that of the table or the automatic rule, times `step_scale`."""
    if parameters.step_s is not None:
        return parameters.step_s
    if parameters.step_rule in ("table", "group-table"):
        return parameters.step_scale * table_step_s(gossiping, context.senders)
    return parameters.step_scale * step_ns(context, gossiping, subset) / 1e9

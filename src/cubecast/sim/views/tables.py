"""Incarnations, views and the data of their packets, as arrays.

A *process* here is one incarnation, with an id that is never used again: its id in the trace. It runs on a *host*, a
member of the network; several incarnations may run on one host, one after another.

`Tables` fields (P: incarnations, H: hosts, K: views in use at a time):

| field     | shape    | meaning                                                                                 |
|-----------|----------|-----------------------------------------------------------------------------------------|
| processes | P        | one record per incarnation                                                              |
| occupant  | H        | the newest incarnation on each host, −1 = none yet                                      |
| side      | H        | of a partition                                                                          |
| views     | K        | handle of the `ViewTables` of each place, see `jit.tables.hold`                         |
| late      | H        | packets that arrived before an earlier one of their source: the first of a list         |
| next_out  | H × H    | number of the next packet from one host to another; 1 × 1 where links keep order anyway |
| next_in   | H × H    | number of the packet that a host awaits from another                                    |
| number    | packets  | the number of each packet on its link                                                   |
| target    | packets  | the incarnation to which it is addressed                                                |
| source    | slots    | the incarnation a message comes from                                                    |
| place     | slots    | the place of its view, −1 for a membership message                                      |
| stamp     | slots    | the stamp of its view                                                                   |
| stable_ns | messages | how long each message took until its sender knew that it was stable                     |
| causal_ns | messages | the same for causal stability; 1 entry if that is not requested                         |
| totals    | 1        | counters, and settings of the run                                                       |

A view has a *stamp*, its number in the order of first installations: a place is reused, a stamp never.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cubecast.jit.backend import COMPILED
from cubecast.jit.tables import Held, hold
from cubecast.protocol.group import GroupState
from cubecast.sim.causal_stability import Fold

NO_PROCESS = -1

PROCESS = np.dtype(
    [
        (name, np.int64)
        for name in (
            "host",
            "up",
            "place",  # of its view, −1 outside of any
            "stamp",  # of its view, −1 outside of any
            "rank",
            "begun",  # have the protocols of the view begun?
            "frozen",  # does it deliver and send nothing more in this view?
            "blocked",  # are too few members reachable?
            "leaving",  # does its application multicast nothing more?
            "alert",  # does Python know that its failure detector suspects a member?
            "first_ns",  # when its application multicast first, −1 = never
            "called",  # messages that the application multicast
            "causal",  # messages of its own that it knows to be causally stable
            "published",  # messages that were sent
            "early",  # packets of a view that is not installed here yet: first and last of a list
            "early_last",
        )
    ]
)
TOTALS = np.dtype(
    [
        (name, np.int64)
        for name in (
            "interval_ns",  # between two multicasts of a sender
            "stop_ns",  # when applications stop multicasting
            "window",  # messages of a sender that may be unstable
            "detecting",  # does a failure-detection core run?
            "causal",  # is causal stability asked for?
            "ordered",  # must the transport keep packets in order?
            "cut_until_ns",  # the end of the present partition
            "replay",  # packets to be handled next: first and last of a list
            "replay_last",
            "alerted",  # the process whose failure detector just found a suspect, −1 = none
            "order",  # messages ever sent
            "messages",
            "bytes",
            "data_messages",
            "data_bytes",
            "data_fragments",
            "overhead_messages",
            "overhead_bytes",
            "failure_messages",
            "failure_bytes",
            "membership_messages",
            "membership_bytes",
            "unicasts",
            "multicasts",
            "delay_sum_ns",
            "delay_max_ns",
            "delays",
            "waiting_sum",
            "waiting_samples",
            "waiting_max",
            "stable_count",
            "causal_count",
        )
    ]
)


class ViewTables(NamedTuple):
    """One view: `process` and `sent` by rank, what each rank has seen stable, and the order of recent messages.

    With causal stability, `causal`: what is causally stable at each rank; `before`: what was delivered before the view,
    by process.
    """

    group: GroupState
    fold: Fold
    process: np.ndarray
    sent: np.ndarray
    seen: np.ndarray
    causal: np.ndarray
    before: np.ndarray
    order: np.ndarray


class Tables(NamedTuple):
    """See the module."""

    processes: np.recarray
    occupant: np.ndarray
    side: np.ndarray
    views: np.ndarray
    late: np.ndarray
    next_out: np.ndarray
    next_in: np.ndarray
    number: np.ndarray
    target: np.ndarray
    source: np.ndarray
    place: np.ndarray
    stamp: np.ndarray
    stable_ns: np.ndarray
    causal_ns: np.ndarray
    totals: np.recarray


def new_tables(
    *,
    hosts: int,
    processes: int,
    places: int,
    packets: int,
    slots: int,
    messages: int,
    ordered: bool,
    causal: bool,
) -> Tables:
    """No process yet."""
    records = np.zeros(processes, PROCESS).view(np.recarray)
    for name in ("place", "stamp", "first_ns"):
        records[name] = -1
    totals = np.zeros(1, TOTALS).view(np.recarray)
    totals[0].ordered = ordered
    totals[0].causal = causal
    totals[0].alerted = -1
    pairs = (hosts, hosts) if ordered else (1, 1)
    return Tables(
        processes=records,
        occupant=np.full(hosts, NO_PROCESS, np.int64),
        side=np.zeros(hosts, np.int64),
        views=np.zeros(places, np.int64 if COMPILED else object),
        late=np.zeros(hosts, np.int64),
        next_out=np.zeros(pairs, np.int32),
        next_in=np.zeros(pairs, np.int32),
        number=np.zeros(packets, np.int32),
        target=np.zeros(packets, np.int32),
        source=np.zeros(slots, np.int64),
        place=np.zeros(slots, np.int64),
        stamp=np.zeros(slots, np.int64),
        stable_ns=np.zeros(messages, np.int64),
        causal_ns=np.zeros(messages if causal else 1, np.int64),
        totals=totals,
    )


def new_view_tables(
    group: GroupState, fold: Fold, processes: list[int], sent: tuple[int, ...], before: np.ndarray, window: int
) -> ViewTables:
    """A view in which nothing was sent."""
    return ViewTables(
        group=group,
        fold=fold,
        process=np.array(processes, np.int64),
        sent=np.array(sent, np.int64),
        seen=np.zeros(group.stable.shape, np.int32),
        causal=np.zeros((len(fold.first), group.stable.shape[1]), np.int32),
        before=before,
        order=np.zeros((group.stable.shape[1], window), np.int64),
    )


def put_view(tables: Tables, place: int, view: ViewTables) -> Held:
    """Register a view with the kernel; the caller keeps the returned object as long as the view is in use."""
    held = hold(view)
    tables.views[place] = held.handle
    return held

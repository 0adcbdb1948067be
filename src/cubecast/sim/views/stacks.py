"""The protocols of one view: built for its members, bound for the kernel, freed when nobody is in the view any more."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cubecast.jit.backend import COMPILED
from cubecast.jit.tables import Held
from cubecast.protocol.bound import Bound, bind
from cubecast.protocol.group import Group, new_group
from cubecast.protocol.mail import Mail, new_mail
from cubecast.protocol.overlays import hypercube_dimension
from cubecast.protocol.rank_sets import words_for
from cubecast.protocols.catalogue import paper_tree_degree, protocol_named
from cubecast.protocols.failure import no_detector
from cubecast.protocols.layers import LayerSetup, detector_named
from cubecast.protocols.membership.views import MemberId, View
from cubecast.protocols.setup import Setup
from cubecast.sim.views.kernel import LAYERS
from cubecast.sim.views.tables import Tables, ViewTables, new_view_tables, put_view

WINDOW = 64
"""Messages of one sender that may be unstable in a view."""
HELD_BACK_MAX = 512
"""Messages per member that may wait for their causes, on average over the members of a view."""

NUMBERS_MAX = 1 << 29
"""Numbers in the pool of messages."""


@dataclass(frozen=True, kw_only=True)
class StackPlan:
    """Which protocols serve a view, and with what settings."""

    data: str
    stability: str
    detector: str
    senders: int
    setup: Setup
    """Of a view of all hosts; every view changes the numbers of its members and senders."""
    detector_setup: LayerSetup

    def of(self, members: int) -> Setup:
        """The settings of a view of this size."""
        senders = min(self.senders, members)
        degree = min(self.setup.tree_degree, paper_tree_degree(members))
        return replace(
            self.setup,
            members=members,
            senders=senders,
            tree_degree=degree,
            subset=min(self.setup.subset, max(members - 1, 1)),
            room=min(senders * WINDOW, HELD_BACK_MAX),
            window=WINDOW,
        )

    def detector_of(self, members: int) -> LayerSetup:
        """Those of its failure detector; news takes a step for each dimension of the hypercube."""
        fewer = hypercube_dimension(self.setup.members) - hypercube_dimension(members)
        threshold = max(2, self.detector_setup.threshold - fewer)
        return replace(
            self.detector_setup,
            members=members,
            threshold=threshold,
            subset=min(self.detector_setup.subset, max(members - 1, 1)),
        )

    def new_mail(self) -> Mail:
        """A pool for the messages of all views."""
        setup = self.of(self.setup.members)
        n, under_way = setup.members, setup.senders * WINDOW
        numbers = [protocol_named(name).numbers(setup) for name in (self.data, self.stability)]
        if self.detector:
            numbers.append(detector_named(self.detector).numbers(self.detector_of(n)))
        width = max(1, *numbers)
        return new_mail(
            slots=max(32 * n, min(32 * n + 32_768 + min(n * under_way, 1 << 20), NUMBERS_MAX // width)),
            width=width,
            words=words_for(n),
            room=8 * n + 4096 + 2 * under_way,
        )


@dataclass(kw_only=True)
class Stack:
    """The protocols of one view, of all its members."""

    view: View
    place: int
    stamp: int
    tables: ViewTables
    group: Group
    failure: Any
    members: set[int]
    """The processes that are in this view now."""
    delivered_before: NDArray[np.int64]
    """By process id: what the group had delivered when the view began."""
    bound: Bound
    held: Held


class Stacks:
    """The stacks of all views that somebody is in, or is about to enter."""

    def __init__(self, plan: StackPlan, tables: Tables, mail: Mail) -> None:
        """No view yet."""
        self.plan = plan
        self.by_tag: dict[int, Stack] = {}
        places = len(tables.views)
        self.cores: NDArray[Any] = np.zeros((LAYERS * places, 2), np.int64 if COMPILED else object)
        self._tables = tables
        self._mail = mail
        self._free = list(range(places - 1, -1, -1))
        self._stamps = 0

    def add(self, view: View, ids: dict[MemberId, int], delivered_before: NDArray[np.int64]) -> Stack:
        """Build the protocols of a view."""
        plan, n = self.plan, len(view.members)
        setup = plan.of(n)
        processes = [ids[who] for who in view.members]
        group = new_group(members=n, senders=setup.senders, ranks=np.arange(n))
        states = (
            protocol_named(plan.stability).build(group, setup),
            protocol_named(plan.data).build(group, setup),
            detector_named(plan.detector).build(group, plan.detector_of(n))
            if plan.detector
            else no_detector.SilentState(group=group),
        )
        place = self._free.pop()
        tables = new_view_tables(group, processes, view.sent, WINDOW)
        bound = bind(states, self._mail)
        self.cores[LAYERS * place : LAYERS * (place + 1)] = bound.cores
        stack = Stack(
            view=view,
            place=place,
            stamp=self._stamps,
            tables=tables,
            group=group,
            failure=states[2],
            members=set(),
            delivered_before=delivered_before,
            bound=bound,
            held=put_view(self._tables, place, tables),
        )
        self._stamps += 1
        self.by_tag[view.tag] = stack
        return stack

    def leave(self, stack: Stack, process: int) -> None:
        """A process is no longer in a view; the last one to leave frees it."""
        stack.members.discard(process)
        if not stack.members:
            del self.by_tag[stack.view.tag]
            self._free.append(stack.place)

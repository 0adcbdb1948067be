"""The protocols of one view: built for its members, bound for the kernel, freed when the last member has left it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cubecast.jit.backend import COMPILED
from cubecast.jit.tables import Held
from cubecast.protocol.bound import Bound, bind
from cubecast.protocol.context import Context
from cubecast.protocol.definition import Protocol
from cubecast.protocol.group import GroupState, new_group
from cubecast.protocol.mail import Mail, new_mail
from cubecast.protocol.nothing import Nothing
from cubecast.protocol.rank_sets import words_for
from cubecast.protocols.membership.views import MemberId, View
from cubecast.sim.causal_stability import new_fold
from cubecast.sim.views.kernel import LAYERS
from cubecast.sim.views.tables import Tables, ViewTables, new_view_tables, put_view

WINDOW = 64
"""Messages of one sender that may be unstable in a view."""
HELD_BACK_MAX = 512
"""Messages per member that may wait for their causes, on average over the members of a view."""

NUMBERS_MAX = 1 << 29
"""Numbers in the pool of messages."""


class Chosen(NamedTuple):
    """A protocol and the parameters that the scenario gives."""

    entry: Protocol
    parameters: Any

    def build(self, group: GroupState, context: Context) -> Any:
        """Its state in a view."""
        return self.entry.build(group, context, self.entry.resolve(self.parameters, context))

    def numbers(self, context: Context) -> int:
        """How many numbers its messages carry at most."""
        return self.entry.numbers(context, self.parameters)


@dataclass(frozen=True, kw_only=True)
class StackPlan:
    """The protocols that serve a view, and their context."""

    data: Chosen
    stability: Chosen
    detector: Chosen | None
    senders: int
    causal: bool
    """Does the scenario ask for causal stability?"""
    context: Context
    """The context of a view of all hosts; every view sets its own numbers of members and senders."""

    def of(self, members: int) -> Context:
        """The context of a view of this size."""
        senders = min(self.senders, members)
        room = min(senders * WINDOW, HELD_BACK_MAX)
        return replace(self.context, members=members, senders=senders, room=room, window=WINDOW)

    def folded(self, context: Context) -> Context:
        """The context of the stability protocol: what it folds looks like one array (`sim.causal_stability`)."""
        return replace(context, senders=2 * context.senders) if self.causal else context

    def new_mail(self) -> Mail:
        """A pool for the messages of all views."""
        context = self.of(self.context.members)
        n, under_way = context.members, context.senders * WINDOW
        chosen = [one for one in (self.data, self.detector) if one is not None]
        width = max(1, self.stability.numbers(self.folded(context)), *(one.numbers(context) for one in chosen))
        return new_mail(
            slots=max(32 * n, min(32 * n + 32_768 + min(n * under_way, 1 << 20), NUMBERS_MAX // width)),
            width=width,
            words=words_for(n),
            room=8 * n + 4096 + 2 * under_way,
        )


@dataclass(kw_only=True)
class ViewStack:
    """The protocols of one view, of all its members."""

    view: View
    place: int
    stamp: int
    tables: ViewTables
    group: GroupState
    failure: Any
    members: set[int]
    """The processes that are in this view now."""
    delivered_before: NDArray[np.int64]
    """By process id: what the group had delivered when the view began."""
    bound: Bound
    held: Held

    def is_all_causal(self) -> bool:
        """Is everything causally stable at all members, or not requested?"""
        if self.tables.fold.first.size == 0:
            return True
        return bool(self.tables.fold.reached.all() and (self.tables.causal == self.group.received).all())


class Stacks:
    """The stacks of all views that a process is in, or is about to enter."""

    def __init__(self, plan: StackPlan, tables: Tables, mail: Mail) -> None:
        """No view yet."""
        self.plan = plan
        self.by_tag: dict[int, ViewStack] = {}
        places = len(tables.views)
        self.cores: NDArray[Any] = np.zeros((LAYERS * places, 2), np.int64 if COMPILED else object)
        self._tables = tables
        self._mail = mail
        self._free = list(range(places - 1, -1, -1))
        self._stamps = 0

    def add(self, view: View, ids: dict[MemberId, int], delivered_before: NDArray[np.int64]) -> ViewStack:
        """Build the protocols of a view."""
        plan, n = self.plan, len(view.members)
        context = plan.of(n)
        processes = [ids[who] for who in view.members]
        group = new_group(members=n, senders=context.senders, ranks=np.arange(n))
        fold = new_fold(group, is_wanted=plan.causal)
        states = (
            plan.stability.build(fold.group, plan.folded(context)),
            plan.data.build(group, context),
            plan.detector.build(group, context) if plan.detector is not None else Nothing(group=group),
        )
        place = self._free.pop()
        tables = new_view_tables(group, fold, processes, view.sent, delivered_before, WINDOW)
        bound = bind(states, self._mail)
        self.cores[LAYERS * place : LAYERS * (place + 1)] = bound.cores
        stack = ViewStack(
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

    def leave(self, stack: ViewStack, process: int) -> None:
        """Remove a process from a view; the last one to leave frees it."""
        stack.members.discard(process)
        if not stack.members:
            del self.by_tag[stack.view.tag]
            self._free.append(stack.place)

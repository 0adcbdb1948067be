"""All incarnations of a run and the clock: the kernel runs until a message, an alert or a timer concerns Python.

| field      | meaning                                                                                     |
|------------|---------------------------------------------------------------------------------------------|
| processes  | every incarnation, by its id                                                                |
| on_host    | the newest incarnation on each host                                                         |
| gone       | when each incarnation that is down stopped; those that no view lists are removed            |
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from cubecast.errors import SimulationError
from cubecast.protocol.mail import Mail
from cubecast.protocol.random import below, new_stream, uniform
from cubecast.protocols.membership.messages import Decide, Message
from cubecast.protocols.membership.settings import MembershipSettings
from cubecast.protocols.membership.views import (
    MemberId,
    Vector,
    View,
    founding_view,
)
from cubecast.sim.views import kernel, transport
from cubecast.sim.views.pauses import Pauses
from cubecast.sim.views.simulated_member import IN_VIEW, JOINING, LINGER, OUT, SimulatedMember
from cubecast.sim.views.sizes import size_of
from cubecast.sim.views.stacks import WINDOW, Stacks, ViewStack
from cubecast.sim.views.tables import Tables
from cubecast.sim.world import World
from cubecast.trace import schema as tracing

SLICE = 1_000_000
SECOND_NS = 1_000_000_000


class SimulatedGroup:
    """See the module."""

    def __init__(
        self,
        world: World,
        mail: Mail,
        tables: Tables,
        stacks: Stacks,
        settings: MembershipSettings,
        *,
        seed: int,
        detect_ns: int,
        spread_ns: int,
        record_bytes: int,
        state_bytes: int,
        keep: Callable[[], None],
    ) -> None:
        """Begin without processes. `keep` takes the rows of the trace out of their buffer."""
        self.now_ns = 0
        self.world = world
        self.tables = tables
        self.stacks = stacks
        self.settings = settings
        self.processes: list[SimulatedMember] = []
        self.on_host: dict[int, SimulatedMember] = {}
        self.gone: dict[int, int] = {}
        self.views = 0
        self.pauses = Pauses(int(tables.totals[0].stop_ns))
        self.excluded_wrongly = 0
        self._mail = mail
        self._scalars = world.scalars.view(np.ndarray)[0]  # saves the slow look-up of attributes
        self._records = tables.processes.view(np.ndarray)
        self._seed = seed
        self._detect_ns = detect_ns
        self._spread_ns = spread_ns
        self._record_bytes = record_bytes
        self._state_bytes = state_bytes
        self._keep = keep
        self._ids: dict[MemberId, int] = {}
        self._late_ns: list[int] = []
        self._call = np.full(9, -1, np.int64)
        self._timers: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._timer_count = 0
        self._token = 0
        self._messages: dict[int, Message] = {}
        self._outbox: dict[int, list[tuple[int, int, int]]] = {}
        self._sized: tuple[Message | None, View | None, int] = (None, None, 0)
        self._cut_ns = -1
        self._contacts = new_stream(seed, "contacts")

    # The clock.

    def at(self, time_ns: int, function: Callable[..., None], *arguments: Any) -> None:
        """Schedule a call."""
        self._timer_count += 1
        heapq.heappush(self._timers, (time_ns, self._timer_count, function, arguments))

    def run_until(self, end_ns: int) -> None:
        """Run up to a time."""
        while True:
            limit_ns = min(self._timers[0][0], end_ns) if self._timers else end_ns
            status = int(
                kernel.run(self.world, self._mail, self.stacks.cores, self.tables, self._call, limit_ns, SLICE)
            )
            if status == kernel.DUE:
                self.now_ns = limit_ns
                if not self._timers or self._timers[0][0] > limit_ns:
                    return
                _, _, function, arguments = heapq.heappop(self._timers)
                function(*arguments)
            elif status == kernel.MESSAGE:
                self.now_ns = int(self._scalars["now_ns"])
                self._receive(*(int(self._call[place]) for place in (kernel.PROCESS, kernel.B, kernel.A)))
            elif status == kernel.ALERT:
                self.now_ns = int(self._scalars["now_ns"])
                self.wake(self.processes[int(self._call[kernel.PROCESS])], 0)
            elif status == kernel.FAILED:
                raise SimulationError(str(int(self.world.scalars[0].error)))
            if self._outbox:
                self._send_all()
            if self._scalars["trace_size"] * 2 > len(self.world.trace) or status == kernel.PAUSED:
                self._keep()

    def wake(self, one: SimulatedMember, delay_ns: int) -> None:
        """Schedule a tick, unless an earlier one is scheduled."""
        due_ns = self.now_ns + delay_ns
        if not self.now_ns <= one.tick_ns <= due_ns:
            one.tick_ns = due_ns
            self.at(due_ns, self._tick, one, due_ns)

    def _tick(self, one: SimulatedMember, due_ns: int) -> None:
        if one.tick_ns == due_ns and one.state != OUT:
            one.tick_ns = -1
            one.tick()

    # Messages.

    def send(self, source: int, to: MemberId, message: Message) -> None:
        """Put a message on the network when the present call is over."""
        target = self._ids.get(to)
        if target is None:
            return
        base = self.processes[source].agreement.shared_view(message.view, to)
        if self._sized[0] is not message or self._sized[1] is not base:
            self._sized = (message, base, size_of(message, self._record_bytes, base))
        size = self._sized[2]
        if isinstance(message, Decide) and to in message.proposal.view.joined:
            size += self._state_bytes
        self._token += 1
        self._messages[self._token] = message
        self._outbox.setdefault(source, []).append((target, size, self._token))

    def _send_all(self) -> None:
        for source, sends in self._outbox.items():
            targets, sizes, tokens = np.array(sends, np.int64).T.copy()
            count = len(sends)
            transport.post(self.world, self._mail, self.tables, source, targets, sizes, tokens, count, self.now_ns)
        self._outbox.clear()

    def _receive(self, process: int, source: int, token: int) -> None:
        message = self._messages.pop(token)
        self.processes[process].receive(self.processes[source].me, message)

    def contact(self) -> MemberId | None:
        """Choose a member at random."""
        others = [other.me for other in self.on_host.values() if other.state == IN_VIEW and not other.leaving]
        return others[below(self._contacts, len(others))] if others else None

    # Incarnations.

    def found(self, hosts: Sequence[int]) -> None:
        """Start these hosts in the first view."""
        founders = [self._new(host) for host in hosts]
        view = founding_view([one.me for one in founders], "simulated")
        stack = self._add_stack(view, np.zeros(len(self.tables.processes), np.int64))
        for one in founders:
            self._begin(one, stack, view)

    def join(self, host: int) -> None:
        """Start a new incarnation on a host; it asks to join."""
        self.wake(self._new(host), 0)

    def _new(self, host: int) -> SimulatedMember:
        number = len(self.processes)
        if number >= len(self.tables.processes):
            raise SimulationError(f"more than {number} incarnations; use a shorter --churn-ms")
        before = self.on_host.get(host)
        me = MemberId(host, 0 if before is None else before.me.incarnation + 1)
        one = SimulatedMember(number, me, self.settings, self)
        self.processes.append(one)
        self.on_host[host] = one
        self._ids[me] = number
        self._late_ns.append(self._detect_ns + int(uniform(new_stream(self._seed, "detect", number)) * self._spread_ns))
        transport.begin_on(self.world, self._mail, self.tables, number, host)
        return one

    def crash(self, host: int) -> None:
        """Stop the process on a host."""
        one = self.on_host[host]
        if one.state == OUT:
            return
        if one.state != LINGER:
            self._note(tracing.CRASH, one.number)
        self._stop(one)

    def leave(self, host: int) -> None:
        """Let the process on a host leave."""
        one = self.on_host[host]
        if one.state == IN_VIEW:
            self.tables.processes[one.number].leaving = 1
            one.leave()

    def _stop(self, one: SimulatedMember) -> None:
        if one.state == IN_VIEW:
            self._leave_stack(one)
        one.state = OUT
        self.tables.processes[one.number].up = 0
        self.gone[one.number] = self.now_ns
        self._watch(one.number)

    def _watch(self, number: int) -> None:
        """Report a crash to every member, each at its own time."""
        for stack in self.stacks.by_tag.values():
            if number in stack.tables.process:
                for other in stack.members:
                    self.at(self.now_ns + self._late_ns[other], self._find_out, other)

    def _find_out(self, number: int) -> None:
        if self.processes[number].state == IN_VIEW:
            self.wake(self.processes[number], 0)

    def split(self, hosts: Sequence[int], until_ns: int) -> None:
        """Cut these hosts off from the others."""
        self.tables.side[list(hosts)] = 1
        self.tables.totals[0].cut_until_ns = until_ns
        self._cut_ns = self.now_ns
        for one in self.in_group():
            self.at(self.now_ns + self._late_ns[one.number], self._find_out, one.number)

    def heal(self) -> None:
        """End the partition: all hosts reach each other again."""
        self.tables.side[:] = 0
        self._cut_ns = -1

    def suspects(self, one: SimulatedMember) -> list[MemberId]:
        """The members that the failure detector of a member suspects."""
        if one.state != IN_VIEW:
            return []
        if self.stacks.plan.detector:
            state = one.stack.failure
            ranks = np.flatnonzero(state.silent[one.rank] >= state.threshold).tolist()
            found = [one.stack.view.members[rank] for rank in ranks if rank != one.rank]
            if not found:
                self.tables.processes[one.number].alert = 0
            return found
        limit_ns = self.now_ns - self._late_ns[one.number]
        ranks_of = one.agreement.ranks
        down = (self.processes[other].me for other, since_ns in self.gone.items() if since_ns <= limit_ns)
        found = [who for who in down if who in ranks_of]
        if 0 <= self._cut_ns <= limit_ns:
            side = self.tables.side
            cut_off = [who for who in ranks_of if side[who.name] != side[one.me.name]]
            found += [who for who in cut_off if who not in found]
        return found

    def in_group(self) -> list[SimulatedMember]:
        """The members that are in a view."""
        return [one for one in self.on_host.values() if one.state == IN_VIEW]

    # Views.

    def freeze(self, one: SimulatedMember) -> None:
        """Stop the stack of its view, except for failure detection."""
        self.tables.processes[one.number].frozen = 1

    def set_blocked(self, one: SimulatedMember, is_blocked: bool) -> None:
        """Note that too few members are reachable, or enough again."""
        self.tables.processes[one.number].blocked = is_blocked
        self._note(tracing.BLOCKED if is_blocked else tracing.UNBLOCKED, one.number)
        if not is_blocked:
            kernel.publish_soon(self.world, one.number, self.now_ns)

    def has_waiting(self, one: SimulatedMember) -> bool:
        """Has its application multicast messages that are not sent yet?"""
        record = self._records[one.number]
        return bool(record["published"] < record["called"])

    def end_view(self, one: SimulatedMember, cut: Vector) -> None:
        """Deliver the recovered messages up to the cut, in an order that causality allows: that of sending."""
        order = one.stack.tables.order
        missing = one.recovered_up_to(cut)
        missing.sort(key=lambda message: int(order[message[0], message[1] % WINDOW]))
        senders, numbers = np.array(missing, np.int64).reshape(-1, 2).T.copy()
        kernel.end_view(self.world, self.tables, one.number, senders, numbers, len(missing), cut[one.rank], self.now_ns)

    def enter(self, one: SimulatedMember, decision: Decide) -> None:
        """Begin the decided view."""
        view = decision.proposal.view
        stack = self.stacks.by_tag.get(view.tag)
        if stack is None:
            if one.state != IN_VIEW:
                return  # all members have left that view; a member of a later view will answer the next request
            stack = self._add_stack(view, self._delivered(one, decision))
        if one.state == IN_VIEW:
            if one.agreement.is_frozen:
                self.pauses.add_pause(one.agreement.frozen_ns, self.now_ns, is_whole=True)
            self._leave_stack(one)
        else:
            self._restore(one, stack)
        self._begin(one, stack, view)

    def _delivered(self, one: SimulatedMember, decision: Decide) -> np.ndarray:
        """What the group delivered before the decided view; the first member to enter it was in the view before."""
        before = one.stack
        total = before.delivered_before.copy()
        cut = np.array(decision.proposal.cut, np.int64)
        total[before.tables.process] = before.tables.sent + cut
        return total

    def _restore(self, one: SimulatedMember, stack: ViewStack) -> None:
        """Give a newcomer the state of the application."""
        senders = np.flatnonzero(stack.delivered_before)
        for sender in senders.tolist():
            self._note(tracing.RESTORE, one.number, sender=sender, sequence=int(stack.delivered_before[sender]))
        if not len(senders):
            self._note(tracing.RESTORE, one.number, sender=one.number)

    def _add_stack(self, view: View, delivered_before: np.ndarray) -> ViewStack:
        self.views += 1
        stack = self.stacks.add(view, self._ids, delivered_before)
        for rank, number in enumerate(stack.tables.process.tolist()):
            self._note(tracing.VIEW, number, peer=number, number=view.number, sequence=rank, message=view.tag)
        listed = {int(number) for other in self.stacks.by_tag.values() for number in other.tables.process}
        self.gone = {number: since_ns for number, since_ns in self.gone.items() if number in listed}
        return stack

    def _begin(self, one: SimulatedMember, stack: ViewStack, view: View) -> None:
        self._note(tracing.INSTALL, one.number, number=view.number, sequence=len(view.members), message=view.tag)
        stack.members.add(one.number)
        one.entered_ns = self.now_ns
        one.begin(stack, view)
        kernel.begin_view(self.world, self.tables, one.number, stack.place, stack.stamp, one.rank, self.now_ns)
        if one.rank < stack.tables.order.shape[0] and not one.leaving:
            self._let_multicast(one)

    def _let_multicast(self, one: SimulatedMember) -> None:
        record = self.tables.processes[one.number]
        if record.first_ns < 0:
            phase = uniform(new_stream(self._seed, "phases", one.number))
            record.first_ns = self.now_ns + int(phase * int(self.tables.totals[0].interval_ns))
            kernel.multicast_from(self.world, one.number, int(record.first_ns))

    def _leave_stack(self, one: SimulatedMember) -> None:
        """Remove a member from the stack of its view; the last one to leave frees the stack."""
        self.pauses.add_stay(one.entered_ns, self.now_ns)
        self.stacks.leave(one.stack, one.number)

    def go_out(self, one: SimulatedMember, event: int) -> None:
        """Handle a decision without this member: it left, or it was excluded although it is up."""
        if one.agreement.is_frozen:
            self.pauses.add_pause(one.agreement.frozen_ns, self.now_ns, is_whole=False)
        self._leave_stack(one)
        record = self.tables.processes[one.number]
        record.place = record.stamp = -1
        record.begun = 0
        record.leaving = 1
        self.excluded_wrongly += event == tracing.EXCLUDED
        self._note(event, one.number)

    def end(self, one: SimulatedMember) -> None:
        """Stop a member; an excluded one, or one that joins too late, continues as another incarnation."""
        was_joining = one.state == JOINING
        self._stop(one)
        if was_joining or not one.leaving:
            self.join(one.me.name)

    # The end.

    def share_paused(self) -> float:
        """The share of the time in views during which members were paused, while messages flowed."""
        members = self.in_group()
        frozen = [one.agreement.frozen_ns for one in members if one.agreement.is_frozen]
        return self.pauses.share(self.now_ns, frozen, [one.entered_ns for one in members])

    def is_settled(self) -> bool:
        """Are all members in one view, and have all of them delivered everything?"""
        members = self.in_group()
        if any(one.state in (JOINING, LINGER) for one in self.on_host.values()) or not members:
            return False
        stack = members[0].stack
        if any(one.stack is not stack or one.agreement.is_active or one.leaving for one in members):
            return False
        if any(self.has_waiting(one) for one in members) or len(members) < len(stack.view.members):
            return False
        received = stack.group.received
        sent = self.tables.processes.published[stack.tables.process] - stack.tables.sent
        is_whole = (received == sent[: received.shape[1]]).all()
        return bool(is_whole and (stack.group.stable == received).all() and stack.is_all_causal())

    def drain(self) -> None:
        """Stop everything and let packets in transit arrive, so that every hop that has begun ends."""
        self.tables.processes.up[:] = 0
        self._timers.clear()
        while True:
            status = kernel.run(self.world, self._mail, self.stacks.cores, self.tables, self._call, 1 << 61, SLICE)
            self._keep()
            if status == kernel.DUE:
                return
            if status == kernel.FAILED:
                raise SimulationError(f"{int(self.world.scalars[0].error)}")

    def _note(
        self,
        event: int,
        member: int,
        *,
        peer: int = -1,
        number: int = -1,
        sender: int = -1,
        sequence: int = 0,
        message: int = -1,
    ) -> None:
        """Write a row of the trace."""
        if self._scalars["tracing"]:
            kernel.note(self.world, event, self.now_ns, member, peer, number, sender, sequence, message)

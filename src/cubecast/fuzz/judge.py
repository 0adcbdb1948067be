"""The guarantees of a group, checked from the events of a history alone.

| guarantee           | meaning                                                                                       |
|---------------------|-----------------------------------------------------------------------------------------------|
| view agreement      | a view has one set of members; views follow one another; with a majority, one view per number |
| same state          | all members that install a view have delivered the same messages until then, newcomers        |
|                     | included; so members that install two consecutive views deliver the same messages in between  |
| sending view        | a message is delivered in the view in which it was sent, under one sender and number          |
| FIFO order          | the messages of a sender are delivered in the order of their numbers, without a gap           |
| causal order        | no message is delivered before one that its sender's application had taken when it was sent   |
| exactly once        | no application has a message twice in its state; what it has was multicast                    |
| before restore      | nothing is sent between an exclusion and the restore                                          |
| exclusion           | a member is excluded only when another has installed a view without it                        |
| stability           | a message reported stable was delivered, and written, by every member of the view             |
| quorum              | a message that is reported to be at a quorum is at a majority of the view                     |
| causal stability    | after a message was reported causally stable, an application gets only messages whose sender  |
|                     | had taken it when it made them                                                                |
| restart             | a process that resumes gets the same entries again as before                                  |
| nothing lost        | what was multicast is delivered, or returned; what is returned for certain is in no state     |
| progress            | after all faults, all processes that should be in the group are in one view, with one state   |

Sets of messages are bit masks. In a group without snapshots that keeps less than everything, the state of a newcomer
is what it has delivered since, together with the state with which its first view began at the others.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any

from cubecast.fuzz.agenda import MS, SECOND
from cubecast.fuzz.world import HistoryEvent
from cubecast.member.in_transfer import NO_STATE
from cubecast.protocols.membership.views import MemberId, View, ViewId, has_quorum

Message = tuple[MemberId, int]
UNKNOWN = ViewId(-1, -1)
"""The base of an application whose log is not known."""


class _Application:
    """The state of the application of one process."""

    def __init__(self) -> None:
        self.log = 0
        self.base: ViewId | None = None
        """In a group that keeps less than everything: the view whose state `log` comes on top of."""
        self.view: View | None = None
        self.last: dict[MemberId, int] = {}
        self.must_restore = False
        self.incarnation = 0
        self.was_restored = False
        """Is the next view the one with which its state begins?"""
        self.is_resuming = False
        self.begins_midway = False
        """Is its state a checkpoint from the middle of a view, which it learns of next?"""
        self.causal = 0
        """Messages that were reported causally stable here."""
        self.in_view: dict[int, Message] = {}
        """The messages taken in the present view."""


class Judge:
    """Reads the events of a history and collects violations."""

    def __init__(self, *, quorum: str, makes_snapshots: bool, keeps_everything: bool, may_repeat: bool = False) -> None:
        """No event is read yet. `may_repeat`: are returned messages multicast again although others may have them?"""
        self.broken: list[str] = []
        self.views: dict[ViewId, View] = {}
        self.applications: dict[str, _Application] = {}
        self.stable: dict[int, tuple[int, int]] = {}
        """Messages that were reported stable to their sender; its group, and the number of its view then."""
        self._is_majority = quorum == "majority"
        self._keeps_everything = keeps_everything
        self._makes_snapshots = makes_snapshots
        self._by_number: dict[tuple[int, int], ViewId] = {}
        self._is_forgotten = False
        """Did a process start without its journal?"""
        self._before: dict[ViewId, ViewId] = {}
        self._at_start: dict[ViewId, list[tuple[ViewId | None, int, HistoryEvent]]] = defaultdict(list)
        self._known: dict[Message, tuple[int, int]] = {}
        self._past: dict[Message, int] = {}
        self._made: dict[int, tuple[MemberId, int]] = {}
        """By message: who made it, and what its application had taken then."""
        self._held: dict[MemberId, dict[MemberId, int]] = defaultdict(dict)
        self._stable_to: dict[tuple[ViewId, MemberId], int] = {}
        self._places: dict[str, tuple[int, int]] = {}
        """Of each process the group and the number of its view."""
        self._group_of: dict[int, int] = {}
        """By message: the group in which it was delivered last."""
        self._may_repeat = may_repeat
        self._senders: dict[int, set[MemberId]] = defaultdict(set)
        """The incarnations under which a message was delivered."""
        self.multicast: dict[int, str] = {}
        """Messages an application multicast, and the machine."""
        self.safe: set[int] = set()
        self.excused: set[int] = set()
        """Messages that may be lost: they were returned, or their process ended before it wrote them."""
        self._of_process: dict[str, list[int]] = defaultdict(list)
        self._failed: set[int] = set()
        self._gone: set[str] = set()
        """Machines whose process left, once."""
        self._returned: list[tuple[HistoryEvent, int]] = []

    def read(self, events: Iterable[HistoryEvent]) -> None:
        """Judge all events in order, and then what can only be judged at the end."""
        handlers: dict[str, Any] = {}
        for event in events:
            handler = handlers.get(event.what)
            if handler is None:
                handler = handlers[event.what] = getattr(self, f"_{event.what.replace(' ', '_')}", _ignore)
            handler(event)
        self._judge_states()
        self._judge_returned()

    def _report(self, event: HistoryEvent, promise: str, what: str) -> None:
        at_ms = (event.time_ns - SECOND) / MS
        self.broken.append(f"{promise}: at {at_ms:.3f} ms {event.name} ({event.me.incarnation}): {what}")

    # Processes.

    def _start(self, event: HistoryEvent) -> None:
        application = self.applications[event.name] = _Application()
        application.is_resuming = event.data == "resume"
        application.must_restore = event.data == "join"
        if application.is_resuming and not self._keeps_everything:
            application.base = UNKNOWN
        if event.data != "resume":
            self._excuse(event.name, set(self._of_process[event.name]))
            self._of_process[event.name] = []

    def _amnesia(self, _event: HistoryEvent) -> None:
        """A founder without its journal may found another group."""
        self._is_forgotten = True

    def _crash(self, event: HistoryEvent) -> None:
        self._excuse(event.name, {number for number in self._of_process[event.name] if number not in self.safe})

    def _excuse(self, _name: str, numbers: set[int]) -> None:
        self.excused |= numbers

    def _replayed(self, event: HistoryEvent) -> None:
        self.applications[event.name].is_resuming = False
        seen, state, is_same = event.data
        if is_same and self._keeps_everything and state[: len(seen)] != seen:
            missing = [number for number in seen if number not in state]
            self._report(event, "restart", f"it had {seen}, now {state}; missing {missing}")

    # Messages.

    def _multicast(self, event: HistoryEvent) -> None:
        self.multicast[event.data] = event.name
        self._of_process[event.name].append(event.data)

    def _make(self, event: HistoryEvent) -> None:
        """What an application multicasts while it is out of the group is sent after the restore and follows its state.

        The same holds for what it multicasts after a restart, before it has taken its earlier entries again.
        """
        application = self.applications[event.name]
        is_in = application.view is not None and event.me in application.view.members
        if is_in and application.base is None and not (application.must_restore or application.is_resuming):
            self._made[event.data] = event.me, application.log

    def _member_safe(self, event: HistoryEvent) -> None:
        self.safe.update(event.data["messages"])

    def _member_sent(self, event: HistoryEvent) -> None:
        application = self.applications[event.name]
        if application.must_restore and self._makes_snapshots:
            self._report(event, "before restore", f"message {event.data['sequence']} is sent before the restore")
        self._past[event.me, event.data["sequence"]] = 0 if application.must_restore else application.log

    def _member_incarnation(self, event: HistoryEvent) -> None:
        application = self.applications[event.name]
        application.incarnation = event.me.incarnation
        if application.view is not None and event.me not in application.view.members:
            application.must_restore = True

    def _deliver(self, event: HistoryEvent) -> None:
        sender, view, sequence, number, _ = event.data
        application = self.applications[event.name]
        bit = 1 << number
        if number not in self.multicast:
            self._report(event, "exactly once", f"message {number} was never multicast")
        self._senders[number].add(sender)
        if application.log & bit and not self._is_repeated(number):
            self._report(event, "exactly once", f"message {number} a second time")
        if self._known.setdefault((sender, sequence), (number, view)) != (number, view):
            before = self._known[sender, sequence]
            what = f"message {number} of {sender.name} as {sequence} in view {view}; elsewhere (message, view) {before}"
            self._report(event, "sending view", what)
        self._judge_place(event, application)
        past = self._past.get((sender, sequence))
        if past is None:
            if sender.name == event.name:
                self._past[sender, sequence] = application.log
        elif application.base is None and past & ~application.log:
            missing = _names(past & ~application.log)
            self._report(event, "causal order", f"message {number} before {missing}, which happened before it")
        maker, had = self._made.get(number, (sender, -1))
        if maker == sender and application.base is None and application.causal & ~had:
            concurrent = _names(application.causal & ~had)
            what = f"message {number} was made without {concurrent}, reported causally stable here"
            self._report(event, "causal stability", what)
        application.in_view[number] = sender, sequence
        application.log |= bit
        if application.view is not None:
            self._group_of[number] = application.view.group_id

    def _is_repeated(self, number: int) -> bool:
        """Was it multicast again, as the settings allow, by a later incarnation of its sender?"""
        return self._may_repeat and len(self._senders[number]) > 1

    def _judge_place(self, event: HistoryEvent, application: _Application) -> None:
        """Is it delivered in its view, and after the one before it?"""
        sender, view, sequence, number, _ = event.data
        now = application.view
        if now is None:
            if not application.is_resuming:
                self._report(event, "sending view", f"message {number} before any view")
        elif now.number != view or sender not in now.members:
            self._report(event, "sending view", f"message {number} of view {view} in view {now.number}")
        last = application.last.get(sender)
        if last is not None and sequence != last + 1:
            self._report(event, "FIFO order", f"message {sequence} of {sender.name} after its message {last}")
        application.last[sender] = sequence

    # Views and states.

    def _member_install(self, event: HistoryEvent) -> None:
        view: View = event.data["view"]
        if event.me not in view.members:
            self._report(event, "view agreement", f"view {view.number} is without it")
        self._judge_view(event, view)
        self._places[event.name] = view.group_id, view.number

    def _judge_view(self, event: HistoryEvent, view: View) -> None:
        if not self._is_majority:  # two branches may decide on one and the same view, and know different reasons
            view = view._replace(left=())
        if self.views.setdefault(view.id, view) != view:
            self._report(event, "view agreement", f"view {view.number} has other members elsewhere")
        if len({member.name for member in view.members}) < len(view.members):
            self._report(event, "view agreement", f"view {view.number} holds two incarnations of one process")
        if self._is_majority:
            group_id = 0 if view.number == 1 and not self._is_forgotten else view.group_id
            other = self._by_number.setdefault((group_id, view.number), view.id)
            if other != view.id:
                what = f"two views {view.number}: {_members(view)} and {_members(self.views[other])}"
                self._report(event, "view agreement", what)

    def _view(self, event: HistoryEvent) -> None:
        """The application learns of a view."""
        view: View = event.data
        self._judge_view(event, view)
        application = self.applications[event.name]
        is_first = application.is_resuming and application.view is None
        if application.begins_midway or (is_first and application.base == UNKNOWN):
            application.begins_midway, application.view = False, view  # a checkpoint that kept no state may precede it
            return
        application.in_view = {}
        before, application.view = application.view, view
        application.last = dict(zip(view.members, view.sent, strict=True))
        if application.was_restored or any(who.name == event.name for who in view.joined):
            application.was_restored = False
            if not self._keeps_everything:
                application.log, application.base = 0, view.id
                incarnation = next(who.incarnation for who in view.members if who.name == event.name)
                application.must_restore = incarnation < application.incarnation
            self._at_start[view.id].append((application.base, application.log, event))
            return
        if application.base == UNKNOWN:
            application.log, application.base = 0, view.id
        if before is not None:
            if view.number != before.number + 1:
                self._report(event, "view agreement", f"view {view.number} after view {before.number}")
            if self._before.setdefault(view.id, before.id) != before.id:
                self._report(event, "view agreement", f"view {view.number} follows two different views")
        if before is not None or not application.is_resuming:
            self._at_start[view.id].append((application.base, application.log, event))

    def _restore(self, event: HistoryEvent) -> None:
        state, is_checkpoint, incarnation = event.data
        application = self.applications[event.name]
        if is_checkpoint or incarnation >= application.incarnation:
            application.must_restore = False
        application.was_restored = not is_checkpoint
        application.log = application.causal = 0
        application.in_view = {}
        for number in state:
            application.log |= 1 << number
        if any(not self._is_repeated(number) for number, count in Counter(state).items() if count > 1):
            self._report(event, "exactly once", "a state that holds a message twice")
        application.base = None if self._keeps_everything else UNKNOWN
        if is_checkpoint:
            application.last = {}
            application.begins_midway = True

    def _judge_states(self) -> None:
        """All members begin a view with the same messages."""
        states: dict[ViewId, int] = {}
        for view in sorted(self._at_start):
            first: tuple[int, HistoryEvent] | None = None
            for base, log, event in self._at_start[view]:
                if base == view or (base is not None and base not in states):
                    continue
                whole = log if base is None else log | states[base]
                if first is None:
                    first = whole, event
                    states[view] = whole
                elif whole != first[0]:
                    only_here, only_there = _names(whole & ~first[0]), _names(first[0] & ~whole)
                    what = f"view {view.number} begins with {only_here} and without {only_there}, not as at"
                    self._report(event, "same state", f"{what} {first[1].name} ({first[1].what})")

    # Stability.

    def _member_deliveries(self, event: HistoryEvent) -> None:
        held = self._held[event.me]
        for sender, sequence in zip(event.data["senders"], event.data["sequences"], strict=True):
            held[sender] = max(held.get(sender, 0), sequence)

    def _member_hold(self, event: HistoryEvent) -> None:
        held = self._held[event.me]
        held[event.data["sender"]] = max(held.get(event.data["sender"], 0), event.data["sequence"])

    def _member_restore(self, event: HistoryEvent) -> None:
        view: View = event.data["view"]
        held = self._held[event.me]
        for sender, sent in zip(view.members, view.sent, strict=True):
            held[sender] = max(held.get(sender, 0), sent)

    def _member_stable(self, event: HistoryEvent) -> None:
        view_id, sender, sequence = event.data["view"], event.data["sender"], event.data["sequence"]
        if sequence <= self._stable_to.get((view_id, sender), 0):
            return
        self._stable_to[view_id, sender] = sequence
        view = self.views.get(view_id)
        if view is None:
            self._report(event, "stability", f"in view {view_id}, which nobody installed")
            return
        for member in view.members:
            if self._held[member].get(sender, 0) < sequence and view.sent[view.members.index(sender)] < sequence:
                what = f"message {sequence} of {sender.name} in view {view.number} is not yet at {member.name}"
                self._report(event, "stability", what)

    def _quorum(self, event: HistoryEvent) -> None:
        """A quorum of the view has a message; how far it was processed is not visible here."""
        view_id, sender, sequence, _ = event.data
        view = self.views.get(view_id)
        if view is None or sequence <= view.sent[view.members.index(sender)]:
            return
        having = [who for who in view.members if self._held[who].get(sender, 0) >= sequence]
        if not has_quorum(view.members, having):
            names = ", ".join(who.name for who in having)
            self._report(event, "quorum", f"message {sequence} of {sender.name} is at {names or 'nobody'} only")

    def _member_causal(self, event: HistoryEvent) -> None:
        """The report may be of an earlier view than the one that the application has reached."""
        application = self.applications[event.name]
        if application.view is None or application.base is not None or application.view.id != event.data["view"]:
            return
        frontier = event.data["frontier"]
        application.causal |= application.log & ~_mask(application.in_view)
        covered = [
            number for number, (sender, sequence) in application.in_view.items() if sequence <= frontier.get(sender, 0)
        ]
        application.causal |= _mask(covered)

    def _settled(self, event: HistoryEvent) -> None:
        number, is_stable, has_stopped = event.data
        if has_stopped:
            return  # the journal continues, or the process that lost it is excused
        if is_stable:
            self.stable[number] = self._place_of_report(event)
        else:
            self.excused.add(number)
            self._failed.add(number)

    def _place_of_report(self, event: HistoryEvent) -> tuple[int, int]:
        """The group and the number of the view with which a process may have learned that a message is stable.

        A member that leaves or is excluded learns it with a view that it does not install.
        """
        group_id, own = self._places.get(event.name, (0, 0))
        without = [
            view.number for view in self.views.values() if view.group_id == group_id and event.me not in view.members
        ]
        return group_id, max([own, *without])

    # Ends.

    def _left(self, event: HistoryEvent) -> None:
        self._gone.add(event.name)

    def _force(self, event: HistoryEvent) -> None:
        """An operator gave up the missing members, and with them views after this one that only they knew.

        Messages reported stable to a member that left were decided with the view that is without it.
        """
        view: View = event.data
        lost = {key for key in self._by_number if key[0] == view.group_id and key[1] > view.number}
        for key in lost:
            del self._by_number[key]
        for number, (group_id, at) in list(self.stable.items()):
            if group_id == view.group_id and (at > view.number or self.multicast[number] in self._gone):
                del self.stable[number]
                self.excused.add(number)
        self._returned = []

    def _excluded(self, event: HistoryEvent) -> None:
        numbers, certain, reason = event.data
        application = self.applications[event.name]
        application.must_restore = True
        is_reported = not certain and reason != NO_STATE
        if is_reported and self._is_majority and application.view is not None:
            self._judge_exclusion(event, application.view)
        # A message returned before, and again now, was multicast again in between: only the last return counts.
        self._returned = [(earlier, number) for earlier, number in self._returned if number not in numbers]
        if certain:
            self._returned += [(event, number) for number in numbers]

    def _judge_returned(self) -> None:
        """A message returned for certain is in no state of a later view, unless it was multicast again.

        A member that was excluded together with its sender may have it, in a state that it must discard.
        """
        if not self._is_majority:
            return
        for event, number in self._returned:
            if number not in self._failed:
                continue  # it is multicast again
            for name, application in self.applications.items():
                if name != event.name and application.log >> number & 1 and not _is_with(application.view, event.me):
                    self._report(event, "nothing lost", f"message {number} was returned for certain; {name} has it")

    def _judge_exclusion(self, event: HistoryEvent, view: View) -> None:
        """A member that reports the exclusion of another has installed a view without it.

        Where founders lost their journals there are two groups; a member that joined both may be excluded by either.
        """
        who = next(who for who in view.members if who.name == event.name)
        first = {view.group_id: view.number}
        for other in self.views.values():
            if who in other.members:
                first[other.group_id] = min(other.number, first.get(other.group_id, other.number))
        if not any(
            who not in later.members and later.number > first.get(later.group_id, later.number)
            for later in self.views.values()
        ):
            self._report(event, "exclusion", f"no view after view {view.number} is without it")

    def judge_end(self, names: Iterable[str], group_id: int) -> None:
        """A settled group has one state, which holds all messages that its members multicast.

        A message that was delivered in another group has ended with its state, although a sender that crashed in this
        very moment could not report it stable.
        """
        members = sorted(names)
        union = 0
        for name in members:
            if self.applications[name].base is None:
                union |= self.applications[name].log
        stable = {number for number, (group, _) in self.stable.items() if group == group_id}
        wanted = {number for number, name in self.multicast.items() if name in members and number not in self.stable}
        wanted = ((wanted - self.excused) | stable) if self._is_majority else set()
        wanted = {number for number in wanted if self._group_of.get(number, group_id) == group_id}
        lost = sorted(number for number in wanted if not union >> number & 1)
        if lost and self._has_whole_state(members):
            self.broken.append(f"nothing lost: messages {lost} are in no state at the end")
        for name in members:
            application = self.applications[name]
            if application.base is None and application.log != union:
                lacks = _names(union & ~application.log)
                self.broken.append(f"same state: at the end {name} lacks {lacks}")

    def _has_whole_state(self, members: list[str]) -> bool:
        return any(self.applications[name].base is None for name in members)


def _mask(numbers: Iterable[int]) -> int:
    return sum(1 << number for number in numbers)


def _ignore(_event: HistoryEvent) -> None:
    """An event that no guarantee concerns."""


def _is_with(view: View | None, one: MemberId) -> bool:
    """Is that member, or an earlier incarnation of it, in the view?"""
    members = () if view is None else view.members
    return any(who.name == one.name and who.incarnation <= one.incarnation for who in members)


def _names(mask: int) -> list[int]:
    """The messages of a mask."""
    return [place for place in range(mask.bit_length()) if mask >> place & 1]


def _members(view: View) -> str:
    return " ".join(who.name.split(":")[0].rpartition(".")[2] for who in view.members)

"""What a group with views promises, judged slowly and obviously from the rows of its trace.

Every promise is restated over sets of messages and Python dictionaries, row by row. `Judge.broken` holds, for each
promise, the rows that break it, as the checker of the same name must name them.

| promise | key |
|---|---|
| a view has one list of members, and each member goes through the views one by one | view_agreement |
| members that go from one view to the same next one delivered the same set in between | virtual_synchrony |
| a newcomer's state is what the others had delivered before the view | same_state |
| a message is delivered in the view in which it was sent | sending_view |
| no message twice, none unsent, none by a member that is out | exactly_once |
| a restart repeats, in order, what came after the checkpoint | restart_replay |
| what is returned is delivered by no member that continued | returned_is_returned |
| what is called stable is at every member of the view | premature_stability |
| no member delivers a message before one that happened before it | causal_order |
| messages of one sender come one by one | in_order_delivery |
"""

from __future__ import annotations

from collections import defaultdict

from cubecast.trace.schema import Event
from tests.oracles.checkers import Row

Message = tuple[int, int]
View = tuple[int, int]
PROMISES = (
    "view_agreement",
    "virtual_synchrony",
    "same_state",
    "sending_view",
    "exactly_once",
    "restart_replay",
    "returned_is_returned",
    "premature_stability",
    "causal_order",
    "in_order_delivery",
)


def view_of(row: Row) -> View:
    return row["round"], row["message"]


def message_of(row: Row) -> Message:
    return row["sender"], row["sequence"]


def upto(row: Row) -> set[Message]:
    return {(row["sender"], sequence) for sequence in range(1, row["sequence"] + 1)}


class Judge:
    """Reads the rows of one trace; `quorum` is `majority` or `any`."""

    def __init__(self, rows: list[Row], *, quorum: str = "majority") -> None:
        self.rows = rows
        self.splits = quorum == "any"
        self.broken: dict[str, set[int]] = {promise: set() for promise in PROMISES}
        self.members: dict[View, set[int]] = defaultdict(set)
        for row in rows:
            if row["event"] == Event.VIEW:
                self.members[view_of(row)].add(row["peer"])
        self.uses_sent = any(row["event"] == Event.SENT for row in rows)
        self.replays: set[int] = set()
        self._find_replays()
        self.kept = [index for index in range(len(rows)) if index not in self.replays]
        self.newcomers = self._newcomers()
        self.view_agreement()
        self.virtual_synchrony()
        self.same_state()
        self.sending_view()
        self.exactly_once()
        self.restart_replay()
        self.returned_is_returned()
        self.premature_stability()
        self.causal_order()
        self.in_order_delivery()

    # What several promises need

    def own(self, member: int, *events: Event, before: int | None = None, replays: bool = False) -> list[int]:
        """Rows of a member with one of these events, in order."""
        end = len(self.rows) if before is None else before
        return [
            index
            for index in range(end)
            if self.rows[index]["member"] == member
            and self.rows[index]["event"] in events
            and (replays or index not in self.replays)
        ]

    def restarting(self, index: int) -> int | None:
        """The row of the restart that the member of a row is in, if any."""
        member = self.rows[index]["member"]
        marks = self.own(member, Event.RESTART, Event.RESTARTED, Event.CRASH, before=index, replays=True)
        return marks[-1] if marks and self.rows[marks[-1]]["event"] == Event.RESTART else None

    def _find_replays(self) -> None:
        """Rows that repeat, while a member restarts, what it wrote before."""
        for index, row in enumerate(self.rows):
            start = self.restarting(index) if row["member"] >= 0 else None
            if start is None:
                continue
            before = [self.rows[old] for old in range(index) if self.rows[old]["member"] == row["member"]]
            real = [self.rows[old] for old in self.own(row["member"], Event.RESTORE, before=index)]
            delivered = [old for old in before if old["event"] == Event.DELIVER]
            again = {
                Event.INSTALL: any(old["event"] == Event.INSTALL and view_of(old) == view_of(row) for old in before),
                Event.SENT: any(old["event"] == Event.SENT and old["sequence"] >= row["sequence"] for old in before),
                Event.DELIVER: any(
                    old["sender"] == row["sender"] and old["sequence"] >= row["sequence"] for old in [*real, *delivered]
                )
                or row["sequence"] == 0,
                Event.RESTORE: bool(self.own(row["member"], Event.DELIVER, Event.RESTORE, before=start)),
            }
            if again.get(Event(row["event"]), False):
                self.replays.add(index)

    def current(self, member: int, before: int) -> View | None:
        installs = self.own(member, Event.INSTALL, before=before)
        return view_of(self.rows[installs[-1]]) if installs else None

    def segment(self, index: int) -> int | None:
        """The install row of the view in which a sent or deliver row takes place; a held message takes place there."""
        row = self.rows[index]
        if row["event"] == Event.DELIVER:
            holds = self.own(row["member"], Event.HOLD, before=index)
            holds = [old for old in holds if message_of(self.rows[old]) == message_of(row)]
            installs = self.own(row["member"], Event.INSTALL, before=holds[-1]) if holds else []
            if installs:
                return installs[-1]
        installs = self.own(row["member"], Event.INSTALL, before=index)
        return installs[-1] if installs else None

    def view_at(self, index: int) -> View | None:
        start = self.segment(index)
        return None if start is None else view_of(self.rows[start])

    def held(self, member: int, before: int) -> set[Message]:
        """All that a member delivered or restored."""
        delivered = {message_of(self.rows[old]) for old in self.own(member, Event.DELIVER, before=before)}
        restored = [upto(self.rows[old]) for old in self.own(member, Event.RESTORE, before=before)]
        return {message for message in delivered.union(*restored) if message[1] >= 1}

    def _newcomers(self) -> set[int]:
        found = {self.rows[index]["member"] for index in self.kept if self.rows[index]["event"] == Event.RESTORE}
        for index in self.kept:
            row = self.rows[index]
            before = self.current(row["member"], index) if row["event"] == Event.INSTALL else None
            if before is not None:
                found |= self.members[view_of(row)] - self.members[before]
        return found

    def state_of(self, member: int) -> tuple[int, View | None]:
        """The row at which a member has its state, and the view at whose beginning that was if a row says so."""
        if member not in self.newcomers:
            return 0, None
        rows = self.own(member, Event.RESTORE, Event.DELIVER)
        restores = self.own(member, Event.RESTORE)
        named = view_of(self.rows[restores[-1]]) if restores else None
        views = {view_of(row) for row in self.rows if row["event"] in (Event.INSTALL, Event.VIEW)}
        return rows[0] if rows else len(self.rows), named if named in views else None

    # The promises

    def view_agreement(self) -> None:
        bad = self.broken["view_agreement"]
        ranked: list[tuple[View, int, int]] = []
        earlier: list[View] = []
        for index, row in enumerate(self.rows):
            view = view_of(row)
            if row["event"] == Event.VIEW:
                ranks = [rank for name, _, rank in ranked if name == view and _ == row["peer"]]
                peers = [peer for name, peer, rank in ranked if name == view and rank == row["sequence"]]
                if (ranks and ranks[0] != row["sequence"]) or (peers and peers[0] != row["peer"]):
                    bad.add(index)
                ranked.append((view, row["peer"], row["sequence"]))
            if row["event"] != Event.INSTALL:
                continue
            if row["sequence"] not in (0, len(self.members[view])) or row["member"] not in self.members[view]:
                bad.add(index)
            twins = [one for one in earlier if one[0] == view[0] and one != view]
            if not self.splits and any(self._are_of_one_group(one, view) for one in twins):
                bad.add(index)
            earlier.append(view)
            before = self.current(row["member"], index)
            if index in self.replays or before is None:
                continue
            if not (row["round"] > before[0] if self.splits else row["round"] == before[0] + 1):
                bad.add(index)

    def _are_of_one_group(self, one: View, other: View) -> bool:
        return self._founding(one) == self._founding(other) or bool(self.members[one] & self.members[other])

    def _founding(self, view: View) -> View:
        for index in self.kept:
            row = self.rows[index]
            before = self.current(row["member"], index)
            if row["event"] == Event.INSTALL and view_of(row) == view and before is not None and before[0] < view[0]:
                return self._founding(before)
        return view

    def virtual_synchrony(self) -> None:
        first: dict[tuple[View, View], list[Message]] = {}
        for index in self.kept:
            row = self.rows[index]
            if row["event"] != Event.INSTALL:
                continue
            installs = self.own(row["member"], Event.INSTALL, before=index)
            if not installs:
                continue
            ready, state = self.state_of(row["member"])
            left = view_of(self.rows[installs[-1]])
            if left[0] < state[0] if state is not None else ready >= index:
                continue
            rows = [old for old in self.own(row["member"], Event.DELIVER) if self.segment(old) == installs[-1]]
            mine = sorted(message_of(self.rows[old]) for old in rows if self.rows[old]["sequence"] >= 1)
            if first.setdefault((left, view_of(row)), mine) != mine:
                self.broken["virtual_synchrony"].add(index)

    def _vector(self, member: int, before: int) -> dict[int, int]:
        rows = [self.rows[old] for old in self.own(member, Event.DELIVER, Event.RESTORE, before=before)]
        return _highest(rows)

    def same_state(self) -> None:
        bad = self.broken["same_state"]
        wanted: dict[View, dict[int, int]] = {}
        for index in self.kept:
            row = self.rows[index]
            if row["event"] != Event.INSTALL or not self.own(row["member"], Event.INSTALL, before=index):
                continue
            ready, state = self.state_of(row["member"])
            if ready < index and (state is None or row["round"] > state[0]):
                wanted.setdefault(view_of(row), self._vector(row["member"], index))
        for ready, member in sorted((self.state_of(member)[0], member) for member in self.newcomers):
            installs = self.own(member, Event.INSTALL)
            view = self.state_of(member)[1] or (view_of(self.rows[installs[0]]) if installs else None)
            if ready == len(self.rows) or view is None:
                continue
            restores = self.own(member, Event.RESTORE)
            restored = _highest([self.rows[old] for old in restores])
            if wanted.setdefault(view, restored) != restored:
                bad.add(ready)
            delivered = self.own(member, Event.DELIVER)
            late = [old for old in restores if delivered and old > delivered[0]]
            bad.update(late[:1])

    def sending_view(self) -> None:
        wanted = Event.SENT if self.uses_sent else Event.DELIVER
        views: dict[Message, View] = {}
        for index in self.kept:
            row = self.rows[index]
            here = self.view_at(index) if row["event"] == wanted else None
            if here is not None:
                views.setdefault(message_of(row), here)
        for index in self.kept:
            row = self.rows[index]
            if row["event"] not in (Event.SENT, Event.DELIVER) or row["sequence"] < 1:
                continue
            here = self.view_at(index)
            sent = row["event"] == Event.SENT
            wrong = row["round"] not in (-1, here[0] if here else -1) if sent else False
            if here is None or wrong or (not sent and views.get(message_of(row), here) != here):
                self.broken["sending_view"].add(index)

    def is_out(self, member: int, before: int) -> bool:
        ends = self.own(member, Event.LEAVE, Event.EXCLUDED, before=before, replays=True)
        fates = self.own(member, Event.CRASH, Event.RESTART, Event.RECOVER, before=before, replays=True)
        return bool(ends) or bool(fates and self.rows[fates[-1]]["event"] == Event.CRASH)

    def exactly_once(self) -> None:
        writes = (Event.DELIVER, Event.INSTALL, Event.SENT, Event.STABLE, Event.RESTORE)
        for index, row in enumerate(self.rows):
            if row["event"] not in writes:
                continue
            wrong = self.is_out(row["member"], index)
            if index not in self.replays and row["sequence"] >= 1:
                if row["event"] == Event.DELIVER:
                    wrong |= message_of(row) in self.held(row["member"], index)
                    wrong |= message_of(row) not in self.sent(index + 1)
                elif row["event"] == Event.SENT:
                    wrong |= message_of(row) in self.sent(index)
            if wrong:
                self.broken["exactly_once"].add(index)

    def sent(self, before: int) -> set[Message]:
        wanted = Event.SENT if self.uses_sent else Event.DELIVER
        rows = [
            self.rows[index]
            for index in self.kept
            if index < before and (self.rows[index]["event"] == wanted or self.is_repeated(index))
        ]
        return {message_of(row) for row in rows if row["member"] == row["sender"]}

    def is_repeated(self, index: int) -> bool:
        """Is it delivered by a member that restarts? If it is its own, it was sent, though the row may be lost."""
        return self.rows[index]["event"] == Event.DELIVER and self.restarting(index) is not None

    def restart_replay(self) -> None:
        for member in {row["member"] for row in self.rows if row["event"] == Event.RESTART}:
            for start in self.own(member, Event.RESTART):
                self._judge_restart(member, start)

    def _judge_restart(self, member: int, start: int) -> None:
        bad = self.broken["restart_replay"]
        log = [message_of(self.rows[old]) for old in self.own(member, Event.DELIVER, before=start)]
        log = [message for message in log if message[1] >= 1]
        kinds = (Event.DELIVER, Event.RESTORE, Event.RESTART, Event.RESTARTED, Event.CRASH)
        checkpoint: set[Message] | None = None
        place: int | None = None
        for index in [old for old in self.own(member, *kinds, replays=True) if old > start]:
            row = self.rows[index]
            if row["event"] in (Event.RESTART, Event.CRASH):
                return
            if row["event"] == Event.RESTORE:
                if index in self.replays:
                    checkpoint = (checkpoint or set()) | upto(row)
                continue
            if row["event"] == Event.DELIVER and row["sequence"] < 1:
                continue
            skipped = False
            if checkpoint is not None and place is None:
                place = sum(message in checkpoint for message in log)
                skipped = any(message not in checkpoint for message in log[:place])
            behind = place is not None and place < len(log)
            if row["event"] == Event.RESTARTED:
                if skipped or behind:
                    bad.add(index)
                return
            if index not in self.replays:
                if skipped or behind:
                    bad.add(index)
                log.append(message_of(row))
                place = len(log)
                continue
            found = max((old for old, message in enumerate(log) if message == message_of(row)), default=None)
            if place is not None and log[place : place + 1] == [message_of(row)]:
                found = place
            place = found if place is None else place
            if skipped or found is None or found != place:
                bad.add(index)
            place = place if found is None else found + 1

    def returned_is_returned(self) -> None:
        last: dict[int, int] = defaultdict(lambda: -1)
        for row in self.rows:
            if row["event"] == Event.INSTALL:
                last[row["member"]] = max(last[row["member"]], row["round"])
        known: set[tuple[int, Message]] = set()
        returned = {message for row in self.rows if row["event"] == Event.RETURNED for message in self._returned(row)}
        for index, row in enumerate(self.rows):
            if row["event"] not in (Event.DELIVER, Event.RESTORE) or last[row["member"]] <= last[row["sender"]]:
                continue
            given = {message_of(row)} if row["event"] == Event.DELIVER else upto(row)
            new = {message for message in given & returned if (row["member"], message) not in known}
            known |= {(row["member"], message) for message in new}
            if new:
                self.broken["returned_is_returned"].add(index)

    def _returned(self, row: Row) -> set[Message]:
        if row["sequence"] >= 1:
            return {message_of(row)}
        restarts = self.own(row["member"], Event.RESTART)
        sends = self.own(row["member"], Event.SENT, replays=True)
        sent = [self.rows[old] for old in sends if not restarts or old > restarts[-1]]
        same = [message_of(old) for old in sent if row["message"] >= 0 and old["message"] == row["message"]]
        return set(same[-1:])

    def premature_stability(self) -> None:
        for index, row in enumerate(self.rows):
            view = self.current(row["member"], index) if row["event"] == Event.STABLE else None
            if view is None:
                continue
            if any(self.has(member, row["sender"], index) < row["sequence"] for member in self.members[view]):
                self.broken["premature_stability"].add(index)

    def has(self, member: int, sender: int, before: int) -> int:
        """Up to which message of a sender a member has everything, with the state that it will get."""
        kinds = (Event.DELIVER, Event.RESTORE, Event.HOLD)
        rows = [self.rows[old] for old in self.own(member, *kinds, before=before, replays=True)]
        most = max((row["sequence"] for row in rows if row["sender"] == sender), default=0)
        for index in [index for index in self.kept if index < before]:
            row = self.rows[index]
            left = self.current(row["member"], index) if row["event"] == Event.INSTALL else None
            if left is not None and member in self.members[view_of(row)] - self.members[left]:
                old = [self.rows[k] for k in self.own(row["member"], *kinds[:2], before=index, replays=True)]
                most = max([most, *(one["sequence"] for one in old if one["sender"] == sender)])
        return most

    def causal_order(self) -> None:
        past: dict[Message, set[Message]] = {}
        known: dict[int, set[Message]] = defaultdict(set)
        for index in self.kept:
            row = self.rows[index]
            if row["event"] not in (Event.SENT, Event.DELIVER, Event.RESTORE) or row["sequence"] < 1:
                continue
            member, message = row["member"], message_of(row)
            if row["event"] == Event.RESTORE:
                known[member] |= upto(row) | past.get(message, set())
                continue
            if row["event"] == Event.SENT:
                past.setdefault(message, set(known[member]))
                known[member] |= upto(row)
                continue
            held = self.held(member, index)
            own = member == message[0]
            unordered = own and message[1] != 1 + _run(held, member)
            if own and not unordered and not self.uses_sent:
                past.setdefault(message, set(known[member]))
            elif own and not unordered and self.is_repeated(index):
                past.setdefault(message, {(member, before) for before in range(1, message[1])})
            if unordered or message in held or message not in past or past[message] - held:
                self.broken["causal_order"].add(index)
            if message in past:
                known[member] |= past[message] | upto(row)

    def in_order_delivery(self) -> None:
        """Each member and sender by itself: what a restarting member repeats is not above what it had."""
        last: dict[tuple[int, int], list[int]] = defaultdict(list)
        for index, row in enumerate(self.rows):
            if row["event"] not in (Event.DELIVER, Event.RESTORE):
                continue
            before = last[row["member"], row["sender"]]
            if self.restarting(index) is not None and before and row["sequence"] <= max(before):
                continue
            at_start = not before and row["time_ns"] == 0
            if row["event"] == Event.DELIVER and not at_start and row["sequence"] != (before[-1] if before else 0) + 1:
                self.broken["in_order_delivery"].add(index)
            before.append(row["sequence"])

    # At the end of a run that has settled

    def lost(self) -> set[tuple[int, Message]]:
        """The members that stay in a last view and lack what another member that stays in it delivered or sent."""
        ends = self.ends()
        found = set()
        for member, view in ends.items():
            wanted = {
                message_of(row)
                for row in self.rows
                if row["event"] in (Event.SENT, Event.DELIVER) and ends.get(row["member"]) == view
            }
            found |= {(member, message) for message in wanted - self._ever_held(member) if message[1] >= 1}
        return found

    def unsent(self) -> set[int]:
        """Multicast rows, of members that stay and never restarted, of which nothing came."""
        found = set()
        for member in self.ends():
            if self.own(member, Event.RESTART):
                continue
            known = {self.rows[old]["message"] for old in self.own(member, Event.SENT, Event.RETURNED, replays=True)}
            found |= {old for old in self.own(member, Event.MULTICAST) if self.rows[old]["message"] not in known}
        return found

    def _ever_held(self, member: int) -> set[Message]:
        rows = [self.rows[old] for old in self.own(member, Event.DELIVER, Event.RESTORE, replays=True)]
        sets = [upto(row) if row["event"] == Event.RESTORE else {message_of(row)} for row in rows]
        return set().union(*sets)

    def ends(self) -> dict[int, View]:
        """The last view of every member that stays: its own, or a later one that it belongs to and did not install."""
        end = len(self.rows)
        last = {member: self.current(member, end) for member in {row["member"] for row in self.rows}}
        left = set()
        for index in self.kept:
            row = self.rows[index]
            if row["event"] == Event.INSTALL:
                left.add(self.current(row["member"], index))
        stays = {member for member in last if member >= 0 and last[member] is not None and self._stays(member)}
        final = sorted({view for member in stays if (view := last[member]) is not None and view not in left})
        found: dict[int, View] = {}
        for member in stays:
            view = last[member]
            if view is not None and view not in left:
                found[member] = view
            elif later := [one for one in final if member in self.members[one]]:
                found[member] = later[0]
        return found

    def _stays(self, member: int) -> bool:
        fates = self.own(member, Event.CRASH, Event.RESTART, Event.RESTARTED, Event.RECOVER)
        blocks = self.own(member, Event.BLOCKED, Event.UNBLOCKED)
        return not (
            self.own(member, Event.LEAVE, Event.EXCLUDED)
            or (fates and self.rows[fates[-1]]["event"] in (Event.CRASH, Event.RESTART))
            or (blocks and self.rows[blocks[-1]]["event"] == Event.BLOCKED)
        )


def _run(held: set[Message], sender: int) -> int:
    length = 0
    while (sender, length + 1) in held:
        length += 1
    return length


def _highest(rows: list[Row]) -> dict[int, int]:
    vector: dict[int, int] = {}
    for row in rows:
        if row["sequence"] >= 1:
            vector[row["sender"]] = max(vector.get(row["sender"], 0), row["sequence"])
    return vector

"""The member with one safeguard removed at a time. Random histories must expose each removal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from cubecast.fuzz.histories import run_history
from cubecast.member.data_core import read_records
from cubecast.member.durable import Durable
from cubecast.member.effects import Effects
from cubecast.member.in_levels import InLevels
from cubecast.member.in_view import InView
from cubecast.member.levels import PROCESSED, Levels
from cubecast.member.lifecycle import Lifecycle
from cubecast.member.link import Link
from cubecast.member.links import Links
from cubecast.member.member import Member
from cubecast.member.message_log import SEQUENCE_MASK, Batch, MessageLog
from cubecast.member.own_messages import OwnMessages
from cubecast.member.quorum_levels import QuorumLevels
from cubecast.member.restart import Restart
from cubecast.member.stack import Stack
from cubecast.member.state_transfer import Fetch, Snapshots
from cubecast.protocols.membership import agreement, propose
from cubecast.protocols.membership.accept import Acceptor
from cubecast.protocols.membership.agreement import Agreement
from cubecast.protocols.membership.messages import Flushed
from cubecast.protocols.membership.propose import ACCEPT, FLUSH, Proposer
from cubecast.protocols.membership.records import Recovered
from cubecast.protocols.membership.views import MemberId, View, ViewId
from cubecast.wire import frame
from cubecast.wire.handshake import Hello

Change = tuple[Any, str, Any]

_ACCEPT = Link.accept
_CLOSE = Proposer.close
_RESUME = Link.resume
_TAKE_EFFECTS = Member.take_effects
_RECORD = InView.record
_FRAME_ARRIVED = InView.frame_arrived
_RESUME_OUTSIDE = Restart._resume_outside
_GIVE_BACK = Lifecycle._give_back
_MAY_SEND = InView._may_send
_READ_BATCH = Stack._read_batch
_REQUIRE_NEWER = Links._require_newer


def _always(*_: Any, **__: Any) -> bool:
    return True


def _never(*_: Any, **__: Any) -> bool:
    return False


def _nothing(*_: Any, **__: Any) -> None:
    return None


# Agreement.


def _skip_flush(self: Proposer, *arguments: Any) -> bool:
    done = _CLOSE(self, *arguments)
    if self.phase == FLUSH:
        self.phase = ACCEPT
    return done


def _say_flushed(self: Agreement) -> bool:
    flush = self.acceptor.flush
    if flush is not None:
        self._send(self.view.members[flush.ballot[1]], Flushed(self.view.id, flush.ballot))
    return flush is not None


def _accept_any(self: Acceptor, message: Any, now_ns: int) -> bool:
    self.promised = message.ballot
    self.accepted_ballot = message.ballot
    self.accepted = message.proposal
    self.moved_ns = now_ns
    return True


def _promise_any(self: Acceptor, message: Any, now_ns: int) -> bool:
    self.promised = message.ballot
    self.moved_ns = now_ns
    return True


# Messages of a view.


def _may_send_before_restore(self: InView) -> bool:
    is_awaiting, self._restores_due = self._restores_due, 0
    try:
        return _MAY_SEND(self)
    finally:
        self._restores_due = is_awaiting


def _may_send_frozen(self: InView) -> bool:
    stack = self.stack
    if stack is None:
        return False
    frozen, stack.is_frozen = stack.is_frozen, False
    try:
        return _MAY_SEND(self)
    finally:
        stack.is_frozen = frozen


def _take_any_view(self: InView, link: Link, arrived: Any, now_ns: int) -> None:
    if arrived.kind == frame.DATA and self.view is not None:
        arrived = arrived._replace(view=self.view.tag)
    _FRAME_ARRIVED(self, link, arrived, now_ns)


def _recover_unwritten(self: InView, record: Any) -> None:
    if not isinstance(record, Recovered):
        _RECORD(self, record)


# Links.


def _accept_again(self: Link, arrived: Any) -> bool:
    _ACCEPT(self, arrived)
    return True


def _read_batch_again(self: Stack, source: int, body: bytes) -> None:
    """As if the data protocols did not check for duplicates, where a message comes over one link only."""
    before = self.log.delivered()
    _READ_BATCH(self, source, body)
    if self._host.settings.data not in ("timestamp", "star", "tree"):  # type: ignore[attr-defined]
        return
    for key, record in zip(*read_records(body, self._form), strict=True):
        if key & SEQUENCE_MASK <= before[key >> 32] and not self.is_frozen:
            again = Batch([key], [record])
            self._host.deliver(again, self.log.add(again))


def _resume_whole(self: Link, pipe: Any, **named: Any) -> bool:
    _RESUME(self, pipe, **named)
    return True


def _resume_without_rest(self: Link, pipe: Any, **named: Any) -> bool:
    written, self._unacknowledged = self._unacknowledged, type(self._unacknowledged)()
    sent, self.sent = self.sent, self.acknowledged
    del written, sent
    self._unacknowledged_bytes = 0
    return _RESUME(self, pipe, **{**named, "received": min(named["received"], self.sent)})


# The journal.


def _write_late(self: Member) -> Effects:
    """What is visible outside comes before the records it depends on."""
    effects = _TAKE_EFFECTS(self)
    late = self.__dict__.setdefault("_late_records", [])
    if effects.replaces or effects.checkpoint:
        late.clear()
        return effects
    effects.persist, self.__dict__["_late_records"] = late, effects.persist
    return effects


def _adopt_without_promise(self: Durable, record: Any) -> None:
    self.acceptor.accepted_ballot = record.ballot
    self.acceptor.accepted = record.proposal


def _queue_twice(self: Restart, durable: Durable, *arguments: Any) -> None:
    durable.pending.extend(list(durable.pending))
    _RESUME_OUTSIDE(self, durable, *arguments)


# State transfer and exclusion.


def _turn_keeping_pieces(self: Fetch, now_ns: int) -> None:
    self.holders.append(self.holders.pop(0))
    self._moved_ns = now_ns
    self._asked = len(self.pieces)


def _link_up_keeping_pieces(self: Fetch, who: Any, _session: int, _now_ns: int) -> None:
    if self.is_source(who):
        self._asked = len(self.pieces)


def _give_back_certainly(self: Lifecycle, reason: str, above: int, *, certain: bool) -> None:
    _GIVE_BACK(self, reason, above, certain=True)


def _return_none(self: OwnMessages, _above: int, _effects: Effects) -> list[Any]:
    self.sent.clear()
    self.waiting.clear()
    return []


# Links.


def _require_newer_incarnation(self: Links, said: Hello, *, dialled_by: str, now_ns: int) -> None:
    link = self.links.get(said.name)
    if link is None or said.incarnation != link.peer.incarnation or said.session == link.session:
        _REQUIRE_NEWER(self, said, dialled_by=dialled_by, now_ns=now_ns)


# Levels.


def _learn_at_once(self: Levels, _processed: Any) -> bool:
    self.causal = list(map(max, self.causal, self.of_all(PROCESSED).tolist()))
    return True


def _contribute_delivered(self: InLevels, levels: Levels) -> None:
    levels.block(PROCESSED)[:] = [1 + count for count in self.log.delivered()]
    levels.sent(self._multicast_count())


def _answer_at_once(self: QuorumLevels, _own: Any) -> list[tuple[int, int, int]]:
    answers = [(rank, level, count) for (rank, level), count in self.owed.items()]
    self.owed.clear()
    return answers


def _is_no_member(self: Lifecycle, peer: MemberId, said: ViewId) -> bool:
    view = self._members.view
    return self.settings.quorum == "any" and bool(said.number) and peer not in view.members and not view.is_past(peer)


BROKEN: dict[str, list[Change]] = {
    "anybody decides alone": [(propose, "is_quorum", _always), (agreement, "has_quorum", _always)],
    "a promise does not freeze": [(Stack, "freeze", _nothing)],
    "the cut is the coordinator's": [
        (Proposer, "cut", lambda self: self.promises[self.view.members[self.ballot[1]]].delivered)
    ],
    "nothing is flushed": [(Proposer, "close", _skip_flush)],
    "flushed is said too early": [(Agreement, "say_flushed", _say_flushed)],
    "an accepted proposal is forgotten": [(Proposer, "newest_accepted", lambda _: None)],
    "a promise is forgotten": [(Acceptor, "accepts", _accept_any), (Acceptor, "promises", _promise_any)],
    "messages are sent while the view changes": [(InView, "_may_send", _may_send_frozen)],
    "messages are sent before the restore": [(InView, "_may_send", _may_send_before_restore)],
    "data of the next view is dropped": [(InView, "_hold_early", _nothing)],
    "data of another view is taken": [(InView, "frame_arrived", _take_any_view)],
    "a former member is taken for a new one": [(View, "is_past", _never)],
    "recovered messages are not written": [(InView, "record", _recover_unwritten)],
    "nothing is missing": [(MessageLog, "lacks", _never)],
    "a frame is accepted twice, and its messages": [
        (Link, "accept", _accept_again),
        (Stack, "_read_batch", _read_batch_again),
    ],
    "a link continues although frames were lost": [(Link, "resume", _resume_whole)],
    "a link forgets what was not acknowledged": [(Link, "resume", _resume_without_rest)],
    "an earlier session replaces a later one": [(Links, "_require_newer", _require_newer_incarnation)],
    "certificates are not compared": [(Links, "_require_certificate", _nothing)],
    "records are written last": [(Member, "take_effects", _write_late)],
    "a promise is not read back": [(Durable, "_promised", _nothing), (Durable, "_adopted", _adopt_without_promise)],
    "an accepted proposal is not read back": [(Durable, "_adopted", _nothing)],
    "what waits is not read back": [(Durable, "_pending", _nothing)],
    "what waits is queued twice": [(Restart, "_resume_outside", _queue_twice)],
    "deliveries are not read back": [(Durable, "_delivered", _nothing)],
    "recovered messages are not read back": [(Durable, "_recovered", _nothing)],
    "the restored state is not read back": [(Durable, "_restored", _nothing)],
    "pieces of two holders are mixed": [(Fetch, "turn", _turn_keeping_pieces)],
    "pieces of two runs of a holder are mixed": [(Fetch, "link_up", _link_up_keeping_pieces)],
    "a return is called certain": [(Lifecycle, "_give_back", _give_back_certainly)],
    "what is returned is lost": [(OwnMessages, "returned", _return_none)],
    "snapshots are not kept": [(Snapshots, "keep", _never)],
    "a member of an older view does not get the decision": [(Lifecycle, "_catch_up", _nothing)],
    "an excluded member is not informed": [
        (Lifecycle, "_answer_past", _nothing),
        (Lifecycle, "last_known", lambda *_: None),
        (Lifecycle, "_on_gone", _nothing),
    ],
    "branches that share members do not settle": [(Lifecycle, "_is_of_other_branch", _is_no_member)],
    "what was sent is not waited for": [(Levels, "learn", _learn_at_once)],
    "waiting multicasts are not counted": [(InLevels, "_multicast_count", lambda self: self.stack.published())],
    "what is delivered counts as processed": [(InLevels, "contribute", _contribute_delivered)],
    "earlier views count as processed": [(InLevels, "_has_dealt_with_earlier", property(_always))],
    "an answer does not wait for the message": [(QuorumLevels, "due", _answer_at_once)],
}
"""The safeguard that is missing, and what is put in its place."""


@contextmanager
def without(name: str) -> Iterator[None]:
    """The member without this safeguard."""
    missing = object()
    saved = [(where, attribute, where.__dict__.get(attribute, missing)) for where, attribute, _ in BROKEN[name]]
    for where, attribute, broken in BROKEN[name]:
        setattr(where, attribute, broken)
    try:
        yield
    finally:
        for where, attribute, true in saved:
            if true is missing:
                delattr(where, attribute)
            else:
                setattr(where, attribute, true)


def caught(name: str, seeds: Iterable[int], run: Callable[[int], Any] = run_history) -> tuple[int, str] | None:
    """The first seed whose history exposes the missing safeguard, and the violation."""
    with without(name):
        for seed in seeds:
            violations = run(seed).violations
            if violations:
                return seed, violations[0]
    return None

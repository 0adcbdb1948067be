"""The membership core with one safeguard taken out at a time. The checkers must catch each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from cubecast.core.membership import propose, talk
from cubecast.core.membership.accept import Acceptor
from cubecast.core.membership.agreement import Agreement
from cubecast.core.membership.application import Application
from cubecast.core.membership.channel import Channel
from cubecast.core.membership.durable import Durable
from cubecast.core.membership.member import LINGER, Member
from cubecast.core.membership.messages import Data, Flushed, Persist
from cubecast.core.membership.propose import ACCEPT, FLUSH, Proposer
from cubecast.core.membership.rounds import Rounds
from cubecast.core.membership.talk import Talk
from cubecast.core.membership.transfer import Fetch, Snapshots
from cubecast.core.membership.views import View
from cubecast.core.membership.watch import Watch

Change = tuple[Any, str, Any]


def _skip_flush(self: Proposer, *arguments: Any) -> bool:
    done = _CLOSE(self, *arguments)
    if self.phase == FLUSH:
        self.phase = ACCEPT
    return done


def _say_flushed(self: Agreement) -> bool:
    flush = self.acceptor.flush
    if flush is not None:
        self.send(self.view.members[flush.ballot[1]], Flushed(self.view.number, flush.ballot))
    return flush is not None


def _accept_any(self: Acceptor, message: Any, now_ns: int) -> bool:
    self.promised = message.ballot
    self.accepted_ballot = message.ballot
    self.accepted = message.proposal
    self.moved_ns = now_ns
    return True


def _send_always(self: Member) -> None:
    while self.pending and self.is_ready:
        self._send_data(self.pending.popleft())
    _DELIVER_AND_SEND(self)


def _complete_without_last(self: Rounds) -> bool:
    return self.counted | 1 << len(self.stable) - 1 == self._all


def _hear_without_minimum(self: Rounds, said: Any, delivered: Any) -> bool:
    return _HEAR(self, said._replace(minimum=self.minimum), delivered)


def _repair_own(self: Channel, rank: int, received: Any, _is_turn: bool) -> list[Data]:
    return _REPAIRS(self, rank, received, False)


def _leave_at_once(self: Member, proposal: Any, now_ns: int) -> None:
    _LEAVE_VIEW(self, proposal, now_ns)
    if self.phase == LINGER:
        self._linger_until_ns = now_ns
        self.last_decision = None


def _take_data_of_any_view(self: Member, source: Any, message: Any, now_ns: int) -> None:
    if isinstance(message, Data) and source in self.view.members and message.sender < self.channel.members:
        message = message._replace(view=self.view.number)
        message = message._replace(past=(message.past + (0,) * 16)[: self.channel.members])
    _HANDLE_IN_VIEW(self, source, message, now_ns)


def _install_all(self: Member, limit: Any) -> None:
    _DELIVER(self, None if limit is None else (1 << 30,) * len(limit))


def _take_again(self: Channel, message: Data) -> bool:
    if message.number == self.delivered[message.sender] and (message.sender, message.number) in self.store:
        self.delivered[message.sender] -= 1
    return _TAKE(self, message)


def _write_last(self: Member, now_ns: int) -> list[Any]:
    actions = _ACTIONS(self, now_ns)
    return sorted(actions, key=lambda action: isinstance(action, Persist))


def _adopt_without_promise(self: Durable, record: Any) -> None:
    self.acceptor.accepted_ballot = record.ballot
    self.acceptor.accepted = record.proposal


def _keep_replay(self: Durable, record: Any) -> None:
    replay = self.replay
    _WHOLE(self, record)
    self.replay = replay


def _turn_keeping_pieces(self: Fetch, now_ns: int) -> None:
    self.holders.append(self.holders.pop(0))
    self._moved_ns = now_ns


_CLOSE = Proposer.close
_ACTIONS = Member._actions
_WHOLE = Durable._whole
_DELIVER_AND_SEND = Application._deliver_and_send
_DELIVER = Application._deliver
_HEAR = Rounds.hear
_REPAIRS = Channel.repairs
_TAKE = Channel.take
_LEAVE_VIEW = Member._leave_view
_HANDLE_IN_VIEW = Member._handle_in_view


def _frozen_by_nothing(self: Member) -> bool:
    return not self.is_blocked


def _always(*_: Any) -> bool:
    return True


def _never(*_: Any) -> bool:
    return False


BROKEN: dict[str, list[Change]] = {
    "anybody decides alone": [(propose, "has_quorum", _always), (talk, "has_quorum", _always)],
    "a promise does not freeze": [(Application, "may_deliver", property(_frozen_by_nothing))],
    "the cut is the coordinator's": [
        (Proposer, "cut", lambda self: self.promises[self.view.members[self.ballot[1]]].delivered)
    ],
    "nothing is flushed": [(Proposer, "close", _skip_flush)],
    "flushed is said too early": [(Agreement, "say_flushed", _say_flushed)],
    "an accepted proposal is forgotten": [(Proposer, "newest_accepted", lambda _: None)],
    "a promise is forgotten": [(Acceptor, "accepts", _accept_any)],
    "a newcomer does not wait for the state": [(Application, "_tell", lambda self, action: self._out.append(action))],
    "messages are sent while the view changes": [(Application, "_deliver_and_send", _send_always)],
    "no message is held back": [(Channel, "is_due", _always)],
    "a message is taken twice": [(Channel, "take", _take_again)],
    "the last rank does not count for stability": [(Rounds, "is_complete", _complete_without_last)],
    "a round does not ask for the minimum": [(Rounds, "hear", _hear_without_minimum)],
    "what waits for the state counts for stability": [(Talk, "_given", lambda self: self.frontier)],
    "only the sender sends a message again": [(Channel, "repairs", _repair_own)],
    "everything is delivered at the end of a view": [(Application, "_deliver", _install_all)],
    "messages of other views are taken": [(Member, "_handle_in_view", _take_data_of_any_view)],
    "pieces of two snapshots are mixed": [(Fetch, "turn", _turn_keeping_pieces)],
    "a former member is taken for a new one": [(View, "is_past", _never)],
    "nobody takes over": [(Agreement, "_turn", lambda self, now_ns: _turn_of_first(self, now_ns))],
    "lost messages are not sent again": [(Channel, "repairs", lambda *_: [])],
    "a decision is told once": [(Member, "_catch_up", lambda *_: None)],
    "the one who leaves is gone at once": [(Member, "_leave_view", _leave_at_once)],
    "snapshots are not kept": [(Snapshots, "keep", lambda *_: None)],
    "records are written last": [(Member, "_actions", _write_last)],
    "a promise is not read back": [
        (Durable, "_promised", lambda *_: None),
        (Durable, "_adopted", _adopt_without_promise),
    ],
    "an accepted proposal is not read back": [(Durable, "_adopted", lambda *_: None)],
    "what waits is not read back": [(Durable, "_waiting", lambda *_: None)],
    "deliveries are not read back": [(Durable, "_delivered", lambda *_: None)],
    "the end is not read back": [(Durable, "_over", lambda *_: None)],
    "what was told before a checkpoint is told again": [(Durable, "_whole", _keep_replay)],
    "the silent are never excluded": [(Watch, "doomed", lambda *_: set())],
}
"""The safeguard that is missing, and what is put in its place."""


def _turn_of_first(self: Agreement, _now_ns: int) -> int:
    """Only rank 0 ever coordinates."""
    return 0 if self.view.members[0] == self.me else 1 << 40


@contextmanager
def without(name: str) -> Iterator[None]:
    """The core without this safeguard, and without its own assertion: the checkers are to see what is wrong."""
    changes = [*BROKEN[name], (Member, "_assert_complete", lambda *_: None)]
    saved = [(where, attribute, where.__dict__[attribute]) for where, attribute, _ in changes]
    for where, attribute, broken in changes:
        setattr(where, attribute, broken)
    try:
        yield
    finally:
        for where, attribute, true in saved:
            setattr(where, attribute, true)


def caught(name: str, run: Callable[[int], tuple[str, ...]], seeds: range) -> tuple[int, str] | None:
    """The first seed whose history shows that the safeguard is missing, and what it shows."""
    with without(name):
        for seed in seeds:
            try:
                broken = run(seed)
            except (AssertionError, IndexError, KeyError, ValueError) as error:
                return seed, f"{type(error).__name__}: {error}"
            if broken:
                return seed, broken[0]
    return None

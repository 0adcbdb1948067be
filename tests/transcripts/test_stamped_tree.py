"""Causal Plumtree and RASM by hand, on the square 0–1–3–2–0: the messages sent, in order."""

from __future__ import annotations

import pytest

from cubecast.protocol.handlers import TIMER
from cubecast.protocols.broadcast import rasm
from cubecast.protocols.catalogue import protocol_named
from cubecast.protocols.causal import hold_back, stamped_tree
from tests.transcripts.exchange import Copy, Exchange

ANNOUNCE_NS = 20_000_000
PATIENCE_NS = 2 * ANNOUNCE_NS
KINDS = ("GOSSIP", "PRUNE", "REPAIR", "", "HAVE", "LINK", "ASK")


class TreeTalk(Exchange):
    """Four members, of which 0 and 3 may send."""

    def __init__(self, protocol: str) -> None:
        super().__init__(protocol_named(protocol), members=4, senders=4)

    def describe(self, copy: Copy) -> str:
        name = KINDS[copy.kind]
        if name == "GOSSIP":
            return f"GOSSIP {copy.sender}.{copy.sequence} {_vector(copy)}"
        return f"{name} of {copy.sender}" if name in ("PRUNE", "REPAIR") else f"{name} {_vector(copy)}"


def _vector(copy: Copy) -> str:
    return " ".join("-" if number == hold_back.NOTHING_MORE else str(number) for number in copy.numbers[:4])


both = pytest.mark.parametrize("protocol", ["causal_plumtree", "causal_rasm"])


def grown(protocol: str) -> TreeTalk:
    """The tree of 0 has grown: 3 gets its messages from 1; everything below concerns the second message."""
    talk = TreeTalk(protocol)
    talk.publish(0)
    talk.deliver_all()
    talk.pass_time(ANNOUNCE_NS)
    talk.deliver_all()
    talk.lines = []
    return talk


@both
def test_the_first_message_floods_and_the_second_takes_the_tree(protocol: str) -> None:
    talk = TreeTalk(protocol)
    talk.publish(0)
    talk.deliver_all()
    talk.says(
        """
        0 → 1: GOSSIP 0.1 1 0 0 0
        0 → 2: GOSSIP 0.1 1 0 0 0
        0 delivers 0.1
        1 → 3: GOSSIP 0.1 1 0 0 0
        1 delivers 0.1
        2 → 3: GOSSIP 0.1 1 0 0 0
        2 delivers 0.1
        3 → 2: GOSSIP 0.1 1 0 0 0
        3 delivers 0.1
        3 → 2: PRUNE of 0
        2 → 3: PRUNE of 0
        """
    )
    talk.publish(0)
    talk.deliver_all()
    talk.says(
        """
        0 → 1: GOSSIP 0.2 2 0 0 0
        0 → 2: GOSSIP 0.2 2 0 0 0
        0 delivers 0.2
        1 → 3: GOSSIP 0.2 2 0 0 0
        1 delivers 0.2
        2 delivers 0.2
        3 delivers 0.2
        """
    )


@both
def test_news_is_announced_once(protocol: str) -> None:
    talk = TreeTalk(protocol)
    talk.publish(0)
    talk.deliver(0, 1)
    talk.lines = []
    talk.pass_time(ANNOUNCE_NS)
    talk.says(
        """
        0 → 1: HAVE 1 0 0 0
        0 → 2: HAVE 1 0 0 0
        1 → 0: HAVE 1 0 0 0
        1 → 3: HAVE 1 0 0 0
        """
    )
    talk.pass_time(10 * ANNOUNCE_NS)
    talk.says("")
    assert talk.alarms == []


@both
def test_what_happened_after_something_that_is_missing_waits(protocol: str) -> None:
    talk = TreeTalk(protocol)
    talk.publish(0)
    talk.deliver(0, 1)
    talk.deliver(1, 3)
    talk.publish(3)
    talk.lose(3, 2)
    talk.lines = []
    talk.deliver(3, 2)
    talk.says(
        """
        2 → 0: GOSSIP 3.1 1 0 0 1
        """
    )
    assert talk.state.order.waiting.tolist() == [0, 0, 1, 0]
    talk.deliver(0, 2)
    talk.says(
        """
        2 → 3: GOSSIP 0.1 1 0 0 0
        2 delivers 0.1
        2 delivers 3.1
        """
    )


@both
def test_a_missing_message_is_requested_and_then_pushed(protocol: str) -> None:
    """The copy from 1 to 3 is lost, as if 1 had crashed; 2 announces the message, and 3 requests it."""
    talk = grown(protocol)
    talk.publish(0)
    talk.deliver(0, 1)
    talk.deliver(0, 2)
    talk.lose(1, 3)
    talk.lines = []
    talk.pass_time(ANNOUNCE_NS)
    talk.lose(1, 3)
    talk.deliver_all()
    talk.lines = []
    talk.pass_time(PATIENCE_NS)
    talk.deliver_all()
    talk.says(
        """
        3 → 2: ASK 1 - - -
        2 → 3: GOSSIP 0.2 2 0 0 0
        3 → 1: GOSSIP 0.2 2 0 0 0
        3 delivers 0.2
        1 → 3: PRUNE of 0
        """
    )
    talk.publish(0)
    talk.deliver_all()
    talk.says(
        """
        0 → 1: GOSSIP 0.3 3 0 0 0
        0 → 2: GOSSIP 0.3 3 0 0 0
        0 delivers 0.3
        1 → 3: GOSSIP 0.3 3 0 0 0
        1 delivers 0.3
        2 → 3: GOSSIP 0.3 3 0 0 0
        2 delivers 0.3
        3 delivers 0.3
        3 → 2: PRUNE of 0
        """
    )


@both
def test_whose_neighbours_died_links_to_a_stand_in(protocol: str) -> None:
    talk = grown(protocol)
    talk.publish(0)
    talk.lose(0, 1)
    talk.lose(0, 2)
    talk.lines = []
    for rank in (3, 0):
        for dead in (1, 2):
            talk.leave(rank, dead)
    talk.says(
        """
        3 → 0: LINK 1 0 0 0
        3 → 2: LINK 1 0 0 0
        3 → 0: LINK 1 0 0 0
        0 → 2: LINK 2 0 0 0
        0 → 3: LINK 2 0 0 0
        """
    )
    talk.under_way = [copy for copy in talk.under_way if copy.to in (0, 3)]
    talk.deliver_all()
    talk.says(
        """
        0 → 3: HAVE 2 0 0 0
        0 → 3: HAVE 2 0 0 0
        3 → 0: HAVE 1 0 0 0
        """
    )
    talk.pass_time(PATIENCE_NS)
    talk.deliver_all()
    talk.says(
        """
        3 → 0: ASK 1 - - -
        0 → 3: GOSSIP 0.2 2 0 0 0
        3 delivers 0.2
        """
    )


def test_prunes_that_cross_cut_nobody_off_from_plumtree() -> None:
    """3 prunes 2 for the first message, which 1 brought first; then 2, not knowing yet, brings the second first."""
    talk = TreeTalk("causal_plumtree")
    for _ in range(2):
        talk.publish(0)
        talk.deliver(0, 1)
        talk.deliver(0, 2)
    for source in (1, 2, 2, 1):
        talk.deliver(source, 3)
    require_the_next_message(talk)


def test_prunes_that_cross_cut_nobody_off_from_rasm() -> None:
    """The path over 2 is the better one for the first message, so 3 prunes 1; it is the worse for the second."""
    talk = TreeTalk("causal_rasm")
    rasm.set_link_failure(talk.state.tree, 0, 1, 0.3)
    for failure in (0.0, 0.9):
        rasm.set_link_failure(talk.state.tree, 0, 2, failure)
        talk.publish(0)
        talk.deliver(0, 1)
        talk.deliver(0, 2)
    for source in (1, 2, 1, 2):
        talk.deliver(source, 3)
    require_the_next_message(talk)


def require_the_next_message(talk: TreeTalk) -> None:
    """Exactly one of its neighbours pushes it to 3."""
    talk.deliver_all()
    talk.lines = []
    talk.publish(0)
    talk.deliver_all()
    assert "3 delivers 0.3" in talk.lines
    assert sum("→ 3: GOSSIP 0.3" in line for line in talk.lines) == 1


@both
def test_members_that_wait_for_each_other_recover_by_announcements(protocol: str) -> None:
    """1 and 3 have each other as provider, and no other member pushes to them: announcements inform them."""
    talk = grown(protocol)
    peers = talk.state.tree.peers
    for rank, provider in ((1, 3), (3, 1)):
        peers.provider[rank, 0] = provider
        for link in range(peers.offsets[rank], peers.offsets[rank + 1]):
            peers.wanted[link, 0] = peers.neighbours[link] == provider
    for link in range(peers.offsets[0], peers.offsets[1]):
        peers.eager[link, 0] = peers.neighbours[link] != 1
    talk.publish(0)
    talk.deliver_all()
    assert "2 delivers 0.2" in talk.lines
    assert "1 delivers 0.2" not in talk.lines
    for _ in range(2):
        talk.pass_time(ANNOUNCE_NS + PATIENCE_NS)
        talk.deliver_all()
    assert {"1 delivers 0.2", "3 delivers 0.2"} <= set(talk.lines)
    talk.publish(0)
    talk.deliver_all()
    assert {"1 delivers 0.3", "3 delivers 0.3"} <= set(talk.lines)


@both
def test_a_neighbour_that_still_pushes_replaces_a_crashed_provider(protocol: str) -> None:
    """3 learns that 1 crashed before the copy of 2 arrives, which it would have refused."""
    talk = TreeTalk(protocol)
    talk.publish(0)
    for source, to in ((0, 1), (0, 2), (1, 3)):
        talk.deliver(source, to)
    talk.leave(3, 1)
    talk.lines = []
    talk.deliver(2, 3)
    talk.says("")
    assert talk.state.tree.peers.provider[3, 0] == 2


def test_a_link_that_got_worse_gives_way_to_a_better_path_and_wins_again_when_it_is_well() -> None:
    """Both ends of the link between 1 and 3 lose half of their heartbeats; 3 compares paths (rasm §3.1, §3.3)."""
    talk = grown("causal_rasm")
    judge_link(talk, 0.5)
    talk._call(3, TIMER, stamped_tree.WORSE, 1)
    talk.deliver_all()
    talk.says("3 → 2: ASK 1 - - -")
    talk.publish(0)
    talk.deliver_all()
    talk.says("""
        0 → 1: GOSSIP 0.2 2 0 0 0
        0 → 2: GOSSIP 0.2 2 0 0 0
        0 delivers 0.2
        1 → 3: GOSSIP 0.2 2 0 0 0
        1 delivers 0.2
        2 → 3: GOSSIP 0.2 2 0 0 0
        2 delivers 0.2
        3 delivers 0.2
        3 → 1: PRUNE of 0
        """)
    assert talk.state.tree.peers.provider[3, 0] == 2
    judge_link(talk, 0.0)
    rasm.set_link_failure(talk.state.tree, 2, 3, 0.2)
    talk._call(3, TIMER, stamped_tree.BETTER, 1)
    talk.deliver_all()
    talk.says("3 → 1: ASK 2 0 0 0")
    talk.publish(0)
    talk.deliver_all()
    assert talk.state.tree.peers.provider[3, 0] == 1


def judge_link(talk: TreeTalk, failure: float) -> None:
    """Set the estimated failure probability of the link between 1 and 3, at both ends."""
    rasm.set_link_failure(talk.state.tree, 1, 3, failure)
    rasm.set_link_failure(talk.state.tree, 3, 1, failure)

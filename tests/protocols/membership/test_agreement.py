"""The agreement on the next view, message by message: probes, promises, the cut, and the decision."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from cubecast.protocols.membership import (
    MemberId,
    MembershipSettings,
    View,
    founding_view,
)
from cubecast.protocols.membership import records as r
from cubecast.protocols.membership.agreement import EVIDENCE_BATCHES, REPORT_TO, Agreement, Measured
from cubecast.protocols.membership.messages import (
    ANY_INCARNATION,
    NO_BALLOT,
    Accept,
    Accepted,
    ChangeReport,
    Decide,
    Flush,
    Flushed,
    Join,
    Message,
    Prepare,
    Promise,
    Proposal,
    Refusal,
)
from cubecast.protocols.membership.views import Vector, ViewId, next_view

SETTINGS = MembershipSettings(tick_ns=10, suspect_ns=1000, observers=2, batch_ns=20, patience_ns=200, takeover_ns=300)
NEW = MemberId("n", 7)


class Host:
    """A member as its agreement sees it; tests set what it sees."""

    def __init__(self, world: World, me: MemberId, settings: MembershipSettings) -> None:
        """Well, with the state."""
        self.world = world
        self.me = me
        self.renews = False
        self.is_ready = True
        self.wants_to_leave = False
        self.suspected: set[MemberId] = set()
        self.slow: set[MemberId] = set()
        self.has: list[int] = []
        self.recovered_to: list[int] = []
        self.measured: Vector = ()
        self.rank: Callable[[Sequence[MemberId], Measured], Sequence[MemberId]] = lambda members, _: members
        self.is_frozen = False
        self.records: list[r.Record] = []
        self.pulled: list[Flush] = []
        self.installed: list[Proposal] = []
        self.agreement = Agreement(me, "g", settings, self)

    def begin(self, view: View) -> None:
        """A view begins."""
        self.has = [0] * len(view.members)
        self.recovered_to = [0] * len(view.members)
        self.is_frozen = False
        self.suspected &= set(view.members)
        self.slow &= set(view.members)
        self.renews = False
        self.agreement.begin_view(view, self.world.now_ns)

    def send(self, to: MemberId, message: Message) -> None:
        """A message is in transit."""
        self.world.under_way.append((self.me, to, message))

    def record(self, record: r.Record) -> None:
        """A record is written."""
        self.records.append(record)

    def suspects(self) -> Collection[MemberId]:
        """As the test says."""
        return self.suspected

    def behind(self) -> Collection[MemberId]:
        """As the test says."""
        return self.slow

    def delivered(self) -> Vector:
        """As the test says."""
        return tuple(self.has)

    def round_trips(self) -> Vector:
        """As the test says."""
        return self.measured

    def ranked(self, members: Sequence[MemberId], measured: Measured) -> Sequence[MemberId]:
        """As the test says, which sees what was measured."""
        return self.rank(members, measured)

    def freeze(self) -> None:
        """Deliver nothing more."""
        self.is_frozen = True

    def lacks(self, cut: Vector) -> bool:
        """Is anything missing?"""
        return any(max(one) < two for one, two in zip(zip(self.has, self.recovered_to, strict=True), cut, strict=True))

    def pull(self, flush: Flush) -> None:
        """Ask for what is missing."""
        self.pulled.append(flush)

    def install(self, proposal: Proposal, now_ns: int) -> None:
        """Continue in the decided view."""
        assert now_ns == self.world.now_ns
        self.installed.append(proposal)
        self.agreement.last_decision = Decide(self.agreement.view.id, proposal)
        if self.me in proposal.view.members:
            self.begin(proposal.view)


class World:
    """Members of one view; messages are in transit until a test delivers them."""

    def __init__(self, members: int, settings: MembershipSettings = SETTINGS) -> None:
        """The founding view is installed everywhere."""
        self.now_ns = 0
        self.under_way: list[tuple[MemberId, MemberId, Message]] = []
        self.down: set[MemberId] = set()
        self.view = founding_view([MemberId(f"m{rank}", 1) for rank in range(members)], "g")
        self.hosts = {who: Host(self, who, settings) for who in self.view.members}
        for host in self.hosts.values():
            host.begin(self.view)
            host.agreement.have_state = set(self.view.members)

    def __getitem__(self, rank: int) -> Host:
        """The host of a rank of the founding view."""
        return self.hosts[self.view.members[rank]]

    def crash(self, *ranks: int) -> None:
        """Members stop, and all others suspect them."""
        gone = {self.view.members[rank] for rank in ranks}
        self.down |= gone
        for who, host in self.hosts.items():
            if who not in self.down:
                host.suspected |= gone

    def tick(self, *ranks: int) -> None:
        """These members tick, or all that run."""
        for rank in ranks or range(len(self.view.members)):
            if self.view.members[rank] not in self.down:
                self[rank].agreement.tick(self.now_ns)

    def kinds(self) -> list[str]:
        """The messages in transit, sorted: "0 Prepare 1"."""
        rank = {who.name: str(place) for place, who in enumerate(self.view.members)} | {NEW.name: "n"}
        return sorted(
            f"{rank[source.name]} {type(message).__name__} {rank[to.name]}" for source, to, message in self.under_way
        )

    def pass_on(self) -> None:
        """Everything in transit now arrives; answers are then in transit."""
        arriving, self.under_way = self.under_way, []
        for source, to, message in arriving:
            host = self.hosts.get(to)
            if host is None or to in self.down:
                continue
            if isinstance(message, Decide):
                if message.view == host.agreement.view.id:
                    host.install(message.proposal, self.now_ns)
            elif message.view == host.agreement.view.id:
                host.agreement.handle(source, message, self.now_ns)

    def pass_all(self) -> None:
        """Until nothing is in transit."""
        while self.under_way:
            self.pass_on()

    def run(self, until_ns: int) -> None:
        """Ticks and messages up to a time."""
        while self.now_ns < until_ns:
            self.now_ns += SETTINGS.tick_ns
            self.tick()
            self.pass_all()


# One change, message by message.


def test_a_process_joins() -> None:
    world = World(3)
    world[2].agreement.hear_join(NEW, 0)
    world.tick()
    assert world.kinds() == ["2 ChangeReport 0", "2 ChangeReport 1"], (
        "the coordinator, and who would take over, must know"
    )
    world.pass_on()
    assert world.kinds() == ["0 Probe 1", "0 Probe 2"], (
        "while wishes are gathered, all are asked whether they are there"
    )
    world.pass_on()
    assert world.kinds() == ["1 Present 0", "2 Present 0"]
    world.pass_on()
    assert world.kinds() == []
    assert world[1].records == [], "nobody has promised"
    world.now_ns = 20
    world.tick(0)
    assert [one for one in world.kinds() if "ChangeReport" not in one] == ["0 Prepare 1", "0 Prepare 2"]
    assert world[0].is_frozen, "a coordinator promises to itself at once"
    world.pass_on()
    assert world.kinds() == ["1 Promise 0", "2 Promise 0"]
    assert world[1].records == [r.Promised((1, 0))]
    assert world[1].is_frozen
    world.pass_on()
    assert world.kinds() == ["0 Accept 1", "0 Accept 2"], "nothing is missing, so nothing is flushed"
    world.pass_on()
    assert world.kinds() == ["1 Accepted 0", "2 Accepted 0"]
    assert isinstance(world[1].records[-1], r.Adopted)
    world.pass_on()
    decided = next_view(world.view, world.view.members, [NEW], (0, 0, 0))
    assert world[0].installed == [Proposal(decided, (0, 0, 0))]
    assert world.kinds() == ["0 Decide 1", "0 Decide 2", "0 Decide n"]
    world.pass_all()
    assert all(world[rank].agreement.view == decided for rank in range(3))
    assert decided.joined == (NEW,)


def test_the_ranks_of_the_next_view_may_follow_from_measured_round_trips() -> None:
    world = World(3)
    seen: list[Measured] = []

    def rank(members: Sequence[MemberId], measured: Measured) -> Sequence[MemberId]:
        seen.append(measured)
        return members[::-1]

    world[0].rank = rank
    world[0].measured, world[1].measured = (0, 5, 0), (7, 0, 9)
    world[2].agreement.hear_join(NEW, 0)
    world.tick()
    world.pass_on()
    world.pass_on()
    assert world.kinds() == ["1 Present 0", "1 RoundTrips 0", "2 Present 0"], "who measured nothing reports nothing"
    world.pass_all()
    world.now_ns = 20
    world.tick(0)
    world.pass_all()
    first, second, third = world.view.members
    assert seen == [{first: {first: 0, second: 5, third: 0}, second: {first: 7, second: 0, third: 9}}]
    decided = next_view(world.view, world.view.members, [NEW], (0, 0, 0), ranked=lambda members: members[::-1])
    assert decided.members == (NEW, third, second, first)
    assert all(world[rank].agreement.view == decided for rank in range(3))
    assert world[0].agreement._measured == {}, "they were measured in the view before"


def test_only_members_of_the_present_or_last_view_get_a_change_instead_of_the_whole_view() -> None:
    world = World(3)
    agreement, (first, second, _) = world[0].agreement, world.view.members
    stranger = MemberId("m1", 2)
    assert agreement.shared_view(world.view.id, second) == world.view
    assert agreement.shared_view(world.view.id, stranger) is None
    assert agreement.shared_view(ViewId(1, 0), second) is None
    following = next_view(world.view, {first, second}, [NEW], (0, 0, 0))
    agreement.begin_view(following, 0)
    assert agreement.shared_view(world.view.id, second) == world.view, "it may have missed the decision"
    assert agreement.shared_view(world.view.id, NEW) is None
    assert agreement.shared_view(following.id, NEW) == following
    newcomer = Agreement(NEW, "g", SETTINGS, world[0])
    assert newcomer.shared_view(following.id, first) is None
    newcomer.begin_view(following, 0)
    assert newcomer.shared_view(world.view.id, first) is None, "it was not there"


def test_a_member_leaves() -> None:
    world = World(3)
    world[1].wants_to_leave = True
    world.run(100)
    (proposal,) = world[0].installed
    assert proposal.view.members == (world.view.members[0], world.view.members[2])
    assert proposal.view.left == (world.view.members[1],)
    assert world[1].installed == [proposal], "who leaves hears of it"


def test_the_coordinator_itself_leaves() -> None:
    world = World(3)
    world[0].wants_to_leave = True
    world.run(100)
    assert world[1].installed[0].view.members == (world.view.members[2], world.view.members[1])
    assert world[1].installed[0].view.left == (world.view.members[0],)


def test_the_last_one_that_has_the_state_waits_until_another_one_has_it() -> None:
    world = World(2)
    world[0].wants_to_leave = True
    world[1].is_ready = False
    for rank in range(2):
        world[rank].agreement.have_state = {world.view.members[0]}
    world.run(500)
    assert not world[0].installed, "without it the group would forget its state"
    world[1].is_ready = True
    for rank in range(2):
        world[rank].agreement.have_state = set(world.view.members)
    world.run(1000)
    assert world[1].installed[0].view.members == (world.view.members[1],)


def test_a_member_that_crashed_is_excluded_and_what_it_sent_is_recovered() -> None:
    world = World(3)
    world[1].has = [0, 0, 5]  # rank 1 delivered five messages of rank 2, rank 0 only three
    world[0].has = [0, 0, 3]
    world.crash(2)
    world.now_ns = 20
    world.tick()
    world.pass_on()
    world.now_ns = 40
    world.tick(0)
    while not world[0].pulled:
        world.pass_on()
    (flush,) = world[0].pulled
    assert flush.cut == (0, 0, 5)
    assert flush.sources[2] == 1, "rank 1 has everything of rank 2"
    world.pass_all()
    assert not world[0].installed, "nobody accepts before everybody who stays holds everything"
    world[0].recovered_to = [0, 0, 5]
    world[0].agreement.recovered(world.now_ns)
    world.pass_all()
    assert world[0].installed[0].cut == (0, 0, 5)
    assert world[1].installed == world[0].installed


def test_two_members_that_crash_together_are_excluded_in_one_view() -> None:
    world = World(7)
    world.crash(2, 5)
    world.run(200)
    assert len(world[0].installed) == 1
    assert set(world[0].installed[0].view.members) == set(world.view.members) - world.down


def test_a_member_that_crashes_during_a_change_is_excluded_with_it() -> None:
    world = World(5)
    world.crash(4)
    world.now_ns = 20
    world.tick()
    world.pass_all()
    world.now_ns = 40
    world.tick(0)
    assert "0 Prepare 3" in world.kinds()
    world.crash(3)
    world.run(600)
    assert len(world[0].installed) == 1
    assert set(world[0].installed[0].view.members) == set(world.view.members) - world.down


def test_wishes_that_come_within_a_batch_share_a_view() -> None:
    world = World(3)
    world[1].agreement.hear_join(NEW, 0)
    world.tick()
    world.pass_all()
    world.now_ns = 10
    world[2].wants_to_leave = True
    world.run(100)
    (proposal,) = world[0].installed
    assert NEW in proposal.view.members
    assert world.view.members[2] not in proposal.view.members


def test_a_later_incarnation_takes_the_place_of_the_earlier_one() -> None:
    world = World(3)
    again = MemberId("m2", 9)
    world[0].agreement.hear_join(MemberId("m2", 8), 0)
    world[0].agreement.hear_join(again, 0)
    world.down.add(world.view.members[2])
    world.run(600)
    (proposal,) = world[0].installed
    assert proposal.view.members == (world.view.members[0], world.view.members[1], again)
    assert proposal.view.is_past(world.view.members[2])


def test_a_member_that_needs_a_new_view_gets_one_of_the_same_members() -> None:
    world = World(3)
    world[2].renews = True
    world.run(60)
    assert world[0].installed[0].view.members == world.view.members


def test_a_member_that_is_behind_is_excluded() -> None:
    world = World(3)
    world[1].slow = {world.view.members[2]}
    world.run(60)
    assert world[0].installed[0].view.members == world.view.members[:2]


# Coordinators that crash.


def test_the_next_rank_takes_over_a_change_that_stands_still() -> None:
    world = World(5)
    world.crash(4)
    world.tick()
    world.pass_on()
    world.now_ns = 20
    world.tick(0)
    world.pass_on()  # everybody has promised, and is frozen
    world.down.add(world.view.members[0])
    world.under_way.clear()
    world.run(280)
    assert not world[1].installed
    for rank in (1, 2, 3):
        world[rank].suspected.add(world.view.members[0])
    world.run(900)
    (proposal,) = world[1].installed
    assert set(proposal.view.members) == {world.view.members[rank] for rank in (1, 2, 3)}
    assert world[2].installed == world[3].installed == [proposal]


def test_an_accepted_proposal_is_proposed_again_as_it_is() -> None:
    """It may have been decided: rank 3 alone accepted it before the coordinator crashed."""
    world = World(5)
    world[1].agreement.hear_join(NEW, 0)
    world.tick()
    world.pass_on()
    world.now_ns = 20
    world.tick(0)
    while not any(isinstance(message, Accept) for _, _, message in world.under_way):
        world.pass_on()
    world.under_way = [one for one in world.under_way if one[1] == world.view.members[3]]
    world.pass_on()
    (accepted,) = [record.proposal for record in world[3].records if isinstance(record, r.Adopted)]
    world.under_way.clear()
    world.crash(0)
    world.run(3000)
    first = world[3].installed[0]
    assert first == accepted
    assert NEW in first.view.members
    assert world.view.members[0] in first.view.members, "it is proposed as it is; the crash is dealt with afterwards"


def test_an_older_ballot_is_refused_and_its_coordinator_steps_back() -> None:
    world = World(3)
    members = world.view.members
    world[2].agreement.handle(members[1], Prepare(world.view.id, (5, 1)), 0)
    world.under_way.clear()
    world[0].agreement.hear_join(NEW, 0)
    world.now_ns = 1
    world.tick(0)
    world.pass_all()
    world.now_ns = 30
    world.tick(0)
    assert "0 Prepare 2" in world.kinds()
    world.pass_on()
    assert (members[2], members[0], Refusal(world.view.id, (5, 1))) in world.under_way
    world.pass_on()
    assert world[0].agreement.proposer is None
    assert world[0].is_frozen, "a freeze outlives its ballot"
    world.run(1500)
    assert world[0].installed
    assert world[0].installed == world[1].installed == world[2].installed


def test_an_accept_of_an_older_ballot_is_refused() -> None:
    world = World(3)
    members = world.view.members
    host = world[2]
    host.agreement.handle(members[1], Prepare(world.view.id, (5, 1)), 0)
    world.under_way.clear()
    proposal = Proposal(next_view(world.view, members[:2], [], (0, 0, 0)), (0, 0, 0))
    host.agreement.handle(members[0], Accept(world.view.id, (4, 0), proposal), 0)
    assert world.under_way == [(members[2], members[0], Refusal(world.view.id, (5, 1)))]
    assert host.agreement.acceptor.accepted is None


def test_a_promise_is_repeated_without_being_written_twice() -> None:
    world = World(3)
    members = world.view.members
    for _ in range(3):
        world[2].agreement.handle(members[0], Prepare(world.view.id, (1, 0)), 0)
    assert world[2].records == [r.Promised((1, 0))]
    assert world.kinds() == ["2 Promise 0"] * 3


def test_a_flush_of_another_ballot_is_refused() -> None:
    world = World(3)
    members = world.view.members
    world[2].agreement.handle(members[0], Prepare(world.view.id, (1, 0)), 0)
    world.under_way.clear()
    world[2].agreement.handle(members[1], Flush(world.view.id, (2, 1), (0, 0, 0), (0, 0, 0)), 0)
    assert world.kinds() == ["2 Refusal 1"]


def test_without_a_quorum_nothing_is_decided() -> None:
    world = World(5)
    world.crash(0, 1, 2)
    world.run(5000)
    assert not world[3].installed
    assert not world[3].agreement.has_quorum()


# The probe.


def wanted_with_one_silent(members: int = 4) -> World:
    """A process wants to join, while the last rank is down and nobody suspects it yet."""
    world = World(members)
    world.down.add(world.view.members[-1])
    world[0].agreement.hear_join(NEW, 0)
    world.run(SETTINGS.batch_ns * 3)
    return world


def test_nobody_is_paused_while_a_member_is_silent_that_may_be_down() -> None:
    world = wanted_with_one_silent()
    assert not any(world[rank].is_frozen for rank in range(3))
    world.crash(3)
    world.run(world.now_ns + SETTINGS.batch_ns)
    (proposal,) = world[0].installed
    assert proposal.view.members == (*world.view.members[:3], NEW), "the exclusion and the join share a view"


def test_a_silent_member_that_answers_late_stays() -> None:
    world = wanted_with_one_silent()
    world.down.clear()
    world.run(world.now_ns + SETTINGS.batch_ns)
    (proposal,) = world[0].installed
    assert proposal.view.members == (*world.view.members, NEW)


def test_a_member_that_only_the_coordinator_cannot_reach_does_not_hold_up_a_change_for_ever() -> None:
    world = wanted_with_one_silent()
    world.run(SETTINGS.suspect_ns + SETTINGS.patience_ns)
    assert not world[0].is_frozen
    for _ in range(4):
        world[0].agreement.hear_join(NEW, world.now_ns)  # it keeps asking
        world.run(world.now_ns + SETTINGS.patience_ns)
    assert world[0].installed[0].view.members == (*world.view.members[:3], NEW)


def test_a_member_that_answered_an_earlier_probe_is_probed_again() -> None:
    world = World(3)
    world[0].agreement.hear_join(NEW, 0)
    world.tick(0)
    world.pass_all()
    world.now_ns = 3 * SETTINGS.suspect_ns  # it stopped asking
    world.tick(0)
    world.under_way.clear()
    world.down.add(world.view.members[2])
    world[0].agreement.hear_join(NEW, world.now_ns)
    world.run(world.now_ns + 3 * SETTINGS.batch_ns)
    assert not world[0].is_frozen


def test_only_the_first_rank_within_reach_probes() -> None:
    world = World(4)
    world.crash(0)
    for rank in (1, 2, 3):
        world[rank].agreement.hear_join(NEW, 0)
    world.tick()
    assert {one for one in world.kinds() if "Probe" in one} == {"1 Probe 0", "1 Probe 2", "1 Probe 3"}


def test_a_process_that_returns_is_not_awaited_as_the_one_it_was() -> None:
    """Neither when the coordinator probes, nor when it gathers promises."""
    world = World(3)
    world.down.add(world.view.members[2])
    world[0].agreement.hear_join(MemberId("m2", 9), 0)
    world.run(SETTINGS.batch_ns * 2)
    assert world[0].installed


# Evidence.


def test_one_observer_is_not_enough() -> None:
    world = World(5)
    world[0].suspected = {world.view.members[4]}
    world.run(500)
    assert not world[0].installed
    assert world[0].agreement.doomed(world.now_ns) == set()
    world[3].suspected = {world.view.members[4]}
    world.down.add(world.view.members[4])
    world.run(1000)
    assert world.view.members[4] not in world[0].installed[0].view.members


def test_fewer_observers_are_enough_where_fewer_are_left() -> None:
    world = World(2, MembershipSettings(observers=3))
    world.crash(1)
    assert world[0].agreement.doomed(0) == {world.view.members[1]}


def test_a_report_counts_for_a_while_only() -> None:
    world = World(5)
    last = world.view.members[4]
    world[0].suspected = {last}
    report = ChangeReport(world.view.id, 1 << 4, 0, (), leaves=False, renews=False)
    world[0].agreement.on_report(world.view.members[3], report, 0)
    assert world[0].agreement.doomed(SETTINGS.suspect_ns) == {last}
    assert world[0].agreement.doomed(SETTINGS.suspect_ns + 1) == set()


def test_the_report_of_a_suspected_member_does_not_count() -> None:
    world = World(5)
    first, *_, fourth, last = world.view.members
    world[0].suspected = {last, fourth}
    report = ChangeReport(world.view.id, 1 << 4, 0, (), leaves=False, renews=False)
    world[0].agreement.on_report(fourth, report, 0)
    assert world[0].agreement.doomed(0) == set()
    assert first not in world[0].agreement.doomed(0)


def test_the_coordinator_waits_for_more_observers_so_that_one_view_serves_several_failures() -> None:
    """Rank 5 is doomed; rank 6 is suspected by one member so far."""
    world = World(7)
    members = world.view.members
    world.down |= {members[5], members[6]}
    for rank in range(5):
        world[rank].suspected = {members[5]}
    world[3].suspected.add(members[6])
    world.run(SETTINGS.batch_ns * 3)
    assert world[0].agreement.proposer is None
    for rank in range(5):
        world[rank].suspected.add(members[6])
    world.run(1000)
    assert len(world[0].installed) == 1
    assert set(world[0].installed[0].view.members) == set(members[:5])


def test_it_does_not_wait_for_ever() -> None:
    world = World(7)
    members = world.view.members
    world.down.add(members[5])
    for rank in range(5):
        world[rank].suspected = {members[5]}
    world[3].suspected.add(members[6])
    world.run(SETTINGS.batch_ns * (EVIDENCE_BATCHES + 4))
    assert members[5] not in world[0].installed[0].view.members
    assert members[6] in world[0].installed[0].view.members


def test_a_member_that_restarted_is_heard_although_the_coordinator_seems_out_of_reach_to_it() -> None:
    """It has no failure detector before the next view: members that have nothing to send to it seem silent."""
    world = World(6)
    world[5].suspected = set(world.view.members[:3])
    world[5].renews = True
    world.run(SETTINGS.batch_ns * (EVIDENCE_BATCHES + 4))
    assert world[0].installed, "the coordinator does not know that a new view is wanted"


def test_reports_go_to_the_first_reachable_ranks_when_something_changed() -> None:
    world = World(6)
    world[5].suspected = {world.view.members[0]}
    world[5].agreement.tick(0)
    assert world.kinds() == [f"5 ChangeReport {rank}" for rank in range(1 + REPORT_TO)], "also to the one out of reach"
    world.under_way.clear()
    world[5].agreement.tick(1)
    assert world.kinds() == [], "nothing is new"
    world[5].agreement.tick(SETTINGS.suspect_ns // 4)
    assert len(world.kinds()) == REPORT_TO + 1, "a report is renewed before it is too old"
    world.under_way.clear()
    world[5].suspected = set()
    world[5].agreement.tick(SETTINGS.suspect_ns // 4 + 1)
    assert len(world.kinds()) == REPORT_TO, "that the suspicion is over is news too"


# Founding.


def founders(count: int, settings: MembershipSettings = SETTINGS) -> World:
    """This many founders, who agree on view 1 in view 0, which lists names only."""
    world = World(count, settings)
    zero = View(0, 0, 0, tuple(MemberId(f"m{rank}", 0) for rank in range(count)), (), (), ())
    for host in world.hosts.values():
        host.agreement.begin_view(zero, 0)
        host.has = []
    return world


def pass_names(world: World) -> None:
    """Messages of view 0 are addressed to names; here every process runs one incarnation."""
    while world.under_way:
        world.under_way = [
            (MemberId(source.name, 0), MemberId(to.name, 1), message)
            if to.incarnation == ANY_INCARNATION
            else (source, to, message)
            for source, to, message in world.under_way
        ]
        world.pass_on()


def test_founders_learn_each_others_incarnations_from_the_promises() -> None:
    world = founders(3)
    assert world[0].agreement.begin_founding(0)
    assert not world[0].agreement.begin_founding(0), "one ballot at a time"
    pass_names(world)
    (proposal,) = world[0].installed
    assert proposal.view == world.view
    assert proposal.view.members == tuple(MemberId(f"m{rank}", 1) for rank in range(3))
    assert world[1].installed == world[2].installed == [proposal]


def test_a_group_is_founded_by_a_majority_whatever_the_quorum_is() -> None:
    world = founders(5, MembershipSettings(quorum="any", patience_ns=200, takeover_ns=300))
    world.down |= {world.view.members[rank] for rank in (2, 3, 4)}
    world[0].agreement.begin_founding(0)
    pass_names(world)
    for now_ns in (100, 1000, 5000):
        world.now_ns = now_ns
        world.tick()
        pass_names(world)
    assert not world[0].installed, "two of five could be founded twice"
    world.down.discard(world.view.members[2])
    world.now_ns = 6000
    world.tick()
    pass_names(world)
    assert set(world[0].installed[0].view.members) == {world.view.members[rank] for rank in range(3)}


def test_nobody_reports_or_begins_by_itself_before_the_group_is_founded() -> None:
    world = founders(3)
    world.tick()
    assert world.under_way == []


# Quorums.


def test_with_quorum_any_both_sides_of_a_partition_decide() -> None:
    world = World(4, MembershipSettings(quorum="any", tick_ns=10, suspect_ns=1000, batch_ns=20))
    members = world.view.members
    sides = [set(members[:2]), set(members[2:])]
    for host in world.hosts.values():
        host.suspected = set(members) - next(side for side in sides if host.me in side)
    for _ in range(100):
        world.now_ns += 10
        world.tick()
        while world.under_way:
            world.under_way = [
                one for one in world.under_way if any(one[0] in side and one[1] in side for side in sides)
            ]
            world.pass_on()
    one, other = world[0].installed[0].view, world[2].installed[0].view
    assert (set(one.members), set(other.members)) == (sides[0], sides[1])
    assert one.number == other.number == 2
    assert one.tag != other.tag


def test_an_operator_forces_a_minority_to_continue_also_when_a_change_stands_still() -> None:
    for waits_ns in (0, 2000):
        world = World(3)
        world.crash(0, 1)
        world.run(waits_ns)
        assert not world[2].installed
        world[2].agreement.force(world.now_ns)
        assert world[2].agreement.has_quorum()
        world.run(waits_ns + 1000)
        assert world[2].installed[0].view.members == (world.view.members[2],)
        assert not world[2].agreement.is_forced, "it holds for one view"


# What comes out of turn.


def test_answers_to_another_ballot_are_ignored() -> None:
    world = World(3)
    members = world.view.members
    agreement = world[0].agreement
    nothing = Promise(world.view.id, (9, 0), (0, 0, 0), NO_BALLOT, None, members[1], ready=True, leaves=False)
    for message in (nothing, Flushed(world.view.id, (9, 0)), Accepted(world.view.id, (9, 0))):
        agreement.handle(members[1], message, 0)
    assert world.under_way == []
    agreement.hear_join(NEW, 0)
    world.tick(0)
    world.pass_all()
    world.now_ns = 20
    world.tick(0)
    for message in (nothing, Flushed(world.view.id, (1, 0)), Accepted(world.view.id, (9, 0))):
        agreement.handle(members[1], message, 20)
    assert agreement.proposer is not None
    assert members[1] not in agreement.proposer.promises
    assert not world[0].installed


def test_a_join_of_a_member_or_of_one_that_is_past_is_not_wanted() -> None:
    world = World(3)
    agreement = world[0].agreement
    agreement.hear_join(world.view.members[1], 0)
    agreement.hear_join(MemberId("m1", 0), 0)
    agreement.handle(world.view.members[1], Join(world.view.id, MemberId("m2", 1)), 0)
    assert agreement.wanted_joins(0) == []
    agreement.hear_join(NEW, 0)
    assert agreement.wanted_joins(2 * SETTINGS.suspect_ns) == [NEW]
    assert agreement.wanted_joins(2 * SETTINGS.suspect_ns + 1) == [], "who stopped asking is no longer wanted"

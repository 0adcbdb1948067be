"""Who was once in a group, or has heard that there is one, founds no other: two majorities could found two groups."""

from __future__ import annotations

from cubecast.protocols.membership.views import MemberId
from tests.member.network import MS, Network


def test_a_founder_that_was_in_the_group_does_not_found_another_after_a_restart() -> None:
    """It was excluded, asked to join again, and was killed before it was let in; its program names the peers again."""
    network = Network()
    first, second, third = names = network.form(3, durable=True)
    network.cut([third], [first, second])
    network.run_until(lambda: network.in_one_view([first, second]))
    network.kill(second)
    network.run_until(lambda: network.in_one_view([first]))
    network.heal()
    network.run_until(lambda: network.member(third).phase == "joining")
    network.kill(third)
    network.kill(first)
    again = network.start(third, founders=names, contacts=names, durable=True)
    assert again.phase == "joining"
    assert again.founders == []
    assert set(again.contacts) == {first, second}


def test_a_founder_that_hears_of_a_group_asks_to_join_it() -> None:
    network = Network()
    first, second, third = names = network.form(3)
    network.kill(second)
    network.run_until(lambda: network.in_one_view([first, third]))
    network.now_ns -= MS  # the clock of this machine is behind: its incarnation is not new
    late = network.start(second, founders=names)
    late.me = MemberId(second, 1)
    network.run_until(lambda: network.in_one_view(names))
    assert network.member(second).me.incarnation > 1
    assert late.founders == []

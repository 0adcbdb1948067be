"""Which member gets which rank: the search against all placements, the runs against the checkers."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from cubecast.errors import LocalProtocolError
from cubecast.networks.network import Network
from cubecast.networks.routes import find_routes
from cubecast.networks.spec import build_network
from cubecast.protocol.overlays import hypercube
from cubecast.protocol.pair_swaps import improve, partners_of, swap_change, total_cost
from cubecast.protocol.traffic import Traffic, over_links, pairs, to_all, together
from cubecast.protocols.catalogue import list_protocols
from cubecast.sim.bisection import bisect
from cubecast.sim.build import build_simulation
from cubecast.sim.distances import routed_delays
from cubecast.sim.placement import find_placement, place
from cubecast.sim.scenario import Scenario
from cubecast.sim.simulate import run_scenario, trace_scenario
from cubecast.trace.checkers import check_all
from tests.oracles.placement import cost_of, least_cost
from tests.support.paths import path_links

MAIN = [one.name for one in list_protocols() if one.family in ("stability", "causal", "broadcast")]
PLACEMENTS = ("random", "bisection", "search")


def _distances(members: int, generator: np.random.Generator) -> NDArray[np.float32]:
    """Of points in the plane."""
    points = generator.random((members, 2))
    found: NDArray[np.float32] = np.linalg.norm(points[:, None] - points, axis=2).astype(np.float32)
    return found


def _random_traffic(members: int, generator: np.random.Generator) -> Traffic:
    one, other = np.nonzero(np.triu(generator.random((members, members)) < 0.5, 1))
    return Traffic(one, other, generator.integers(1, 5, len(one)).astype(float))


def _scenario(protocol: str, **settings: object) -> Scenario:
    usual = {"members": 24, "network": "random:degree=4", "seed": 3}
    return Scenario.of(protocol, **(usual | settings))


def _network(scenario: Scenario) -> Network:
    return build_network(scenario.network, members=scenario.members, seed=scenario.seed)


@pytest.mark.parametrize("members", [2, 3, 5, 7])
def test_search_finds_the_best_of_all_placements_or_nearly(members: int) -> None:
    """Within 2 % of the least cost of all n! placements, and the best itself in eight cases of ten."""
    generator = np.random.default_rng(members)
    ratios = []
    for _ in range(10):
        traffic, distances = _random_traffic(members, generator), _distances(members, generator)
        partners = partners_of(traffic, members)
        found = improve(bisect(partners, distances), partners, distances, swaps=5000 * members, seed=1)
        assert sorted(found) == list(range(members))
        if len(traffic.source) > 0:
            ratios.append(cost_of(found, traffic, distances) / least_cost(traffic, distances))
    assert max(ratios) < 1.02
    assert sum(ratio < 1 + 1e-5 for ratio in ratios) >= 0.8 * len(ratios)


def test_what_a_swap_gains_is_the_difference_of_the_costs() -> None:
    generator = np.random.default_rng(0)
    for members in (2, 6, 19):
        traffic = together(_random_traffic(members, generator), to_all(0, members), over_links(hypercube(members)))
        distances, partners = _distances(members, generator), partners_of(traffic, members)
        at = generator.permutation(members)
        assert total_cost(at, partners, distances) == pytest.approx(cost_of(at, traffic, distances))
        for one in range(members):
            for other in range(one):
                swapped = at.copy()
                swapped[[one, other]] = swapped[[other, one]]
                gained = cost_of(swapped, traffic, distances) - cost_of(at, traffic, distances)
                assert swap_change(at, partners, distances, one, other) == pytest.approx(gained, abs=1e-5)


def test_no_swap_improves_what_the_search_found() -> None:
    generator = np.random.default_rng(5)
    partners, distances = partners_of(over_links(hypercube(40)), 40), _distances(40, generator)
    found = improve(np.arange(40), partners, distances, swaps=1000, seed=1)
    gains = [swap_change(found, partners, distances, one, other) for one in range(40) for other in range(one)]
    assert min(gains) > -1e-4


def test_bisection_puts_two_cliques_into_two_regions() -> None:
    """Even ranks talk to even ones, odd to odd; places 0 … 7 and 8 … 15 are far apart."""
    ranks = np.arange(16)
    one, other = np.nonzero((ranks[:, None] - ranks) % 2 == 0)
    partners = partners_of(pairs(one[one != other], other[one != other]), 16)
    far = np.where(ranks[:, None] // 8 == ranks // 8, 1.0, 100.0).astype(np.float32)
    np.fill_diagonal(far, 0)
    region = bisect(partners, far) // 8
    assert len(set(region[::2])) == len(set(region[1::2])) == 1


@pytest.mark.parametrize("spec", ["random:degree=4", "wan-tree:nodes=60", "chain"])
def test_distances_add_up_the_links_of_a_route(spec: str) -> None:
    network = build_network(spec, members=20, seed=2)
    routes = find_routes(network, by="hops")
    found = routed_delays(network, routes, 100)
    router_ns = network.costs.router_ns if network.costs is not None else 0
    for one in range(0, 20, 3):
        for other in range(20):
            links = path_links(routes, network, int(network.hosts[one]), int(network.hosts[other]))
            wanted = sum(network.delay_ns[k] + 8e11 / network.bandwidth_bps[k] + router_ns for k in links)
            assert found[one, other] == pytest.approx(wanted)


def test_search_is_cheaper_than_bisection_and_that_than_any_order() -> None:
    costs = {}
    for placement in PLACEMENTS:
        scenario = _scenario("cube_full_dist", members=64, placement=placement)
        costs[placement] = find_placement(scenario, _network(scenario)).cost_ms
    assert costs["search"] < costs["bisection"] < costs["random"]


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_one_seed_gives_one_placement(placement: str) -> None:
    scenario = _scenario("s_coord", placement=placement)
    first, second = (find_placement(scenario, _network(scenario)) for _ in range(2))
    assert first.at.tolist() == second.at.tolist()
    assert sorted(first.at) == list(range(24))


def test_another_seed_gives_another_random_placement() -> None:
    network = _network(_scenario("s_coord"))
    orders = {tuple(find_placement(_scenario("s_coord", placement="random", seed=k), network).at) for k in range(5)}
    assert len(orders) == 5


@pytest.mark.parametrize("protocol", MAIN)
@pytest.mark.parametrize("placement", PLACEMENTS)
def test_every_protocol_keeps_its_promises_under_every_placement(protocol: str, placement: str) -> None:
    entry = next(one for one in list_protocols() if one.name == protocol)
    data = {"messages": 2, "senders": 4} if entry.carries_data else {"crashes": "3@1ms", "rounds": 2}
    scenario = _scenario(protocol, members=12, placement=placement, **data)
    report = check_all(trace_scenario(scenario, _network(scenario)))
    assert report.ok, "\n".join(report.lines())


def test_a_protocol_that_talks_to_all_alike_stays_as_the_network_lists_it() -> None:
    scenario = _scenario("full_dist", placement="search")
    assert find_placement(scenario, _network(scenario)).at.tolist() == list(range(24))


def test_neighbours_are_the_networks_links_under_any_placement() -> None:
    scenario = _scenario("plumtree", placement="random", messages=1, senders=2)
    network = place(scenario, _network(scenario))
    peers = build_simulation(scenario, network, tracing=False).data.peers
    linked = {tuple(ends) for ends in np.stack([network.link_from, network.link_to], axis=1).tolist()}
    for rank in range(24):
        for other in peers.neighbours[peers.offsets[rank] : peers.offsets[rank + 1]]:
            assert (network.hosts[rank], network.hosts[other]) in linked
    assert len(peers.neighbours) == len(linked)


def test_a_chain_is_followed_by_a_train() -> None:
    """Round a ring that lies along a chain: there and back, 2 (n − 1) links is the least."""
    scenario = _scenario("train", members=10, network="chain", placement="search", seed=1)
    network = place(scenario, _network(scenario))
    hops = np.abs(np.diff(np.append(network.hosts, network.hosts[0]))).sum()
    assert hops == 2 * 9


def test_a_placement_changes_the_run_and_its_command() -> None:
    scenario = _scenario("cube_full_dist", members=64, placement="search")
    plain = run_scenario(_scenario("cube_full_dist", members=64), _network(scenario))
    assert run_scenario(scenario, _network(scenario)).rtt_last_ms < plain.rtt_last_ms
    assert "--placement search" in scenario.command()


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_a_network_without_distances_is_refused(placement: str) -> None:
    scenario = _scenario("s_coord", network="flat", placement=placement)
    with pytest.raises(LocalProtocolError, match="equally far apart, choose a network with links"):
        run_scenario(scenario, _network(scenario))


def test_an_unknown_placement_is_refused() -> None:
    with pytest.raises(LocalProtocolError, match="placement = 'best': choose random or bisection or search"):
        _scenario("s_coord", placement="best")


def test_a_placement_under_churn_is_refused() -> None:
    with pytest.raises(LocalProtocolError, match="placement under churn: a new view gives new ranks"):
        _scenario("cube_full_dist", placement="search", churn_per_s=1.0)


def test_runs_that_differ_in_nothing_a_placement_depends_on_share_it() -> None:
    scenario = _scenario("dissemination", placement="search", seed=3)
    network = _network(scenario)
    first = find_placement(scenario, network)
    assert find_placement(_scenario("dissemination", placement="search", seed=3, delta_ms=77.0), network) is first
    other = find_placement(_scenario("dissemination", placement="search", seed=3, radix=4), network)
    fresh = find_placement(_scenario("dissemination", placement="search", seed=3, radix=4), _network(scenario))
    assert other is not first
    assert other.at.tolist() == fresh.at.tolist()
    assert find_placement(_scenario("dissemination", placement="random", seed=4), network).at.tolist() != (
        find_placement(_scenario("dissemination", placement="random", seed=3), network).at.tolist()
    )

"""What holds for every network, however it is spelled and drawn."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cubecast.errors import LocalProtocolError
from cubecast.networks.edge_list import save_edge_list
from cubecast.networks.network import Network, components
from cubecast.networks.routes import find_routes
from cubecast.networks.spec import build_network
from tests.support.paths import path_links

SEEDS = st.integers(0, 2**64)
DELAYS = st.sampled_from(["", ",delay=0-1ms", ",delay=3ms", ",delay=exp:1ms", ",delay=0-2ns"])


@st.composite
def networks(draw: st.DrawFn) -> Network:
    members = draw(st.integers(2, 40))
    kind = draw(
        st.sampled_from(
            [
                *("random:p=", "random:degree=", "wan-tree:nodes=", "star:bandwidth=", "chain:bandwidth="),
                *("waxman:alpha=", "locality:far=0.1,near=", "transit-stub:stub_size=", "regions:bandwidth="),
            ]
        )
    )
    value: float
    if kind in ("random:p=", "waxman:alpha=", "locality:far=0.1,near="):
        value = draw(st.floats(0, 1))
    elif kind == "random:degree=":
        value = draw(st.floats(0.01, members - 1))
    else:
        value = draw(st.integers(members, 3 * members))
    return build_network(f"{kind}{value}{draw(DELAYS)}", members=members, seed=draw(SEEDS))


@given(networks())
def test_every_network_is_connected_duplex_and_sorted(network: Network) -> None:
    links = list(zip(network.link_from.tolist(), network.link_to.tolist(), strict=True))
    assert links == sorted(set(links))
    assert set(links) == {(b, a) for a, b in links}
    assert components(network.nodes, np.array(links)).max() == 0


@given(networks(), st.sampled_from(["hops", "delay"]))
def test_every_member_is_reached_without_a_circle(network: Network, by: str) -> None:
    routes = find_routes(network, by="hops" if by == "hops" else "delay")
    for destination in network.hosts.tolist():
        for source in range(network.nodes):
            links = path_links(routes, network, source, destination)
            visited = [source, *network.link_to[links].tolist()]
            assert visited[-1] == destination
            assert len(set(visited)) == len(visited)


@given(networks())
def test_an_edge_list_loses_nothing(network: Network) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "net.edges")
        save_edge_list(network, path)
        again = build_network(f"file:{path}", members=network.members, seed=0)
    for field in ("link_from", "link_to", "delay_ns", "bandwidth_bps"):
        assert np.array_equal(getattr(network, field), getattr(again, field))


@given(
    st.text(max_size=30)
    | st.text(max_size=9).map("random:p=0.1".__add__)
    | st.from_regex(
        r"(random|star|flat|wan-tree|waxman|locality|transit-stub|topohub|regions):[a-z]{1,9}=[0-9a-z.:,=/-]{0,20}",
        fullmatch=True,
    )
)
def test_any_spelling_builds_or_is_refused_in_one_line(spec: str) -> None:
    refusal = ""
    try:
        members = build_network(spec, members=4, seed=0).members
    except LocalProtocolError as error:
        refusal = str(error)
    assert len(refusal.splitlines()) == 1 if refusal else members == 4

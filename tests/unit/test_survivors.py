"""Those who are left of a hypercube hold together and agree on who is whose neighbour, whoever has gone."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cubecast.core.failure.survivors import survivors, with_neighbours
from cubecast.core.group import new_group
from cubecast.core.overlays import hypercube, of_ranks
from cubecast.core.stability import cube_full_dist


@given(st.data())
def test_whoever_has_gone_the_others_hold_together(data: st.DataObject) -> None:
    members = data.draw(st.integers(2, 40))
    left = sorted(data.draw(st.sets(st.integers(0, members - 1), min_size=1)))
    cube = hypercube(members)
    near = {rank: set(survivors(cube, rank, left).neighbours.tolist()) for rank in left}
    assert all(rank in near[other] for rank in left for other in near[rank])
    assert all(rank not in near[rank] for rank in left)
    reached, unvisited = set(), [left[0]]
    while unvisited:
        rank = unvisited.pop()
        if rank not in reached:
            reached.add(rank)
            unvisited += near[rank]
    assert reached == set(left)
    for rank in left:
        kept = set(of_ranks(cube, np.array([rank])).neighbours.tolist()) & set(left)
        assert kept <= near[rank]
        assert kept == near[rank] or len(left) < members


def test_what_a_round_knows_of_neighbours_that_stay_is_kept() -> None:
    group = new_group(members=8, senders=8, ranks=np.array([0]))
    cube = hypercube(8)
    state = cube_full_dist.new_state(group, of_ranks(cube, group.rank), members=8, delta_ns=1, repeat_ns=1)
    state.reached[:] = [3, 4, 5]
    after = with_neighbours(state, survivors(cube, 0, [0, 2, 5, 7]))
    assert dict(zip(after.neighbours.tolist(), after.reached.tolist(), strict=True)) == {2: 4, 7: 0}
    assert after.offsets.tolist() == [0, 2]
    assert with_neighbours(group, cube) is group

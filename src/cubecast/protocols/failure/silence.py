"""State that the failure detectors share: how long each member has been silent, in steps of the observing member.

In every step a member adds one to the silence of each other member of its group, and suspects those whose silence has
reached the threshold. News of a member, its own or relayed, resets its silence. The detectors count steps, not time: a
member that was down itself does not suspect all others when it wakes up.

A detector's state has these fields (and the group):

| field     | shape    | meaning                                                                                     |
|-----------|----------|---------------------------------------------------------------------------------------------|
| step_ns   | –        | the length of a step                                                                        |
| threshold | –        | suspect a member after this many steps without news of it (K_fail, k)                       |
| silent    | rows × n | L: steps since the last news of each member; the member's own entry stays 0                 |
| random    | rows × 2 | a random stream for each row                                                                |

Only the entries of group members age, so `silent ≤ threshold` always, and a newcomer starts from 0. A member that was
removed keeps its old entry: a young one, relayed to members that still count it, would never age. A negative entry
means that no news has arrived yet; its absolute value is the number of steps that the member still has to appear. The
first news, however old, replaces it.
"""

from dataclasses import dataclass

import numpy as np

from cubecast.jit.decorators import linked
from cubecast.protocol import rank_sets
from cubecast.protocol.group import GroupState
from cubecast.protocol.mail import set_timer, suspect
from cubecast.protocol.parameters import parameter
from cubecast.protocol.random import below, new_stream

STEP = 0  # the one timer of a detector


def new_silence(group: GroupState, members: int) -> np.ndarray:
    """Every member was heard just now."""
    return np.zeros((len(group.rank), members), np.int32)


def new_streams(group: GroupState, seed: int) -> np.ndarray:
    """A random stream for each local member."""
    return np.stack([new_stream(seed, "failure", int(rank)) for rank in group.rank])


@linked
def begin_steps(state, row, mail):
    """Begin at a random offset, so that the messages of all members are not sent at the same time."""
    set_timer(mail, STEP, 0, below(state.random[row], state.step_ns))


@linked
def age(state, row, mail):
    """Age all others by one step, suspect members that were silent too long, and set the timer of the next step."""
    me = state.group.rank[row]
    for rank in range(state.silent.shape[1]):
        if rank != me and rank_sets.contains(state.group.members[row], rank):
            state.silent[row, rank] += 1
            if state.silent[row, rank] >= state.threshold:
                suspect(mail, rank)
    set_timer(mail, STEP, 0, state.step_ns)


@linked
def hear(state, row, rank):
    """Note that the member is alive, unless it was removed: its late messages would keep it alive at other members."""
    if rank_sets.contains(state.group.members[row], rank):
        state.silent[row, rank] = 0


@linked
def merge(state, row, heard):
    """L = ArrayMin(L, L'): keep the latest news of each member (guo Fig 3.1)."""
    for rank in range(state.silent.shape[1]):
        newest = _newest(state.silent[row, rank], heard[rank])
        if newest != state.silent[row, rank] and rank_sets.contains(state.group.members[row], rank):
            state.silent[row, rank] = newest


@linked
def _newest(mine, theirs):
    """The shorter silence; of two entries without news, the longer time to appear; any news before none."""
    if (mine < 0) == (theirs < 0):
        return min(mine, theirs)
    return max(mine, theirs)


@dataclass(frozen=True, kw_only=True)
class DetectorParameters:
    """Parameters of every failure detector."""

    step_ms: float = parameter(100.0, "Time between two steps.", at_least=1e-6)
    threshold: int | None = parameter(
        None, "K_fail: silent steps before a suspicion.", at_least=1, otherwise="calculated from p_mistake"
    )
    p_mistake: float = parameter(
        1e-6, "The acceptable probability of a false suspicion at any one time.", at_least=1e-300, at_most=0.999999
    )

"""How many gossip steps spread the information of all members: the Markov chain of guo §4.2.5, for any subset size.

One micro-step: one member, chosen at random among all n, gossips to p distinct others; each copy arrives with
probability P_arrival. The state is k, the number of members *infected* by one given member's information.

| symbol | here | meaning |
|---|---|---|
| n | members | size of the group |
| p | subset | members one gossip goes to |
| P_arrival | arrival | probability that a copy arrives before the next micro-step |
| f | crashed | members that neither send nor count, though they are still gossiped to (van Renesse et al., 1998) |
| P_inc(k, j) | increments()[j, k] | probability that k infected members become k + j (4.1, 4.7, 4.10, 4.11) |
| P(k_r = k) | distribution(r)[k] | 4.2, 4.12–4.14 |
| P_incomplete(r) | incomplete(r) | bound over all members' information (4.3, 4.15) |

Invariants: the increments of a state sum to 1; the last state, n − f, is absorbing; P_incomplete never grows with r.

Departures: the paper prints p = 1 and p = 3; here the same two stages (which copies arrive, which members they reach)
are computed for any p. The probability of being unfinished comes from the backward equation instead of
1 − P(k_r = n), so that a P_incomplete of 1e-15 is still exact. The bound is cut off at 1, as it is a probability.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from cubecast.errors import LocalProtocolError
from cubecast.models import gossip_kernel
from cubecast.models.checks import require_probability, require_whole

FloatArray = NDArray[np.float64]

# How many additions one computation may take; at about 1e9 per second these are minutes, for groups far above n = 5000.
WORK_MAX = 1e12
# The same for the table of increments, which costs p²·n.
SUBSET_WORK_MAX = 1e10


@dataclass(frozen=True, kw_only=True)
class GossipChain:
    """The chain for one group; its methods compute probabilities and numbers of steps."""

    members: int
    subset: int = 1
    arrival: float = 1.0
    crashed: int = 0

    def __post_init__(self) -> None:
        require_whole("members", self.members, least=2)
        require_whole("subset", self.subset, least=1, most=self.members - 1)
        require_probability("arrival", self.arrival, zero=False, one=True)
        require_whole("crashed", self.crashed, least=0, most=self.members - 1)
        if self.subset**2 * self.members > SUBSET_WORK_MAX:
            raise LocalProtocolError(
                f"subset={self.subset}: too large to compute for {self.members} members; take fewer"
            )

    @property
    def live(self) -> int:
        """n − f, the number of members that can be infected."""
        return self.members - self.crashed

    def arrival_terms(self) -> Iterator[FloatArray]:
        """For a = 0…p copies that arrive, P(a arrive and j of them infect | k) as [j, k].

        For p = 3 these are the terms P_1…P_5 and P_inc(k, 3) of 4.4–4.11: P_1 is a=3, j=1; P_2 a=2, j=1; P_3 a=1,
        j=1; P_4 a=3, j=2; P_5 a=2, j=2.
        """
        from_infected = np.arange(self.live + 1) / self.members
        reached = np.zeros((self.subset + 1, self.live + 1))
        reached[0] = 1.0
        for arrivals in range(self.subset + 1):
            if arrivals > 0:
                reached = self._one_more_destination(reached, arrivals - 1)
            yield from_infected * self._arrival_probability(arrivals) * reached

    def _arrival_probability(self, arrivals: int) -> float:
        """Stage one of 4.4–4.11: `arrivals` out of p copies arrive."""
        lost = self.subset - arrivals
        return math.comb(self.subset, arrivals) * self.arrival**arrivals * (1.0 - self.arrival) ** lost

    def _one_more_destination(self, reached: FloatArray, drawn: int) -> FloatArray:
        """Stage two of 4.4–4.11, one distinct destination at a time: reached[j, k] = P(j drawn uninfected)."""
        infected = np.arange(self.live + 1)
        hit = np.arange(self.subset + 1)[:, None]
        fresh = np.maximum(self.live - infected - hit, 0) / (self.members - 1 - drawn)
        stale = np.maximum(self.crashed + infected - 1 - (drawn - hit), 0) / (self.members - 1 - drawn)
        after: FloatArray = reached * stale
        after[1:] += reached[:-1] * fresh[:-1]
        return after

    def increments(self) -> FloatArray:
        """P_inc(k, j) as [j, k]; row 0 is the probability that the number infected stays k."""
        return self._increments.copy()

    @cached_property
    def _increments(self) -> FloatArray:
        increment = np.zeros((self.subset + 1, self.live + 1))
        for term in self.arrival_terms():
            increment += term
        increment[0] = 0.0
        # The gossiper is uninfected, all copies are lost, or all destinations are infected: the remainder to 1.
        increment[0] = np.maximum(1.0 - increment.sum(axis=0), 0.0)
        return increment

    def distribution(self, micro_steps: int) -> FloatArray:
        """P(k_r = k) for k = 0…n − f after r = `micro_steps`, from one infected member (4.2, 4.12–4.14)."""
        require_whole("micro_steps", micro_steps, least=0)
        self._require_work(micro_steps)
        after: FloatArray = gossip_kernel.distribution_after(self._increments, micro_steps)
        return after

    def incomplete_course(self, micro_steps: int) -> FloatArray:
        """The bound on P_incomplete(r) for r = 0…`micro_steps` (4.3, 4.15; the curves of Figs 4.9 and 4.10)."""
        require_whole("micro_steps", micro_steps, least=0)
        self._require_work(micro_steps)
        course = gossip_kernel.unfinished_course(self._increments, micro_steps)
        bound: FloatArray = np.minimum(1.0, self.live * course)
        return bound

    def incomplete(self, micro_steps: int) -> float:
        """The bound on P_incomplete after r = `micro_steps`: some member lacks some other's information (4.3, 4.15)."""
        return float(self.incomplete_course(micro_steps)[-1])

    def expected_micro_steps(self) -> float:
        """Mean micro-steps until all members have one member's information; for p = 1, 2(n−1)·H(n−1)/P_arrival."""
        increment = self._increments
        remaining = np.zeros(self.live + self.subset + 1)
        for k in range(self.live - 1, 0, -1):
            ahead = increment[1:, k] @ remaining[k + 1 : k + 1 + self.subset]
            remaining[k] = (1.0 + ahead) / increment[1:, k].sum()
        return float(remaining[1])

    def expected_steps(self) -> float:
        """The mean number of steps; in one step every member gossips once."""
        return self.expected_micro_steps() / self.members

    def micro_steps_for(self, p_incomplete: float) -> int:
        """The smallest r whose bound on P_incomplete(r) is at most `p_incomplete` (Fig 4.7)."""
        require_probability("p_incomplete", p_incomplete, zero=False, one=False)
        unfinished_most = p_incomplete / self.live
        # From any state the chain ends within twice the mean with probability 1/2 or more (Markov's inequality).
        halvings = math.ceil(math.log2(1.0 / unfinished_most)) + 1
        micro_steps_max = math.ceil(2.0 * self.expected_micro_steps()) * halvings
        self._require_work(micro_steps_max)
        found = int(gossip_kernel.micro_steps_until(self._increments, unfinished_most, micro_steps_max))
        assert found >= 0, "the bound by Markov's inequality always suffices"
        return found

    def steps_for(self, p_incomplete: float) -> float:
        """Steps needed, micro-steps / n (Fig 4.8)."""
        return self.micro_steps_for(p_incomplete) / self.members

    def _require_work(self, micro_steps: int) -> None:
        work = float(micro_steps) * self.live * (self.subset + 1)
        if work > WORK_MAX:
            raise LocalProtocolError(
                f"members={self.members}, arrival={self.arrival}: up to {micro_steps} micro-steps are too many to "
                "compute; take fewer members or a higher arrival probability"
            )

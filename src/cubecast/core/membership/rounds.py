"""Which messages are stable: rounds of gossip over the neighbours (guo §2.3.4, as CubeFullDist merges hop by hop).

| field   | shape  | meaning                                                                              |
|---------|--------|--------------------------------------------------------------------------------------|
| number  | –      | the round; whoever completes one begins the next, and the others follow it           |
| counted | bitmap | ranks whose `delivered` is in the minimum (W)                                        |
| minimum | n      | no rank that is counted has delivered less (M)                                       |
| stable  | n      | delivered by every member of the view (S)                                            |

Invariant: each rank that is counted has delivered at least the minimum. It holds for whatever two members put together,
also from words that come late, twice or out of order; so the minimum is stable when every rank is counted.
"""

from __future__ import annotations

from cubecast.core.membership.messages import Status, Vector


class Rounds:
    """One member's part in finding out what is stable in one view."""

    def __init__(self, rank: int, members: int) -> None:
        """Nothing delivered."""
        self.number = 1
        self.counted = 1 << rank
        self.minimum: Vector = (0,) * members
        self.stable: Vector = (0,) * members
        self._mine = 1 << rank
        self._all = (1 << members) - 1

    def refresh(self, delivered: Vector) -> bool:
        """This member is so far now; True when more is stable, which a lone member sees at once."""
        if self.counted != self._mine:
            return False
        self.minimum = delivered
        return self._mine == self._all and self._raise(delivered)

    def hear(self, said: Status, delivered: Vector) -> bool:
        """Put together what another member knows and what this one has delivered; True when more is stable."""
        self.refresh(delivered)
        grown = self._raise(said.stable)
        if said.round < self.number:
            return grown
        if said.round > self.number:
            self._begin(said.round, delivered)
        if said.minimum != self.minimum:
            self.minimum = tuple(map(min, self.minimum, said.minimum))
        self.counted |= said.counted
        if self.is_complete():
            grown = self._raise(self.minimum) or grown
            self._begin(self.number + 1, delivered)
        return grown

    def is_complete(self) -> bool:
        """Is every rank counted?"""
        return self.counted == self._all

    def _begin(self, number: int, delivered: Vector) -> None:
        self.number = number
        self.counted = self._mine
        self.minimum = delivered

    def _raise(self, stable: Vector) -> bool:
        raised = self.stable if stable == self.stable else tuple(map(max, self.stable, stable))
        if raised == self.stable:
            return False
        self.stable = raised
        return True

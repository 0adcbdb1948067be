"""Which processes join, leave, crash and return, and when: drawn at random, and from the scenario.

Changes come at random moments, `churn_per_s` of them per second on average. Each is drawn from those that are possible,
with the weights of `churn_mix`:

| change | process                                                            |
|--------|--------------------------------------------------------------------|
| leave  | a member, unless a tenth of the group is already missing           |
| crash  | a member, under the same condition                                 |
| join   | a process on a host whose last one left                            |
| return | the process on a host whose last one crashed, as a new incarnation |
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from cubecast.protocol.random import below, new_stream, uniform
from cubecast.sim.scenario import Scenario
from cubecast.sim.views.group import SECOND_NS, SimulatedGroup
from cubecast.sim.views.settings import KINDS, read_mix
from cubecast.sim.views.simulated_member import OUT, SimulatedMember


class ChurnSchedule:
    """Schedules the changes of one run and carries them out."""

    def __init__(self, group: SimulatedGroup, scenario: Scenario, stop_ns: int) -> None:
        """Schedule the changes that are known at the start."""
        self.changes = 0
        self._group = group
        self._mix: Mapping[str, float] = read_mix(scenario.churn_mix)
        self._rate = scenario.churn_per_s or 0.0
        self._stop_ns = stop_ns
        self._fewest = scenario.members - max(1, scenario.members // 10)
        self._stream = new_stream(scenario.seed, "churn")
        self._crashed: set[SimulatedMember] = set()
        self._schedule_faults(scenario)
        self._wait()

    def _schedule_faults(self, scenario: Scenario) -> None:
        group = self._group
        for crash in scenario.crashes:
            for host in crash.members:
                group.at(crash.at_ns, self._crash, host)
                if crash.until_ns >= 0:
                    group.at(crash.until_ns, self._begin_again, host)
        for leave in scenario.leaves:
            for host in leave.members:
                group.at(leave.at_ns, self._leave, host)
        for join in scenario.joins:
            for host in join.members:
                group.at(join.at_ns, self._begin_again, host)
        for partition in scenario.partitions:
            group.at(partition.at_ns, group.split, partition.members, partition.until_ns)
            group.at(partition.until_ns, group.heal)

    def _crash(self, host: int) -> None:
        if host in self._group.on_host:
            self.changes += 1
            self._crashed.add(self._group.on_host[host])
            self._group.crash(host)

    def _leave(self, host: int) -> None:
        if host in self._group.on_host:
            self.changes += 1
            self._group.leave(host)

    def _begin_again(self, host: int) -> None:
        """Start a process on a host, unless one runs there."""
        if host not in self._group.on_host or self._group.on_host[host].state == OUT:
            self.changes += 1
            self._group.join(host)

    def _wait(self) -> None:
        """Schedule the next change."""
        if self._rate == 0:
            return
        gap_ns = -math.log(1.0 - uniform(self._stream)) / self._rate * SECOND_NS
        at_ns = self._group.now_ns + max(1, round(gap_ns))
        if at_ns < self._stop_ns:
            self._group.at(at_ns, self._change)

    def _change(self) -> None:
        staying = sorted(one.me.name for one in self._group.in_group() if not one.leaving and not one.is_blocked)
        over = {host: one for host, one in sorted(self._group.on_host.items()) if one.state == OUT}
        may_go = staying if len(staying) > self._fewest else []
        hosts = {
            "join": [host for host, one in over.items() if one not in self._crashed],
            "leave": may_go,
            "crash": may_go,
            "return": [host for host, one in over.items() if one in self._crashed],
        }
        kind = self._draw({kind: self._mix[kind] for kind in KINDS if hosts[kind]})
        if kind:
            host = hosts[kind][below(self._stream, len(hosts[kind]))]
            {"join": self._begin_again, "return": self._begin_again, "leave": self._leave, "crash": self._crash}[kind](
                host
            )
        self._wait()

    def _draw(self, weights: Mapping[str, float]) -> str:
        """Draw one of these by its weight; None if nothing is possible."""
        point = uniform(self._stream) * sum(weights.values())
        for kind, weight in weights.items():
            point -= weight
            if weight > 0 and point < 0:
                return kind
        return ""

"""Atomic delivery in a simulated group: an application gets a message once its member knows it is stable (guo §2.3).

"A message is not delivered to any group member until all the members have received it." The protocols do not change;
the deliveries to applications follow from the events of the run: a message waits at a member from its delivery by the
transport until the member knows it is stable.

| field    | shape | meaning                                                             |
|----------|-------|---------------------------------------------------------------------|
| sent_ns  | m × K | when each message was multicast, −1 before                          |
| received | n × m | the newest message of each sender that a member has                 |
| given    | n × m | the newest that it knows to be stable and gave to its application   |
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cubecast.sim.scenario import NS_PER_MS
from cubecast.trace.schema import DELIVER, STABLE, Events


class AtomicDeliveries:
    """The messages that the applications of a run have received."""

    def __init__(self, *, members: int, senders: int, messages: int) -> None:
        """Nothing has been sent."""
        self.sent_ns = np.full((senders, messages + 1), -1, np.int64)
        self.received = np.zeros((members, senders), np.int64)
        self.given = np.zeros((members, senders), np.int64)
        self.delay_sum_ns = self.delay_max_ns = self.delays = 0
        self.waiting_sum = self.waiting_samples = self.waiting_max = 0

    def take(self, events: Events) -> None:
        """Process further events of the run."""
        for row in events[(events["event"] == DELIVER) | (events["event"] == STABLE)]:
            member, sender, sequence = int(row["member"]), int(row["sender"]), int(row["sequence"])
            if row["event"] == DELIVER:
                self._receive(member, sender, sequence, int(row["time_ns"]))
            else:
                self._give(member, sender, sequence, int(row["time_ns"]))

    def _receive(self, member: int, sender: int, sequence: int, now_ns: int) -> None:
        if member == sender and self.sent_ns[sender, sequence] < 0:
            self.sent_ns[sender, sequence] = now_ns
        self.received[member, sender] = max(self.received[member, sender], sequence)
        waiting = int((self.received[member] - self.given[member]).sum())
        self.waiting_sum += waiting
        self.waiting_samples += 1
        self.waiting_max = max(self.waiting_max, waiting)

    def _give(self, member: int, sender: int, sequence: int, now_ns: int) -> None:
        """Give the application all messages up to this one, which are known to be stable."""
        for number in range(int(self.given[member, sender]) + 1, sequence + 1):
            if member != sender and self.sent_ns[sender, number] >= 0:
                delay_ns = now_ns - int(self.sent_ns[sender, number])
                self.delay_sum_ns += delay_ns
                self.delay_max_ns = max(self.delay_max_ns, delay_ns)
                self.delays += 1
        self.given[member, sender] = max(self.given[member, sender], sequence)

    def metrics(self) -> dict[str, Any]:
        """The metrics, by their names in a `Result`."""
        return {
            "atomic_delay_mean_ms": self.delay_sum_ns / self.delays / NS_PER_MS if self.delays else None,
            "atomic_delay_max_ms": self.delay_max_ns / NS_PER_MS if self.delays else None,
            "atomic_queue_mean": self.waiting_sum / self.waiting_samples if self.waiting_samples else None,
            "atomic_queue_max": self.waiting_max,
        }

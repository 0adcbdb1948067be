"""Senders that share sequences, with lists: what each sequencer has numbered, in order (guo ch. 7)."""

from __future__ import annotations


class Sequencers:
    """The log of every sequence: which message of which sender has which number."""

    def __init__(self, sequences: int) -> None:
        self.logs: list[list[tuple[int, int]]] = [[] for _ in range(sequences)]

    def publish(self, sender: int, own_number: int) -> None:
        """A sender multicasts; one that is a sequencer numbers its message at once."""
        if sender < len(self.logs):
            self.logs[sender].append((sender, own_number))

    def submit(self, sequence: int, sender: int, own_number: int) -> None:
        """A message reaches its sequencer: it is numbered if it is the next of its sender."""
        log = self.logs[sequence]
        if own_number == 1 + sum(one == sender for one, _ in log):
            log.append((sender, own_number))

    def of_sender(self, sender: int) -> list[int]:
        """The messages of a sender in the order of their sequence."""
        return [own for one, own in self.logs[sender % len(self.logs)] if one == sender]

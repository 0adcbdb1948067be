"""What stability detection must do, and the four protocols as the cube paper prints them, in plain dictionaries.

`true_minimum` and `judge` are the specification (MODELS §1). The classes follow cube Figs 1, 2, 3 and 5 for a reliable
FIFO network in which nobody fails; each handler returns the messages it sends as (to, message) in order, a message as
(kind, round, iteration, numbers, heard).

`Aggregation` is the oracle of dissemination and cascade in the same terms: an overlay as plain lists of edges, and all
that was ever heard.
"""

from __future__ import annotations

from collections.abc import Iterable

Numbers = tuple[int, ...]
Wire = tuple[str, int, int, Numbers, tuple[int, ...]]
Sent = list[tuple[int, Wire]]


def true_minimum(received: dict[int, Numbers], alive: Iterable[int]) -> Numbers:
    """The element-wise minimum of R over the members that are alive."""
    return tuple(min(column) for column in zip(*(received[rank] for rank in alive), strict=True))


def smaller(one: Numbers, other: Numbers) -> Numbers:
    """ArrayMin of two."""
    return tuple(min(pair) for pair in zip(one, other, strict=True))


def larger(one: Numbers, other: Numbers) -> Numbers:
    return tuple(max(pair) for pair in zip(one, other, strict=True))


class Reference:
    """The common part of the four: R and S of all members, and which rounds each has finished."""

    def __init__(self, received: dict[int, Numbers]) -> None:
        self.received = dict(received)
        self.ranks = sorted(received)
        self.stable = dict.fromkeys(self.ranks, (0,) * len(received[0]))
        self.done = dict.fromkeys(self.ranks, 0)

    def begin(self, rank: int, number: int) -> Sent:
        """The member's time has come to begin this round."""
        raise NotImplementedError

    def receive(self, rank: int, source: int, message: Wire) -> Sent:
        """A message arrives."""
        raise NotImplementedError

    def know(self, rank: int, number: int, stable: Numbers) -> None:
        self.stable[rank] = larger(self.stable[rank], stable)
        self.done[rank] = number

    def to_all(self, rank: int, message: Wire) -> Sent:
        return [(other, message) for other in self.ranks if other != rank]


class Coord(Reference):
    """Fig 1."""

    def __init__(self, received: dict[int, Numbers]) -> None:
        super().__init__(received)
        self.acks: dict[int, Numbers] = {}

    def begin(self, rank: int, number: int) -> Sent:
        if rank != 0:
            return []
        self.acks = {0: self.received[0]}
        return self.to_all(0, ("START", number, 0, (), ()))

    def receive(self, rank: int, source: int, message: Wire) -> Sent:
        kind, number, _, numbers, _ = message
        if kind == "START":
            return [(source, ("ACK", number, 0, self.received[rank], ()))]
        if kind == "INFO":
            self.know(rank, number, numbers)
            return []
        self.acks[source] = numbers
        if set(self.acks) != set(self.ranks):
            return []
        self.know(0, number, true_minimum(self.acks, self.ranks))
        return self.to_all(0, ("INFO", number, 0, self.stable[0], ()))


class FullDist(Reference):
    """Fig 2; a row of a later round counts for an earlier one (cube §3.5)."""

    def __init__(self, received: dict[int, Numbers]) -> None:
        super().__init__(received)
        self.rows: dict[int, dict[int, tuple[int, Numbers]]] = {rank: {} for rank in self.ranks}
        self.sent = dict.fromkeys(self.ranks, 0)

    def begin(self, rank: int, number: int) -> Sent:
        return self.multicast_row(rank, number) if rank == 0 else []

    def multicast_row(self, rank: int, number: int) -> Sent:
        self.sent[rank] = number
        self.rows[rank][rank] = (number, self.received[rank])
        self.finish_if_complete(rank)
        return self.to_all(rank, ("INFO", number, 0, self.received[rank], ()))

    def receive(self, rank: int, source: int, message: Wire) -> Sent:
        _, number, _, numbers, _ = message
        self.rows[rank][source] = (number, numbers)
        sent = self.multicast_row(rank, number) if number > self.sent[rank] else []
        self.finish_if_complete(rank)
        return sent

    def finish_if_complete(self, rank: int) -> None:
        rows = self.rows[rank]
        if set(rows) != set(self.ranks):
            return
        number = min(round_number for round_number, _ in rows.values())
        if number > self.done[rank]:
            self.know(rank, number, true_minimum({other: row for other, (_, row) in rows.items()}, self.ranks))


class SCoord(Reference):
    """Fig 3, on a tree whose inner members have `degree` children, ranks breadth first."""

    def __init__(self, received: dict[int, Numbers], degree: int = 2) -> None:
        super().__init__(received)
        self.parent = {rank: (rank - 1) // degree for rank in self.ranks if rank}
        self.children = {rank: {child for child, up in self.parent.items() if up == rank} for rank in self.ranks}
        self.round = dict.fromkeys(self.ranks, 0)
        self.heard: dict[int, set[int]] = {rank: set() for rank in self.ranks}
        self.minimum = dict(received)

    def begin(self, rank: int, number: int) -> Sent:
        if rank != 0:
            return []
        self.enter(0, number)
        return self.to_all(0, ("START", number, 0, (), ()))

    def enter(self, rank: int, number: int) -> None:
        if number > self.round[rank]:
            self.round[rank] = number
            self.heard[rank] = set()
            self.minimum[rank] = self.received[rank]

    def receive(self, rank: int, source: int, message: Wire) -> Sent:
        kind, number, _, numbers, _ = message
        if kind == "INFO":
            self.know(rank, number, numbers)
            return []
        entered = number > self.round[rank]
        self.enter(rank, number)
        if kind == "START" and not (entered and not self.children[rank]):
            return []
        if kind == "ACK":
            self.heard[rank].add(source)
            self.minimum[rank] = smaller(self.minimum[rank], numbers)
        if self.heard[rank] != self.children[rank]:
            return []
        if rank:
            return [(self.parent[rank], ("ACK", number, 0, self.minimum[rank], ()))]
        self.know(0, number, self.minimum[0])
        return self.to_all(0, ("INFO", number, 0, self.stable[0], ()))


class RelayedSCoord(SCoord):
    """The same with START and INFO relayed from parent to child; all messages are between parents and children."""

    def to_all(self, rank: int, message: Wire) -> Sent:
        return [(child, message) for child in sorted(self.children[rank])]

    def receive(self, rank: int, source: int, message: Wire) -> Sent:
        relayed = self.to_all(rank, message) if message[0] != "ACK" else []
        return relayed + super().receive(rank, source, message)


class CubeFullDist(Reference):
    """Fig 5, with the neighbours given; messages of one iteration ahead wait for their iteration."""

    def __init__(self, received: dict[int, Numbers], neighbours: dict[int, list[int]]) -> None:
        super().__init__(received)
        self.neighbours = neighbours
        self.round = dict.fromkeys(self.ranks, 0)
        self.iteration = dict.fromkeys(self.ranks, 0)
        self.minimum = dict(received)
        self.heard = {rank: {rank} for rank in self.ranks}
        self.reached: dict[int, dict[int, int]] = {rank: {} for rank in self.ranks}

    def begin(self, rank: int, number: int) -> Sent:
        if self.round[rank] >= number:
            return []
        self.enter(rank, number)
        return self.state(rank) + self.go_on(rank)

    def enter(self, rank: int, number: int) -> None:
        self.round[rank], self.iteration[rank] = number, 1
        self.minimum[rank] = self.received[rank]
        self.heard[rank] = {rank}
        self.reached[rank] = {}

    def state(self, rank: int) -> Sent:
        heard = tuple(sorted(self.heard[rank]))
        message = ("STABILITY", self.round[rank], self.iteration[rank], self.minimum[rank], heard)
        return [(neighbour, message) for neighbour in self.neighbours[rank]]

    def receive(self, rank: int, source: int, message: Wire) -> Sent:
        _, number, iteration, numbers, heard = message
        if number < self.round[rank] or number <= self.done[rank]:
            return []
        joins = number > self.round[rank]
        if joins:
            self.enter(rank, number)
        self.heard[rank] |= set(heard)
        self.minimum[rank] = smaller(self.minimum[rank], numbers)
        self.reached[rank][source] = max(iteration, self.reached[rank].get(source, 0))
        return (self.state(rank) if joins else []) + self.go_on(rank)

    def go_on(self, rank: int) -> Sent:
        sent: Sent = []
        while self.heard[rank] != set(self.ranks):
            slowest = min(self.reached[rank].get(neighbour, 0) for neighbour in self.neighbours[rank])
            if slowest < self.iteration[rank]:
                return sent
            self.iteration[rank] += 1
            sent += self.state(rank)
        self.know(rank, self.round[rank], self.minimum[rank])
        return sent + self.state(rank)


Edges = dict[int, list[list[int]]]
"""Of every place, the places at each level."""


def tree_edges(members: int, degree: int) -> tuple[Edges, Edges]:
    """Inputs and outputs of a tree: children report at level 1, the parent at level 2."""
    parent = {place: (place - 1) // degree for place in range(1, members)}
    children = {place: [child for child, up in parent.items() if up == place] for place in range(members)}
    above = {place: [parent[place]] if place else [] for place in range(members)}
    inputs = {place: [[], children[place], above[place]] for place in range(members)}
    outputs = {place: [[], above[place], children[place]] for place in range(members)}
    return inputs, outputs


def dissemination_edges(members: int, radix: int) -> tuple[Edges, Edges]:
    """Inputs and outputs of the dissemination: strides of 1 … radix − 1, then radix times that."""
    strides: list[list[int]] = []
    stride = 1
    while stride < members:
        strides.append([r * stride for r in range(1, radix) if r * stride < members])
        stride *= radix
    inputs = {i: [[], *([(i - one) % members for one in step] for step in strides)] for i in range(members)}
    outputs = {i: [*([(i + one) % members for one in step] for step in strides), []] for i in range(members)}
    return inputs, outputs


def cube_edges(members: int) -> tuple[Edges, Edges]:
    """Inputs and outputs of the hypercube; places beyond its corners report to one of them."""
    dimension = members.bit_length() - 1
    corners = 2**dimension
    inputs: Edges = {}
    outputs: Edges = {}
    for place in range(members):
        if place >= corners:
            inputs[place], outputs[place] = [[], [place - corners]], [[place - corners], []]
            continue
        beyond = [place + corners] if place + corners < members else []
        across = [[place ^ 2**k] for k in range(dimension)]
        inputs[place] = [[], beyond, *across]
        outputs[place] = [[], *across, beyond]
    return inputs, outputs


class Aggregation(Reference):
    """A wave, or round, over an overlay of inputs and outputs, without failures and losses."""

    def __init__(self, received: dict[int, Numbers], edges: tuple[Edges, Edges]) -> None:
        super().__init__(received)
        self.inputs, self.outputs = edges
        self.round = dict.fromkeys(self.ranks, 0)
        self.heard: dict[tuple[int, int], list[tuple[int, Numbers]]] = {}
        self.sent: dict[tuple[int, int], int] = {}

    def begin(self, rank: int, number: int) -> Sent:
        self.round[rank] = max(self.round[rank], number)
        return self.go_on(rank)

    def receive(self, rank: int, source: int, message: Wire) -> Sent:
        _, number, _, numbers, _ = message
        self.heard.setdefault((rank, source), []).append((number, numbers))
        return self.begin(rank, number)

    def go_on(self, rank: int) -> Sent:
        """Send what may be sent: at each level the minimum over all that is below it."""
        sent: Sent = []
        ready, minimum = self.round[rank], self.received[rank]
        for sources, targets in zip(self.inputs[rank], self.outputs[rank], strict=True):
            for source in sources:
                came = self.heard.get((rank, source), [(0, (0,) * len(minimum))])
                ready = min(ready, max(number for number, _ in came))
                newest = tuple(max(column) for column in zip(*(numbers for _, numbers in came), strict=True))
                minimum = smaller(minimum, newest)
            for target in targets:
                if self.sent.get((rank, target), 0) < ready:
                    self.sent[rank, target] = ready
                    sent.append((target, ("MINIMUM", ready, 0, minimum, ())))
        if ready > self.done[rank]:
            self.know(rank, ready, minimum)
        return sent

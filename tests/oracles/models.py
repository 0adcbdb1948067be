"""Slow and obvious twins of cubecast.models: the printed formulas word for word, and the processes behind them."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np

from cubecast.models.trigger import TriggerCase

Distribution = dict[int, Fraction]


# --- guo 4.1–4.3, subset size one -------------------------------------------------------------------------------------


def p_inc_subset_one(k: int, n: int, p_arrival: Fraction) -> Fraction:
    """4.1"""
    return Fraction(k, n) * Fraction(n - k, n - 1) * p_arrival


def next_subset_one(before: Distribution, n: int, p_arrival: Fraction) -> Distribution:
    """4.2"""
    after = {0: Fraction(0)}
    for k in range(1, n + 1):
        stays = (1 - p_inc_subset_one(k, n, p_arrival)) * before[k]
        grows = p_inc_subset_one(k - 1, n, p_arrival) * before[k - 1]
        after[k] = stays + grows
    return after


# --- guo 4.4–4.14, subset size three ----------------------------------------------------------------------------------


def p_1(k: int, n: int, p_arrival: Fraction) -> Fraction:
    """4.4"""
    return 3 * Fraction(k, n) * Fraction(n - k, n - 1) * Fraction(k - 1, n - 2) * Fraction(k - 2, n - 3) * p_arrival**3


def p_2(k: int, n: int, p_arrival: Fraction) -> Fraction:
    """4.5"""
    return 6 * Fraction(k, n) * Fraction(n - k, n - 1) * Fraction(k - 1, n - 2) * p_arrival**2 * (1 - p_arrival)


def p_3(k: int, n: int, p_arrival: Fraction) -> Fraction:
    """4.6"""
    return 3 * Fraction(k, n) * Fraction(n - k, n - 1) * p_arrival * (1 - p_arrival) ** 2


def p_4(k: int, n: int, p_arrival: Fraction) -> Fraction:
    """4.8"""
    reached = Fraction(n - k, n - 1) * Fraction(n - k - 1, n - 2) * Fraction(k - 1, n - 3)
    return 3 * Fraction(k, n) * reached * p_arrival**3


def p_5(k: int, n: int, p_arrival: Fraction) -> Fraction:
    """4.9"""
    return 3 * Fraction(k, n) * Fraction(n - k, n - 1) * Fraction(n - k - 1, n - 2) * p_arrival**2 * (1 - p_arrival)


def p_inc_subset_three(k: int, j: int, n: int, p_arrival: Fraction) -> Fraction:
    """4.7 for j = 1, 4.10 for j = 2, 4.11 for j = 3"""
    if j == 1:
        return p_1(k, n, p_arrival) + p_2(k, n, p_arrival) + p_3(k, n, p_arrival)
    if j == 2:
        return p_4(k, n, p_arrival) + p_5(k, n, p_arrival)
    reached = Fraction(n - k, n - 1) * Fraction(n - k - 1, n - 2) * Fraction(n - k - 2, n - 3)
    return Fraction(k, n) * reached * p_arrival**3


def next_subset_three(before: Distribution, n: int, p_arrival: Fraction) -> Distribution:
    """4.12 for k ≥ 3, 4.13 for k = 1, 4.14 for k = 2"""

    def inc(k: int, j: int) -> Fraction:
        return p_inc_subset_three(k, j, n, p_arrival)

    def stays(k: int) -> Fraction:
        return (1 - inc(k, 1) - inc(k, 2) - inc(k, 3)) * before[k]

    after = {0: Fraction(0), 1: stays(1), 2: stays(2) + inc(1, 1) * before[1]}
    for k in range(3, n + 1):
        after[k] = (
            stays(k) + inc(k - 1, 1) * before[k - 1] + inc(k - 2, 2) * before[k - 2] + inc(k - 3, 3) * before[k - 3]
        )
    return after


def start(n: int) -> Distribution:
    """P(k_0 = 1) = 1, P(k_0 = k) = 0 for k ≠ 1"""
    return {k: Fraction(int(k == 1)) for k in range(n + 1)}


# --- the process itself -----------------------------------------------------------------------------------------------


def gossip_micro_step(heard: np.ndarray, subset: int, arrival: float, rng: np.random.Generator) -> None:
    """One member chosen at random sends all it has heard to distinct others; heard[i, j] = i has heard from j."""
    n = heard.shape[0]
    gossiper = int(rng.integers(n))
    others = [member for member in range(n) if member != gossiper]
    for other in rng.choice(others, size=subset, replace=False):
        if rng.random() < arrival:
            heard[other] |= heard[gossiper]


def play_gossip(n: int, subset: int, arrival: float, micro_steps: int, rng: np.random.Generator) -> np.ndarray:
    """Which member has heard from which after some micro-steps of the whole Gossip protocol."""
    heard = np.eye(n, dtype=bool)
    for _ in range(micro_steps):
        gossip_micro_step(heard, subset, arrival, rng)
    return heard


def play_live_arrays(n: int, subset: int, arrival: float, steps: int, rng: np.random.Generator) -> list[int]:
    """Guo Fig 3.1 with scattered ticks and without crashes: the largest live-array entry seen in each step."""
    order = rng.permutation(n)
    live = np.zeros((n, n), dtype=np.int64)
    worst = []
    for _ in range(steps):
        largest = 0
        for member in order:
            live[member] += 1
            live[member, member] = 0
            largest = max(largest, int(live[member].max()))
            chosen = rng.choice(n - 1, size=subset, replace=False)
            for other in chosen + (chosen >= member):
                if rng.random() < arrival:
                    live[other] = np.minimum(live[other], live[member])
        worst.append(largest)
    return worst


# --- rounds in lockstep: a message sent in one step is received before the next ---------------------------------------


class Round:
    """Counts what is sent while a protocol is played out; `send` and `multicast` queue for the next step."""

    def __init__(self, n: int) -> None:
        self.n = n
        self.unicasts = self.multicasts = self.steps = 0
        self.processed = [0] * n
        self.queue: list[tuple[int, int, str]] = []

    def send(self, source: int, target: int, kind: str) -> None:
        self.unicasts += 1
        self.processed[source] += 1
        self.queue.append((source, target, kind))

    def multicast(self, source: int, kind: str) -> None:
        self.multicasts += 1
        self.processed[source] += 1
        self.queue.extend((source, target, kind) for target in range(self.n))

    def play(self, receive: Callable[[int, int, str], None]) -> Round:
        while self.queue:
            self.steps += 1
            arrived, self.queue = self.queue, []
            for source, target, kind in arrived:
                self.processed[target] += 1
                receive(source, target, kind)
        return self


def play_coord(n: int) -> Round:
    play, acks = Round(n), {0}

    def receive(source: int, target: int, kind: str) -> None:
        if kind == "START" and target != 0:
            play.send(target, 0, "ACK")
        if kind == "ACK":
            acks.add(source)
            if len(acks) == n:
                play.multicast(0, "INFO")

    play.multicast(0, "START")
    return play.play(receive)


def play_full_dist(n: int) -> Round:
    play, has_sent = Round(n), {0}

    def receive(source: int, target: int, kind: str) -> None:
        if target not in has_sent:
            has_sent.add(target)
            play.multicast(target, "INFO")

    play.multicast(0, "INFO")
    return play.play(receive)


def play_train(n: int) -> Round:
    play = Round(n)

    def receive(source: int, target: int, kind: str) -> None:
        if target == 0:
            if kind == "ACK":
                play.send(0, 1, "INFO")
        else:
            play.send(target, (target + 1) % n, kind)

    play.send(0, 1, "ACK")
    return play.play(receive)


def children_of(rank: int, n: int, degree: int) -> list[int]:
    return [child for child in range(degree * rank + 1, degree * rank + degree + 1) if child < n]


def play_s_coord(n: int, degree: int) -> Round:
    play = Round(n)
    waiting = [len(children_of(rank, n, degree)) for rank in range(n)]

    def receive(source: int, target: int, kind: str) -> None:
        if kind == "START" and target != 0 and waiting[target] == 0:
            play.send(target, (target - 1) // degree, "ACK")
        if kind == "ACK":
            waiting[target] -= 1
            if waiting[target] == 0 and target == 0:
                play.multicast(0, "INFO")
            elif waiting[target] == 0:
                play.send(target, (target - 1) // degree, "ACK")

    play.multicast(0, "START")
    return play.play(receive)


def play_s_train(n: int, degree: int) -> Round:
    play = Round(n)
    needs: list[set[str]] = []
    for rank in range(n):
        need = {"START"}
        if children_of(rank, n, degree):
            need.add("ACK2")
        if rank > 0 and (rank - 1) % degree > 0:
            need.add("ACK1")
        needs.append(need)

    def receive(source: int, target: int, kind: str) -> None:
        if kind == "INFO":
            return
        needs[target].discard(kind)
        if needs[target]:
            return
        if target == 0:
            play.multicast(0, "INFO")
            return
        parent = (target - 1) // degree
        if target == children_of(parent, n, degree)[-1]:
            play.send(target, parent, "ACK2")
        else:
            play.send(target, target + 1, "ACK1")

    play.multicast(0, "START")
    return play.play(receive)


def play_cube_full_dist(n: int, edges: list[tuple[int, int]]) -> Round:
    """Cube Fig 5 in lockstep: all members receive from all neighbours in an iteration, then send the next."""
    neighbours: list[list[int]] = [[] for _ in range(n)]
    for one, other in edges:
        neighbours[one].append(other)
        neighbours[other].append(one)
    play, known = Round(n), [{rank} for rank in range(n)]
    carried: dict[tuple[int, int], set[int]] = {}
    active = set(range(n))
    while active:
        for rank in range(n):
            if rank in active:
                for other in neighbours[rank]:
                    play.unicasts += 1
                    carried[rank, other] = set(known[rank])
        active = {rank for rank in active if len(known[rank]) < n}
        play.steps += 1 if active else 0
        for rank in range(n):
            for other in neighbours[rank]:
                known[rank] |= carried[other, rank]
    return play


# --- guo Figs 5.8 and 5.9 ---------------------------------------------------------------------------------------------


def golden_search(f: Callable[[float], float], a: float, b: float, g: float) -> float:
    """Fig 5.8 as printed."""
    while True:
        d = b - a
        if d <= g:
            return (a + b) / 2
        m1, m2 = a + 0.382 * d, a + 0.618 * d
        if f(m1) >= f(m2):
            a = m1
        else:
            b = m2


def step_window(f: Callable[[float], float], s: float, e: float, p: float, b0: float) -> tuple[float, float]:
    """Fig 5.9 as printed, with e a share of f(s) and the window kept inside (0, b0]."""

    def near(x: float) -> bool:
        return 0 < x <= b0 and abs(f(x) - f(s)) < e * f(s)

    edges = []
    for sign in (-1, 1):
        edge, k = s, 1.0
        while near(edge + sign * k * p):
            edge, k = edge + sign * k * p, 2 * k
        k = k / 2
        while k >= 1 and near(edge + sign * k * p):
            edge, k = edge + sign * k * p, k / 2
        edges.append(edge)
    return edges[0], edges[1]


# --- guo ch. 6, the fluid model ---------------------------------------------------------------------------------------


def peak_course(case: TriggerCase, level: float, rounds: int) -> list[float]:
    """Messages held at the end of each round, before release, if senders never stop."""
    held, peaks = level, []
    for _ in range(rounds):
        peaks.append(held + case.sent_in_round)
        held = max(level, (1 - case.stable_fraction) * held + case.sent_in_round)
    return peaks


# --- rasm Eq 1 --------------------------------------------------------------------------------------------------------


def link_failure(crash_from: float, loss: float, crash_to: float) -> float:
    """One factor of Eq 1, subtracted from 1: the message is lost."""
    return 1 - (1 - crash_from) * (1 - loss) * (1 - crash_to)

"""The inner loops of the gossip chain (guo §4.2.5): one micro-step forwards, one backwards.

increment[j, k] is P_inc(k, j), the probability that k infected members become k + j in one micro-step; row 0 is the
probability that nothing changes. Two buffers and the subset in the outer loop let the compiler use vector instructions.
"""

import numpy as np
from numpy.typing import NDArray

from cubecast.jit.decorators import allocating

FloatArray = NDArray[np.float64]


@allocating
def step_forward(before: FloatArray, after: FloatArray, increment: FloatArray) -> None:
    """Formulas 4.2 and 4.12–4.14: the distribution of the number infected after one more micro-step."""
    states = before.shape[0]
    for k in range(states):
        after[k] = increment[0, k] * before[k]
    for j in range(1, increment.shape[0]):
        for k in range(j, states):
            after[k] += increment[j, k - j] * before[k - j]


@allocating
def step_backward(before: FloatArray, after: FloatArray, increment: FloatArray) -> None:
    """One more micro-step for every starting state at once: unfinished(k) = Σ_j P_inc(k, j) · unfinished(k + j)."""
    states = before.shape[0]
    for k in range(states):
        after[k] = increment[0, k] * before[k]
    for j in range(1, increment.shape[0]):
        for k in range(states - j):
            after[k] += increment[j, k] * before[k + j]


@allocating
def distribution_after(increment: FloatArray, micro_steps: int) -> FloatArray:
    """P(k_r = k) for every k after r = `micro_steps`, from one infected member."""
    before = np.zeros(increment.shape[1])
    after = np.zeros(increment.shape[1])
    before[1] = 1.0
    for _ in range(micro_steps):
        step_forward(before, after, increment)
        before, after = after, before
    return before


@allocating
def unfinished_course(increment: FloatArray, micro_steps: int) -> FloatArray:
    """1 − P(k_r = last) for r = 0…`micro_steps`. A sum of positive terms: exact far below the rounding of 1 − P."""
    before = np.ones(increment.shape[1])
    after = np.ones(increment.shape[1])
    before[-1] = 0.0
    course = np.empty(micro_steps + 1)
    course[0] = before[1]
    for r in range(1, micro_steps + 1):
        step_backward(before, after, increment)
        before, after = after, before
        course[r] = before[1]
    return course


@allocating
def micro_steps_until(increment: FloatArray, unfinished_most: float, micro_steps_max: int) -> int:
    """The first r with 1 − P(k_r = last) ≤ `unfinished_most`, or −1 when `micro_steps_max` does not suffice."""
    before = np.ones(increment.shape[1])
    after = np.ones(increment.shape[1])
    before[-1] = 0.0
    for r in range(micro_steps_max + 1):
        if before[1] <= unfinished_most:
            return r
        step_backward(before, after, increment)
        before, after = after, before
    return -1

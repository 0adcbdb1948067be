"""Bind a simulation to the kernel."""

from __future__ import annotations

from collections.abc import Callable

from cubecast.protocol.bound import Bound, bind, nothing_bound
from cubecast.sim import kernel
from cubecast.sim.build import Simulation

Runner = Callable[[int, int], int]
"""(until_ns, budget): run for at most `budget` protocol calls; return the status."""


def runner(simulation: Simulation) -> Runner:
    """Bind the protocols of a simulation; everything is compiled, or loaded, before the first call."""
    bound = bind((simulation.control, simulation.data, simulation.failure), simulation.mail)

    def run(until_ns: int, budget: int) -> int:
        return _run(simulation, bound, until_ns, budget)

    run(0, 0)
    return run


def run_nothing(simulation: Simulation) -> None:
    """Compile the kernel, or load it, without protocols."""
    _run(simulation, nothing_bound(3), 0, 0)


def _run(simulation: Simulation, bound: Bound, until_ns: int, budget: int) -> int:
    world, metrics, mail, group, fold, _, _, _, faults, call = simulation
    return int(kernel.run(world, metrics, mail, group, fold, bound.cores, faults, call, until_ns, budget))

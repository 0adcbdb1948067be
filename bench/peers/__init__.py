"""The hypercube-neighbour storm on other simulators: ns-2, ns-3 and SimPy."""

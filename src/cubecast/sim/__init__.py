"""The packet-level simulator: event queue, links, faults, metrics, traces and checkers."""

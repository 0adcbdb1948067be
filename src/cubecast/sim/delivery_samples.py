"""The delays of deliveries and the messages held back, counted in runs with views and without.

`totals` are the counters of either kernel (`sim.metrics`, `sim.views.tables`), which have the same names.
"""

from cubecast.jit.decorators import linked


@linked
def note_delay(totals, delay_ns):
    """Count the time from the multicast of a data message to its delivery at another member."""
    totals[0].delays += 1
    totals[0].delay_sum_ns += delay_ns
    if delay_ns > totals[0].delay_max_ns:
        totals[0].delay_max_ns = delay_ns


@linked
def note_held_back(totals, count):
    """Sample a member's delivery queue."""
    totals[0].waiting_sum += count
    totals[0].waiting_samples += 1
    if count > totals[0].waiting_max:
        totals[0].waiting_max = count

"""How long a buffer lasts, and how long a message stays in it (guo §2.2 and §5.2).

*Buffer law*: a sender that multicasts r messages of k bytes per second and keeps all of them has filled B bytes after
t = B / (r·k).

*Time to stable*: every member has a message within D; a round begins every F and ends within TPR. So the message is
known to be stable at most D + F + TPR after it was sent; until then the sender keeps it.

Together: a buffer of r·k·(D + F + TPR) bytes never fills.
"""

from __future__ import annotations

from cubecast.models.checks import require_positive


def filling_time_s(*, buffer_bytes: float, rate_per_s: float, message_bytes: float) -> float:
    """t = B / (r·k), the time until a buffer from which nothing is released is full."""
    require_positive("buffer_bytes", buffer_bytes)
    require_positive("rate_per_s", rate_per_s)
    require_positive("message_bytes", message_bytes)
    return buffer_bytes / (rate_per_s * message_bytes)


def time_to_stable_max(*, delivery: float, between_rounds: float, round_time: float) -> float:
    """D + F + TPR, in the unit of its parts."""
    return delivery + between_rounds + round_time

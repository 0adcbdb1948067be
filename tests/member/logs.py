"""What a message log holds."""

from __future__ import annotations

from cubecast.member.message_log import MessageLog


def unstable(log: MessageLog) -> list[bytes]:
    """The messages that are delivered and not stable, in the order of delivery."""
    return log.in_order(log.stable, log.delivered())

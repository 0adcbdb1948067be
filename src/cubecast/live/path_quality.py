"""The quality of a TCP path as reported by the operating system: round-trip time and retransmissions.

Linux reports it in `struct tcp_info` (linux/tcp.h); other systems are not asked.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import sys
from typing import Any, NamedTuple

_BYTES = 160
_TOTAL_RETRANSMITTED = 100
_SHORTEST_RTT_US = 148
_DATA_SEGMENTS_OUT = 156
"""Offsets of tcpi_total_retrans, tcpi_min_rtt and tcpi_data_segs_out, each of 32 bits; the layout only grows."""


class PathQuality(NamedTuple):
    """The path of one connection so far."""

    rtt_ms: float
    """The shortest round-trip time: what the network takes, without queues and delayed acknowledgements."""
    segments: int
    """Segments with data that were sent, those sent again among them."""
    retransmitted: int


def path_quality(raw: Any) -> PathQuality | None:
    """The path of a socket; None where the system does not report it, or nothing was acknowledged yet."""
    if raw is None or sys.platform != "linux":
        return None
    info = b""
    with contextlib.suppress(OSError):  # the connection has ended
        info = raw.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _BYTES)
    if len(info) < _BYTES:
        return None
    places = (_SHORTEST_RTT_US, _DATA_SEGMENTS_OUT, _TOTAL_RETRANSMITTED)
    rtt_us, segments, again = (struct.unpack_from("=I", info, place)[0] for place in places)
    return PathQuality(rtt_us / 1e3, segments, again) if 0 < rtt_us < 0xFFFFFFFF else None

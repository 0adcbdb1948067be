"""An edge as written in a file: two node labels, a delay and a bandwidth as text, and its place in the file."""

from __future__ import annotations

import math
from dataclasses import dataclass

from cubecast.errors import LocalProtocolError
from cubecast.networks.delays import NS_PER_MS

DELAY_MS = "1"
BANDWIDTH_BPS = "100e6"
# A year: beyond it sums along a route leave the range of int64.
_DELAY_MS_LIMIT = 3.2e10


@dataclass(frozen=True, kw_only=True)
class WrittenEdge:
    """One edge as text; `where` names the file and the line or edge, for error messages."""

    where: str
    ends: tuple[str, str]
    delay_ns: int
    bandwidth_bps: float


def written_edge(
    where: str, end: str, other_end: str, delay_ms: str = DELAY_MS, bandwidth_bps: str = BANDWIDTH_BPS
) -> WrittenEdge:
    """Parse one edge; the defaults are 1 ms and 100 Mb/s."""
    if end == other_end:
        raise LocalProtocolError(f"{where}: node {end} is linked to itself, drop the line or name another node")
    delay = _number(where, "delay_ms", delay_ms)
    if not 0 <= delay < _DELAY_MS_LIMIT:
        raise LocalProtocolError(f"{where}: delay_ms {delay_ms}, give milliseconds from 0 to a year")
    bandwidth = _number(where, "bandwidth_bps", bandwidth_bps)
    if not 0 < bandwidth < math.inf:
        raise LocalProtocolError(f"{where}: bandwidth_bps {bandwidth_bps}, give bits per second above 0")
    return WrittenEdge(where=where, ends=(end, other_end), delay_ns=round(delay * NS_PER_MS), bandwidth_bps=bandwidth)


def _number(where: str, what: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise LocalProtocolError(f"{where}: {what} {text!r} is not a number") from None

"""Buffer law and bound of the time to stable, against sends played out one by one."""

from __future__ import annotations

import math

import pytest

from cubecast.errors import LocalProtocolError
from cubecast.models.buffers import filling_time_s, time_to_stable_max


def _held_at_most(rate_per_s: float, kept_s: float, sent: int) -> int:
    """Messages in a buffer in which each stays for so long, just after each send."""
    times = [number / rate_per_s for number in range(sent)]
    return max(sum(now - kept_s < time <= now for time in times) for now in times)


def test_a_buffer_of_32_kib_holds_500_byte_messages_for_so_long() -> None:
    """In Unix, the default buffer size is 32K bytes; t = B / (r·k) (guo §2.2)."""
    assert filling_time_s(buffer_bytes=32_000, rate_per_s=10, message_bytes=500) == pytest.approx(6.4)
    assert filling_time_s(buffer_bytes=320_000, rate_per_s=100, message_bytes=500) == pytest.approx(6.4)


@pytest.mark.parametrize("rate_per_s", [1.0, 7.0, 40.0])
@pytest.mark.parametrize("kept_s", [0.1, 0.77, 3.3])
def test_a_buffer_for_the_time_to_stable_suffices(rate_per_s: float, kept_s: float) -> None:
    held = _held_at_most(rate_per_s, kept_s, sent=300)
    needed = math.floor(rate_per_s * kept_s) + 1
    assert held <= needed <= held + 1
    assert filling_time_s(buffer_bytes=needed, rate_per_s=rate_per_s, message_bytes=1) > kept_s


def test_the_bound_is_delivery_and_a_wait_and_a_round() -> None:
    assert time_to_stable_max(delivery=2.0, between_rounds=10.0, round_time=3.0) == 15.0


@pytest.mark.parametrize("wrong", [{"buffer_bytes": 0}, {"rate_per_s": -1.0}, {"message_bytes": float("inf")}])
def test_impossible_buffers_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(LocalProtocolError, match=next(iter(wrong))):
        filling_time_s(**{"buffer_bytes": 1.0, "rate_per_s": 1.0, "message_bytes": 1.0} | wrong)

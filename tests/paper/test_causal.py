"""What the causal paper says, sentence by sentence, on the simulator."""

from __future__ import annotations

import math

import pytest

from cubecast.models.causal_bytes import (
    crossover_payload_bytes,
    overlay_bytes,
    overlay_copies,
    paper_crossover_bytes,
    timestamp_bytes,
    timestamp_copies,
)
from cubecast.sim.result import Result
from cubecast.sim.simulate import simulate

NETWORK = "random:degree=5,bandwidth=10e6"


def run(protocol: str, *, members: int, payload: int, messages: int = 5, **settings: object) -> Result:
    """The scenario of §5.1: ten senders, ten messages a millisecond each."""
    return simulate(
        protocol,
        **{
            "members": members,
            "senders": 10,
            "network": NETWORK,
            "messages": messages,
            "rate": 10_000.0,
            "payload_bytes": payload,
            "seed": 1,
            **settings,
        },  # type: ignore[arg-type]
    )


@pytest.mark.parametrize("members", [12, 64, 100])
@pytest.mark.parametrize("payload", [0, 100, 1000])
def test_each_message_is_sent_as_often_as_table_1_counts(members: int, payload: int) -> None:
    """ "In Overlay, each message is sent up to n·log n times" and in Timestamp "to n nodes" (causal §4, Table 1)."""
    overlay, timestamp = (run(name, members=members, payload=payload) for name in ("overlay", "timestamp"))
    sent = 10 * 5
    assert overlay.data_messages == sent * overlay_copies(members) <= sent * members * math.log2(members)
    assert timestamp.data_messages == sent * timestamp_copies(members)
    assert overlay.data_bytes == sent * overlay_bytes(members, payload)
    assert timestamp.data_bytes == sent * timestamp_bytes(members, payload)


def test_fragments_are_what_ip_would_send() -> None:
    """ "since our simulator simulates a real IP network, we in fact measure the number of fragments" (causal §5.1)."""
    timestamp = run("timestamp", members=400, payload=0, messages=1)
    assert timestamp.data_fragments == 2 * timestamp.data_messages  # 32 + 4·400 bytes are two of 1500
    overlay = run("overlay", members=64, payload=1000, messages=1)
    assert overlay.data_fragments == overlay.data_messages


@pytest.mark.parametrize("payload", [0, 100, 1000])
def test_overlay_never_holds_a_message_back(payload: int) -> None:
    """ "The message delivery queues are always empty" (causal §5.2, Figs 12–14)."""
    overlay = run("overlay", members=100, payload=payload)
    assert (overlay.delivery_queue_mean, overlay.delivery_queue_max) == (0, 0)


def test_timestamp_holds_messages_back() -> None:
    """ "The Timestamp protocol delays messages in the queue until they can be causally delivered" (causal §5.2)."""
    timestamp = run("timestamp", members=50, payload=0, messages=50)
    assert timestamp.delivery_queue_mean > 0
    assert timestamp.delivery_queue_max > 1


def test_overlay_is_much_faster_for_empty_messages() -> None:
    """ "When the data size is 0, the Overlay protocol delivers messages much faster" (causal §5.2, Fig 3)."""
    for members in (200, 400):
        overlay, timestamp = (
            run(name, members=members, payload=0, multicast="tree") for name in ("overlay", "timestamp")
        )
        assert overlay.delay_mean_ms is not None
        assert timestamp.delay_mean_ms is not None
        assert timestamp.delay_mean_ms > 1.5 * overlay.delay_mean_ms


def test_the_difference_shrinks_and_turns_as_messages_grow() -> None:
    """ "When data size is 100, the difference decreases"; at 1000 "Timestamp becomes faster" (causal §5.2, Figs 4, 5).

    So it is where a multicast is one copy a link. Sent as n − 1 unicasts, Timestamp's first links are so slow that
    Overlay stays ahead at every size.
    """
    ratio = []
    for payload in (0, 100, 1000):
        overlay, timestamp = (
            run(name, members=200, payload=payload, multicast="tree") for name in ("overlay", "timestamp")
        )
        assert overlay.delay_mean_ms is not None
        assert timestamp.delay_mean_ms is not None
        ratio.append(timestamp.delay_mean_ms / overlay.delay_mean_ms)
    assert ratio[0] > ratio[1] > ratio[2]
    assert ratio[2] < 1


def directed_links_by_hand(members: int) -> int:
    """2 × edges of the incomplete hypercube, counted from its definition: cube edges, and pairs of orphans."""
    dimension = (members - 1).bit_length()
    edges = {
        (low, low | 1 << bit) for low in range(members) for bit in range(dimension) if low < low | 1 << bit < members
    }
    for missing in range(members, 1 << dimension):
        orphans = sorted(other for bit in range(dimension) if (other := missing ^ 1 << bit) < members)
        orphans = orphans[len(orphans) % 2 :]
        half = len(orphans) // 2
        edges |= set(zip(orphans[:half], orphans[half:], strict=True))
    return 2 * len(edges)


def test_overlay_sends_fewer_bytes_below_the_crossover_and_more_above() -> None:
    """ "Overlay uses fewer bytes even when data size is 100"; at 1000 "more bytes" (causal §5.2, Figs 6–8).

    At 100 bytes this begins at n = 197: below, the vector is too short to outweigh the copies. By hand, with 780 edges
    among 197 members: (2·780 − 196)·132 = 180 048 < 196·(132 + 4·197) = 180 320; and with 776 among 196 members
    (2·776 − 195)·132 = 179 124 > 195·(132 + 4·196) = 178 620. Without the replacement edges it would be 166.
    """
    assert (directed_links_by_hand(196), directed_links_by_hand(197)) == (2 * 776, 2 * 780)
    for members in (64, 100, 196, 197, 400, 600):
        assert overlay_copies(members) == directed_links_by_hand(members) - (members - 1)
    fewer = [members for members in range(20, 601) if overlay_bytes(members, 100) < timestamp_bytes(members, 100)]
    assert fewer == list(range(197, 601))
    for members in range(100, 601, 20):
        assert overlay_bytes(members, 0) < timestamp_bytes(members, 0)
        assert overlay_bytes(members, 1000) > timestamp_bytes(members, 1000)


def test_the_exact_crossover_is_near_the_rough_one() -> None:
    """ "We would expect Overlay to be better roughly when d < n/(log n − 1)" (causal §4)."""
    for members in range(200, 601, 50):
        exact = crossover_payload_bytes(members)
        assert overlay_bytes(members, math.floor(exact)) <= timestamp_bytes(members, math.floor(exact))
        assert overlay_bytes(members, math.ceil(exact) + 1) > timestamp_bytes(members, math.ceil(exact) + 1)
        assert 0.5 < exact / paper_crossover_bytes(members) < 2


def test_the_largest_link_queue_is_overlays() -> None:
    """At d = 0 the links at the senders of Overlay "are loaded for short periods": a high maximum (causal §5.2)."""
    overlay, timestamp = (
        run(name, members=200, payload=0, multicast="tree", messages=10) for name in ("overlay", "timestamp")
    )
    assert overlay.queue_max > timestamp.queue_max

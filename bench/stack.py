"""Measure the whole stack: data at a rate, losses, repair, stability rounds, buffers freed.

`python bench/stack.py` prints one line for each reliable multicast family under a basic (Coord) and a structured
(S_Coord) stability protocol: time to stable, contents of the buffers, duplicates, and bytes without payload.
"""

from __future__ import annotations

import argparse
import time

from cubecast.protocol.parameters import describe
from cubecast.protocols.catalogue import list_protocols, transport_named
from cubecast.sim.simulate import simulate


def main() -> None:
    """Read the options and measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--members", type=int, default=50)
    parser.add_argument("--senders", type=int, default=5)
    parser.add_argument("--network", default="random:degree=5")
    parser.add_argument("--loss", type=float, default=0.01)
    parser.add_argument("--rate", type=float, default=50.0)
    parser.add_argument("--messages", type=int, default=100)
    parser.add_argument("--protocols", nargs="+", default=["coord", "s_coord"])
    parser.add_argument("--transports", nargs="+", default=[one.name for one in list_protocols("transport")])
    parser.add_argument("--repair", default="multicast", choices=["multicast", "unicast"])
    options = parser.parse_args()
    titles = (
        "TTS ms",
        "D max",
        "buf mean",
        "buf max",
        "duplicates",
        "overhead kB",
        "payload kB",
        "control kB",
        "wall s",
    )
    print(f"{'protocol':>8} {'transport':>14} " + " ".join(f"{title:>11}" for title in titles))
    for protocol in options.protocols:
        for transport in options.transports:
            began = time.perf_counter()
            chooses = "repair" in describe(transport_named(transport).parameters)
            result = simulate(
                protocol,
                members=options.members,
                senders=options.senders,
                network=options.network,
                loss=options.loss,
                rate=options.rate,
                messages=options.messages,
                transport=transport,
                **({"transport_repair": options.repair} if chooses else {}),
            )
            payload = result.data_bytes - result.overhead_bytes
            values = (
                *(result.tts_first_ms or 0, result.delay_max_ms or 0, result.buffer_mean or 0, result.buffer_max or 0),
                *(result.duplicates, result.overhead_bytes / 1e3, payload / 1e3, result.bytes / 1e3),
                time.perf_counter() - began,
            )
            print(f"{protocol:>8} {transport:>14} " + " ".join(f"{value:11.1f}" for value in values), flush=True)


if __name__ == "__main__":
    main()

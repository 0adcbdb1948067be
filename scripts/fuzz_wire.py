"""Feed damaged frames to the decoder: `python -m scripts.fuzz_wire --frames 10000000`.

Every frame must be read or refused; anything else (an exception, a crash, a hang) ends the run and names the seed.
"""

from __future__ import annotations

import argparse
import random
import time

from tests.wire.frames import Decoder, damage, damage_body, honest_frame

POOL = 4096
DAMAGES = 256


def main() -> None:
    """Draw frames, damage entire frames or only their bodies, decode them, and count the outcomes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--frames", type=int, default=10_000_000)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    decoder = Decoder()
    began = time.monotonic()
    done = refused = 0
    seed = chosen.seed
    while done < chosen.frames:
        chance = random.Random(seed)
        pool = [honest_frame(chance) for _ in range(DAMAGES)]
        for _ in range(min(POOL, chosen.frames - done)):
            harm = chance.choice((damage, damage_body))
            octets = harm(chance, chance.choice(pool))
            try:
                refused += not decoder.feed(octets)
            except BaseException:
                print(f"seed {seed}: {octets.hex()}")
                raise
            done += 1
        seed += 1
    seconds = time.monotonic() - began
    print(f"{done} frames, {refused} refused, {decoder.bodies} bodies read, {done / seconds:.0f} per second")


if __name__ == "__main__":
    main()

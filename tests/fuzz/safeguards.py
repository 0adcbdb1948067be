"""The first random history that exposes each missing safeguard: `python -m tests.fuzz.safeguards --budget N [NAME …]`.

One line per safeguard: its name, the seed that exposes its removal, and the broken promise.
"""

from __future__ import annotations

import argparse
import time

from tests.fuzz.broken_members import BROKEN, caught


def main() -> None:
    """Search, and print the results."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--budget", type=int, default=2000, help="seeds to try for each safeguard")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("names", nargs="*", help="safeguards; all without one")
    options = parser.parse_args()
    for name in options.names or BROKEN:
        began_s = time.process_time()
        found = caught(name, range(options.first, options.first + options.budget))
        seed, shown = found if found is not None else (None, "not caught")
        print(f"{name!r}: {seed},  # {time.process_time() - began_s:.1f} s; {shown[:160]}", flush=True)


if __name__ == "__main__":
    main()

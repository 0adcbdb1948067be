"""Every safeguard of the stamped trees taken out on purpose: prints which promises the adversary then breaks.

Run with `CUBECAST_JIT=off`: functions are then plain, and taking one out is an assignment.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from cubecast.jit.backend import COMPILED
from cubecast.protocols.causal import hold_back, stamped_tree
from tests.property.causal_adversary import broken_promise
from tests.property.tree_scenes import SCENES, broken_in
from tests.sim.broken_stability import broken

SEEDS = range(16)
PROTOCOLS = ("causal_plumtree", "causal_rasm")


def nothing(*_: Any) -> None:
    """What is left of a safeguard."""


def no_cause_is_missing(order: Any, group: Any, row: int, stamp: Any, sender: int, begin: int) -> int:
    """Only the order of each sender's own messages is kept."""
    return sender if stamp[sender] - 1 > group.received[row, sender] else -1


def nobody_lives(live: Any, members: int, partner: int, place: int) -> int:
    """No stand-in is found."""
    return -1


def send_again_what_was_freed(state: Any, row: int, now_ns: int, mail: Any, slot: int, source: int) -> None:
    before = state.group.stable[row].copy()
    state.group.stable[row] = 0
    _SEND_AGAIN(state, row, now_ns, mail, slot, source)
    state.group.stable[row] = before


_SEND_AGAIN: Callable[..., None] = stamped_tree._send_again

SAFEGUARDS: dict[str, tuple[Any, str, Any]] = {
    "all causes are awaited": (hold_back, "_first_missing", no_cause_is_missing),
    "arrivals are announced": (stamped_tree, "announce_later", nothing),
    "missing messages are requested": (stamped_tree, "request_overdue", nothing),
    "crashed neighbours are replaced": (stamped_tree, "first_live", nobody_lives),
    "a crash makes all announce": (stamped_tree, "announce_to_all", nothing),
    "requests to crashed members are repeated": (stamped_tree, "forget_announcements", nothing),
    "stable messages are not sent again": (stamped_tree, "_send_again", send_again_what_was_freed),
}


def wrong() -> Iterator[str]:
    """The promises that the protocols break in the scenes and under the adversary."""
    for protocol in PROTOCOLS:
        yield from (broken for scene in SCENES if (broken := broken_in(scene, protocol)))
        yield from (broken for seed in SEEDS if (broken := broken_promise(protocol, seed)))


def main() -> None:
    """Print a JSON object: for each safeguard the first promise broken without it; under "" with all of them."""
    assert not COMPILED, "run this with CUBECAST_JIT=off"
    found = {"": next(wrong(), "")}
    for name, (module, function, instead) in SAFEGUARDS.items():
        with broken(module, function, instead):
            found[name] = next(wrong(), "")
    print(json.dumps(found))


if __name__ == "__main__":
    main()

"""One link of a live member by itself: what may be lost is not lost for want of room, and silence is noticed."""

from __future__ import annotations

import numpy as np
import pytest

from cubecast.core.failure import live_array
from cubecast.core.failure.silence import STEP
from cubecast.core.group import new_group
from cubecast.core.overlays import hypercube, of_ranks
from cubecast.errors import RemoteProtocolError
from cubecast.live.cores import ControlCore
from cubecast.live.link import Link
from cubecast.wire import frame
from cubecast.wire.frame import Frame, FrameReader


class Pipe:
    """A connection that keeps what is written."""

    def __init__(self) -> None:
        """Open, with room."""
        self.paused = False
        self.written = b""

    def write(self, data: bytes) -> None:
        """Keep the bytes."""
        self.written += data

    def close(self) -> None:
        """Nothing to do."""

    def frames(self) -> list[Frame]:
        """What was written."""
        return list(FrameReader(1 << 20).feed(self.written))


def test_only_the_last_loose_frame_waits_for_a_full_connection() -> None:
    link, pipe = Link(1), Pipe()
    link.attach(pipe, received=0, dialled_by=0)
    pipe.paused = True
    link.add_record(b"record")
    for step in range(5):
        link.send_loose(frame.FAILURE, b"gossip %d" % step)
    link.flush()
    assert pipe.written == b""
    pipe.paused = False
    link.flush()
    assert [(one.kind, one.body) for one in pipe.frames()] == [(frame.FAILURE, b"gossip 4"), (frame.DATA, b"record")]


def test_a_new_connection_carries_what_the_old_one_did_not_bring() -> None:
    link, first, second = Link(1), Pipe(), Pipe()
    link.attach(first, received=0, dialled_by=0)
    for body in (b"one", b"two", b"three"):
        link.add_control(body)
    link.detach(first)
    link.attach(second, received=1, dialled_by=0)
    assert [(one.number, one.body) for one in second.frames()] == [(2, b"two"), (3, b"three")]
    with pytest.raises(RemoteProtocolError, match="claims 0 frames"):
        link.attach(Pipe(), received=0, dialled_by=0)


def test_a_neighbour_that_is_heard_is_not_suspected_though_its_gossip_is_late() -> None:
    group = new_group(members=4, senders=4, ranks=np.array([0]))
    cube = of_ranks(hypercube(4), group.rank)
    state = live_array.new_state(group, cube, members=4, step_ns=1, threshold=5, grace_steps=1)
    detector = ControlCore(state, width=8, words=1, room=64)
    detector.start(0)
    for _ in range(10):
        detector.heard(0, 1)
        detector.on_timer(0, STEP, 0)
    assert int(state.suspected[0, 0]) == 0b1100

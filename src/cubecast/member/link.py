"""One link: frames to and from one other member, in order and without a gap, over successive connections.

Every DATA, CONTROL and MEMBERSHIP frame has a number. A frame stays here until the other side has acknowledged it; at a
reconnection each side reports how far it received, and the rest is sent again. A process that restarted has lost its
links: it numbers its frames from what the other side received, and this side renumbers the frames it still holds. If
frames of the present view were lost for good, `resume` returns False, and the view must be renewed.

Data records wait unframed while the connection is down or its buffer full, so that under load they leave in large
batches, and at once when idle.

Bounds: at most `connection_bytes` (and what the system's socket buffers take) are framed and unacknowledged while the
other side reads; unframed records are references to unstable messages, which the senders' windows bound.
"""

from __future__ import annotations

from collections import deque

from cubecast.errors import RemoteProtocolError
from cubecast.protocols.membership.views import MemberId
from cubecast.wire import frame, handshake
from cubecast.wire.data import RECORDS_MAX
from cubecast.wire.frame import Frame, FrameReader, encode_frame

BATCH_BYTES = 256 << 10
ACK_BYTES = 128 << 10
RECORDS_BATCH = RECORDS_MAX // 4
HANDSHAKE_BYTES_MAX = 16 << 10


class Pipe:
    """One connection as the member sees it: bytes in, bytes out, and the peer."""

    def __init__(
        self, number: int, dialled: str, certificate: tuple[str, ...] | None, address: str, now_ns: int
    ) -> None:
        """A connection whose other end is not known yet."""
        self.number = number
        self.dialled = dialled
        self.certificate = certificate
        self.address = address
        self.since_ns = now_ns
        self.reader = FrameReader(HANDSHAKE_BYTES_MAX)
        self.is_paused = False
        self.is_closed = False
        self.link: Link | None = None
        self.out: list[bytes] = []

    @property
    def label(self) -> str:
        """The other end, for the log."""
        return self.dialled or self.address


class Link:
    """The frames between this member and `peer`."""

    def __init__(self, peer: MemberId, session: int) -> None:
        """No connection yet; frames wait for one."""
        self.peer = peer
        self.session = session
        self.pipe: Pipe | None = None
        self.dialled_by = ""
        self.sent = 0
        self.acknowledged = 0
        self.received = 0
        self.connections = 0
        self.bytes_out = 0
        self.bytes_in = 0
        self.heard = False
        """Did anything arrive since the failure detector last asked?"""
        self.used_ns = 0
        self._loose: dict[int, bytes] = {}
        self._records: list[bytes] = []
        self._records_bytes = 0
        self._view_tag = 0
        self._holed_tag = -1
        """The view whose data no longer goes over this link, because some of it was lost."""
        self._sent_before_view = 0
        self._unacknowledged: deque[bytes] = deque()
        self._unacknowledged_bytes = 0
        self._unconfirmed_bytes = 0

    @property
    def is_up(self) -> bool:
        """Is there a connection?"""
        return self.pipe is not None

    @property
    def waiting_bytes(self) -> int:
        """Bytes for the other side that it has not acknowledged."""
        return self._records_bytes + self._unacknowledged_bytes

    @property
    def wants_flush(self) -> bool:
        """Is there something that could be sent now?"""
        return self.pipe is not None and not self.pipe.is_paused and bool(self._records or self._loose)

    def resume(self, pipe: Pipe, *, received: int, session: int, dialled_by: str) -> bool:
        """Continue over a new connection, from the frame after `received`; False when frames were lost for good."""
        is_same = session == self.session
        self.session = session
        if is_same:
            received = max(received, self.acknowledged)  # it may have reported this before it read the last frames
        is_whole = True
        if not self.connections:  # what it received came from an earlier run; frames waiting here were never sent
            self._number_from(received)
        elif received > self.sent:
            raise RemoteProtocolError(f"it claims frame {received} of this link; {self.sent} were sent")
        elif received < self.acknowledged:
            is_whole = self.acknowledged <= self._sent_before_view
            if not is_whole:
                self._send_no_more_data()
            self._number_from(received)
        self.pipe = pipe
        self.dialled_by = dialled_by
        self.connections += 1
        self.acknowledge(received)
        for data in self._unacknowledged:
            self._write(data)
        return is_whole

    def _send_no_more_data(self) -> None:
        """Data of this view was lost: nothing after it may be sent without it. The next view recovers all of it."""
        self._holed_tag = self._view_tag
        self._unacknowledged = deque(data for data in self._unacknowledged if frame.kind_of(data) != frame.DATA)
        self._unacknowledged_bytes = sum(map(len, self._unacknowledged))
        self._records = []
        self._records_bytes = 0

    def _number_from(self, received: int) -> None:
        """Number the unacknowledged frames from here on."""
        kept = [frame.renumber(data, received + place) for place, data in enumerate(self._unacknowledged, 1)]
        self._unacknowledged = deque(kept)
        self.acknowledged = self._sent_before_view = received
        self.sent = received + len(kept)

    def detach(self, pipe: Pipe) -> bool:
        """Drop a connection that ended; returns whether it was this link's."""
        if self.pipe is not pipe:
            return False
        self.pipe = None
        return True

    def begin_view(self, tag: int) -> None:
        """Drop waiting records: they are of an earlier view."""
        if tag == self._view_tag:
            return
        self._view_tag = tag
        self._sent_before_view = self.sent
        self._records = []
        self._records_bytes = 0
        self._loose.pop(frame.FAILURE, None)

    def add_records(self, records: list[bytes], size: int) -> None:
        """Add data records of that many bytes to the next batch."""
        if self._view_tag == self._holed_tag:
            return
        self._records += records
        self._records_bytes += size

    def send(self, kind: int, view: int, body: bytes) -> None:
        """Send a numbered frame; it may overtake waiting records."""
        self.sent += 1
        data = encode_frame(kind, self.sent, view, body)
        self._unacknowledged.append(data)
        self._unacknowledged_bytes += len(data)
        self._write(data)

    def send_loose(self, kind: int, view: int, body: bytes) -> None:
        """Send a frame that may be lost: at once, or when there is room if it is still the last of its kind then."""
        data = encode_frame(kind, 0, view, body)
        if self.pipe is None or self.pipe.is_paused:
            self._loose[kind] = data
        else:
            self._write(data)

    def flush(self) -> None:
        """Send the waiting records in one or a few frames; not while the connection is down or full."""
        pipe = self.pipe
        if pipe is None or pipe.is_paused:
            return
        while self._loose:
            self._write(self._loose.popitem()[1])
        written = 0
        while self._records and written < 4 * BATCH_BYTES:
            body = self._take_batch()
            written += len(body)
            self.send(frame.DATA, self._view_tag, body)

    def _take_batch(self) -> bytes:
        if len(self._records) <= RECORDS_BATCH and self._records_bytes <= BATCH_BYTES:
            taken, self._records = self._records, []
            self._records_bytes = 0
            return b"".join(taken)
        size = count = 0
        for record in self._records[:RECORDS_BATCH]:
            if count and size + len(record) > BATCH_BYTES:
                break
            size += len(record)
            count += 1
        taken = self._records[:count]
        del self._records[:count]
        self._records_bytes -= size
        return b"".join(taken)

    def _write(self, data: bytes) -> None:
        if self.pipe is not None:
            self.bytes_out += len(data)
            self.pipe.out.append(data)

    def acknowledge(self, received: int) -> None:
        """The other side has everything up to this frame."""
        if received > self.sent:
            raise RemoteProtocolError(f"it acknowledges frame {received}; {self.sent} were sent")
        while self.acknowledged < received:
            self.acknowledged += 1
            self._unacknowledged_bytes -= len(self._unacknowledged.popleft())

    def accept(self, arrived: Frame) -> bool:
        """Is this the next frame? A repeated one is not; a gap is an error."""
        if arrived.number <= self.received:
            return False
        if arrived.number != self.received + 1:
            raise RemoteProtocolError(f"it sent frame {arrived.number} after frame {self.received}: a gap")
        self.received = arrived.number
        size = len(arrived.body) + frame.HEADER_BYTES
        self.bytes_in += size
        self._unconfirmed_bytes += size
        if self._unconfirmed_bytes >= ACK_BYTES:
            self.confirm()
        return True

    def confirm(self) -> None:
        """Acknowledge what arrived since the last time."""
        if self._unconfirmed_bytes:
            self._unconfirmed_bytes = 0
            self.send_loose(frame.ACK, 0, handshake.encode(handshake.Acknowledgement(self.received)))


class DeadLink(Link):
    """Stands in for the link to an earlier incarnation of a process that has begun another: drops what is sent."""

    def add_records(self, records: list[bytes], size: int) -> None:
        """The link is dead: nothing is sent."""

    def send(self, kind: int, view: int, body: bytes) -> None:
        """The link is dead: nothing is sent."""

    def send_loose(self, kind: int, view: int, body: bytes) -> None:
        """The link is dead: nothing is sent."""

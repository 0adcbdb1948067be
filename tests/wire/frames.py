"""Frames for fuzzing: honest ones, and honest ones damaged in every way a peer or an attacker may think of."""

from __future__ import annotations

import random
from contextlib import suppress

import numpy as np

from cubecast.errors import RemoteProtocolError
from cubecast.member.settings import Settings
from cubecast.wire import control, data, frame, handshake
from cubecast.wire.control import Control
from cubecast.wire.handshake import Acknowledgement, HandshakeRefusal, Hello
from cubecast.wire.membership import Elsewhere, decode_message, encode_message, require_fit
from tests.wire.membership_messages import draw_base, draw_message, draw_relative

MEMBERS = 8
PAYLOAD_MAX = 512
PLAIN = data.Form(members=MEMBERS, stamp_numbers=0, own_numbers=MEMBERS, payload_bytes_max=PAYLOAD_MAX)
STAMPED = PLAIN._replace(stamp_numbers=MEMBERS)
BODY_MAX = 4096
BASE = draw_base(random.Random(1), MEMBERS)


def draw_hello(chance: random.Random) -> Hello:
    """A HELLO of an honest member."""
    return Hello(
        oldest=1,
        newest=chance.randrange(1, 4),
        group=chance.choice(["g", "orders", ""]),
        group_id=chance.getrandbits(63),
        name=f"10.0.0.{chance.randrange(256)}:7000",
        towards="b.example:1",
        incarnation=chance.getrandbits(63),
        session=chance.getrandbits(62),
        knows=chance.getrandbits(63),
        knows_session=chance.getrandbits(63),
        received=chance.randrange(1 << 40),
        view_number=chance.getrandbits(40),
        view_tag=chance.getrandbits(63),
        view_members=chance.randrange(4096),
        settings=Settings().agreed(),
    )


def draw_refusal(chance: random.Random) -> HandshakeRefusal:
    """A refusal of an honest member."""
    return HandshakeRefusal(
        reason="no",
        is_duplicate=chance.random() < 0.5,
        is_past=chance.random() < 0.5,
        incarnation=chance.getrandbits(63),
        session=chance.getrandbits(63),
    )


def honest_body(chance: random.Random, kind: int) -> bytes:
    """A body that an honest member may send."""
    if kind == frame.DATA:
        records = []
        stamp = bytes(4 * MEMBERS) if chance.random() < 0.5 else b""
        for _ in range(chance.randrange(6)):
            if chance.random() < 0.2:
                records.append(data.encode_record(1, -1, 0, b"", bytes(4 * MEMBERS)))
            else:
                payload = chance.randbytes(chance.randrange(60))
                name = chance.randrange(MEMBERS), chance.randrange(1, 1 << 31)
                records.append(data.encode_record(0, *name, payload, stamp))
        return b"".join(records)
    if kind in (frame.CONTROL, frame.FAILURE):
        numbers = np.array([chance.randrange(1 << 30) for _ in range(MEMBERS)], np.int32)
        bits = np.array([chance.getrandbits(MEMBERS)], np.uint64)
        return control.encode_control(Control(0, chance.randrange(1 << 20), 1, 0, -1, 0, numbers, bits))
    if kind == frame.ACK:
        return handshake.encode(Acknowledgement(chance.randrange(1 << 40)))
    if kind == frame.REFUSE:
        return handshake.encode(draw_refusal(chance))
    if kind == frame.MEMBERSHIP:
        if chance.random() < 0.2:
            return encode_message(draw_relative(chance, BASE), BASE)
        return encode_message(draw_message(chance))
    return handshake.encode(draw_hello(chance))


def honest_frame(chance: random.Random) -> bytes:
    """A frame that an honest member may send."""
    kind = chance.choice(sorted(frame.KINDS))
    number = chance.randrange(1, 1 << 40) if kind in frame.NUMBERED else 0
    return frame.encode_frame(kind, number, chance.getrandbits(63), honest_body(chance, kind))


def damage(chance: random.Random, whole: bytes) -> bytes:
    """Flip, cut, lengthen or replace bytes."""
    octets = bytearray(whole)
    way = chance.randrange(6)
    if way == 0 and octets:
        for _ in range(chance.randrange(1, 5)):
            octets[chance.randrange(len(octets))] ^= 1 << chance.randrange(8)
    elif way == 1:
        del octets[chance.randrange(len(octets) + 1) :]
    elif way == 2:
        at = chance.randrange(len(octets) + 1)
        octets[at:at] = chance.randbytes(chance.randrange(1, 9))
    elif way == 3 and len(octets) >= 4:
        at = chance.randrange(len(octets) - 3)
        octets[at : at + 4] = chance.choice([b"\xff\xff\xff\xff", b"\0\0\0\0", b"\0\0\0\x80", b"\xff\xff\xff\x7f"])
    elif way == 4:
        octets[:] = chance.randbytes(chance.randrange(64))
    return bytes(octets)


def damage_body(chance: random.Random, whole: bytes) -> bytes:
    """The same frame with a damaged body and a header that fits it, so that the damage is seen by the body's reader."""
    (honest,) = frame.FrameReader(BODY_MAX).feed(whole)
    body = damage(chance, honest.body)[:BODY_MAX]
    return frame.encode_frame(honest.kind, honest.number, honest.view, body)


class Decoder:
    """Everything that a member does with bytes before a core sees them."""

    def __init__(self) -> None:
        """Allocate once, as a member does."""
        self.table = data.new_table()
        self.bodies = 0

    def feed(self, octets: bytes) -> bool:
        """Decode; False when the bytes were refused. Anything but a `RemoteProtocolError` is a bug and is raised."""
        try:
            for arrived in frame.FrameReader(BODY_MAX).feed(octets):
                self.body(arrived.kind, arrived.body)
        except RemoteProtocolError:
            return False
        return True

    def _batch(self, body: bytes, form: data.Form) -> None:
        count = data.decode_batch(body, self.table, form)
        ends = self.table[:count, 6]
        assert count == 0 or (ends[-1] == len(body) and (np.diff(ends) >= data.HEAD_BYTES).all())

    def body(self, kind: int, body: bytes) -> None:
        """Decode one body by its kind."""
        self.bodies += 1
        if kind == frame.DATA:
            try:
                self._batch(body, STAMPED)
            except RemoteProtocolError:
                self._batch(body, PLAIN)
        elif kind in (frame.CONTROL, frame.FAILURE):
            control.decode_control(body, numbers=MEMBERS, words=1)
        elif kind == frame.ACK:
            handshake.decode(Acknowledgement, body)
        elif kind == frame.REFUSE:
            handshake.decode(HandshakeRefusal, body)
        elif kind == frame.MEMBERSHIP:
            message = decode_message(body, BASE)
            if isinstance(message, Elsewhere):
                return
            assert encode_message(message), "what was read can be written"
            with suppress(RemoteProtocolError):
                require_fit(message, MEMBERS)
        else:
            handshake.decode(Hello, body)

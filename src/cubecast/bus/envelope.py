"""The envelope of a value on the bus: one MessagePack array per multicast.

| field    | meaning                                                                                        |
|----------|------------------------------------------------------------------------------------------------|
| kind     | see below                                                                                      |
| topic    | any text                                                                                       |
| body     | the value, encoded by the codec                                                                |
| to       | name and incarnation of the only member that takes it; None: every member                      |
| number   | of a request and its reply, counted by the member that requests                                |
| counts   | PRESENCE: subscribers of this member by topic                                                  |
| name     | PRESENCE: the name of this member                                                              |

| kind     | meaning                                                                                        |
|----------|------------------------------------------------------------------------------------------------|
| PUBLISH  | for the subscribers of the topic                                                               |
| REQUEST  | for the function that serves the topic; it replies to the sender                               |
| REPLY    | the result of a request; FAILURE: its error, as text                                           |
| PRESENCE | `counts` replace what was known of these topics; ALL_PRESENCE: of all topics                   |
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from cubecast.errors import LocalProtocolError, RemoteProtocolError
from cubecast.live.texts import require_text

PUBLISH, REQUEST, REPLY, FAILURE, PRESENCE, ALL_PRESENCE = range(6)
TOPIC_CHARACTERS_MAX = 1024
NAME_CHARACTERS_MAX = 255
BYTES_BESIDE_COUNTS = 4 * NAME_CHARACTERS_MAX + 64
"""The size of a presence envelope without its counts; a character takes at most four bytes."""
BYTES_PER_COUNT = 5 + 9
"""The lengths of a topic and the number, in MessagePack."""


class Envelope(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One message of the bus."""

    kind: int
    topic: str = ""
    body: bytes = b""
    to: tuple[str, int] | None = None
    number: int = 0
    counts: dict[str, int] = {}
    name: str = ""


encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Envelope).decode


def decode(payload: bytes) -> Envelope:
    """Read an envelope; RemoteProtocolError if it is invalid."""
    try:
        return _decode(payload)
    except msgspec.DecodeError as error:
        raise RemoteProtocolError(f"a message of {len(payload)} bytes is not a bus message: {error}") from error


def parts_of(counts: dict[str, int], bytes_max: int) -> Iterator[dict[str, int]]:
    """Split the counts into parts that each fit into a message; at least one part, which may be empty."""
    part: dict[str, int] = {}
    room = bytes_max - BYTES_BESIDE_COUNTS
    for topic, count in counts.items():
        size = len(topic.encode()) + BYTES_PER_COUNT
        if part and size > room:
            yield part
            part, room = {}, bytes_max - BYTES_BESIDE_COUNTS
        part[topic] = count
        room -= size
    yield part


def require_topic(topic: object) -> str:
    """Validate a topic: any text that can be encoded and is not too long."""
    return require_text("topic", topic, TOPIC_CHARACTERS_MAX)


def require_name(name: object) -> str:
    """Validate the name of a member: it must not look like an address."""
    text = require_text("name", name, NAME_CHARACTERS_MAX)
    if ":" in text:
        raise LocalProtocolError(f"name {text!r}: only addresses have a colon")
    return text

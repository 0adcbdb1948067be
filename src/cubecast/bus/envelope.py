"""What the bus puts around a value: one MessagePack array per multicast.

| field    | meaning                                                                                        |
|----------|------------------------------------------------------------------------------------------------|
| kind     | see below                                                                                      |
| topic    | any text                                                                                       |
| body     | the value, encoded by the codec                                                                |
| to       | name and incarnation of the only member that takes it; None: every member                      |
| number   | of a request and its reply, counted by the member that requests                                |
| counts   | PRESENCE: subscribers of this member by topic                                                  |

| kind     | meaning                                                                                        |
|----------|------------------------------------------------------------------------------------------------|
| PUBLISH  | for the subscribers of the topic                                                               |
| REQUEST  | for the function that serves the topic; it replies to the sender                               |
| REPLY    | the result of a request; FAILURE: its error, as text                                           |
| PRESENCE | `counts` replace what was known of these topics; ALL_PRESENCE: of all topics                   |
"""

from __future__ import annotations

import msgspec

from cubecast.errors import LocalProtocolError, RemoteProtocolError

PUBLISH, REQUEST, REPLY, FAILURE, PRESENCE, ALL_PRESENCE = range(6)
TOPIC_CHARACTERS_MAX = 1024


class Envelope(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One message of the bus."""

    kind: int
    topic: str = ""
    body: bytes = b""
    to: tuple[str, int] | None = None
    number: int = 0
    counts: dict[str, int] = {}


encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Envelope).decode


def decode(payload: bytes) -> Envelope:
    """Read an envelope; RemoteProtocolError if it is none."""
    try:
        return _decode(payload)
    except msgspec.DecodeError as error:
        raise RemoteProtocolError(f"a message of {len(payload)} bytes is not of a bus: {error}") from error


def require_topic(topic: object) -> str:
    """Any text may be a topic, as long as it can be written and is not too long."""
    if not isinstance(topic, str) or not topic:
        raise LocalProtocolError(f"topic {topic!r}: give a text that is not empty")
    if len(topic) > TOPIC_CHARACTERS_MAX:
        raise LocalProtocolError(f"topic {topic[:40]!r}…: {len(topic)} characters, at most {TOPIC_CHARACTERS_MAX}")
    try:
        topic.encode()
    except UnicodeEncodeError as error:
        raise LocalProtocolError(f"topic {topic!r}: it has a lone surrogate, which is no character") from error
    return topic

"""Abilities of transports that their drivers need to know: found by the fields of a state, never by a name.

A transport with the field `submitted` lets senders share sequences; one with `catching` sends newcomers the messages
that the others have, and reports with the action `CAUGHT_UP` that a newcomer holds them.
"""

from cubecast.protocol.definition import Protocol

CAUGHT_UP = 12
"""An action in addition to those of `protocol.mail`: this newcomer holds what all others hold."""


def sequence_of(rank: int, sequences: int) -> int:
    """The sequence that numbers the messages of a sender; its sequencer is the member of that rank."""
    return rank % sequences


def shares_sequences(protocol: Protocol) -> bool:
    """May senders share sequences under this transport?"""
    return _has(protocol, "submitted")


def hands_over_history(protocol: Protocol) -> bool:
    """Does this transport send newcomers the messages that the others have?"""
    return _has(protocol, "catching")


def _has(protocol: Protocol, field: str) -> bool:
    return field in getattr(protocol.state, "_fields", ())

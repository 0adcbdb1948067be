"""Updates of Yjs: does a document have everything that an update depends on?

A document silently stores an update that arrives too early and applies it when the missing operations arrive. A
program that makes such an edit would show content that no other member has.

The difference of an applied update to the document's state (`get_update`) begins with the number of clients whose
operations wait, followed by the deletions of the update: clients, and ranges of the numbers of their operations.
"""

from __future__ import annotations

from typing import Any

from cubecast.extras import named

with named("cubecast.contrib.pycrdt"):
    from pycrdt import Decoder, Doc, get_update


class ObservantDoc(Doc[Any]):
    """A document that records the updates that a program applies to it."""

    applied: list[bytes] | None = None
    """The updates; None: they are not recorded."""

    def apply_update(self, update: bytes) -> None:
        """Apply an update, as `Doc` does."""
        super().apply_update(update)
        if self.applied is not None:
            self.applied.append(update)


def has_gap(doc: Doc[Any], update: bytes) -> bool:
    """Does this update, which was applied, wait for operations that the document does not have?"""
    state = doc.get_state()
    rest = Decoder(get_update(update, state))
    if rest.read_var_uint():
        return True
    known = _operations_of(state)
    for _ in range(rest.read_var_uint()):
        client = rest.read_var_uint()
        for _ in range(rest.read_var_uint()):
            if rest.read_var_uint() + rest.read_var_uint() > known.get(client, 0):
                return True
    return False


def _operations_of(state: bytes) -> dict[int, int]:
    """The number of operations by client."""
    vector = Decoder(state)
    return {vector.read_var_uint(): vector.read_var_uint() for _ in range(vector.read_var_uint())}

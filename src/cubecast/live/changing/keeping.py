"""The history that a newcomer gets when the application makes no snapshots: nothing, everything, or the last messages.

Members deliver concurrent messages in different orders, so "the last so many" may differ by a few from one to another;
a newcomer gets those of the member that hands it the state.
"""

from __future__ import annotations

from collections import deque

from cubecast.core.membership.messages import Deliver
from cubecast.live.changing.settings import Keep
from cubecast.wire.kept import Kept, decode_kept, encode_kept


class Keeping:
    """What one member keeps."""

    def __init__(self, keep: Keep) -> None:
        """Nothing yet."""
        most = {"none": 0, "all": None}.get(keep, keep) if isinstance(keep, str) else keep
        self._kept: deque[Kept] = deque(maxlen=most)  # type: ignore[arg-type]

    def add(self, delivered: Deliver) -> None:
        """One more delivery."""
        if self._kept.maxlen != 0:
            self._kept.append(Kept(delivered.sender, delivered.view, delivered.number, delivered.payload))  # type: ignore[arg-type]

    def dump(self) -> bytes:
        """What a newcomer is given."""
        return encode_kept(self._kept)

    def load(self, octets: bytes) -> list[Kept]:
        """A newcomer begins with this; gives what it lacks of it: all, in its first life."""
        known = set(self._kept)
        found = decode_kept(octets)
        self._kept.clear()
        self._kept.extend(found)
        return [one for one in found if one not in known]

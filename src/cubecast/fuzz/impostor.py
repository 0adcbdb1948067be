"""An impostor that listens at the address of a machine that is down, with a certificate for another address.

A member that verifies certificates must ignore everything it sends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cubecast.fuzz.network import End
from cubecast.wire import handshake
from cubecast.wire.frame import REFUSE, encode_frame

if TYPE_CHECKING:
    from cubecast.fuzz.world import FuzzWorld

OTHER_ADDRESS = "10.0.0.250:7000"


class Impostor:
    """Answers every greeting with a refusal: the member is no longer in the group."""

    certificate = (OTHER_ADDRESS,)
    is_listening = True
    is_alive = True

    def __init__(self, world: FuzzWorld, name: str) -> None:
        """The impostor listens."""
        self.name = name
        self._world = world

    def post(self, action: Any, *arguments: Any) -> None:
        """Run an action now."""
        action(*arguments)

    def connection_made(self, end: End, dialled: str, address: str) -> None:
        """Wait for the greeting."""

    def data_received(self, end: End, _data: bytes) -> None:
        """Refuse."""
        refusal = handshake.HandshakeRefusal(reason="you were excluded", is_past=True, incarnation=(1 << 62) - 1)
        self._world.network.write(end, encode_frame(REFUSE, 0, 0, handshake.encode(refusal)))

    def connection_lost(self, end: End, _reason: str) -> None:
        """The connection has ended."""
        self._world.network.forget(end)

    def resume_writing(self, end: End) -> None:
        """Nothing is pending."""

    def dial_failed(self, name: str, reason: str) -> None:
        """An impostor does not dial."""

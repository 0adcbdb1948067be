"""The stack of a member that is alone in its view: what it multicasts is delivered and stable at once."""

from __future__ import annotations

from cubecast.member.levels import RECEIVED, Levels
from cubecast.member.message_log import Batch, MessageLog
from cubecast.member.settings import Settings
from cubecast.member.stack import StackHost
from cubecast.protocol.mail import PAYLOAD
from cubecast.protocols.membership.views import View
from cubecast.wire import data


class Alone:
    """A stack without protocols."""

    rank = 0
    is_parked = False
    rounds = 0
    round_s = 0.01

    def __init__(self, host: StackHost, view: View, settings: Settings) -> None:
        """Nothing was sent yet."""
        self.view = view
        self.log = MessageLog(1)
        self.is_frozen = False
        self.window = settings.window_messages
        self.levels = Levels(0, 1, is_durable=host.keeps_journal)
        self._host = host
        self._published = 0

    def neighbours(self) -> set[int]:
        """None."""
        return set()

    def start(self) -> None:
        """Nothing was sent."""
        self.watch_levels()

    def freeze(self) -> None:
        """Send nothing more in this view."""
        self.is_frozen = True

    def publish(self, payloads: list[bytes]) -> None:
        """Deliver; the message is stable at once."""
        first = self._published + 1
        self._published += len(payloads)
        keys = list(range(first, self._published + 1))
        batch = Batch(keys, [data.encode_record(PAYLOAD, 0, *one) for one in zip(keys, payloads, strict=True)])
        self._host.deliver(batch, self.log.add(batch))
        self.log.free(0, self._published)
        self._host.stable_moved([(0, self._published)])
        self.watch_levels()

    def published(self) -> int:
        """Own messages of this view."""
        return self._published

    def watch_levels(self) -> None:
        """This member's application or journal has advanced, and it is the only member."""
        self.levels.block(RECEIVED)[0] = self._published
        self._host.contribute(self.levels)
        self.levels.fold_alone()
        self._host.levels_moved()

    def receive(self, source: int, body: bytes) -> None:
        """No other member is in the view."""

    def control(self, source: int, kind: int, body: bytes) -> None:
        """No other member is in the view."""

    def unpark(self) -> None:
        """Nothing is parked."""

    def suspects(self) -> list[int]:
        """None."""
        return []

    def progress(self) -> list[int]:
        """The number of messages delivered."""
        return [self._published]

    def ask_levels(self) -> None:
        """They are known already."""

    def ask_stable(self, number: int) -> None:
        """It is stable already."""

    def eager(self) -> set[int]:
        """None."""
        return set()

"""Histories of live groups, read back for the judge of simulated ones: one set of promises for both.

Every process writes lines of JSON, `[time_ns, name, life, event, data]`, on one clock; who runs the processes writes
when they were killed, with no life: then it is the last one that was heard of. A message is known by its number in the
order of multicasting (its *serial*) until it is sent, and by view, sender and number from then on.

| event           | data in the file                                                                        |
|-----------------|-----------------------------------------------------------------------------------------|
| multicast       | serial                                                                                  |
| sent            | view, number, serial                                                                    |
| deliver         | view, sender, number                                                                    |
| install         | view's number, members, joined, lives; the pause in nanoseconds                         |
| restore         | senders; then, in base64, for each message: view (4 bytes), place of the sender (2), number (4) |
| stable          | view, how many messages of each rank                                                    |
| excluded        | serials that were returned, whether it is certain that nobody delivers them             |
| blocked, unblocked, left, crash, stop, resume, resumed | as in `history`                                  |
"""

from __future__ import annotations

import base64
import json
import struct
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from cubecast.core.membership import MemberId, View
from cubecast.sim.churn.history import History, Row

_ENTRY = struct.Struct("<IHI")
Line = list[Any]


def read_lines(paths: Iterable[Path]) -> list[Line]:
    """The lines of all files in the order of their times; one that a kill cut short is left out."""
    lines: list[Line] = []
    for path in paths:
        for text in path.read_text("utf-8").splitlines():
            try:
                line = json.loads(text) if text else None
            except ValueError:
                continue
            if line is not None:
                lines.append(line)
    return sorted(lines, key=lambda line: int(line[0]))


def pauses_ns(lines: Iterable[Line]) -> list[int]:
    """For how long each member delivered nothing, at each change of the view that it went through."""
    return [line[4][4] for line in lines if line[3] == "install" and line[4][4]]


class Converter:
    """Gives every message a number, as the judge wants it."""

    def __init__(self) -> None:
        """Nothing read."""
        self._count = 0
        self._by_serial: dict[tuple[MemberId, int], int] = {}
        self._by_place: dict[tuple[int, MemberId, int], int] = {}
        self._unsent: dict[MemberId, dict[int, None]] = defaultdict(dict)
        self._last_life: dict[str, int] = {}
        self._down: set[MemberId] = set()

    def history(self, lines: Iterable[Line]) -> History:
        """The rows of these lines; one that is killed again before it wrote that it went on was down all the time."""
        rows = []
        for line in lines:
            row = self._row(*line)
            if row.event in ("crash", "stop"):
                if row.who in self._down:
                    continue
                self._down.add(row.who)
            elif row.event == "resume":
                self._down.discard(row.who)
            rows.append(row)
        return rows

    def _row(self, time_ns: int, name: str, life: int | None, event: str, data: Any) -> Row:
        if life is None:
            life = self._last_life.get(name, 0)
        self._last_life[name] = life
        who = MemberId(name, life)
        read = getattr(self, f"_{event}", None)
        return Row(time_ns, who, event, data if read is None else read(who, data))

    def _named(self, who: MemberId, serial: int) -> int:
        if (who, serial) not in self._by_serial:
            self._by_serial[who, serial] = self._count
            self._count += 1
        return self._by_serial[who, serial]

    def _placed(self, view: int, sender: Any, number: int) -> int:
        """A message that nobody is known to have sent gets a number of its own, and the judge complains."""
        place = (view, MemberId(*sender), number)
        if place not in self._by_place:
            self._by_place[place] = self._named(MemberId("nobody", view), self._count)
        return self._by_place[place]

    def _multicast(self, who: MemberId, serial: int) -> int:
        payload = self._named(who, serial)
        self._unsent[who][payload] = None
        return payload

    def _sent(self, who: MemberId, data: Any) -> tuple[int, int, int]:
        """After a restart what waited goes on under other serials, in the same order."""
        view, number, serial = data
        place = (view, who, number)
        if place not in self._by_place:
            waiting = self._unsent[who]
            if (who, serial) not in self._by_serial and waiting:
                self._by_serial[who, serial] = next(iter(waiting))
            self._by_place[place] = self._named(who, serial)
            waiting.pop(self._by_place[place], None)
        return view, number, self._by_place[place]

    def _deliver(self, _who: MemberId, data: Any) -> tuple[int, MemberId, int, int]:
        view, sender, number = data
        return view, MemberId(*sender), number, self._placed(view, sender, number)

    def _install(self, _who: MemberId, data: Any) -> View:
        number, members, joined, lives, _pause_ns = data
        named = tuple(tuple(one) for one in lives)
        return View(number, _members(members), _members(joined), named)

    def _restore(self, _who: MemberId, data: Any) -> tuple[int, ...]:
        senders, packed = data
        entries = _ENTRY.iter_unpack(base64.b64decode(packed))
        return tuple([self._placed(view, senders[place], number) for view, place, number in entries])

    def _stable(self, _who: MemberId, data: Any) -> tuple[int, tuple[int, ...]]:
        view, delivered = data
        return view, tuple(delivered)

    def _excluded(self, who: MemberId, data: Any) -> tuple[tuple[int, ...], bool]:
        serials, certain = data
        return tuple(self._named(who, serial) for serial in serials), certain


def _members(listed: Any) -> tuple[MemberId, ...]:
    return tuple(MemberId(*one) for one in listed)

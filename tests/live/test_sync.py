"""The group without asyncio: the same features, from threads."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from cubecast.errors import LocalProtocolError
from cubecast.live.group import Group
from cubecast.live.local import free_addresses
from cubecast.live.sync import SyncGroup, join_sync
from cubecast.member.effects import Delivery, ViewChange
from tests.live.members import WAIT_S, quick

pytestmark = pytest.mark.live


@contextmanager
def pair(**options: Any) -> Iterator[tuple[SyncGroup, SyncGroup]]:
    """A founder and one that joined."""
    first, second = free_addresses(2)
    options = {"plaintext": True, "settings": quick(), **options}
    with (
        join_sync("sync", listen=first, found=True, **options) as one,
        join_sync("sync", listen=second, contact=first, **options) as two,
    ):
        yield one, two


def test_a_group_without_asyncio() -> None:
    addresses = free_addresses(2)
    taken: list[bytes] = []
    count = 2000

    def second() -> None:
        with join_sync("sync", listen=addresses[1], peers=addresses, plaintext=True, settings=quick()) as group:
            taken.extend(delivery.payload for delivery in islice(group, count))

    other = threading.Thread(target=second)
    other.start()
    with join_sync("sync", listen=addresses[0], peers=addresses, plaintext=True, settings=quick()) as group:
        messages = [group.multicast(str(number).encode()) for number in range(count)]
        messages[-1].stable(timeout=WAIT_S, hurry=True)
        assert messages[0].is_stable
        assert (messages[4].sequence, messages[4].payload) == (5, b"4")
        own = [delivery.payload for delivery in islice(group.deliveries(timeout=WAIT_S), count)]
        other.join(20)
    assert own == taken == [str(number).encode() for number in range(count)]


def test_whatever_a_group_has_is_there() -> None:
    group = join_sync("sync", listen="127.0.0.1:7001", found=True, plaintext=True)
    names = {name for name in [*dir(Group), *vars(group._group)] if not name.startswith("_")}
    assert names - set(dir(group)) == set()
    assert (group.name, group.address, group.settings.data, group.is_entered) == (
        "sync",
        "127.0.0.1:7001",
        "auto",
        False,
    )


def test_every_property_and_callback_is_there() -> None:
    stable: list[Any] = []
    views: list[Any] = []
    with pair() as (one, two):
        one.on_stable(stable.append)
        one.on_view(views.append)
        one.on_blocked(print)
        one.on_excluded(print)
        one.on_progress(print)
        one.on_waiting(print)
        one.refresh_credentials()
        message = two.multicast(b"x")
        message.stable(WAIT_S, hurry=True)
        assert one.has_more
        delivery = one.receive(WAIT_S)
        assert (delivery.sender, delivery.payload) == (two.me, b"x")
        assert one.view.members == (one.me, two.me)
        assert (one.rank, two.rank, one.is_blocked) == (0, 1, False)
        while not one.is_stable(delivery):
            pass
        assert one.frontier[two.me] == 1
        while one.laggards():
            pass
        assert one.stats["delivered"] == 1
        assert one.status()["group"] == "sync"
        two.leave()
        with pytest.raises(LocalProtocolError, match="has left"):
            two.multicast(b"late")
        seen = [event for event in islice(one.events(timeout=WAIT_S), 1) if isinstance(event, ViewChange)]
        assert [len(event.view.members) for event in seen] == [1]
    assert stable
    assert [len(view.members) for view in views] == [1]


def test_waiting_ends_in_time_and_loses_nothing() -> None:
    with pair() as (one, two):
        with pytest.raises(TimeoutError):
            one.receive(timeout=0.05)
        assert list(one.deliveries(timeout=0.05)) == []
        two.multicast(b"x")
        assert one.receive(WAIT_S).payload == b"x"
        with pytest.raises(LocalProtocolError, match="of type int"):
            two.multicast(5)  # type: ignore[arg-type]
    with pytest.raises(LocalProtocolError, match="inside `with`"):
        one.multicast(b"late")


def test_a_newcomer_gets_the_state_and_a_journal_continues(tmp_path: Path) -> None:
    first, second = free_addresses(2)
    log: list[bytes] = []
    common: dict[str, Any] = {"plaintext": True, "settings": quick()}
    options = {**common, "snapshot": lambda: b",".join(log), "restore": lambda state: log.extend(state.split(b","))}
    with join_sync("sync", listen=first, found=True, journal=tmp_path / "one", **options) as one:
        for number in range(10):
            one.multicast(str(number).encode())
        log += [one.receive(WAIT_S).payload for _ in range(10)]
        states: list[bytes] = []
        consuming = threading.Thread(target=lambda: list(one.events(timeout=2.0)))
        consuming.start()
        with join_sync(
            "sync", listen=second, contact=first, snapshot=lambda: b"", restore=states.append, **common
        ) as two:
            assert states == [b"0,1,2,3,4,5,6,7,8,9"]
            assert isinstance(next(two.events(timeout=WAIT_S)), ViewChange | Delivery)
        consuming.join()


def test_joining_that_fails_says_why() -> None:
    own, other = free_addresses(2)
    with (
        pytest.raises(LocalProtocolError, match="no process listens there"),
        join_sync("sync", listen=own, peers=[other], plaintext=True, settings=quick(join_timeout_s=1.0)),
    ):
        pass


def test_levels_and_causal_stability_for_threads() -> None:
    """The application deals with a batch when it asks beyond it, or when it says so."""
    with join_sync("s", listen=free_addresses(1)[0], found=True, plaintext=True) as group:
        frontiers: list[dict[object, int]] = []
        group.on_causally_stable(lambda frontier: frontiers.append(dict(frontier)))
        messages = [group.multicast(str(number).encode()) for number in range(3)]
        taken = [group.receive(WAIT_S) for _ in range(3)]
        messages[2].stable(WAIT_S, of="quorum")
        assert not messages[2].is_causally_stable
        group.ack()
        messages[2].causally_stable(WAIT_S)
        messages[2].stable(WAIT_S, level="processed")
        assert all(group.is_causally_stable(delivery) for delivery in taken)
        assert group.causal_frontier == {group.me: 3}
        assert frontiers

"""The examples do what they say."""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
from typing import Any

import pytest

from cubecast.live.local import free_addresses
from cubecast.member.effects import Delivery
from cubecast.protocol.mail import PAYLOAD
from cubecast.protocols.membership.views import MemberId
from cubecast.wire.data import encode_record
from examples.kv_store import KeyValueStore
from tests.live.cast import ROOT
from tests.live.members import enter, groups_of, quick, until
from tests.support.processes import LineProcess

pytestmark = pytest.mark.live


def test_replicas_end_the_same_and_forget_their_tombstones_and_a_newcomer_gets_all() -> None:
    async def run() -> None:
        chance = random.Random(7)
        stores = [KeyValueStore() for _ in range(4)]

        def each(place: int) -> dict[str, Any]:
            return {"snapshot": stores[place].snapshot, "restore": stores[place].restore}

        async with groups_of(3, each=each) as groups:
            for store, group in zip(stores, groups, strict=False):
                store.attach(group)
            running = [asyncio.create_task(store.run()) for store in stores[:3]]
            for _ in range(300):
                store = chance.choice(stores[:3])
                key = f"key{chance.randrange(20)}"
                await (store.delete(key) if chance.random() < 0.5 else store.set(key, chance.randrange(1000)))
                if chance.random() < 0.1:
                    await asyncio.sleep(0.002)
            for place, store in enumerate(stores[:3]):  # what is written after these follows everything before them
                await store.set(f"done{place}", True)
            await until(lambda: all(stores[0].get(f"done{place}") for place in range(3)))
            await stores[0].delete("key0")
            await until(lambda: all(store.get("key0") is None for store in stores[:3]))
            await until(lambda: not any(store.tombstones for store in stores))
            assert stores[0].items() == stores[1].items() == stores[2].items()
            assert stores[0].items()
            newcomer = await enter(contact=groups[1].address, settings=quick(), **each(3))
            stores[3].attach(newcomer)
            running.append(asyncio.create_task(stores[3].run()))
            await stores[3].set("from", "the newcomer")
            await until(lambda: all(store.get("from") == "the newcomer" for store in stores))
            assert stores[3].items() == stores[0].items()
            await newcomer.leave()
            for task in running:
                task.cancel()

    asyncio.run(run())


def test_a_write_with_an_old_clock_from_a_later_view_wins_whether_or_not_the_deletion_is_forgotten() -> None:
    """A replica that was cut off wrote it; it is sent in the view in which the replica is back."""

    def delivery(view: int, clock: int, value: str | None) -> Delivery:
        payload = json.dumps({"key": "k", "value": value, "clock": clock}).encode()
        return Delivery(MemberId("a:1", view), view, 1, encode_record(PAYLOAD, 0, 1, payload, b""))

    remembering, forgetting = KeyValueStore(), KeyValueStore()
    for store in (remembering, forgetting):
        store.apply(delivery(1, 9, None))
    forgetting._tombstones.clear()
    forgetting._entries.clear()
    for store in (remembering, forgetting):
        store.apply(delivery(2, 3, "late"))
    assert remembering.items() == forgetting.items() == {"k": "late"}


def test_the_store_runs_in_a_terminal() -> None:
    first, second = free_addresses(2)
    command = [sys.executable, "examples/kv_store.py", "--plaintext", "--listen"]
    stores = [
        LineProcess([*command, own, *way], folder=ROOT, errors=subprocess.DEVNULL, light=True)
        for own, way in ((first, ["--peer", second]), (second, ["--peer", first]))
    ]
    try:
        assert [store.read_line() for store in stores] == ["ready", "ready"]
        stores[0].write_line("set colour green")
        said = ""
        while said != "green":
            stores[1].write_line("get colour")
            said = stores[1].read_line()
            assert said in ("None", "green")
        for store in stores:
            assert store.process.stdin is not None
            store.process.stdin.close()
        assert [store.process.wait(30) for store in stores] == [0, 0]
    finally:
        for store in stores:
            store.close()

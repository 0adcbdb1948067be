"""The examples do what they say."""

from __future__ import annotations

import asyncio
import random

import pytest

from examples.kv_store import KeyValueStore
from tests.live.test_group import groups_of

pytestmark = pytest.mark.live


def test_replicas_end_the_same_and_forget_their_tombstones() -> None:
    async def run() -> None:
        chance = random.Random(7)
        async with groups_of(3, round_every_s=0.05) as groups:
            stores = [KeyValueStore(group) for group in groups]
            running = [asyncio.create_task(store.run()) for store in stores]
            for _ in range(300):
                store = chance.choice(stores)
                key = f"key{chance.randrange(20)}"
                await (store.delete(key) if chance.random() < 0.5 else store.set(key, chance.randrange(1000)))
                if chance.random() < 0.1:
                    await asyncio.sleep(0.002)
            await stores[0].delete("key0")
            deadline = asyncio.get_running_loop().time() + 15
            while any(store.tombstones for store in stores) and asyncio.get_running_loop().time() < deadline:
                await asyncio.sleep(0.1)
            assert [store.tombstones for store in stores] == [0, 0, 0]
            assert stores[0].items() == stores[1].items() == stores[2].items()
            assert stores[0].get("key0") is None
            assert stores[0].items()
            for task in running:
                task.cancel()

    asyncio.run(run())

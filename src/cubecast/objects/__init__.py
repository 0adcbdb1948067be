"""Objects that all members of a group share.

    space = Space()
    async with space.join("shop", listen=..., peers=[...], credentials=...):
        stock = space.dict("stock")
        await stock.set("apples", 7)
        async with space.lock("billing") as token:
            ...

| object    | operations                             | result of two concurrent operations                       |
|-----------|----------------------------------------|-----------------------------------------------------------|
| `dict`    | `set`, `delete`, read like a mapping   | the later one wins (`wins="last"`), or the value stays    |
|           |                                        | and the deletion does not see it (`wins="add"`)           |
| `counter` | `add`, `value`                         | both count                                                |
| `lock`    | `acquire`, `release`, `async with`     | one is first, the same one at all members                 |
| `leader`  | `name`, `is_me`, `token`               |                                                           |

Reads are local and immediate. An operation takes effect, also at the calling member, when its message is delivered. A
newcomer receives all objects with the group's state.
"""

from cubecast.objects.counter import Counter
from cubecast.objects.dictionary import ReplicatedDict
from cubecast.objects.leader import Leader
from cubecast.objects.lock import Lock, Token
from cubecast.objects.space import Space
from cubecast.objects.total_order import TotalOrder

__all__ = ["Counter", "Leader", "Lock", "ReplicatedDict", "Space", "Token", "TotalOrder"]

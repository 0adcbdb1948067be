"""A bus for web workers: topics over one group.

    from cubecast.bus import JSON, Bus

    async with Bus(cubecast.join("site", listen=..., peers=[...], credentials=...), codec=JSON) as bus:
        async with bus.subscribe("orders") as orders:
            await bus.publish("orders", {"id": 7})
            async for event in orders:
                print(event.topic, event.value, event.sender.name)

Every message is multicast to the group, and each member passes it to its local subscribers of the topic. So the order
is that of the group: causal across all topics, and the messages of one member in the order of its calls. A message to
one member (`send`) and a reply (`request`) are multicasts that the other members ignore; they are in the same order.

Workers on one machine, which share one configuration and so cannot have individual addresses, join with
`await join_workers("site", "127.0.0.1:7100", count=4, plaintext=True)`.

Each subscriber has its own queue, and chooses what happens when it is full (`when_full`).
"""

from cubecast.bus.bus import Bus, RequestError
from cubecast.bus.codecs import BYTES, JSON, MSGPACK, Codec
from cubecast.bus.subscription import BusEvent, SlowSubscriberError, Subscription
from cubecast.live.workers import join_workers

__all__ = [
    "BYTES",
    "JSON",
    "MSGPACK",
    "Bus",
    "BusEvent",
    "Codec",
    "RequestError",
    "SlowSubscriberError",
    "Subscription",
    "join_workers",
]

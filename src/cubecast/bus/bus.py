"""The bus of one member: publish, subscribe, presence, messages to one member, request and reply.

One task takes the group's events and passes each to the subscribers, in order. It waits for a subscriber only if that
subscriber chose `when_full="wait"`; the flow control of the group then makes the publishers wait.

Presence: each member announces its number of subscribers per topic. Changes are collected for `ANNOUNCE_S`; everything
is announced when a member joins. A member that leaves or is excluded is removed with the view change. Names are
announced in the same way.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import secrets
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from types import TracebackType
from typing import Any, NamedTuple, Self

from cubecast.bus.codecs import BYTES, Codec
from cubecast.bus.envelope import (
    ALL_PRESENCE,
    FAILURE,
    NAME_CHARACTERS_MAX,
    PRESENCE,
    PUBLISH,
    REPLY,
    REQUEST,
    Envelope,
    decode,
    encode,
    parts_of,
    require_name,
    require_topic,
)
from cubecast.bus.subscription import BusEvent, Subscription, WhenFull
from cubecast.errors import CubecastError, LocalProtocolError, RemoteProtocolError
from cubecast.live.group import Group
from cubecast.live.loop import require_running_in
from cubecast.live.message import Message
from cubecast.live.texts import text_of_error
from cubecast.member.effects import Delivery
from cubecast.protocols.membership.views import MemberId, View

log = logging.getLogger("cubecast.bus")

ANNOUNCE_S = 0.02
"""Changes of this member's subscribers are collected this long before they are announced."""
CAPACITY = 1000
"""Events that a subscriber's queue holds, unless it says otherwise."""

REASON_CHARACTERS_MAX = 500
"""Longer error texts are cut in replies."""

Serve = Callable[[BusEvent], Awaitable[Any]]


class RequestError(RemoteProtocolError):
    """The member that served a request failed or left."""


class _Request(NamedTuple):
    """A request that waits for its reply."""

    sender: MemberId
    to: MemberId | None
    reply: asyncio.Future[bytes]

    def fail(self, error: CubecastError) -> None:
        """Raise an error in place of the reply."""
        if not self.reply.done():
            self.reply.set_exception(error)


class Bus:
    """Topics over one group. `async with` enters the group, if it is not entered yet, and leaves it at the end."""

    def __init__(self, group: Group, *, codec: Codec = BYTES, presence: bool = False, name: str | None = None) -> None:
        """With `presence` this member announces its subscribers; with a name, others can call it by that name."""
        self.group = group
        self.name = "" if name is None else require_name(name)
        self.codec = codec
        self.undecodable = 0
        """Messages that were skipped because they cannot be decoded."""
        self._announces_presence = presence
        self._subscribers: dict[str, list[Subscription]] = {}
        self._presence: dict[MemberId, dict[str, int]] = {}
        self._names: dict[MemberId, str] = {}
        self._own: Counter[str] = Counter()
        self._changed: set[str] = set()
        self._change = asyncio.Event()
        self._must_announce_all = False
        self._on_presence: list[Callable[[], object]] = []
        self._serving: dict[str, Serve] = {}
        self._requests: dict[int, _Request] = {}
        self._numbers = secrets.randbits(48)  # apart from those of an earlier process of this member
        self._is_entered = self._is_ended = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    # Entering and leaving.

    async def __aenter__(self) -> Self:
        """Enter the group and begin to deliver."""
        if self._is_entered:
            raise LocalProtocolError("this bus was already entered: create another one")
        self._is_entered = True
        self._loop = asyncio.get_running_loop()
        if not self.group.is_entered:
            await self.group.__aenter__()
        self._install(self.group.view)
        if self.group._journal is not None:  # the others may know what an earlier process of this member announced
            self._announce_all()
        self._start(self._deliver_all())
        self._start(self._announce())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Leave the group; subscribers get what was delivered until then."""
        try:
            await self.group.leave(drain=kind is None)
        finally:
            tasks = list(self._tasks)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._end(None)

    def _start(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _end(self, failure: CubecastError | None) -> None:
        self._is_ended = True
        for subscription in {one for some in self._subscribers.values() for one in some}:
            subscription.end(failure)
        for request in self._requests.values():
            request.fail(failure or LocalProtocolError("this member left before the reply"))
        self._requests.clear()

    def _require_own_loop(self) -> None:
        require_running_in(self._loop)

    def _require_running(self) -> None:
        if self._is_ended:
            raise LocalProtocolError("this bus has ended: its member left the group, or failed")

    # Publishing.

    async def publish(self, topic: str, value: Any) -> Message:
        """Publish to the subscribers of the topic at all members, this one included; see `Group.multicast`."""
        return await self._multicast(Envelope(PUBLISH, require_topic(topic), self.codec.to_bytes(value)))

    async def send(self, to: MemberId | str, topic: str, value: Any) -> Message:
        """Publish to the subscribers of the topic at one member only, given by `member`."""
        member = self.member(to)
        return await self._multicast(Envelope(PUBLISH, require_topic(topic), self.codec.to_bytes(value), member))

    async def _multicast(self, envelope: Envelope) -> Message:
        self._require_own_loop()
        return await self.group.multicast(encode(envelope))

    # Names.

    @property
    def names(self) -> dict[MemberId, str]:
        """The names of the members of the group that announced one."""
        return dict(self._names)

    def member(self, who: MemberId | str) -> MemberId:
        """The member of the group with this name or address. Raises LocalProtocolError if there is not exactly one."""
        if not isinstance(who, str):
            if not isinstance(who, MemberId):
                raise LocalProtocolError(f"member {who!r}: give a name, an address or a MemberId")
            if who not in self.group.view.members:
                raise LocalProtocolError(
                    f"{who.name} (incarnation {who.incarnation}) is not in the group: see bus.group.view"
                )
            return who
        found = [one for one, name in self._names.items() if name == who]
        found += [one for one in self.group.view.members if one.name == who]
        if len(found) != 1:
            several = f"names {len(found)} members, {', '.join(one.name for one in found)}"
            where = several if found else "is not a member"
            raise LocalProtocolError(f"{who[:NAME_CHARACTERS_MAX]!r} {where}: see bus.names and bus.group.view")
        return found[0]

    # Subscribing.

    def subscribe(
        self, *topics: str, capacity: int = CAPACITY, when_full: WhenFull = "drop_oldest", own: bool = True
    ) -> Subscription:
        """Subscribe to one or several topics: `async with bus.subscribe("orders") as events`.

        It receives what is delivered to this member from now on; with `own=False` only what other members publish.
        `when_full` selects what happens when the queue is full; help(cubecast.bus.subscription) describes the choices.
        """
        self._require_running()
        if not topics:
            raise LocalProtocolError("subscribe(): give at least one topic")
        chosen = frozenset(map(require_topic, topics))
        subscription = Subscription(
            chosen,
            capacity=capacity,
            when_full=when_full,
            own=own,
            close=self._unsubscribe,
            require_own_loop=self._require_own_loop,
        )
        for topic in chosen:
            self._subscribers.setdefault(topic, []).append(subscription)
            self._count(topic, 1)
        return subscription

    def _unsubscribe(self, subscription: Subscription) -> None:
        for topic in subscription.topics:
            others = [one for one in self._subscribers.get(topic, ()) if one is not subscription]
            if others:
                self._subscribers[topic] = others
            else:
                self._subscribers.pop(topic, None)
            self._count(topic, -1)

    # Presence.

    def presence(self, topic: str) -> dict[MemberId, int]:
        """The announced number of subscribers of the topic, per member."""
        return {who: counts[topic] for who, counts in self._presence.items() if counts.get(topic)}

    def on_presence(self, callback: Callable[[], object]) -> None:
        """Call a function when the presence of any topic may have changed. An exception in it is logged."""
        self._on_presence.append(callback)

    def _count(self, topic: str, by: int) -> None:
        self._own[topic] += by
        if not self._own[topic]:
            del self._own[topic]
        if self._announces_presence:
            self._changed.add(topic)
            self._change.set()

    async def _announce(self) -> None:
        while True:
            await self._change.wait()
            await asyncio.sleep(ANNOUNCE_S)
            self._change.clear()
            is_all, self._must_announce_all = self._must_announce_all, False
            topics: Iterable[str] = self._own if is_all and self._announces_presence else self._changed
            counts = {topic: self._own.get(topic, 0) for topic in topics}
            self._changed.clear()
            kind = ALL_PRESENCE if is_all else PRESENCE
            for part in parts_of(counts, self.group.settings.payload_bytes_max):
                if part or kind == ALL_PRESENCE:
                    try:
                        await self._multicast(Envelope(kind, counts=part, name=self.name))
                    except CubecastError as error:
                        log.warning("presence not announced member=%s error=%s", self.group.address, error)
                kind = PRESENCE

    def _install(self, view: View) -> None:
        """Forget members that are gone, and announce everything to those that are new."""
        is_new = any(who not in self._presence for who in view.members)
        self._presence = {who: self._presence.get(who, {}) for who in view.members}
        for request in self._requests.values():
            if any(
                who.name == request.sender.name and who.incarnation > request.sender.incarnation for who in view.members
            ):
                request.fail(RequestError("this member was excluded from the group before the reply"))
            elif request.to is not None and request.to not in self._presence:
                request.fail(RequestError(f"{request.to.name} left the group before it replied"))
        self._names = {who: name for who, name in self._names.items() if who in view.members}
        if is_new and (self._announces_presence or self.name):
            self._announce_all()
        self._presence_changed()

    def _announce_all(self) -> None:
        self._must_announce_all = True
        self._change.set()

    def _presence_changed(self) -> None:
        for callback in self._on_presence:
            try:
                callback()
            except (Exception, asyncio.CancelledError):  # it must not stop deliveries
                log.exception("callback failed event=presence member=%s", self.group.address)

    # Request and reply.

    def serve(self, topic: str, function: Serve) -> None:
        """Let an `async` function answer the requests of a topic at this member; its result is the reply."""
        if not callable(function):
            raise LocalProtocolError(f"serve({topic!r}, {function!r}): give an `async` function")
        self._serving[require_topic(topic)] = function

    async def request(
        self, topic: str, value: Any, *, to: MemberId | str | None = None, timeout: float | None = 5.0
    ) -> Any:
        """Send a request to one member, given by `member`, or to all; return the first reply.

        Raises TimeoutError, naming the members that did not reply; RequestError if the function failed, or the member
        left or does not serve the topic.
        """
        self._require_running()
        member = self.member(to) if to is not None else None
        self._numbers += 1
        number = self._numbers
        reply: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        envelope = Envelope(REQUEST, require_topic(topic), self.codec.to_bytes(value), member, number)
        self._requests[number] = _Request(self.group.me, member, reply)
        try:
            async with asyncio.timeout(timeout):
                await self._multicast(envelope)
                body = await reply
            return self.codec.from_bytes(body)
        except TimeoutError:
            who = member.name if member is not None else "any member that serves it"
            raise TimeoutError(f"no reply to {topic[:40]!r} within {timeout} s from {who}") from None
        finally:
            self._requests.pop(number, None)

    async def _answer(self, event: BusEvent, number: int) -> None:
        try:
            reply = self._serving[event.topic](event)
            if not inspect.isawaitable(reply):
                raise LocalProtocolError(f"its function returned a {type(reply).__name__}: give an `async` function")
            body = self.codec.to_bytes(await reply)
            await self._multicast(Envelope(REPLY, event.topic, body, event.sender, number))
        except (Exception, asyncio.CancelledError) as error:
            task = asyncio.current_task()
            if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
                raise  # the bus ends; otherwise the function was cancelled from within
            log.exception("request failed topic=%r sender=%s", event.topic, event.sender.name)
            await self._refuse(event.topic, event.sender, number, f"{type(error).__name__}: {text_of_error(error)}")

    async def _refuse(self, topic: str, sender: MemberId, number: int, reason: str) -> None:
        """Reply with an error."""
        body = reason[:REASON_CHARACTERS_MAX].encode("utf-8", "replace")
        with suppress(CubecastError):
            await self._multicast(Envelope(FAILURE, topic, body, sender, number))

    def _replied(self, envelope: Envelope, sender: MemberId) -> None:
        request = self._requests.get(envelope.number)
        if request is None or request.reply.done():
            return
        if envelope.kind == REPLY:
            request.reply.set_result(envelope.body)
        else:
            text = envelope.body.decode("utf-8", "replace")
            request.fail(RequestError(f"{sender.name} failed to serve {envelope.topic!r}: {text}"))

    # Delivering.

    async def _deliver_all(self) -> None:
        failure: CubecastError | None = None
        try:
            async for event in self.group.events():
                if isinstance(event, Delivery):
                    await self._deliver(event)
                else:
                    self._install(event.view)
        except CubecastError as error:
            failure = error
            log.error("bus ended member=%s error=%s", self.group.address, error)
        except Exception as error:
            failure = LocalProtocolError(f"this bus has ended after an error of its own: {type(error).__name__}")
            log.exception("bus ended member=%s", self.group.address)
        finally:
            self._end(failure)

    async def _deliver(self, delivery: Delivery) -> None:
        try:
            envelope = decode(delivery.payload)
            if envelope.to is not None and envelope.to != self.group.me:
                return
            if envelope.kind in (PUBLISH, REQUEST):
                await self._hand_over(envelope, delivery)
            elif envelope.kind in (REPLY, FAILURE):
                self._replied(envelope, delivery.sender)
            else:
                self._note_presence(envelope, delivery.sender)
        except RemoteProtocolError as error:
            self.undecodable += 1
            log.warning("message skipped member=%s sender=%s error=%s", self.group.address, delivery.sender.name, error)

    async def _hand_over(self, envelope: Envelope, delivery: Delivery) -> None:
        topic = envelope.topic
        is_request = envelope.kind == REQUEST
        subscribers = [] if is_request else self._subscribers_of(topic, delivery.sender)
        if is_request and topic not in self._serving:
            if envelope.to is not None:
                self._start(self._refuse(topic, delivery.sender, envelope.number, "this member does not serve it"))
            return
        if not is_request and not subscribers:
            return
        try:
            event = BusEvent(topic, self.codec.from_bytes(envelope.body), delivery.sender, delivery.sequence)
        except RemoteProtocolError as error:
            if is_request:
                self._start(self._refuse(topic, delivery.sender, envelope.number, str(error)))
            raise
        if is_request:
            self._start(self._answer(event, envelope.number))
            return
        for subscription in tuple(subscribers):
            while (room := subscription.put(event)) is not None:
                await room

    def _subscribers_of(self, topic: str, sender: MemberId) -> list[Subscription]:
        found = self._subscribers.get(topic, [])
        return [one for one in found if one.own] if sender == self.group.me else found

    def _note_presence(self, envelope: Envelope, sender: MemberId) -> None:
        if sender in self._presence:
            known = {} if envelope.kind == ALL_PRESENCE else self._presence[sender]
            self._presence[sender] = {topic: n for topic, n in (known | envelope.counts).items() if n}
            if envelope.name:
                self._names[sender] = envelope.name
            elif envelope.kind == ALL_PRESENCE:
                self._names.pop(sender, None)
            self._presence_changed()

"""Collaborative pycrdt (Yjs) documents for the members of a group, without a server.

    documents = Documents()
    async with documents.join("wiki", listen=..., peers=[...], credentials=...):
        page = documents.document("page")
        await page.edit(lambda doc: doc.get("text", type=Text).insert(0, "hello"))
        print(page.doc["text"])

An edit is visible here immediately, and is multicast; a newcomer gets all documents with the group's state.

**Squashing.** A document of Yjs stores every operation, also deleted ones, because some replica may still send an
operation that refers to one of them. A group knows when that is no longer possible. It then builds the document again,
in the next *epoch*: same content, no history (`pycrdt_content`). Operations of different epochs have different
identifiers and must never be mixed, so every edit carries the epoch in which it was made, and:

1. Some member multicasts a squash request for epoch e.
2. A member that takes a request for its epoch begins no edit until the next epoch; `edit` waits.
3. When one of the requests that a member has taken is causally stable there, it describes the content of epoch e,
   builds epoch e + 1 from it, and applies the messages of epoch e + 1 that came before.

*Claim*: all members build epoch e + 1 from the same content, and no edit of epoch e arrives after that. *Proof*: let r
be the request of step 3 at member p, and m an edit of epoch e that p has not taken. By causal stability
(`member.levels`) the sender q of m had processed r when it called `multicast`. From the moment q takes r it begins no
edit of epoch e (2), and an edit is made and multicast in one step of the event loop, so m does not exist. Hence p has
applied all edits of epoch e, whichever request triggered step 3. So has every other member when it builds, and edits
are delivered by all members that stay, or by none. Equal sets of operations give equal content, by the convergence of
Yjs, and `build` is a function of the content. A newcomer continues from the state of a member between two of these
events. Several requests of one epoch do no harm, and one for an earlier epoch is ignored. An edit of epoch e + 1 can
reach a member that is still in epoch e; it is held until then.

*Sessions.* The claim is about calls of `multicast` by a member of the group. What a process multicasts while it is
excluded, or before it has taken again what its journal returns, is sent later and counts as made then, although it was
made on an old state. So each process announces a session whenever it has a new state, makes edits only after its
announcement was delivered to itself, and writes the session into them. All members ignore an edit whose session is not
the last one that its sender announced, and the member that made it gets `ExcludedError`.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import msgspec

from cubecast.contrib.pycrdt_document import Document, DocumentState, Edit, Placed, Squash
from cubecast.errors import ExcludedError, LocalProtocolError, RemoteProtocolError
from cubecast.extras import named
from cubecast.live.group import Group
from cubecast.live.message import Message
from cubecast.live.replica import Replica
from cubecast.live.texts import require_text
from cubecast.member.effects import Delivery, ViewChange
from cubecast.member.settings import Settings
from cubecast.protocols.membership.views import MemberId

with named("cubecast.contrib.pycrdt"):
    from pycrdt import Doc

__all__ = ["Document", "Documents"]

log = logging.getLogger("cubecast.contrib.pycrdt")

SQUASH_BYTES = 256 << 10
NAME_CHARACTERS_MAX = 1024


class Announcement(msgspec.Struct, tag="session", array_like=True, frozen=True):
    """The sender has the group's state, and makes edits with this session from now on."""

    session: int


class _Snapshot(msgspec.Struct, array_like=True):
    sessions: list[tuple[MemberId, int]]
    documents: dict[str, DocumentState]


_MESSAGE = msgspec.msgpack.Decoder(Announcement | Edit | Squash)
_SNAPSHOT = msgspec.msgpack.Decoder(_Snapshot)


class Documents(Replica):
    """The documents of one group at one member. Enter it once, with `join`."""

    log = log
    not_joined = "these documents have not joined a group yet: `async with documents.join(...)`"
    joined_before = "these documents have already joined a group: create a new Documents"
    is_the_state = "the documents are the state"

    def __init__(self, *, squash_bytes: int | None = SQUASH_BYTES) -> None:
        """No documents.

        The history of a document is squashed when it is larger than this, and than the document; None: only when a
        member calls `squash`. The first rank of the group decides, by its own setting.
        """
        super().__init__()
        self._squash_bytes = squash_bytes
        self._documents: dict[str, Document] = {}
        self._sessions: dict[MemberId, int] = {}
        """By member: the session that it announced last."""
        self._session = 0
        """The session of this member; 0 while it is not in the group."""
        self._turn = asyncio.Lock()
        """Edits are made one after another: while one waits for the window of the group, the next ones wait too."""
        self._is_joined = self._has_ended = False
        self._waiting: list[asyncio.Future[None]] = []

    @asynccontextmanager
    async def join(self, name: str, *, settings: Settings | None = None, **options: Any) -> AsyncIterator[Group]:
        """Join a group as `cubecast.join` does, and keep the documents up to date until the end of the block."""
        settings = replace(settings or Settings(), resend="never")  # an edit is not valid in another session
        async with super().join(name, settings=settings, **options) as group:
            yield group

    def _entered(self) -> None:
        self._is_joined = True
        self._begin_session()

    # For programs.

    def document(self, name: str) -> Document:
        """The document with this name; it exists at all members once a member has edited it."""
        return self._document(require_text("document", name, NAME_CHARACTERS_MAX))

    def _document(self, name: str) -> Document:
        if name not in self._documents:
            self._documents[name] = Document(self, name)
        return self._documents[name]

    # What documents call.

    async def edit(
        self, document: Document, change: Callable[[Doc[Any]], object], begun: asyncio.Event
    ) -> Message | None:
        """Make a change and multicast it; `begun` is set when the change is made."""
        async with self._turn:
            await self._until(lambda: self._is_in_session and not document.is_ending_epoch)
            # From here until the message is in the group's queue no other task runs: see the proof.
            begun.set()
            made = document.change(change)
            if made is None:
                return None
            session, (update, roots) = self._session, made
            octets = msgspec.msgpack.encode(Edit(session, document.name, document.epoch, update, roots))
            try:
                self._require_size(octets)
                message = await self.group.multicast(octets)
            except BaseException:
                if session == self._session:
                    document.take_back(edits=1)
                raise
        if session != self._session:
            raise ExcludedError("excluded before the edit was sent")
        return message

    def _require_size(self, octets: bytes) -> None:
        limit = self.group.settings.payload_bytes_max
        if len(octets) > limit:
            raise LocalProtocolError(
                f"an edit of {len(octets)} bytes is larger than payload_bytes_max={limit}: make smaller edits"
            )

    async def squash(self, document: Document) -> None:
        """Request the next epoch, again if this member was excluded meanwhile, until it has begun here."""
        epoch = document.epoch
        while document.epoch == epoch:
            await self._until(lambda: self._is_in_session)
            session = self._session
            await self._request_squash(document)
            await self._until(lambda: document.epoch > epoch or self._session != session)  # noqa: B023

    # Sessions.

    @property
    def _is_in_session(self) -> bool:
        return bool(self._session) and self._sessions.get(self.group.me) == self._session

    def _begin_session(self) -> None:
        self._session = secrets.randbits(62) + 1
        self.later(self.group.multicast(msgspec.msgpack.encode(Announcement(self._session))))

    def _lost(self) -> None:
        self._session = 0

    async def _until(self, is_so: Callable[[], bool]) -> None:
        while self._has_ended or not is_so():
            if self._has_ended:
                raise LocalProtocolError("this member has left the group of the documents")
            self._waiting.append(news := asyncio.get_running_loop().create_future())
            try:
                await news
            finally:
                if news in self._waiting:
                    self._waiting.remove(news)

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            if not one.done():
                one.set_result(None)

    # Squashing.

    async def _request_squash(self, document: Document) -> None:
        request = Squash(self._session, document.name, document.epoch, document.state.digest)
        message = await self.group.multicast(msgspec.msgpack.encode(request))
        self.later(message.causally_stable(hurry=True))

    def _stable(self) -> None:
        for document in self._documents.values():
            while any(self._is_causally_stable(request) for request in document.state.requests):
                document.begin_epoch()
                held, document.state.held = document.state.held, []
                for placed in held:
                    self._place(document, placed)
        self._wake()

    def _is_causally_stable(self, request: Placed) -> bool:
        return self.group.is_causally_stable(Delivery(request.sender, request.view, request.sequence, b""))

    # What the group gives.

    def _took(self) -> None:
        self._wake()

    def _ended(self) -> None:
        self._has_ended = True
        self._wake()

    def _take(self, event: Delivery | ViewChange) -> None:
        if isinstance(event, ViewChange):
            self._sessions = {who: one for who, one in self._sessions.items() if who in event.view.members}
            return
        try:
            message = _MESSAGE.decode(event.payload)
        except msgspec.DecodeError as error:
            raise RemoteProtocolError(f"{event.sender.name} sent an invalid edit: {error}") from None
        if isinstance(message, Announcement):
            self._sessions[event.sender] = message.session
        elif self._sessions.get(event.sender) == message.session:
            document = self._document(message.document)
            self._place(document, Placed(event.sender, event.view, event.sequence, message))
            self._squash_if_due(document)
        else:
            log.info("edit of another session ignored sender=%s document=%s", event.sender.name, message.document)

    def _place(self, document: Document, placed: Placed) -> None:
        """Apply a message of this epoch, hold one of a later epoch, ignore a request for an earlier one."""
        message = placed.message
        if message.epoch > document.epoch:
            document.state.held.append(placed)
        elif isinstance(message, Edit):
            if message.epoch < document.epoch:
                raise RemoteProtocolError(f"{placed.sender.name} edited a past epoch of {document.name!r}")
            document.apply(message, is_own=placed.sender == self.group.me and message.session == self._session)
        elif message.epoch == document.epoch:
            document.state.requests.append(placed)
            if message.digest != document.state.digest:
                log.error("documents differ document=%s member=%s", document.name, placed.sender.name)

    def _squash_if_due(self, document: Document) -> None:
        limit = self._squash_bytes
        if limit is None or document.requested_epoch == document.epoch or not document.wants_squash(limit):
            return
        if self.group.rank == 0 and self._is_in_session:
            document.requested_epoch = document.epoch
            self.later(self._request_squash(document))

    # For newcomers.

    def snapshot(self) -> bytes:
        """All delivered edits of all documents."""
        documents = {name: one.state for name, one in self._documents.items()}
        return msgspec.msgpack.encode(_Snapshot(list(self._sessions.items()), documents))

    def restore(self, state: bytes) -> None:
        """Continue with the documents of another member; those that it does not have are empty."""
        snapshot = _SNAPSHOT.decode(state)
        self._sessions = dict(snapshot.sessions)
        for name in {*snapshot.documents, *self._documents}:
            self._document(name).load(snapshot.documents.get(name, DocumentState()))
        if self._is_joined:
            self._begin_session()

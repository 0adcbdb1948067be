"""One document at one member: the edits that the group has delivered, and the document that the program reads.

| field           | meaning                                                                                           |
|-----------------|---------------------------------------------------------------------------------------------------|
| `doc`           | what the program reads: all delivered edits, and own ones that are not delivered yet              |
| `epoch`         | how many times the history was squashed                                                           |
| `base`          | the first delivered edits of this epoch, as one update                                            |
| `updates`       | the delivered edits after `base`                                                                  |
| `own`           | own edits that are in `doc` and not delivered yet                                                 |
| `roots`         | the kind of each root, of all delivered edits                                                     |
| `requests`      | the squash requests of this epoch that were delivered; no edit begins while there is one          |
| `held`          | messages of later epochs, in the order of arrival                                                 |
| `history_bytes` | the size of all edits of this epoch                                                               |
| `squashed_bytes`| the size of the document when this epoch began                                                    |

All fields except `doc` and `own` depend on the delivered messages only, and are transferred to newcomers. If a change
fails in the middle, `doc` is built again from them.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import zlib
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from cubecast.contrib.pycrdt_content import KINDS, UnknownContentError, build, describe
from cubecast.contrib.pycrdt_update import ObservantDoc, has_gap
from cubecast.errors import LocalProtocolError, RemoteProtocolError
from cubecast.extras import named
from cubecast.live.message import Message
from cubecast.protocols.membership.views import MemberId

if TYPE_CHECKING:
    from cubecast.contrib.pycrdt import Documents

with named("cubecast.contrib.pycrdt"):
    from pycrdt import Doc, Subscription, TransactionEvent, merge_updates

log = logging.getLogger("cubecast.contrib.pycrdt")

COMPACT_BYTES = 1 << 16
"""Delivered edits are merged into the base when they are larger than this, and than twice the base."""
OnReplaced = Callable[["Doc[Any]"], object]
NO_CHANGE = b"\x00\x00"
"""An update without operations."""


class Edit(msgspec.Struct, tag="edit", array_like=True, frozen=True):
    """Operations of one member on a document."""

    session: int
    document: str
    epoch: int
    update: bytes
    roots: dict[str, str]
    """The kinds of roots that the sender believes to be new."""


class Squash(msgspec.Struct, tag="squash", array_like=True, frozen=True):
    """End this epoch of a document."""

    session: int
    document: str
    epoch: int
    digest: int
    """Of the content with which the sender began this epoch."""


class Placed(msgspec.Struct, array_like=True, frozen=True):
    """A message, and its place in the group's order."""

    sender: MemberId
    view: int
    sequence: int
    message: Edit | Squash


class DocumentState(msgspec.Struct, array_like=True):
    """What a newcomer gets of a document."""

    epoch: int = 0
    base: bytes = b""
    updates: list[bytes] = []
    roots: dict[str, str] = {}
    requests: list[Placed] = []
    held: list[Placed] = []
    history_bytes: int = 0
    squashed_bytes: int = 0
    digest: int = 0


class Document:
    """A pycrdt document that all members share; made by `Documents.document`.

    `doc` is for reading; change it with `edit`. It is another object after the history was squashed (`on_replaced`).
    """

    def __init__(self, documents: Documents, name: str) -> None:
        """Empty."""
        self.name = name
        self._documents = documents
        self.state = DocumentState()
        self.own: deque[bytes] = deque()
        self.requested_epoch = -1
        """The last epoch for which this member has requested a squash."""
        self.doc: Doc[Any] = ObservantDoc()
        self._on_replaced: list[OnReplaced] = []
        self._watching: list[tuple[Doc[Any], Subscription]] = []
        """Observed documents, the current one last. pycrdt frees a document only when it has no observer."""
        self._tail_bytes = 0
        """The size of `updates`."""
        self._made: list[bytes] | None = None
        """Updates of the change that is being made; None: the document must not be changed now."""
        self._is_replacing = False
        self._was_changed_meanwhile = False
        """Was the document changed by a callback of `on_replaced`?"""
        self._watch()

    # For programs.

    @property
    def epoch(self) -> int:
        """How many times the history was squashed."""
        return self.state.epoch

    @property
    def history_bytes(self) -> int:
        """The size of all edits since the history was squashed."""
        return self.state.history_bytes

    @property
    def is_ending_epoch(self) -> bool:
        """Is a squash under way, so that edits wait?"""
        return bool(self.state.requests)

    def on_replaced(self, callback: OnReplaced) -> None:
        """Call a function with the new `doc` whenever it is replaced: observe that one from then on."""
        self._on_replaced.append(callback)

    async def edit(self, change: Callable[[Doc[Any]], object]) -> Message | None:
        """Call `change(doc)` in one transaction and multicast what it did; None if it did nothing.

        Waits while the history is being squashed (about a stability round), and while the window of the group is full.
        A change that raises is rolled back. A call that is cancelled before its change has begun makes none. Raises
        ExcludedError if the group continued without this member before the edit was sent.
        """
        self._documents.require_own_loop()
        begun = asyncio.Event()
        editing = asyncio.create_task(self._documents.edit(self, change, begun))
        try:
            return await asyncio.shield(editing)
        except asyncio.CancelledError:
            if not begun.is_set():
                editing.cancel()
            raise

    async def squash(self) -> None:
        """Free the history now; return when the next epoch has begun here."""
        self._documents.require_own_loop()
        await self._documents.squash(self)

    # Local changes.

    def change(self, change: Callable[[Doc[Any]], object]) -> tuple[bytes, dict[str, str]] | None:
        """Make a change; returns its update and the roots that it declares, None if it changed nothing.

        A change that fails leaves the document as it was.
        """
        self._unwatch()
        made: list[bytes] = []
        self._made = made
        try:
            self._call(change)
            roots = self._new_roots()
        except BaseException as error:
            self._made = None
            self.take_back()
            if type(error).__module__ == "pyo3_runtime":  # a panic of pycrdt, which is no Exception
                raise LocalProtocolError(f"pycrdt failed in a change of {self.name!r}: {error}") from error
            raise
        self._made = None
        update = merge_updates(*made) if len(made) > 1 else made[0] if made else NO_CHANGE
        if update == NO_CHANGE:
            return None
        self.own.append(update)
        return update, roots

    def _call(self, change: Callable[[Doc[Any]], object]) -> None:
        doc = self.doc
        assert isinstance(doc, ObservantDoc)
        applied: list[bytes] = []
        doc.applied = applied
        try:
            with doc.transaction():
                result = change(doc)
                if inspect.isawaitable(result):
                    if inspect.iscoroutine(result):
                        result.close()
                    raise LocalProtocolError("edit(change): change must be an ordinary function, not an async one")
        finally:
            doc.applied = None
        if any(has_gap(doc, update) for update in applied):
            raise LocalProtocolError(
                f"an update depends on operations that {self.name!r} does not have: apply the earlier updates first"
            )

    def _new_roots(self) -> dict[str, str]:
        known = self.state.roots
        used = {name: _kind_of(value) for name, value in self.doc.items() if value is not None}
        for name, kind in used.items():
            if known.get(name, kind) != kind:
                raise LocalProtocolError(f"the root {name!r} of {self.name!r} is of kind {known[name]}, not {kind}")
        return {name: kind for name, kind in used.items() if name not in known}

    def take_back(self, edits: int = 0) -> None:
        """Build `doc` again from the delivered edits and the own ones, without the last `edits` of these."""
        for _ in range(edits):
            self.own.pop()
        self._replace(self._delivered_and_own())

    # What is delivered.

    def apply(self, edit: Edit, *, is_own: bool) -> None:
        """An edit of this epoch. An own one of this session is in `doc` already."""
        self._unwatch()
        if is_own:
            expected = self.own.popleft()
            assert edit.update == expected
        else:
            self._apply_observed(edit.update)
        state = self.state
        for name, kind in edit.roots.items():
            if kind in KINDS:
                state.roots[name] = min(kind, state.roots.get(name, kind))
                if not is_own:
                    self.doc.get(name, type=KINDS[state.roots[name]])
        state.updates.append(edit.update)
        state.history_bytes += len(edit.update)
        self._tail_bytes += len(edit.update)
        if self._tail_bytes > max(COMPACT_BYTES, 2 * len(state.base)):
            self._begin_with(self._delivered().get_update())

    def _apply_observed(self, update: bytes) -> None:
        """Apply an update to `doc`, whose observers may raise."""
        self._made = []
        try:
            self.doc.apply_update(update)
        except ValueError as error:
            raise RemoteProtocolError(f"an edit of {self.name!r} cannot be read: {error}") from None
        except ExceptionGroup:
            log.exception("callback failed event=observed document=%s", self.name)
        finally:
            self._made = None

    def _begin_with(self, base: bytes) -> None:
        self.state.base, self.state.updates, self._tail_bytes = base, [], 0

    def begin_epoch(self) -> None:
        """The next epoch begins with the content of this one, and without its history."""
        state = self.state
        state.epoch += 1
        state.requests = []
        try:
            content = describe(self._delivered(), state.roots)
        except UnknownContentError as error:
            log.warning("history kept document=%s epoch=%d reason=%s", self.name, self.epoch, error)
        else:
            state.digest = zlib.crc32(msgspec.msgpack.encode(content))
            self._begin_with(build(content).get_update())
            self.take_back()
        state.squashed_bytes = len(state.base) + self._tail_bytes
        state.history_bytes = 0

    def wants_squash(self, squash_bytes: int) -> bool:
        """Is the history larger than that, and than the content?"""
        return self.history_bytes > max(squash_bytes, self.state.squashed_bytes) and not self.is_ending_epoch

    def load(self, state: DocumentState) -> None:
        """Continue with the state of another member."""
        self.state = state
        self._tail_bytes = sum(map(len, state.updates))
        self.own.clear()
        self.requested_epoch = -1
        self.take_back()

    # The object that the program sees.

    def _delivered(self) -> Doc[Any]:
        doc: Doc[Any] = ObservantDoc()
        for update in (self.state.base, *self.state.updates):
            if update:
                doc.apply_update(update)
        return doc

    def _delivered_and_own(self) -> Doc[Any]:
        doc = self._delivered()
        for update in self.own:
            doc.apply_update(update)
        return doc

    def _replace(self, doc: Doc[Any]) -> None:
        """Show another document. A callback that changes it is not called again with the next one."""
        callbacks = list(self._on_replaced)
        while (guilty := self._show(doc, callbacks)) is not None:
            callbacks.remove(guilty)
            doc = self._delivered_and_own()

    def _show(
        self, doc: Doc[Any], callbacks: list[Callable[[Doc[Any]], object]]
    ) -> Callable[[Doc[Any]], object] | None:
        """Show a document; returns the callback that changed it, if one did."""
        for name, kind in self.state.roots.items():
            doc.get(name, type=KINDS[kind])
        self.doc = doc
        self._watch()
        self._is_replacing = True
        self._was_changed_meanwhile = False
        try:
            for callback in callbacks:
                try:
                    callback(doc)
                except Exception:
                    log.exception("callback failed event=replaced document=%s", self.name)
                if self._was_changed_meanwhile:
                    return callback
        finally:
            self._is_replacing = False
        return None

    def _watch(self) -> None:
        watched = self.doc

        def changed(event: TransactionEvent) -> None:
            if watched is not self.doc:
                return
            if self._made is not None:
                self._made.append(event.update)
            elif event.update != NO_CHANGE:
                if self._is_replacing:
                    self._was_changed_meanwhile = True
                else:
                    self.take_back()
                raise LocalProtocolError(f"the document {self.name!r} was changed outside of edit(): rolled back")

        self._watching.append((watched, watched.observe(changed)))

    def _unwatch(self) -> None:
        """Stop observing earlier documents; not while one of them calls its observers."""
        while len(self._watching) > 1:
            doc, subscription = self._watching.pop(0)
            doc.unobserve(subscription)


def _kind_of(value: object) -> str:
    return next(kind for kind, its_class in KINDS.items() if type(value) is its_class)

"""All connections of one member: dialling, handshakes, refusals, and the resumption of broken links.

Names are addresses: a member named in a view can be dialled. Of two members that need each other the lower name dials
at once, the other one if that takes too long; when both dialled, the connection of the lower name stays. One end of a
link is one incarnation of a member; a later incarnation replaces an earlier one. A process that restarts may continue
its incarnation in a later session. A handshake may reach this member after the process that sent it has ended; so only
a later session replaces the one that is known. A living process whose clock was set back learns from the other side
which session it must exceed.

Nothing that the other side sends is trusted before its certificate is compared with the name it claims, a refusal
included. A connection that does not greet in time, greets wrongly or breaks the protocol is closed with a reason.

| field       | meaning                                                                          |
|-------------|----------------------------------------------------------------------------------|
| pipes       | connections by number                                                            |
| links       | by the name of the other member                                                  |
| needed      | names this member wants a link to as long as it is in the view                   |
| failures    | why the last attempt to link to a name failed                                    |
"""

from __future__ import annotations

from typing import Any, Protocol

from cubecast.errors import RemoteProtocolError
from cubecast.member.effects import Close, Effects, Notice
from cubecast.member.link import DeadLink, Link, Pipe
from cubecast.member.settings import Settings
from cubecast.protocols.membership.messages import Message
from cubecast.protocols.membership.views import MemberId, View, ViewId
from cubecast.wire import frame, handshake
from cubecast.wire.frame import Frame, encode_frame
from cubecast.wire.handshake import SESSION_MAX, HandshakeRefusal, Hello
from cubecast.wire.membership import encode_message

NS = 1_000_000_000
RETRY_FIRST_NS, RETRY_MAX_NS = NS // 20, NS
SECOND_DIALLER_NS = NS // 4
"""How long the higher name waits for the lower one to dial."""
YOUNG_NS = NS
"""Two connections made within this time were dialled at once; one made later replaces a broken one."""
IDLE_NS = 10 * NS
SESSION_STEP_MAX = 1 << 20
DUPLICATE = "another connection between the two stays"


class _RefusedError(RemoteProtocolError):
    """The handshake of the other side is refused; `details` are further fields of the refusal."""

    def __init__(self, reason: str, **details: Any) -> None:
        """Keep what the other side needs to know."""
        super().__init__(reason)
        self.details = details


class Owner(Protocol):
    """The interface of the member that links belong to."""

    me: MemberId
    settings: Settings
    effects: Effects

    def position(self) -> tuple[int, ViewId, int]:
        """The group's id, the present view and the number of its members, zeros before there is one."""

    def last_known(self, who: MemberId, said: Hello) -> int | None:
        """If this incarnation is no longer in the group: the last one of that name that is known."""

    def frame_arrived(self, link: Link, arrived: Frame, now_ns: int) -> None:
        """A frame of another member, in order."""

    def link_up(self, link: Link, said: Hello, now_ns: int) -> None:
        """A link has a connection."""

    def link_broken(self, peer: MemberId, now_ns: int) -> None:
        """Frames to or from this member were lost for good."""

    def refused_as_past(self, by: str, last_incarnation: int) -> None:
        """A member of the group reports that this incarnation is no longer in it."""


class Dialling:
    """Attempts to reach one name."""

    __slots__ = ("after_ns", "is_pending", "pause_ns", "until_ns")

    def __init__(self, now_ns: int) -> None:
        """Dial immediately."""
        self.after_ns = now_ns
        self.pause_ns = 0
        self.is_pending = False
        self.until_ns = 0


class Links:
    """All connections of one member."""

    def __init__(self, group: str, session: int, owner: Owner) -> None:
        """There is no connection yet."""
        self.pipes: dict[int, Pipe] = {}
        self.links: dict[str, Link] = {}
        self.needed: set[str] = set()
        self.failures: dict[str, str] = {}
        self.refused = 0
        self._group = group
        self._session = session
        self._session_step = 1 + session % SESSION_STEP_MAX
        self._owner = owner
        self._dialling: dict[str, Dialling] = {}
        self._dirty: dict[int, Pipe] = {}
        self._written: tuple[Message | None, View | None, bytes] = (None, None, b"")

    # Connections.

    def connection_made(
        self, number: int, dialled: str, certificate: tuple[str, ...] | None, address: str, now_ns: int
    ) -> None:
        """A connection is open; the side that dialled greets first."""
        pipe = self.pipes[number] = Pipe(number, dialled, certificate, address, now_ns)
        if dialled:
            pipe.out.append(encode_frame(frame.HELLO, 0, 0, handshake.encode(self._hello(dialled))))
            self._dirty[number] = pipe

    def data_received(self, number: int, data: bytes, now_ns: int) -> None:
        """Bytes came over a connection."""
        pipe = self.pipes.get(number)
        if pipe is None or pipe.is_closed:
            return
        if pipe.link is not None:
            pipe.link.heard = True
        try:
            for arrived in pipe.reader.feed(data):
                if not self._arrived(pipe, arrived, now_ns):
                    return
        except RemoteProtocolError as error:
            self._fail(pipe, str(error), now_ns)

    def connection_lost(self, number: int, reason: str, now_ns: int) -> None:
        """A connection has ended."""
        pipe = self.pipes.pop(number, None)
        if pipe is None:
            return
        if pipe.link is None:
            self._note_failure(pipe, f"{reason}; it ended before the handshake (does the other side use TLS?)", now_ns)
        elif pipe.link.detach(pipe):
            self._owner.effects.notices.append(Notice("link", (pipe.link.peer.name, "down", reason)))
            self._dial_again(pipe, pipe.link.peer.name, now_ns)
        pipe.is_closed = True

    def dial_failed(self, name: str, reason: str, now_ns: int) -> None:
        """A dial failed: no process answered at that address."""
        self.failures[name] = reason
        self._pause(name, now_ns)

    def pause_writing(self, number: int) -> None:
        """The connection's buffer is full."""
        if number in self.pipes:
            self.pipes[number].is_paused = True

    def resume_writing(self, number: int) -> None:
        """The connection has room again."""
        pipe = self.pipes.get(number)
        if pipe is not None:
            pipe.is_paused = False
            if pipe.link is not None:
                pipe.link.flush()
                self._dirty[number] = pipe

    def close_all(self, reason: str) -> None:
        """End all connections."""
        for pipe in list(self.pipes.values()):
            self._close(pipe, reason)

    def _close(self, pipe: Pipe, reason: str) -> None:
        if not pipe.is_closed:
            pipe.is_closed = True
            self._collect(pipe)
            self._owner.effects.closes.append(Close(pipe.number, reason))
        if pipe.link is not None:
            pipe.link.detach(pipe)
        elif pipe.dialled in self._dialling:
            self._dialling[pipe.dialled].is_pending = False
        self.pipes.pop(pipe.number, None)

    def _fail(self, pipe: Pipe, reason: str, now_ns: int) -> None:
        link = pipe.link
        if link is None:
            self._note_failure(pipe, reason, now_ns)
        else:
            self._owner.effects.notices.append(Notice("link", (link.peer.name, "down", reason)))
        self._close(pipe, reason)
        if link is not None:
            self._dial_again(pipe, link.peer.name, now_ns)

    def fail(self, name: str, reason: str, now_ns: int) -> None:
        """The member of that name broke the protocol: its connection ends."""
        link = self.links.get(name)
        if link is not None and link.pipe is not None:
            self._fail(link.pipe, reason, now_ns)

    def _note_failure(self, pipe: Pipe, reason: str, now_ns: int) -> None:
        if pipe.is_closed:
            return
        if pipe.dialled:
            self._pause(pipe.dialled, now_ns)
        if reason == DUPLICATE:
            return
        if pipe.dialled:
            self.failures[pipe.dialled] = reason
        else:
            self.refused += 1
        self._owner.effects.notices.append(Notice("refused", (pipe.label, reason)))

    # Dialling.

    def need(self, names: set[str], now_ns: int) -> None:
        """Set the links of the present view."""
        before, self.needed = self.needed, names - {self._owner.me.name}
        for name in sorted(self.needed):
            state = self._dialling.get(name)
            if state is not None and name not in before and not state.is_pending:
                del self._dialling[name]  # a member of a new view is up: pauses after earlier failures are over
            self._want(name, now_ns)

    def _want(self, name: str, now_ns: int, *, is_urgent: bool = False) -> None:
        link = self.links.get(name)
        if link is not None and link.is_up:
            return
        if name not in self._dialling:
            state = self._dialling[name] = Dialling(now_ns)
            if not is_urgent and name < self._owner.me.name:
                state.after_ns = now_ns + SECOND_DIALLER_NS
        elif is_urgent and not self._dialling[name].pause_ns:
            self._dialling[name].after_ns = min(self._dialling[name].after_ns, now_ns)

    def _dial_again(self, ended: Pipe, name: str, now_ns: int) -> None:
        """Replace a connection, but not at once if it ended young: whatever ended it may end the next one too."""
        if name not in self.needed:
            return
        self._want(name, now_ns, is_urgent=True)
        if name in self._dialling and now_ns - ended.since_ns < RETRY_FIRST_NS:
            state = self._dialling[name]
            state.after_ns = max(state.after_ns, now_ns + RETRY_FIRST_NS)

    def _pause(self, name: str, now_ns: int) -> None:
        state = self._dialling.get(name)
        if state is not None:
            state.is_pending = False
            state.pause_ns = min(max(2 * state.pause_ns, RETRY_FIRST_NS), RETRY_MAX_NS)
            state.after_ns = now_ns + state.pause_ns

    def open(self, peer: MemberId, now_ns: int) -> Link:
        """The link to a member of the view, up or not; what is sent waits for a connection."""
        link = self.links.get(peer.name)
        if link is not None and link.peer.incarnation > peer.incarnation:
            return DeadLink(peer, 0)
        if link is None or link.peer != peer:
            if link is not None and link.pipe is not None:
                self._close(link.pipe, "a later incarnation replaces it")
            link = self.links[peer.name] = Link(peer, 0)
        link.used_ns = now_ns
        if not link.is_up:
            self._want(peer.name, now_ns)
            self._dialling[peer.name].until_ns = now_ns + IDLE_NS
        return link

    def is_replaced(self, who: MemberId) -> bool:
        """Has this process begun a later incarnation?"""
        link = self.links.get(who.name)
        return link is not None and 0 < who.incarnation < link.peer.incarnation

    def reach(self, name: str, now_ns: int) -> Link | None:
        """The link to a name if it is up; otherwise dial it, for a while."""
        link = self.links.get(name)
        if link is not None and link.is_up:
            link.used_ns = now_ns
            return link
        if name != self._owner.me.name:
            self._want(name, now_ns, is_urgent=True)
            self._dialling[name].until_ns = now_ns + IDLE_NS
        return None

    def on_timer(self, now_ns: int) -> None:
        """Dial what is due; end handshakes that take too long and unused links."""
        for name, state in list(self._dialling.items()):
            if name not in self.needed and state.until_ns < now_ns and not state.is_pending:
                del self._dialling[name]
            elif not state.is_pending and state.after_ns <= now_ns:
                state.is_pending = True
                self._owner.effects.dials.append(name)
        limit_ns = now_ns - round(self._owner.settings.handshake_timeout_s * NS)
        for pipe in list(self.pipes.values()):
            if pipe.link is None and pipe.since_ns < limit_ns:
                self._fail(pipe, "it did not greet in time", now_ns)
            elif pipe.link is not None and self._is_idle(pipe.link, now_ns - IDLE_NS):
                self._close(pipe, "nobody needs it")

    def _is_idle(self, link: Link, since_ns: int) -> bool:
        return link.peer.name not in self.needed and link.used_ns < since_ns

    def next_timer_ns(self) -> int | None:
        """When `on_timer` is due for dialling."""
        if not self._dialling:
            return None
        return min((state.after_ns for state in self._dialling.values() if not state.is_pending), default=None)

    # Handshake.

    def _hello(self, towards: str) -> Hello:
        group_id, view, members = self._owner.position()
        link = self.links.get(towards)
        return Hello(
            oldest=frame.OLDEST,
            newest=frame.VERSION,
            group=self._group,
            group_id=group_id,
            name=self._owner.me.name,
            towards=towards,
            incarnation=self._owner.me.incarnation,
            session=self._session,
            knows=link.peer.incarnation if link is not None else 0,
            knows_session=link.session if link is not None else 0,
            received=link.received if link is not None else 0,
            view_number=view.number,
            view_tag=view.tag,
            view_members=members,
            settings=self._owner.settings.agreed(),
        )

    def _arrived(self, pipe: Pipe, arrived: Frame, now_ns: int) -> bool:
        """Handle one frame; False when the connection was closed over it."""
        if pipe.link is not None:
            self._take(pipe, pipe.link, arrived, now_ns)
        elif pipe.dialled:
            self._answered(pipe, arrived, now_ns)
        else:
            self._greeted(pipe, arrived, now_ns)
        return not pipe.is_closed

    def _greeted(self, pipe: Pipe, arrived: Frame, now_ns: int) -> None:
        """The first frame of a process that dialled this member."""
        if arrived.kind != frame.HELLO:
            raise RemoteProtocolError(f"it began with a frame of kind {arrived.kind}, not with HELLO")
        said = handshake.decode(Hello, arrived.body)
        try:
            self.require_acceptable(pipe, said)
            last = self._owner.last_known(MemberId(said.name, said.incarnation), said)
            if last is not None:
                reason = f"this incarnation of {said.name} is no longer in the group"
                raise _RefusedError(reason, is_past=True, incarnation=last)
            if pipe.is_closed:
                return  # this member has just given up its own incarnation, and all connections
            self._require_newer(said, dialled_by=said.name, now_ns=now_ns)
        except RemoteProtocolError as error:
            if not pipe.is_closed:
                self._refuse(pipe, error)
            raise
        link = self._link_for(said)
        if said.knows == self._owner.me.incarnation:
            self._exceed(said.knows_session)
        pipe.out.append(encode_frame(frame.WELCOME, 0, 0, handshake.encode(self._hello(said.name))))
        self._attach(pipe, link, said, dialled_by=said.name, now_ns=now_ns)

    def _exceed(self, session: int) -> None:
        """Another member knows this session of this incarnation: if it is later than the present one, exceed it.

        The step differs from process to process: two that exceed one and the same session have different ones then.
        """
        if self._session < session < SESSION_MAX - SESSION_STEP_MAX:
            self._session = session + self._session_step

    def _refuse(self, pipe: Pipe, error: RemoteProtocolError) -> None:
        details = error.details if isinstance(error, _RefusedError) else {}
        refusal = HandshakeRefusal(reason=str(error)[:1000], **details)
        pipe.out.append(encode_frame(frame.REFUSE, 0, 0, handshake.encode(refusal)))

    def _answered(self, pipe: Pipe, arrived: Frame, now_ns: int) -> None:
        """The answer of the process that this member dialled."""
        self._require_certificate(pipe, pipe.dialled)
        if arrived.kind == frame.REFUSE:
            refusal = handshake.decode(HandshakeRefusal, arrived.body)
            if refusal.is_past:
                self._owner.refused_as_past(pipe.dialled, refusal.incarnation)
            if refusal.is_duplicate:
                raise RemoteProtocolError(DUPLICATE)
            self._exceed(refusal.session)
            raise RemoteProtocolError(f"it refused: {refusal.reason}")
        if arrived.kind != frame.WELCOME:
            raise RemoteProtocolError(f"it answered with a frame of kind {arrived.kind}, not with WELCOME")
        said = handshake.decode(Hello, arrived.body)
        if said.name != pipe.dialled:
            raise RemoteProtocolError(f"it says it is {said.name}, not {pipe.dialled}")
        self.require_acceptable(pipe, said)
        self._owner.last_known(MemberId(said.name, said.incarnation), said)
        if pipe.is_closed:
            return  # this member has just given up its own incarnation, and all connections
        self._require_newer(said, dialled_by=self._owner.me.name, now_ns=now_ns)
        self._attach(pipe, self._link_for(said), said, dialled_by=self._owner.me.name, now_ns=now_ns)

    def _require_certificate(self, pipe: Pipe, name: str) -> None:
        if pipe.certificate is not None and name not in pipe.certificate:
            named = ", ".join(pipe.certificate) or "nobody"
            raise RemoteProtocolError(f"its certificate is for {named}, not for {name}")

    def require_acceptable(self, pipe: Pipe, said: Hello) -> None:
        """Refuse a process of another group, of another name than it claims, or with other settings."""
        self._require_certificate(pipe, said.name)
        me = self._owner.me.name
        if said.oldest > frame.VERSION or said.newest < frame.OLDEST:
            theirs, ours = f"{said.oldest} to {said.newest}", f"{frame.OLDEST} to {frame.VERSION}"
            raise RemoteProtocolError(f"{said.name} speaks wire versions {theirs}, {me} {ours}")
        if said.group != self._group:
            raise RemoteProtocolError(f"{said.name} is in group {said.group!r}, {me} in {self._group!r}")
        group_id, _, _ = self._owner.position()
        if said.group_id and group_id and said.group_id != group_id:
            raise RemoteProtocolError(
                f"{said.name} and {me} are in two groups named {self._group!r}, founded apart: stop one of the two"
            )
        if said.name == me:
            raise RemoteProtocolError(f"two processes use the name {me}: give each its own address")
        if said.towards != me:
            raise RemoteProtocolError(
                f"{said.name} dialled {said.towards}, but that member is {me}: use the same address"
            )
        self._require_same_settings(said)

    def _require_same_settings(self, said: Hello) -> None:
        theirs, ours = said.settings, self._owner.settings.agreed()
        for name in sorted({*theirs, *ours}):
            if theirs.get(name) != ours.get(name):
                values = [f"{value.get(name, 'unknown')}" for value in (theirs, ours)]
                raise RemoteProtocolError(
                    f"the settings differ: {name}={values[0]} at {said.name}, {values[1]} at {self._owner.me.name}"
                )

    def _require_newer(self, said: Hello, *, dialled_by: str, now_ns: int) -> None:
        """Refuse an earlier process of that name, and one of two connections that were made at once.

        Of two connections between the same processes, that of the lower name stays.
        """
        link = self.links.get(said.name)
        if link is None or said.incarnation > link.peer.incarnation:
            return
        if said.incarnation < link.peer.incarnation:
            raise RemoteProtocolError(f"a later incarnation of {said.name} is known")
        if said.session < link.session:
            raise _RefusedError(f"a later session of {said.name} is known", session=link.session)
        if link.pipe is None or said.session > link.session:
            return
        lower = min(self._owner.me.name, said.name)
        is_young = now_ns - link.pipe.since_ns < YOUNG_NS
        if is_young and link.dialled_by == lower and dialled_by != lower:
            raise _RefusedError(DUPLICATE, is_duplicate=True)

    def _link_for(self, said: Hello) -> Link:
        """The link to this incarnation, which replaces that of an earlier one."""
        peer = MemberId(said.name, said.incarnation)
        link = self.links.get(said.name)
        if link is not None and link.peer != peer:
            if link.pipe is not None:
                self._close(link.pipe, "a later incarnation replaces it")
            link = None
        if link is None:
            link = self.links[said.name] = Link(peer, said.session)
        return link

    def _attach(self, pipe: Pipe, link: Link, said: Hello, *, dialled_by: str, now_ns: int) -> None:
        old = link.pipe
        if old is not None:
            link.detach(old)
            old.link = None
            self._close(old, DUPLICATE)
        pipe.link = link
        pipe.since_ns = now_ns
        pipe.reader.body_bytes_max = self._owner.settings.frame_bytes_max
        self._dialling.pop(said.name, None)
        self.failures.pop(said.name, None)
        received = said.received if said.knows == self._owner.me.incarnation else 0
        is_whole = link.resume(pipe, received=received, session=said.session, dialled_by=dialled_by)
        self._dirty[pipe.number] = pipe
        link.heard = True
        link.used_ns = now_ns
        self._owner.effects.notices.append(Notice("link", (said.name, "up", "")))
        if not is_whole:
            self._owner.link_broken(link.peer, now_ns)
        self._owner.link_up(link, said, now_ns)

    # Frames.

    def _take(self, pipe: Pipe, link: Link, arrived: Frame, now_ns: int) -> None:
        if arrived.kind == frame.ACK:
            link.acknowledge(handshake.decode(handshake.Acknowledgement, arrived.body).received)
            return
        if arrived.kind in (frame.HELLO, frame.WELCOME, frame.REFUSE):
            raise RemoteProtocolError(f"it sent a frame of kind {arrived.kind} after the handshake")
        if arrived.number and not link.accept(arrived):
            return
        if pipe.out:
            self._dirty[pipe.number] = pipe
        self._owner.frame_arrived(link, arrived, now_ns)

    def send_message(self, to: str, message: Message, now_ns: int, base: View | None = None) -> bool:
        """Send a membership message if the link is up; otherwise drop it and dial the link.

        `base` is the view that both sides are in. A message for several members is encoded once.
        """
        link = self.reach(to, now_ns)
        if link is None:
            return False
        if self._written[0] is not message or self._written[1] is not base:
            self._written = (message, base, encode_message(message, base))
        link.send(frame.MEMBERSHIP, message.view.tag, self._written[2])
        self.mark(link)
        return True

    def mark(self, link: Link) -> None:
        """This link has something to write."""
        if link.pipe is not None:
            self._dirty[link.pipe.number] = link.pipe

    def flush(self) -> None:
        """Put everything that can be written into the effects."""
        if not self._dirty:
            return
        dirty, self._dirty = self._dirty, {}
        for pipe in dirty.values():
            if pipe.link is not None:
                pipe.link.flush()
                if pipe.link.wants_flush:
                    self._dirty[pipe.number] = pipe
                    self._owner.effects.is_partial = True
            self._collect(pipe)

    def _collect(self, pipe: Pipe) -> None:
        if pipe.out:
            self._owner.effects.writes.append((pipe.number, pipe.out))
            pipe.out = []

    def confirm(self) -> None:
        """Acknowledge what arrived on all links."""
        for link in self.links.values():
            if link.pipe is not None:
                link.confirm()
                self._dirty[link.pipe.number] = link.pipe

    def forget(self, name: str) -> None:
        """A name is no longer in the group: end its link."""
        link = self.links.pop(name, None)
        if link is not None and link.pipe is not None:
            self._close(link.pipe, "it is no longer in the group")

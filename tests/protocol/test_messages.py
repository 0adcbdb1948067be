"""Messages are declared by their fields; what is sent has the declared size."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from cubecast.cli.app import run
from cubecast.errors import LocalProtocolError
from cubecast.protocol.context import Context
from cubecast.protocol.definition import Protocol
from cubecast.protocol.mail import HEADER_BYTES
from cubecast.protocol.messages import (
    MessageType,
    Size,
    bit_set,
    kinds_of,
    member_set,
    message,
    message_sizes,
    payload,
    per_member,
    per_sender,
    where_lossy,
)
from cubecast.protocols.catalogue import list_protocols, protocol_named, transport_named
from tests.support.own_protocols import restored_catalogue
from tests.transcripts.exchange import Exchange
from tests.transcripts.talk import Message as Sent
from tests.transcripts.talk import Talk

CONTEXT = Context(members=17, senders=5, payload_bytes=100)
VARIANTS = {"GOSSIP_AND_RESULT": "GOSSIP", "LOCAL_IN_LAST_GROUP": "LOCAL"}
"""Messages that are another size of a kind."""


@pytest.fixture(autouse=True)
def _own_catalogue() -> Iterator[None]:
    with restored_catalogue():
        yield


@pytest.mark.parametrize(
    ("size", "size_bytes"),
    [
        (per_sender(4), 20),
        (per_member(2), 34),
        (member_set(), 3),
        (bit_set("16", lambda _context, parameters: parameters), 2),
        (where_lossy(4), 0),
        (payload(), 100),
        (4, 4),
    ],
)
def test_a_message_is_as_long_as_its_header_and_its_fields(size: int | Size, size_bytes: int) -> None:
    sizes = message_sizes((message("BARE"), message("FIELDS", one=size, other=1)), CONTEXT, 16)
    assert sizes.tolist() == [HEADER_BYTES, HEADER_BYTES + size_bytes + 1]


def test_the_lossy_form_carries_more() -> None:
    lossy = replace(CONTEXT, repeat_ns=1)
    assert message("ACK", round=where_lossy(4)).size_bytes(lossy) == HEADER_BYTES + 4


def test_a_message_stands_at_the_number_of_its_kind() -> None:
    messages = (message("DATA"), message("ACK", 3, received=4))
    assert message_sizes(messages, CONTEXT).tolist() == [HEADER_BYTES, 0, 0, HEADER_BYTES + 4]
    assert message_sizes((), CONTEXT).tolist() == []


@pytest.mark.parametrize(
    ("messages", "said"),
    [
        ((message("ACK"), message("INFO"), message("ACK")), "coord has two messages ACK: give each a name of its own"),
        ((message("ACK"), message("INFO", 0)), "message ACK of coord is not the only one of kind 0"),
    ],
)
def test_messages_that_share_a_name_or_a_kind_are_refused(messages: tuple[MessageType, ...], said: str) -> None:
    with pytest.raises(LocalProtocolError) as caught:
        replace(protocol_named("coord"), messages=messages).check()
    assert str(caught.value) == said


def constant(protocol: Protocol, name: str) -> int | None:
    """The number that the file of a protocol, or a file it imports from, gives to a name."""
    own = sys.modules[protocol.state.__module__]
    names = {getattr(one, "__module__", None) or "" for one in vars(own).values()}
    files = [own, *(sys.modules[file] for file in sorted(names) if file.startswith("cubecast.protocols."))]
    return next((getattr(file, name) for file in files if isinstance(getattr(file, name, None), int)), None)


@pytest.mark.parametrize("protocol", list_protocols(), ids=lambda one: f"{one.family} {one.name}")
def test_every_protocol_declares_its_messages_under_the_numbers_it_sends_them(protocol: Protocol) -> None:
    assert protocol.messages
    for one, kind in zip(protocol.messages, kinds_of(protocol.messages), strict=True):
        assert constant(protocol, one.name) == kind, one.name


def declared(entry: Protocol, context: Context, **parameters: Any) -> dict[str, set[int]]:
    """The sizes in which each kind of message comes."""
    given = entry.resolve(entry.make_parameters(parameters), context)
    sizes: dict[str, set[int]] = {}
    for one in entry.messages:
        sizes.setdefault(VARIANTS.get(one.name, one.name), set()).add(one.size_bytes(context, given))
    return sizes


@pytest.mark.parametrize(("members", "bitmap_bytes"), [(100, 249), (1900, 474)])
def test_the_two_formats_of_a_stability_message(members: int, bitmap_bytes: int) -> None:
    """ "The size of the array of stability information carried by stability, ack, and info messages is at most 200
    bytes. Also, the message header size is set to 32 bytes" (cube §4.1). Fig 5 sends a bitmap and a round besides."""
    context = Context(members=members, senders=50)
    entry = protocol_named("cube_full_dist")
    assert declared(entry, context, format="stated") == {"STABILITY": {232}, "RESULT": {232}}
    assert declared(entry, context, format="bitmap") == {"STABILITY": {bitmap_bytes}, "RESULT": {bitmap_bytes}}
    assert declared(entry, context) == declared(entry, context, format="bitmap")


@pytest.mark.parametrize("lossy", [False, True])
@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("coord", {}),
        ("s_coord", {}),
        ("full_dist", {}),
        ("cube_full_dist", {}),
        ("cube_full_dist", {"format": "stated"}),
        ("train", {}),
        ("s_train", {}),
        ("gossip", {}),
        ("gossip", {"ending": "piggyback"}),
        ("s_gossip", {"group_size": 9}),
    ],
)
def test_what_a_stability_protocol_sends_has_a_declared_size(name: str, parameters: Any, lossy: bool) -> None:
    talk = Talk(name, [[1, 2, 3]] * 10, lossy=lossy, **parameters)
    context = Context(members=10, senders=3, repeat_ns=1 if lossy else 0)
    sizes = declared(protocol_named(name), context, **parameters)
    sizes["AMONG"] = sizes.get("AMONG_CONTROLLERS", set())
    talk.start()
    sent: list[Sent] = []
    while len(sent) < 300 and (talk.under_way or talk.timers):
        if talk.under_way:
            sent.append(talk.under_way.pop(0))
            talk.receive(sent[-1])
        else:
            talk.wake(talk.timers[0].rank, talk.timers[0].name)
    assert len(sent) >= 10
    for one in sent:
        assert one.size in sizes[one.kind], one


@pytest.mark.parametrize("name", ["ack", "nak", "nak_multicast", "srm", "hybrid", "hierarchical"])
def test_what_a_transport_sends_has_the_declared_size(name: str) -> None:
    entry = transport_named(name)
    talk = Exchange(entry, members=4, senders=1, repeat_ns=50, wait_ns=1, payload_bytes=100)
    sizes = message_sizes(entry.messages, Context(members=4, senders=1, repeat_ns=50, payload_bytes=100))
    talk.publish(0)
    talk.under_way.clear()
    seen = set()
    for _ in range(20):
        talk.publish(0)
        for _ in range(40):
            for copy in talk.under_way:
                assert copy.size == sizes[copy.kind], copy
                seen.add(copy.kind)
            if not talk.under_way:
                break
            talk.deliver()
        talk.pass_time(60)
    assert seen == set(kinds_of(entry.messages))


def test_the_command_line_lists_messages_with_their_fields(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["protocols", "full_dist", "--json"]) == 0
    fields = {"round": "4 where messages may be lost", "received": "4 · m"}
    assert json.loads(capsys.readouterr().out)[0]["messages"] == [
        {"name": "INFO", "fields": fields},
        {"name": "REQUEST", "fields": fields},
    ]
    assert run(["protocols", "polling"]) == 0
    assert "ANSWER" in capsys.readouterr().out

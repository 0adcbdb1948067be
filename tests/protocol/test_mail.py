"""A draft begins empty, and an action says in a column of its own which other member it is about."""

from __future__ import annotations

from cubecast.jit.decorators import entry_point
from cubecast.protocol.mail import ADOPT, SEND, WAITING, adopt, clear_outbox, draft, new_mail, send


@entry_point
def use_a_slot_twice(mail):  # type: ignore[no-untyped-def]
    """Write both fields of a draft, give it back, and draft again."""
    slot = draft(mail, 1, -1, 40)
    mail.heads[slot].field_1 = 5
    mail.heads[slot].field_2 = 6
    clear_outbox(mail)
    return slot, draft(mail, 2, -1, 50)


@entry_point
def adopt_and_send(mail):  # type: ignore[no-untyped-def]
    """Leave two actions; only the first is about a peer."""
    adopt(mail, 3, 70, 2)
    send(mail, draft(mail, 0, -1, 32), 1)


def test_a_draft_in_a_used_slot_has_nothing_in_its_fields() -> None:
    mail = new_mail(slots=4, width=1, words=1, room=4)
    first, second = use_a_slot_twice(mail)
    assert first == second
    assert (mail.heads[second].field_1, mail.heads[second].field_2) == (0, 0)


def test_adopting_names_the_member_it_adopts_from() -> None:
    mail = new_mail(slots=4, width=1, words=1, room=4)
    adopt_and_send(mail)
    assert mail.counts[WAITING] == 2
    first, second = mail.actions[0], mail.actions[1]
    assert (first.what, first.a, first.b, first.delay_ns, first.peer) == (ADOPT, 3, 70, 0, 2)
    assert (second.what, second.a, second.peer) == (SEND, 1, -1)

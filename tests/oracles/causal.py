"""The definitions of causal §2 taken literally, over the deliver rows of a trace: slow, and without any vector."""

from __future__ import annotations

from cubecast.trace.schema import Event
from tests.oracles.checkers import Row, is_up

Message = tuple[int, int]


def deliveries(rows: list[Row]) -> list[int]:
    return [k for k, row in enumerate(rows) if row["event"] == Event.DELIVER and row["sequence"] >= 1]


def message_of(row: Row) -> Message:
    return row["sender"], row["sequence"]


def happens_before(rows: list[Row]) -> dict[int, set[int]]:
    """Definition 2.1: for each deliver row all deliver rows before it in the relation, by closing it transitively."""
    before: dict[int, set[int]] = {}
    last_of: dict[int, int] = {}
    sent: dict[Message, int] = {}
    for k in deliveries(rows):
        row = rows[k]
        causes = {last_of[row["member"]]} if row["member"] in last_of else set()
        if row["member"] != row["sender"] and message_of(row) in sent:
            causes.add(sent[message_of(row)])
        before[k] = causes.union(*(before[cause] for cause in causes))
        last_of[row["member"]] = k
        if row["member"] == row["sender"]:
            sent.setdefault(message_of(row), k)
    return before


def causal_order(rows: list[Row]) -> list[int]:
    """Definition 2.2: deliver rows before which their member lacks something sent before; and repeated, unsent ones."""
    before = happens_before(rows)
    bad = []
    for k in deliveries(rows):
        row = rows[k]
        here = [j for j in deliveries(rows[:k]) if rows[j]["member"] == row["member"]]
        delivered = {message_of(rows[j]) for j in here}
        sends = [j for j in deliveries(rows[: k + 1]) if rows[j]["member"] == rows[j]["sender"]]
        own = [j for j in sends if message_of(rows[j]) == message_of(row)]
        out_of_sequence = row["member"] == row["sender"] and row["sequence"] != 1 + _run(delivered, row["sender"])
        wrong = message_of(row) in delivered or not own or out_of_sequence
        if wrong or any(message_of(rows[j]) not in delivered for j in sends if j in before[own[0]]):
            bad.append(k)
    return bad


def _run(delivered: set[Message], sender: int) -> int:
    length = 0
    while (sender, length + 1) in delivered:
        length += 1
    return length


def disagreements(rows: list[Row], members: int, *, floods: bool) -> set[tuple[int, Message]]:
    """Who stays up and lacks a message that a member which stays (any, if messages flood and few crashed) delivered."""
    stays = {member for member in range(members) if is_up(rows, member)}
    crashed = set(range(members)) - stays
    counts = set(range(members)) if floods and len(crashed) < (members - 1).bit_length() - 1 else stays
    delivered = {(rows[k]["member"], message_of(rows[k])) for k in deliveries(rows)}
    wanted = {message for member, message in delivered if member in counts}
    return {(member, message) for member in stays for message in wanted if (member, message) not in delivered}

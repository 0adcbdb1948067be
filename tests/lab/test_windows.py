"""Windows of a live group: members carried forward, those that left taken out, views, the oldest unstable message."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from cubecast.errors import LocalProtocolError
from cubecast.lab.windows import OPEN_WINDOWS, Windows

Row = dict[str, Any]
NOTHING: Row = {"member": None, "view": -1, "sender": None, "received": 0, "stable": 0, "gone": False, "time_ns": 0}
NOTHING |= {"number": None, "tag": None, "peer": None}


def _row(
    window: int,
    member: str,
    received: int,
    stable: int,
    *,
    gone: bool = False,
    sender: str | None = "s",
    view: int = -1,
) -> Row:
    given = {"member": member, "sender": sender, "received": received, "stable": stable, "gone": gone, "view": view}
    return NOTHING | given | {"window": window}


def _install(window: int, number: int, members: str, *, tag: int = 0, by: str = "") -> list[Row]:
    """A view is installed by its members, or by some of them."""
    view = {"window": window, "number": number, "tag": tag, "time_ns": window}
    rows = [NOTHING | view | {"peer": peer} for peer in members]
    return [*rows, *(_row(window, member, 0, 0, sender=None, view=number) for member in by or members)]


def test_a_silent_member_stands_where_it_stood() -> None:
    windows = Windows(0.5)
    windows.merge([_row(0, "a", 3, 0), _row(0, "b", 3, 0)])
    windows.merge([_row(2, "a", 9, 3)])
    table = windows.table()
    assert [row["window_s"] for row in table] == [0.5, 1.0, 1.5]
    assert (table[2]["slowest"], table[2]["behind"], table[2]["lag_messages"]) == ("b", 6, 9)
    assert table[2]["lag_s"] == 1.5
    assert table[2]["view"] is None


def test_a_member_that_left_holds_nobody_back() -> None:
    windows = Windows(1.0)
    windows.merge([_row(0, "a", 5, 0), _row(0, "b", 1, 0), _row(1, "a", 5, 5)])
    windows.merge([_row(1, "b", 0, 0, gone=True, sender=None)])
    last = windows.table()[-1]
    assert (last["members"], last["slowest"], last["behind"]) == (1, "a", 0)
    assert (last["lag_messages"], last["lag_s"]) == (0, 0.0)


def test_a_later_batch_of_the_same_window_replaces_what_was_known() -> None:
    windows = Windows(1.0)
    windows.merge([_row(0, "a", 2, 0)])
    windows.merge([_row(0, "a", 5, 1)])
    assert windows.table()[0]["buffer_max"] == 4


def test_nothing_yet_is_an_empty_table() -> None:
    assert Windows(1.0).table() == []
    windows = Windows(1.0)
    windows.merge([])
    assert windows.table() == []


def test_a_member_outside_of_the_newest_view_holds_nobody_back() -> None:
    """A member that was killed writes nothing more: the others install a view without it."""
    windows = Windows(1.0)
    windows.merge([*_install(0, 1, "abc"), *(_row(0, who, 4, 0, sender="a", view=1) for who in "ab")])
    windows.merge([*_install(2, 2, "ab"), *(_row(2, who, 5, 0, sender="a", view=2) for who in "ab")])
    first, second, third = windows.table()
    assert (first["view"], first["members"], first["slowest"], first["lag_messages"]) == (1, 3, "c", 4)
    assert second["slowest"] == "c"
    assert (third["view"], third["members"], third["behind"], third["lag_messages"]) == (2, 2, 0, 1)
    assert third["lag_s"] == 1.0, "what came before the view is stable"


def test_a_newcomer_lacks_nothing_of_senders_that_are_gone() -> None:
    windows = Windows(1.0)
    windows.merge([*_install(0, 1, "ab"), *(_row(0, who, 7, 7, sender="b", view=1) for who in "ab")])
    windows.merge([*_install(1, 2, "a", by="a"), *_install(2, 3, "ac"), _row(2, "c", 0, 0, sender="a", view=3)])
    last = windows.table()[-1]
    assert (last["view"], last["members"], last["behind"], last["lag_messages"]) == (3, 2, 0, 0)


def test_a_member_with_no_trace_does_not_count() -> None:
    windows = Windows(1.0)
    windows.merge([*_install(0, 1, "abx", by="ab"), *(_row(0, who, 3, 3, sender="a", view=1) for who in "ab")])
    assert [(row["members"], row["lag_messages"]) for row in windows.table()] == [(2, 0)]


def test_rows_of_a_later_batch_belong_to_the_view_installed_in_an_earlier_one() -> None:
    windows = Windows(1.0)
    windows.merge([*_install(0, 5, "a"), _row(0, "a", 3, 0, sender="a", view=5)])
    windows.merge([_row(1, "a", 4, 0, sender="a")])
    windows.merge(_install(2, 4, "a"))  # repeated after a restart: no newer view
    windows.merge([_row(2, "a", 4, 0, sender="a", view=4)])
    assert [row["buffer_max"] for row in windows.table()] == [3, 4, 4]
    windows.merge(_install(3, 6, "a"))
    assert windows.table()[-1]["buffer_max"] == 0


def test_a_member_that_lags_behind_does_not_bring_an_older_view_back() -> None:
    windows = Windows(1.0)
    windows.merge([*_install(0, 1, "abc"), *_install(1, 2, "abc", by="a"), *_install(1, 3, "ab", by="a")])
    windows.merge([*_install(2, 2, "abc", by="b"), *_install(3, 1, "abc", by="c")])
    assert [row["view"] for row in windows.table()] == [1, 3, 3, 3]


def test_a_group_that_is_founded_again_takes_the_place_of_the_old_one() -> None:
    windows = Windows(1.0)
    windows.merge([*_install(0, 1, "ab", tag=5), *_install(1, 2, "a", tag=6, by="a")])
    windows.merge([*_install(2, 1, "cd", tag=4), _row(2, "c", 2, 0, sender="d", view=1)])
    last = windows.table()[-1]
    assert (last["view"], last["members"], last["slowest"], last["behind"]) == (1, 2, "d", 2)


def test_a_view_that_another_member_installed_earlier_counts_from_then() -> None:
    windows = Windows(1.0)
    windows.merge([*_install(0, 1, "ab"), *_install(4, 2, "ab", by="b")])
    windows.merge(_install(2, 2, "ab", by="a"))
    assert [row["view"] for row in windows.table()] == [1, 1, 2, 2, 2]


def test_old_windows_are_closed_and_stay_in_the_table() -> None:
    windows, always = Windows(1.0), Windows(1.0)
    rows = [_row(window, who, window + 1, window, sender="a") for window in range(3 * OPEN_WINDOWS) for who in "ab"]
    always.merge(rows)
    for start in range(0, len(rows), 50):
        windows.merge(rows[start : start + 50])
    assert windows.table() == always.table()
    assert len(windows.table()) == 3 * OPEN_WINDOWS
    windows.merge([_row(0, "c", 1, 1, sender="a")])
    assert [row["members"] for row in windows.table()] == [2] * (2 * OPEN_WINDOWS - 1) + [3] * (OPEN_WINDOWS + 1)


def test_only_so_many_windows_are_shown() -> None:
    windows = Windows(1.0, keep=5)
    windows.merge([_row(window, "a", window, 0, sender="a") for window in range(2 * OPEN_WINDOWS)])
    assert [row["window_s"] for row in windows.table()] == [196.0, 197.0, 198.0, 199.0, 200.0]


def test_windows_go_on_from_the_state_of_an_earlier_time() -> None:
    """Restored after every batch they show what undisturbed ones show: slowest member, age of messages, all windows."""
    random = np.random.default_rng(5)
    undisturbed, restored = Windows(1.0, keep=300), Windows(1.0, keep=300)
    members, number = "abcd", 1
    batch = _install(0, 1, members)
    for window in range(4 * OPEN_WINDOWS):
        for who in random.choice(list(members), 2):
            held = int(random.integers(window, window + 5))
            batch.append(_row(window, str(who), held, int(held * random.random()), sender=members[0], view=number))
        if random.random() < 0.05:
            number += 1
            members = "".join(random.choice(list("abcdefgh"), 4, replace=False))
            batch += _install(window, number, members)
        if random.random() < 0.3:
            undisturbed.merge(batch)
            restored.merge(batch)
            batch = []
            restored = Windows(1.0, keep=300, state=json.loads(json.dumps(restored.state())))
            assert restored.table() == undisturbed.table()
    assert len(restored.table()) == 300
    assert len({row["slowest"] for row in restored.table()}) > 2


def test_windows_of_another_length_are_refused() -> None:
    with pytest.raises(LocalProtocolError, match=r"the checkpoint has windows of 1 s"):
        Windows(2.0, state=Windows(1.0).state())


def test_the_state_of_a_group_that_changes_forever_is_bounded() -> None:
    """Every member of it is replaced again and again, by incarnations that never come back, and nothing is stable."""
    windows, sizes = Windows(1.0, keep=10), []
    for window in range(12 * OPEN_WINDOWS):
        group = [f"{place} ({window // 5})" for place in range(3)]
        windows.merge(_changed(window, group))
        sizes.append(len(json.dumps(windows.state())))
    late = sizes[3 * OPEN_WINDOWS :]
    assert max(late) < 1.2 * late[0]


def _changed(window: int, group: list[str]) -> list[Row]:
    view = {"window": window, "number": window + 2, "tag": 0, "time_ns": window}
    rows = [NOTHING | view | {"peer": peer} for peer in group]
    return [*rows, *(_row(window, who, window, 0, sender=group[0], view=window + 2) for who in group)]

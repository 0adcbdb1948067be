"""Windows of a live group: members carried forward, those that left taken out, the oldest unstable message timed."""

from __future__ import annotations

from typing import Any

from cubecast.lab.windows import Windows


def _row(
    window: int, member: int, received: int, stable: int, *, gone: bool = False, sender: int = 0
) -> dict[str, Any]:
    return {
        "window": window,
        "member": member,
        "sender": sender,
        "received": received,
        "stable": stable,
        "gone": gone,
    }


def test_a_silent_member_stands_where_it_stood() -> None:
    windows = Windows(0.5)
    windows.merge([_row(0, 0, 3, 0), _row(0, 1, 3, 0)])
    windows.merge([_row(2, 0, 9, 3)])
    table = windows.table()
    assert [row["window_s"] for row in table] == [0.5, 1.0, 1.5]
    assert (table[2]["slowest"], table[2]["behind"], table[2]["lag_messages"]) == (1, 6, 9)
    assert table[2]["lag_s"] == 1.5


def test_a_member_that_left_holds_nobody_back() -> None:
    windows = Windows(1.0)
    windows.merge([_row(0, 0, 5, 0), _row(0, 1, 1, 0), _row(1, 0, 5, 5), _row(1, 1, 0, 0, gone=True, sender=-1)])
    last = windows.table()[-1]
    assert (last["members"], last["slowest"], last["behind"], last["lag_messages"], last["lag_s"]) == (1, 0, 0, 0, 0.0)


def test_a_later_batch_of_the_same_window_replaces_what_was_known() -> None:
    windows = Windows(1.0)
    windows.merge([_row(0, 0, 2, 0)])
    windows.merge([_row(0, 0, 5, 1)])
    assert windows.table()[0]["buffer_max"] == 4


def test_nothing_yet_is_an_empty_table() -> None:
    assert Windows(1.0).table() == []

"""The status page of a member in a real browser: it draws the members and the links between them, without a network."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from cubecast.live import status
from cubecast.live.local import free_addresses
from cubecast.live.status import StatusServer
from tests.live.members import NEVER, groups_of, one, until, vanish
from tests.live.test_whole_group import hold_up
from tests.support.browser import needs_browser, show

pytestmark = [pytest.mark.live, pytest.mark.browser, needs_browser]


def links_of(page: str, kind: str) -> set[str]:
    """The links that are drawn in that way."""
    return set(re.findall(rf'<line [^>]*class="{kind}" data-link="([0-9-]+)"', page))


def nodes_of(page: str, kind: str) -> set[int]:
    """The members that are drawn in that way."""
    return {int(rank) for rank in re.findall(rf'<g class="{kind}" data-rank="(\d+)"', page)}


def test_the_page_shows_members_links_and_departed_members(tmp_path: Path) -> None:
    async def run() -> tuple[str, str, str]:
        (address,) = free_addresses(1)
        async with groups_of(8, suspect_after_s=5.0, data="tree") as groups, StatusServer(groups[1], address):
            await (await groups[2].multicast(b"x")).stable(20)
            await groups[6].leave()
            await until(lambda: len(groups[1].view.members) == 7)
            await vanish(groups[7])
            await until(lambda: len(groups[1].view.members) == 6)
            page = await asyncio.to_thread(show, f"http://{address}/", tmp_path, time_ms=2_000)
            return page, groups[6].address, groups[7].address

    page, left, crashed = asyncio.run(run())
    assert nodes_of(page, "me") == {1}
    assert nodes_of(page, "in") | nodes_of(page, "behind") == {0, 2, 3, 4, 5}
    assert "0-1" in links_of(page, "eager")
    assert re.search(rf'<tr class="left">.*?{left}.*?left in view 2', page)
    assert re.search(rf'<tr class="out">.*?{crashed}.*?excluded in view 3', page)
    assert "view 3, 6 members" in page
    assert len(re.findall(r'<text x="4', page)) >= 3  # the scales of the charts


WIDTH = b"""<script>
setInterval(() => { document.body.dataset.width = document.documentElement.scrollWidth; }, 100);
</script>"""
PHONE = ("--dump-dom", "--window-size=390,844")


def test_a_phone_shows_the_whole_group_without_scrolling_sideways(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = status._page()
    monkeypatch.setattr(status, "_page", lambda: page + WIDTH)

    def each(place: int) -> dict[str, Any]:
        return {"journal": tmp_path / "1.journal"} if place == 1 else {}

    async def run() -> str:
        (address,) = free_addresses(1)
        async with groups_of(5, each=each, **NEVER) as groups, StatusServer(groups[1], address):
            await (await groups[0].multicast(b"x")).stable(20)
            hold_up(groups[3])
            for _ in range(150):
                await groups[2].multicast(b"x")
            await vanish(groups[4])
            await until(lambda: groups[1].status()["members"][2]["received"] == 150)
            return await asyncio.to_thread(show, f"http://{address}/", tmp_path, time_ms=3_000, words=PHONE)

    shown = asyncio.run(run())
    width = re.search(r'data-width="(\d+)"', shown)
    assert width is not None
    # The browser of Debian makes no window below 500 points; the page fits into whatever it gets.
    assert int(width[1]) <= 500
    assert 'data-lacks="3-2-150"' in shown
    assert 'data-lacks="0-2-0"' in shown
    assert 'data-lacks="4-2-unknown"' in shown
    assert re.search(r'id="verdict" class="bad">rank 4 does not answer \(.*?\); rank 3 lacks 150 messages<', shown)
    assert re.search(r'id="journals">.*?<td[^>]*>1</td><td class="text">[\d.]+ ?k?B, always</td>', shown)
    assert re.search(r'id="views"><tr><td>1</td><td class="text">[\d:]+</td><td>5</td>', shown)
    assert re.search(r'<text [^>]*class="time">\d\d:\d\d:\d\d<', shown)


def test_a_member_that_waits_for_the_group_says_so(tmp_path: Path) -> None:
    async def run() -> str:
        mine, other, address = free_addresses(3)
        group = one(listen=mine, contact=other, status=address)
        entering = asyncio.create_task(group.__aenter__())
        await until(lambda: group.is_entered)
        shown = await asyncio.to_thread(show, f"http://{address}/", tmp_path, time_ms=2_000)
        entering.cancel()
        await asyncio.gather(entering, return_exceptions=True)
        return shown

    shown = asyncio.run(run())
    assert re.search(r'<h1 id="title">g: 127.0.0.1:\d+<', shown)
    assert re.search(r'id="summary"[^>]*>joining: waiting for 127.0.0.1:\d+ \([^)]*\)<', shown)
    assert 'id="verdict" class="bad">this member is not in the group<' in shown


IN_A_PHONE = """<script>
if (top === window) document.body.innerHTML = '<iframe src="/" style="width: 390px; height: 3000px"></iframe>';
else setInterval(() => {
  const tables = [...document.querySelectorAll(".wide")];
  top.document.body.dataset.rows = document.querySelectorAll("#journals tr").length;
  top.document.body.dataset.cut = tables.filter(one => one.scrollWidth > one.clientWidth).length;
}, 100);
</script>"""


def test_a_phone_cuts_no_table_of_a_small_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = status._page()
    monkeypatch.setattr(status, "_page", lambda: page + IN_A_PHONE.encode())

    async def run() -> str:
        (address,) = free_addresses(1)
        async with groups_of(3, each=lambda place: {"journal": tmp_path / f"{place}.journal"}) as groups:
            for group in groups:
                await group.multicast(bytes(100_000))
            async with StatusServer(groups[0], address):
                return await asyncio.to_thread(show, f"http://{address}/", tmp_path, time_ms=4_000)

    shown = asyncio.run(run())
    assert 'data-rows="3"' in shown
    assert 'data-cut="0"' in shown


def page_of_rank_3(tmp_path: Path, **settings: Any) -> str:
    """What a member of eight shows after a message."""

    async def run() -> str:
        (address,) = free_addresses(1)
        async with groups_of(8, **settings) as groups, StatusServer(groups[3], address):
            await (await groups[2].multicast(b"x")).stable(20)
            return await asyncio.to_thread(show, f"http://{address}/", tmp_path, time_ms=2_000)

    return asyncio.run(run())


def test_the_page_draws_a_star(tmp_path: Path) -> None:
    page = page_of_rank_3(tmp_path, data="star")
    # Messages go through 0; the other links are those of the cube, for stability and failure detection.
    assert links_of(page, "eager") == {"0-3"}
    assert links_of(page, "lazy") >= {"1-3", "2-3", "3-7"}
    assert {"0-5", "0-6", "0-7", "0-1", "4-5"} <= links_of(page, "other")


def test_the_page_draws_the_mesh_of_a_small_group(tmp_path: Path) -> None:
    page = page_of_rank_3(tmp_path)
    assert links_of(page, "eager") == {"0-3", "1-3", "2-3", "3-4", "3-5", "3-6", "3-7"}
    assert links_of(page, "lazy") == set()
    assert len(links_of(page, "other")) == 21


def test_the_page_says_that_a_minority_is_blocked(tmp_path: Path) -> None:
    async def run() -> str:
        (address,) = free_addresses(1)
        async with groups_of(3) as (one, two, three), StatusServer(three, address):
            await vanish(one)
            await vanish(two)
            await until(lambda: three.is_blocked)
            return await asyncio.to_thread(show, f"http://{address}/", tmp_path, time_ms=2_000)

    page = asyncio.run(run())
    assert "BLOCKED, too few members reachable: view 1, 3 members" in page
    assert nodes_of(page, "me") == {2}
    assert links_of(page, "broken") == {"0-2", "1-2"}

"""Uses that would break documents: callbacks that raise or edit, strange names and values, gaps, cancelled calls."""

from __future__ import annotations

import asyncio
import logging
import random
from contextlib import suppress
from typing import Any

import pytest

pytest.importorskip("pycrdt")
from pycrdt import Array, Doc, Map, Text

from cubecast.contrib.pycrdt import Documents
from cubecast.contrib.pycrdt_content import DEPTH_MAX
from cubecast.contrib.pycrdt_document import Document
from cubecast.errors import LocalProtocolError
from cubecast.live.local import free_addresses
from tests.contrib.test_pycrdt import (
    Change,
    append,
    content_of,
    documents_of,
    random_change,
    settle,
)
from tests.live.members import WAIT_S, quick, until

pytestmark = pytest.mark.live


async def both_have(text: str, *pages: Document) -> None:
    await until(lambda: all("text" in page.doc.keys() and str(page.doc["text"]) == text for page in pages))  # noqa: SIM118


@pytest.mark.parametrize("name", [5, None, "", "\ud800", "x" * 1025])
def test_what_is_no_name_of_a_document_is_refused_in_one_line(name: Any) -> None:
    with pytest.raises(LocalProtocolError, match=r"^document .*"):
        Documents().document(name)


def test_an_observer_that_raises_costs_neither_the_edit_nor_those_that_follow(caplog: pytest.LogCaptureFixture) -> None:
    def fails(_event: object) -> None:
        raise ValueError("in the observer")

    async def run() -> None:
        async with documents_of(2) as (first, second):
            page, other = first.document("page"), second.document("page")
            await page.edit(append("1"))
            await both_have("1", other)
            other.doc.observe(fails)
            await page.edit(append("2"))
            await both_have("12", other)
            with pytest.raises(ExceptionGroup):
                await other.edit(append("taken back "))
            await other.edit(append("3"))
            await page.edit(append("4"))
            await settle([first, second])
            assert sorted(str(page.doc["text"])) == ["1", "2", "3", "4"]
            assert str(page.doc["text"]) == str(other.doc["text"])

    asyncio.run(run())
    assert "callback failed event=observed document=page" in caplog.text


def test_a_callback_that_changes_the_new_document_is_called_once_and_its_change_rolled_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def run() -> None:
        async with documents_of(2) as (first, second):
            page, other = first.document("page"), second.document("page")
            await page.edit(append("1"))
            await both_have("1", other)
            calls: list[str] = []

            def meddles(doc: Doc[Any]) -> None:
                calls.append("meddles")
                doc["text"].insert(0, "secretly ")

            other.on_replaced(meddles)
            other.on_replaced(lambda doc: calls.append(str(doc["text"])))
            await other.squash()
            assert calls == ["meddles", "1"]
            await page.edit(append("2"))
            await both_have("12", page, other)

    asyncio.run(run())
    assert "changed outside of edit()" in caplog.text


@pytest.mark.parametrize("order", [(2, 0), (1, 0), (3, 0)])
def test_an_update_whose_past_is_missing_is_refused_and_everybody_sees_the_same(order: tuple[int, ...]) -> None:
    updates: list[bytes] = []
    browser: Doc[Any] = Doc()
    browser.observe(lambda event: updates.append(event.update))
    text = browser.get("text", type=Text)
    for word in ("one ", "two ", "three "):
        text += word
    del text[4:8]

    def applied(update: bytes) -> Change:
        def change(doc: Doc[Any]) -> None:
            doc.get("text", type=Text)
            doc.apply_update(update)

        return change

    async def run() -> None:
        async with documents_of(2) as (first, second):
            page, other = first.document("page"), second.document("page")
            with pytest.raises(LocalProtocolError, match="depends on operations that 'page' does not have"):
                await page.edit(applied(updates[order[0]]))
            await other.edit(applied(updates[order[1]]))
            await both_have("one ", page, other)
            await page.edit(applied(browser.get_update()))
            await both_have("one three ", page, other)

    asyncio.run(run())


@pytest.mark.parametrize("value", [1 << 80, {1: 2}, "\ud800"])
def test_a_value_that_pycrdt_cannot_take_is_an_error_that_programs_catch(value: Any) -> None:
    async def run() -> None:
        async with documents_of(2) as (documents, _):
            page = documents.document("page")
            await page.edit(append("kept"))
            with pytest.raises(LocalProtocolError, match="pycrdt failed in a change of 'page'"):
                await page.edit(lambda doc: doc.get("array", type=Array).append(value))
            await page.edit(append(", and on"))
            await both_have("kept, and on", page)

    asyncio.run(run())


@pytest.mark.parametrize("is_shared", [True, False])
def test_content_that_is_nested_too_deeply_keeps_its_history(is_shared: bool, caplog: pytest.LogCaptureFixture) -> None:
    def nest(doc: Doc[Any]) -> None:
        inner = doc.get("map", type=Map)
        value: list[Any] = []
        for _ in range(5 * DEPTH_MAX):
            value = [value]
            if is_shared:
                inner["x"] = Map()
                inner = inner["x"]
        if not is_shared:
            inner["x"] = value

    async def run() -> None:
        async with documents_of(2) as (first, second):
            page, other = first.document("page"), second.document("page")
            await page.edit(nest)
            async with asyncio.timeout(WAIT_S):
                await page.squash()
            await until(lambda: other.epoch == 1)
            await other.edit(append("on"))
            await both_have("on", page, other)

    asyncio.run(run())
    assert f"nested more than {DEPTH_MAX} levels" in caplog.text


def test_an_edit_after_the_member_has_left_changes_nothing() -> None:
    async def run() -> None:
        async with documents_of(2) as (documents, _):
            page = documents.document("page")
            await page.edit(append("kept"))
            await documents.group.leave()
            with pytest.raises(LocalProtocolError, match="left"):
                await page.edit(append(", lost"))
            assert str(page.doc["text"]) == "kept"

    asyncio.run(run())


@pytest.mark.parametrize("is_cancelled", [True, False])
def test_an_edit_that_waits_for_a_member_that_never_joins_fails(is_cancelled: bool) -> None:
    async def run() -> None:
        documents = Documents()
        editing = asyncio.create_task(documents.document("page").edit(append("x")))
        own, nobody = free_addresses(2)
        options: dict[str, Any] = {"contact": nobody, "plaintext": True, "settings": quick(join_timeout_s=0.3)}
        with pytest.raises((LocalProtocolError, TimeoutError)):
            async with asyncio.timeout(0.1 if is_cancelled else None), documents.join("g", listen=own, **options):
                pass
        with pytest.raises(LocalProtocolError, match="left"):
            await asyncio.wait_for(editing, WAIT_S)

    asyncio.run(run())


@pytest.mark.parametrize("seed", range(2))
def test_calls_that_are_cancelled_at_any_moment_lose_and_repeat_nothing(seed: int) -> None:
    async def call(page: Document, draw: random.Random) -> None:
        for _ in range(80):
            work = page.squash() if draw.random() < 0.05 else page.edit(random_change(draw))
            task = asyncio.create_task(work)
            for _ in range(draw.randrange(5)):
                await asyncio.sleep(0)
            if draw.random() < 0.5:
                await asyncio.sleep(draw.random() * 0.003)
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def run() -> None:
        async with documents_of(3, squash_bytes=(None, 400)[seed]) as replicas:
            pages = [one.document("page") for one in replicas]
            draws = [random.Random(f"{seed} {number}") for number in range(9)]
            await asyncio.gather(*(call(pages[n % 3], draw) for n, draw in enumerate(draws)))
            await settle(replicas)
            contents = [content_of(page) for page in pages]
            assert contents[0] == contents[1] == contents[2]
            assert not any(page.own for page in pages)
            assert not any(one._waiting for one in replicas)

    asyncio.run(run())


def test_an_edit_in_another_event_loop_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        async with documents_of(2) as (documents, _):
            page = documents.document("page")
            for work in (page.edit(append("x")), page.squash()):
                with pytest.raises(LocalProtocolError, match="joined in another event loop"):
                    await asyncio.to_thread(asyncio.run, work)

    with caplog.at_level(logging.ERROR):
        asyncio.run(run())
    assert not caplog.records

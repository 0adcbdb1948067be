"""Documents of members in this process, over real sockets: convergence, squashing, newcomers, exclusions, mistakes."""

from __future__ import annotations

import asyncio
import gc
import logging
import random
import weakref
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pycrdt")
from pycrdt import Array, Doc, Map, Text

from cubecast.contrib.pycrdt import Documents
from cubecast.contrib.pycrdt_content import describe
from cubecast.contrib.pycrdt_document import Document
from cubecast.errors import ExcludedError, LocalProtocolError
from cubecast.live.local import free_addresses
from tests.live.members import WAIT_S, founded, quick, until, vanish

pytestmark = pytest.mark.live

ROOTS = {"text": "text", "map": "map", "array": "array"}
Change = Callable[[Doc[Any]], object]


@asynccontextmanager
async def documents_of(
    members: int, squash_bytes: int | None = None, **settings: Any
) -> AsyncIterator[list[Documents]]:
    """Members that found a group together."""
    replicas = [Documents(squash_bytes=squash_bytes) for _ in range(members)]
    async with founded(replicas, "documents", **settings):
        yield replicas


@asynccontextmanager
async def newcomer_to(other: Documents) -> AsyncIterator[Documents]:
    documents = Documents(squash_bytes=None)
    async with documents.join(
        "documents", listen=free_addresses(1)[0], contact=other.group.address, plaintext=True, settings=quick()
    ):
        yield documents


def append(word: str) -> Change:
    def change(doc: Doc[Any]) -> None:
        text = doc.get("text", type=Text)
        text.insert(len(text), word)

    return change


def random_change(draw: random.Random) -> Change:
    """Insert, delete, format, set, remove: deletions are as frequent as insertions."""

    def change(doc: Doc[Any]) -> None:
        text, shared, array = doc.get("text", type=Text), doc.get("map", type=Map), doc.get("array", type=Array)
        length = len(text)
        match draw.randrange(7):
            case 0 | 1 if length:
                at = draw.randrange(length)
                del text[at : min(length, at + draw.randrange(1, 12))]
            case 2 if length:
                at = draw.randrange(length)
                text.format(at, min(length, at + 5), {draw.choice("bi"): draw.random() < 0.5})
            case 3:
                shared[draw.choice("xyz")] = Text(f"{draw.random()}") if draw.random() < 0.3 else draw.randrange(99)
            case 4 if len(array) > 3:
                del array[draw.randrange(len(array))]
            case 5:
                array.insert(draw.randrange(len(array) + 1), draw.randrange(99))
            case _:
                text.insert(draw.randrange(length + 1), draw.choice(["a", "few ", "more words "]))

    return change


def content_of(document: Document) -> Any:
    doc: Doc[Any] = Doc()
    doc.apply_update(document.doc.get_update())
    return describe(doc, ROOTS)


async def settle(replicas: list[Documents]) -> None:
    """Every member has processed every edit, and no squash is under way."""
    for one in replicas:
        message = await one.document("end").edit(append("."))
        assert message is not None
        await message.stable(WAIT_S, level="processed")
    pages = [one.document("page") for one in replicas]
    await until(lambda: not any(page.is_ending_epoch for page in pages) and len({page.epoch for page in pages}) == 1)


@pytest.mark.parametrize("seed", range(3))
def test_concurrent_edits_converge_while_the_history_is_squashed(seed: int, caplog: pytest.LogCaptureFixture) -> None:
    async def edit(page: Document, draw: random.Random) -> None:
        for _ in range(250):
            await page.edit(random_change(draw))
            if draw.random() < 0.05:
                await asyncio.sleep(0.003)

    async def run() -> None:
        async with documents_of(3, squash_bytes=500) as replicas:
            pages = [one.document("page") for one in replicas]
            await asyncio.gather(*(edit(page, random.Random(f"{seed} {n}")) for n, page in enumerate(pages)))
            async with newcomer_to(replicas[1]) as late:
                await settle([*replicas, late])
                contents = [content_of(page) for page in (*pages, late.document("page"))]
                assert contents[0] == contents[1] == contents[2] == contents[3]
                assert pages[0].epoch > 5
                await late.document("page").squash()
                await settle([*replicas, late])
                sizes = {len(page.doc.get_update()) for page in pages}
                assert max(sizes) < 3000

    caplog.set_level(logging.WARNING)
    asyncio.run(run())
    assert not [one for one in caplog.records if one.name == "cubecast.contrib.pycrdt"]


def test_edits_in_turn_are_those_of_a_plain_string_across_epochs() -> None:
    async def run() -> None:
        draw = random.Random(5)
        async with documents_of(3) as replicas:
            pages = [one.document("page") for one in replicas]
            expected = ""
            for turn in range(60):
                page = draw.choice(pages)
                at = draw.randrange(len(expected) + 1)
                end = min(len(expected), at + draw.randrange(4))
                word = draw.choice(["", "one ", "two ", "three "]) or "x"

                def change(doc: Doc[Any], at: int = at, end: int = end, word: str = word) -> None:
                    doc.get("text", type=Text)[at:end] = word

                await page.edit(change)
                expected = expected[:at] + word + expected[end:]
                if turn % 10 == 9:
                    await draw.choice(pages).squash()
                await until(
                    lambda: all("text" in one.doc.keys() and str(one.doc["text"]) == expected for one in pages)  # noqa: B023, SIM118
                )
            assert pages[0].epoch == 6

    asyncio.run(run())


def test_edits_that_do_not_wait_for_the_next_epoch_are_lost(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Without rule 2 of the proof: an edit of the old epoch reaches a member in the next one."""
    monkeypatch.setattr(Document, "is_ending_epoch", False)

    async def edit(page: Document) -> None:
        for turn in range(300):
            await page.edit(append(f"{turn} "))

    async def run() -> None:
        async with documents_of(3, squash_bytes=300) as replicas:
            await asyncio.gather(*(edit(one.document("page")) for one in replicas))
            await asyncio.sleep(0.2)

    with suppress(AssertionError):  # an own edit that was skipped is still expected
        asyncio.run(run())
    assert "edited a past epoch" in caplog.text


def test_the_document_of_the_old_epoch_is_freed() -> None:
    async def run() -> None:
        async with documents_of(2) as (documents, _):
            page = documents.document("page")
            await page.edit(append("x"))
            old = weakref.ref(page.doc)
            await page.squash()
            await page.edit(append("y"))
            gc.collect()
            assert old() is None

    asyncio.run(run())


def test_a_newcomer_in_the_middle_of_a_squash_continues_with_it() -> None:
    async def run() -> None:
        async with documents_of(2) as (first, second):
            await first.document("page").edit(append("before "))
            page = first.document("page")
            await until(lambda: "text" in second.document("page").doc.keys())  # noqa: SIM118
            squashing = asyncio.create_task(page.squash())
            async with newcomer_to(second) as late:
                await squashing
                await late.document("page").edit(append("after"))
                await until(lambda: str(page.doc["text"]) == "before after")
                assert late.document("page").epoch == page.epoch == 1

    asyncio.run(run())


def test_the_state_for_newcomers_has_no_edit_that_was_not_delivered() -> None:
    """It would be there and nowhere else if this member crashed now."""

    async def run() -> None:
        async with documents_of(2) as (first, _):
            page = first.document("page")
            await (await page.edit(append("delivered"))).stable(WAIT_S, level="processed")  # type: ignore[union-attr]
            page.change(append(", not sent"))
            other = Documents()
            other.restore(first.snapshot())
            assert str(page.doc["text"]) == "delivered, not sent"
            assert str(other.document("page").doc["text"]) == "delivered"

    asyncio.run(run())


def test_an_excluded_member_gets_the_documents_of_the_group_and_edits_on() -> None:
    async def run() -> None:
        async with documents_of(3) as replicas:
            pages = [one.document("page") for one in replicas]
            await (await pages[0].edit(append("kept "))).stable(WAIT_S, level="processed")  # type: ignore[union-attr]
            group = replicas[2].group
            driver = group._driver
            assert driver is not None
            driver.call(lambda _now_ns: driver.member._go_out("as if excluded"))
            await asyncio.gather(pages[0].edit(append("meanwhile ")), pages[0].squash())
            await pages[2].edit(append("again"))
            await until(lambda: {str(page.doc["text"]) for page in pages} == {"kept meanwhile again"})

    asyncio.run(run())


def test_an_edit_that_waited_through_an_exclusion_is_ignored_by_all_and_reported() -> None:
    """It was made upon documents that are gone; its group has squashed them since."""

    async def run() -> None:
        async with documents_of(3, window_messages=4, round_every_s=0.5) as replicas:
            pages = [one.document("page") for one in replicas]
            await (await pages[0].edit(append("kept "))).stable(WAIT_S, level="processed", hurry=True)  # type: ignore[union-attr]
            editing = [asyncio.create_task(pages[2].edit(append(f"lost{n} "))) for n in range(60)]
            driver = replicas[2].group._driver
            assert driver is not None
            while not driver._queue:  # an edit is made, and waits for the window
                await asyncio.sleep(0)
            driver.call(lambda _now_ns: driver.member._go_out("as if excluded"))
            results = await asyncio.gather(*editing, return_exceptions=True)
            assert any(isinstance(one, ExcludedError) for one in results)
            await settle(replicas)
            texts = {str(page.doc["text"]) for page in pages}
            assert len(texts) == 1

    asyncio.run(run())


def test_a_process_continues_from_its_journal(tmp_path: Path) -> None:
    async def run() -> None:
        address = free_addresses(1)[0]
        options: dict[str, Any] = {"listen": address, "plaintext": True, "journal": tmp_path / "j", "settings": quick()}
        first = Documents()
        async with first.join("documents", found=True, **options):
            page = first.document("page")
            await page.edit(append("one "))
            await page.squash()
            await (await page.edit(append("two"))).stable(WAIT_S, level="processed")  # type: ignore[union-attr]
            await vanish(first.group)
        second = Documents()
        async with second.join("documents", **options):
            page = second.document("page")
            await page.edit(append("!"))
            assert str(page.doc["text"]) == "one two!"
            assert page.epoch == 1

    asyncio.run(run())


# Mistakes.


async def _alone(work: Callable[[Documents], Any], **settings: Any) -> None:
    documents = Documents()
    async with documents.join(
        "alone", listen=free_addresses(1)[0], found=True, plaintext=True, settings=quick(**settings)
    ):
        await documents.document("page").edit(append("kept"))
        await work(documents)
        page = documents.document("page")
        assert str(page.doc["text"]) == "kept"
        await page.edit(append(", and goes on"))
        await until(lambda: page.history_bytes > 0 and not page.own)
        assert str(page.doc["text"]) == "kept, and goes on"


def test_a_change_that_fails_is_taken_back() -> None:
    def fails(doc: Doc[Any]) -> None:
        doc["text"].insert(0, "half ")
        raise KeyError("no")

    async def is_async(doc: Doc[Any]) -> None:
        doc["text"].insert(0, "later")

    async def work(documents: Documents) -> None:
        page = documents.document("page")
        replaced: list[Doc[Any]] = []
        page.on_replaced(replaced.append)
        with pytest.raises(KeyError, match="no"):
            await page.edit(fails)
        assert replaced == [page.doc]
        with pytest.raises(LocalProtocolError, match="an ordinary function"):
            await page.edit(is_async)
        assert await page.edit(lambda doc: None) is None

    asyncio.run(_alone(work))


def test_a_root_has_one_kind() -> None:
    async def run() -> None:
        async with documents_of(2) as (first, second):
            page, other = first.document("page"), second.document("page")
            other.doc.get("text", type=Array)
            await page.edit(append("text"))
            await until(lambda: other.history_bytes)
            with pytest.raises(LocalProtocolError, match="'text' of 'page' is of kind text, not array"):
                await other.edit(lambda doc: doc.get("text", type=Array).append(1))
            await other.edit(append("!"))
            await until(lambda: str(page.doc["text"]) == str(other.doc["text"]) == "text!")

    asyncio.run(run())


def test_a_change_outside_of_edit_is_refused_and_taken_back() -> None:
    async def work(documents: Documents) -> None:
        page = documents.document("page")
        with pytest.raises(ExceptionGroup) as caught:
            page.doc["text"].insert(0, "secretly ")
        assert "changed outside of edit()" in str(caught.value.exceptions[0])

    asyncio.run(_alone(work))


def test_an_edit_larger_than_a_message_is_refused_and_taken_back() -> None:
    async def work(documents: Documents) -> None:
        with pytest.raises(LocalProtocolError, match="larger than payload_bytes_max=4096"):
            await documents.document("page").edit(append("x" * 5000))

    asyncio.run(_alone(work, payload_bytes_max=4096))


def test_what_cannot_be_squashed_keeps_its_history(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        async with documents_of(2) as (first, second):
            page, other = first.document("page"), second.document("page")
            await page.edit(append("kept"))
            foreign: Doc[Any] = Doc()
            foreign["unknown"] = Text("of whatever type")
            await page.edit(lambda doc: doc.apply_update(foreign.get_update()))
            await other.squash()
            await until(lambda: page.epoch == other.epoch == 1)
            await page.edit(append(" on"))
            await until(lambda: str(other.doc["text"]) == "kept on")

    asyncio.run(run())
    assert "the type of the root 'unknown' is not known" in caplog.text


def test_documents_join_once_and_edit_only_in_a_group() -> None:
    async def run() -> None:
        documents = Documents()
        with pytest.raises(LocalProtocolError, match="have not joined a group"):
            documents.group  # noqa: B018
        with pytest.raises(LocalProtocolError, match="the documents are the state"):
            async with documents.join("g", listen="127.0.0.1:1", snapshot=bytes):
                pass
        async with documents.join("g", listen=free_addresses(1)[0], found=True, plaintext=True):
            with pytest.raises(LocalProtocolError, match="already joined a group"):
                async with documents.join("g", listen="127.0.0.1:1"):
                    pass
        with pytest.raises(LocalProtocolError, match="left"):
            await documents.document("page").edit(append("x"))

    asyncio.run(run())

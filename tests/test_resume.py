import asyncio
import logging
from collections.abc import Callable

import pytest

from visavis import resume
from visavis.config import ResumeConfig, SessionConfig
from visavis.history import Item, TextContent
from visavis.ids import CallId
from visavis.resume import Keeping, Resumption, new_token, place_of
from visavis.snapshot import Snapshot
from visavis.store import MemoryStore, StoreError
from visavis.unsaid import Unsaid

CALL = CallId("0123456789abcdef01234567", 3, "north")


class Talk:
    """A conversation of which more and more is said."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.unsaid: Unsaid | None = None

    def snapshot(self) -> Snapshot:
        items = (Item(f"i{n}", "user", (TextContent(text),)) for n, text in enumerate(self.said))
        return Snapshot(tuple(items), SessionConfig(), self.unsaid)


class Flaky(MemoryStore):
    """Fails when told to."""

    def __init__(self) -> None:
        super().__init__(1 << 20)
        self.fails = False
        self.puts = 0

    async def put(self, name: str, data: bytes, ttl_s: float) -> None:
        if self.fails:
            raise StoreError("gone")
        self.puts += 1
        await super().put(name, data, ttl_s)

    async def look(self, name: str) -> bytes | None:
        if self.fails:
            raise StoreError("gone")
        return await super().look(name)

    async def take(self, name: str) -> bool:
        if self.fails:
            raise StoreError("gone")
        return await super().take(name)


def words(snapshot: Snapshot | None) -> list[str] | None:
    if snapshot is None:
        return None
    return [content.text for item in snapshot.items for content in item.content]  # type: ignore[union-attr]


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - nobody tells
        await asyncio.sleep(0.001)


class Kept:
    """One call that is kept."""

    def __init__(self, store: Flaky, keep_s: float = 60.0) -> None:
        self.store = store
        self.talk = Talk()
        self.token = new_token(CALL)
        self.resumption = Resumption(ResumeConfig(keep_s=keep_s), store)
        self.keeping: Keeping = self.resumption.keep(self.token)
        self.keeping.follow(self.talk.snapshot)
        self.running = asyncio.create_task(self.keeping.run())

    async def say(self, text: str) -> None:
        before = self.store.puts
        self.talk.said.append(text)
        self.keeping.note_change()
        await until(lambda: self.store.puts > before)

    async def end(self, *, forget: bool = False) -> None:
        self.running.cancel()
        await asyncio.wait({self.running})
        await self.keeping.aclose(forget=forget)

    async def come_back(self) -> list[str] | None:
        found = words(await self.resumption.look(self.token))
        if found is not None:
            assert await self.resumption.claim(self.token)
        return found


def test_a_token_tells_where_its_call_lives_and_nothing_else_does() -> None:
    assert place_of(new_token(CALL)) == CALL
    assert new_token(CALL) != new_token(CALL)
    for text in ("", "x", "rtc_.x", ".", "é" * 300):
        assert place_of(text) is None


async def test_a_caller_comes_back_to_what_was_said_before_the_machine_died() -> None:
    kept = Kept(Flaky())
    await kept.say("one")
    await kept.say("two")
    assert await kept.come_back() == ["one", "two"]
    assert await kept.come_back() is None
    await kept.end()


async def test_what_was_said_last_is_kept_at_the_end() -> None:
    kept = Kept(Flaky())
    kept.talk.said.append("last")
    await kept.end()
    assert await kept.come_back() == ["last"]


async def test_who_hangs_up_is_forgotten() -> None:
    kept = Kept(Flaky())
    await kept.say("one")
    await kept.end(forget=True)
    assert await kept.come_back() is None
    kept = Kept(Flaky())
    await kept.end(forget=True)
    assert await kept.come_back() is None


async def test_of_a_call_in_which_nothing_was_said_nothing_is_kept() -> None:
    kept = Kept(Flaky())
    kept.keeping.note_change()
    await kept.end()
    assert not len(kept.store)


async def test_a_call_whose_caller_went_on_elsewhere_is_told_and_leaves_nothing() -> None:
    kept = Kept(Flaky())
    await kept.say("one")
    assert await kept.come_back() == ["one"]
    kept.talk.said.append("to nobody")
    kept.keeping.note_change()
    await kept.running
    await kept.end()
    assert not len(kept.store)


async def test_a_store_that_was_emptied_is_filled_again() -> None:
    kept = Kept(Flaky())
    await kept.say("one")
    await kept.store.aclose()
    await kept.say("two")
    await kept.end()
    assert await kept.come_back() == ["one", "two"]


async def test_what_is_stored_stays_stored_while_the_call_lives() -> None:
    kept = Kept(Flaky(), keep_s=0.03)
    await kept.say("one")
    renewed = kept.store.puts + 5
    await until(lambda: kept.store.puts >= renewed)
    assert await kept.come_back() == ["one"]
    await kept.end()


async def test_while_an_answer_is_heard_what_is_kept_follows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that dies in the middle of it cannot say how far it was."""
    monkeypatch.setattr(resume, "_HEARD_S", 0.001)
    kept = Kept(Flaky())
    kept.talk.unsaid = Unsaid(True, "one two three", True)
    await kept.say("one")
    kept.talk.unsaid = Unsaid(True, "two three", True)
    renewed = kept.store.puts + 2
    await until(lambda: kept.store.puts >= renewed)
    found = await kept.resumption.look(kept.token)
    assert found is not None
    assert found.unsaid == kept.talk.unsaid
    kept.talk.unsaid = None
    await kept.end()


async def test_a_store_that_fails_is_told_of_once_and_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    kept = Kept(Flaky())
    kept.store.fails = True
    for text in ("one", "two"):
        kept.talk.said.append(text)
        kept.keeping.note_change()
        await until(lambda: len(caplog.records) > 0)
    assert await kept.come_back() is None
    kept.store.fails = False
    await kept.say("three")
    kept.store.fails = True
    await kept.end()
    kept.store.fails = False
    assert await kept.come_back() == ["one", "two", "three"]
    warnings = [record.message for record in caplog.records if record.levelno == logging.WARNING]
    assert sum("is not kept" in text for text in warnings) == 2
    assert sum("cannot go on" in text for text in warnings) == 1


async def test_what_cannot_be_read_is_no_conversation(caplog: pytest.LogCaptureFixture) -> None:
    kept = Kept(Flaky())
    await kept.say("one")
    (name,) = kept.store._kept
    await kept.store.put(name, b"garbage", 60)
    assert await kept.come_back() is None
    assert "cannot be read" in caplog.text
    await kept.end()


async def test_a_token_can_be_tried_until_it_is_claimed() -> None:
    kept = Kept(Flaky())
    await kept.say("one")
    await kept.end()
    for _ in range(2):
        assert words(await kept.resumption.look(kept.token)) == ["one"]
    assert await kept.resumption.claim(kept.token)
    assert not await kept.resumption.claim(kept.token)
    assert await kept.resumption.look(kept.token) is None
    kept.store.fails = True
    assert await kept.resumption.claim(kept.token)
    await kept.resumption.aclose()


async def test_a_server_that_keeps_nothing_keeps_nothing() -> None:
    kept = Kept(Flaky(), keep_s=0)
    kept.talk.said.append("one")
    kept.keeping.note_change()
    await kept.end()
    assert await kept.come_back() is None
    assert not len(kept.store)


@pytest.mark.parametrize("token", [None, "", "x", f"{CALL}", f"{CALL}.unknown", "é" * 300])
async def test_other_tokens_open_nothing(token: str | None) -> None:
    assert await Resumption(ResumeConfig(), MemoryStore(100)).look(token) is None

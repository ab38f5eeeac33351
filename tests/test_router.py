"""Several engines as one: who answers, who is passed over, and what each may carry."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import replace
from itertools import count, islice
from pathlib import Path

import pytest

from visavis.config import RouterConfig
from visavis.engine import (
    AudioDelta,
    Delta,
    Done,
    Engine,
    Message,
    Request,
    Routed,
    Sent,
    TextDelta,
    TextPart,
    TranscriptDelta,
)
from visavis.engine.pool import LockPool
from visavis.engine.router import Entry, RouterEngine
from visavis.engine.scripted import Fault, Reply, ScriptedEngine
from visavis.errors import EngineBusy, EngineError, EngineLost, EngineRefused

ASK = Request("call-1", (Message("user", (TextPart("Hi."),)),))
FINE = Reply("Fine.")
LOST = Reply(fault=Fault.LOST)
BUSY = Reply(fault=Fault.BUSY)
REFUSED = Reply(fault=Fault.REFUSED)
HANG = Reply(fault=Fault.HANG)


def entry(label: str, engine: Engine, places: int = 8, queue: int = 8) -> Entry:
    return Entry(label, engine, places, queue)


def says(*replies: Reply) -> ScriptedEngine:
    return ScriptedEngine(replies)


class Raising:
    """Gives some deltas, then an error, over and over."""

    def __init__(self, error: Callable[[], EngineError], *deltas: Delta) -> None:
        self.requests = 0
        self._error = error
        self._deltas = deltas

    async def respond(self, request: Request) -> AsyncGenerator[Delta, None]:
        self.requests += 1
        for delta in self._deltas:
            yield delta
        raise self._error()

    async def ready(self) -> bool:
        return False

    async def aclose(self) -> None:
        pass


class Gated:
    """Answers once it is let go; counts how many are answered at once."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.live = 0
        self.most = 0
        self.asked: list[str] = []

    async def respond(self, request: Request) -> AsyncGenerator[Delta, None]:
        self.live += 1
        self.most = max(self.most, self.live)
        self.asked.append(request.call_id)
        try:
            await self.gate.wait()
            yield TextDelta("Done waiting.")
            yield Done()
        finally:
            self.live -= 1

    async def ready(self) -> bool:
        return True

    async def aclose(self) -> None:
        self.gate.set()


def router(*entries: Entry, candidate: Entry | None = None, **settings: float) -> RouterEngine:
    return RouterEngine(entries, candidate, RouterConfig(**settings))  # type: ignore[arg-type]


async def take(engine: Engine, request: Request = ASK, taken: list[Delta] | None = None) -> list[Delta]:
    """Take a whole response, into `taken` if given."""
    taken = [] if taken is None else taken
    async with asyncio.timeout(20), aclosing(engine.respond(request)) as deltas:
        async for delta in deltas:
            taken.append(delta)
    return taken


def text(deltas: list[Delta]) -> str:
    return "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))


def call(number: int) -> Request:
    return Request(f"call-{number}", ASK.messages)


async def settle() -> None:
    """Let all that can run without waiting run."""
    for _ in range(20):
        await asyncio.sleep(0)


# Who answers.


async def test_the_first_engine_answers_and_is_named_before_its_first_delta() -> None:
    second = says(FINE)
    engine = router(entry("gpu", says(Reply("First."))), entry("hosted", second))
    deltas = await take(engine)
    assert deltas[0] == Routed("gpu")
    assert text(deltas) == "First."
    assert isinstance(deltas[-1], Done)
    assert not second.requests
    assert engine.counts() == {("gpu", "answered", ""): 1}


@pytest.mark.parametrize(
    ("fault", "reason"),
    [(LOST, "lost"), (BUSY, "busy"), (REFUSED, "refused")],
    ids=["lost", "busy", "refused"],
)
async def test_the_next_engine_answers_when_the_first_fails_before_its_first_delta(
    fault: Reply, reason: str
) -> None:
    engine = router(entry("gpu", says(fault)), entry("hosted", says(FINE)))
    deltas = await take(engine)
    assert deltas[0] == Routed("hosted", f"gpu: {reason}")
    assert text(deltas) == "Fine."
    assert engine.counts() == {
        ("gpu", "passed over", reason): 1,
        ("hosted", "answered", "fallback"): 1,
    }


async def test_an_engine_that_breaks_off_within_its_answer_is_not_replaced() -> None:
    broken = Reply("One two three four.", chunk_s=0.3, fault=Fault.LOST, fault_after_s=0.3)
    other = says(FINE)
    engine = router(entry("gpu", says(broken)), entry("hosted", other))
    taken: list[Delta] = []
    with pytest.raises(EngineLost, match="broke off"):
        await take(engine, taken=taken)
    assert any(isinstance(delta, AudioDelta) for delta in taken)
    assert not other.requests
    assert engine.counts() == {("gpu", "broken", "lost"): 1}


async def test_what_commits_to_no_engine_is_passed_on_and_another_may_still_answer() -> None:
    first = Raising(lambda: EngineLost("gone"), Sent(1.0), TranscriptDelta("hello"))
    second = says(Reply("Fine.", transcript="hallo"))
    deltas = await take(router(entry("gpu", first), entry("hosted", second)))
    assert deltas[:3] == [Sent(1.0), TranscriptDelta("hello"), Routed("hosted", "gpu: lost")]
    assert not any(isinstance(delta, TranscriptDelta) for delta in deltas[3:])
    assert text(deltas) == "Fine."


async def test_an_engine_that_ends_without_done_is_lost() -> None:
    class Mute(Raising):
        async def respond(self, request: Request) -> AsyncGenerator[Delta, None]:
            return
            yield

    engine = router(entry("gpu", Mute(EngineLost)), entry("hosted", says(FINE)))
    assert (await take(engine))[0] == Routed("hosted", "gpu: lost")


async def test_the_last_error_is_raised_and_has_all_of_them_as_its_cause() -> None:
    engine = router(entry("gpu", says(LOST)), entry("laptop", says(BUSY)))
    with pytest.raises(EngineBusy, match="no room") as caught:
        await take(engine)
    cause = caught.value.__cause__
    assert isinstance(cause, ExceptionGroup)
    assert [type(error) for error in cause.exceptions] == [EngineLost, EngineBusy]


async def test_a_refusal_is_told_whatever_the_others_lack_since_only_another_request_helps() -> None:
    engine = router(entry("gpu", says(REFUSED)), entry("hosted", says(LOST)), entry("laptop", says(BUSY)))
    with pytest.raises(EngineRefused) as caught:
        await take(engine)
    cause = caught.value.__cause__
    assert isinstance(cause, ExceptionGroup)
    assert [type(error) for error in cause.exceptions] == [EngineRefused, EngineLost, EngineBusy]


async def test_the_error_of_a_single_engine_is_raised_as_it_is() -> None:
    error = EngineLost("gone")
    with pytest.raises(EngineLost) as caught:
        await take(router(entry("gpu", Raising(lambda: error))))
    assert caught.value is error


async def test_an_engine_that_is_slow_is_left_for_another_and_its_work_stopped() -> None:
    slow = says(HANG)
    engine = router(entry("gpu", slow), entry("hosted", says(FINE)), patience_s=0.02)
    assert (await take(engine))[0] == Routed("hosted", "gpu: slow")
    assert (slow.live, slow.abandoned) == (0, 1)


async def test_the_last_engine_is_given_the_time_that_it_takes() -> None:
    last = says(Reply("Late.", first_delay_s=0.1))
    engine = router(entry("gpu", says(LOST)), entry("hosted", last), patience_s=0.01)
    assert text(await take(engine)) == "Late."


async def test_patience_ends_with_the_first_delta() -> None:
    steady = says(Reply("One two three four.", chunk_s=0.3, rtf=0.5))
    engine = router(entry("gpu", steady), entry("hosted", says(FINE)), patience_s=0.4)
    deltas = await take(engine)
    assert deltas[0] == Routed("gpu")
    assert text(deltas) == "One two three four."


# The breaker.


async def test_an_engine_that_fails_in_a_row_is_left_alone() -> None:
    broken = says(LOST)
    engine = router(entry("gpu", broken), entry("hosted", says(FINE)), failures=2, open_s=60)
    reasons = [(await take(engine))[0] for _ in range(4)]
    assert reasons == [
        *[Routed("hosted", "gpu: lost")] * 2,
        *[Routed("hosted", "gpu: left alone")] * 2,
    ]
    assert len(broken.requests) == 2
    assert engine.counts()["gpu", "passed over", "left alone"] == 2


@pytest.mark.parametrize("fault", [BUSY, REFUSED], ids=["busy", "refused"])
async def test_an_engine_that_is_busy_or_refuses_lives_and_is_asked_again(fault: Reply) -> None:
    alive = says(fault)
    engine = router(entry("gpu", alive), entry("hosted", says(FINE)), failures=1, open_s=60)
    for _ in range(3):
        await take(engine)
    assert len(alive.requests) == 3


async def test_an_engine_that_comes_back_is_used_again() -> None:
    recovering = says(LOST, Reply("Back."))
    engine = router(entry("gpu", recovering), entry("hosted", says(FINE)), failures=1, open_s=0)
    assert text(await take(engine)) == "Fine."
    assert (await take(engine))[0] == Routed("gpu")


async def test_while_one_request_probes_the_others_go_elsewhere() -> None:
    reviving = Gated()
    broken = Raising(lambda: EngineLost("gone"))

    class Reviving(Raising):
        def respond(self, request: Request) -> AsyncGenerator[Delta, None]:
            return broken.respond(request) if not broken.requests else reviving.respond(request)

    engine = router(
        entry("gpu", Reviving(EngineLost)), entry("hosted", says(FINE)), failures=1, open_s=0, patience_s=20
    )
    await take(engine)
    probe = asyncio.create_task(take(engine))
    await settle()
    assert (await take(engine))[0] == Routed("hosted", "gpu: left alone")
    reviving.gate.set()
    assert (await probe)[0] == Routed("gpu")
    assert (await take(engine))[0] == Routed("gpu")


async def test_a_single_engine_that_was_left_alone_is_tried_all_the_same() -> None:
    engine = router(entry("gpu", says(LOST, Reply("Back."))), failures=1, open_s=60)
    with pytest.raises(EngineLost):
        await take(engine)
    assert text(await take(engine)) == "Back."


async def test_an_engine_left_alone_is_the_last_resort_when_the_others_fail() -> None:
    engine = router(
        entry("gpu", says(LOST, Reply("Back."))), entry("hosted", says(FINE, LOST)), failures=1, open_s=60
    )
    assert text(await take(engine)) == "Fine."
    assert (await take(engine))[0] == Routed("gpu", "gpu: left alone; hosted: lost")


async def test_where_the_only_engine_is_being_tried_others_fail_at_once() -> None:
    gated = Gated()
    broken = Raising(lambda: EngineLost("gone"))

    class Reviving(Raising):
        def respond(self, request: Request) -> AsyncGenerator[Delta, None]:
            return broken.respond(request) if not broken.requests else gated.respond(request)

    engine = router(entry("gpu", Reviving(EngineLost)), failures=1, open_s=60)
    with pytest.raises(EngineLost):
        await take(engine)
    probe = asyncio.create_task(take(engine))
    await settle()
    with pytest.raises(EngineLost, match="being tried"):
        await take(engine)
    gated.gate.set()
    assert text(await probe) == "Done waiting."


async def test_a_probe_that_is_withdrawn_leaves_the_next_request_to_probe() -> None:
    hanging = says(LOST, HANG, Reply("Back."))
    engine = router(entry("gpu", hanging), entry("hosted", says(FINE)), failures=1, open_s=0, patience_s=20)
    await take(engine)
    probe = asyncio.create_task(take(engine))
    await settle()
    probe.cancel()
    await asyncio.gather(probe, return_exceptions=True)
    assert engine.counts()["gpu", "withdrawn", ""] == 1
    assert (await take(engine))[0] == Routed("gpu")


# The candidate.


async def test_a_share_of_the_calls_asks_the_candidate_first_and_keeps_to_it() -> None:
    engine = router(
        entry("gpu", says(FINE)), candidate=entry("new", says(Reply("New."))), candidate_share=0.25
    )
    first = [(await take(engine, call(number)))[0] for number in range(200)]
    again = [(await take(engine, call(number)))[0] for number in range(200)]
    assert again == first
    assert set(first) == {Routed("gpu"), Routed("new", "candidate")}
    assert 30 <= first.count(Routed("new", "candidate")) <= 70


@pytest.mark.parametrize(("share", "label"), [(0.0, "gpu"), (1.0, "new")])
async def test_no_call_or_every_call_may_be_the_candidates(share: float, label: str) -> None:
    engine = router(entry("gpu", says(FINE)), candidate=entry("new", says(FINE)), candidate_share=share)
    assert {(await take(engine, call(number)))[0].engine for number in range(20)} == {label}  # type: ignore[union-attr]


async def test_a_candidate_that_fails_leaves_the_call_to_the_others() -> None:
    engine = router(
        entry("gpu", says(LOST)),
        entry("hosted", says(FINE)),
        candidate=entry("new", says(LOST)),
        candidate_share=1.0,
    )
    assert (await take(engine))[0] == Routed("hosted", "new: lost; gpu: lost")


async def test_the_candidate_is_not_a_fallback() -> None:
    candidate = says(FINE)
    engine = router(entry("gpu", says(LOST)), candidate=entry("new", candidate), candidate_share=0.0)
    with pytest.raises(EngineLost):
        await take(engine)
    assert not candidate.requests


# Places and the queue.


async def test_no_more_than_its_places_are_asked_of_an_engine_at_once_in_order() -> None:
    gated = Gated()
    engine = router(entry("gpu", gated, places=2, queue=8))
    tasks = [asyncio.create_task(take(engine, call(number))) for number in range(6)]
    await settle()
    assert gated.live == 2
    gated.gate.set()
    await asyncio.gather(*tasks)
    assert gated.most == 2
    assert gated.asked == [f"call-{number}" for number in range(6)]


async def test_who_finds_the_queue_full_goes_to_the_next_engine() -> None:
    gated = Gated()
    engine = router(entry("gpu", gated, places=1, queue=1), entry("hosted", says(FINE)), patience_s=20)
    tasks = [asyncio.create_task(take(engine, call(number))) for number in range(2)]
    await settle()
    assert (await take(engine))[0] == Routed("hosted", "gpu: queue full")
    gated.gate.set()
    assert [(await task)[0] for task in tasks] == [Routed("gpu")] * 2


async def test_who_finds_every_queue_full_is_told_that_all_is_busy() -> None:
    gated = Gated()
    engine = router(entry("gpu", gated, places=1, queue=0))
    task = asyncio.create_task(take(engine))
    await settle()
    with pytest.raises(EngineBusy):
        await take(engine)
    gated.gate.set()
    await task


async def test_who_waits_too_long_for_a_place_goes_to_the_next_engine() -> None:
    engine = router(entry("gpu", says(FINE), places=1), entry("hosted", says(FINE)), patience_s=0.4)
    async with aclosing(engine.respond(call(0))) as first:
        assert await anext(first) == Routed("gpu")
        # The first answer is not read on, so that its place stays taken.
        assert (await take(engine, call(1)))[0] == Routed("hosted", "gpu: no place")


async def test_a_request_that_is_cancelled_while_it_waits_leaves_the_queue() -> None:
    gated = Gated()
    engine = router(entry("gpu", gated, places=1, queue=2))
    tasks = [asyncio.create_task(take(engine, call(number))) for number in range(3)]
    await settle()
    tasks[1].cancel()
    await asyncio.gather(tasks[1], return_exceptions=True)
    gated.gate.set()
    await asyncio.gather(tasks[0], tasks[2])
    assert gated.asked == ["call-0", "call-2"]


async def test_an_answer_that_is_closed_gives_its_place_back_and_stops_the_work() -> None:
    scripted = says(Reply("One two three four.", rtf=0.1))
    engine = router(entry("gpu", scripted, places=1, queue=0))
    async with aclosing(engine.respond(ASK)) as deltas:
        async for delta in deltas:
            if isinstance(delta, AudioDelta):
                break
    assert (scripted.live, scripted.abandoned) == (0, 1)
    assert engine.counts() == {("gpu", "withdrawn", ""): 1}
    assert (await take(engine))[0] == Routed("gpu")


async def test_an_engine_out_of_memory_is_passed_over_and_given_less_to_do() -> None:
    gated = Gated()
    starved = Raising(lambda: EngineLost("The engine failed: CUDA out of memory. Tried to allocate 2 GiB"))

    class Small(Raising):
        def respond(self, request: Request) -> AsyncGenerator[Delta, None]:
            return starved.respond(request) if not starved.requests else gated.respond(request)

    engine = router(entry("gpu", Small(EngineLost)), entry("hosted", says(FINE)), failures=1, patience_s=20)
    assert (await take(engine))[0] == Routed("hosted", "gpu: out of memory")
    tasks = [asyncio.create_task(take(engine, call(number))) for number in range(8)]
    await settle()
    assert gated.live == 4
    gated.gate.set()
    await asyncio.gather(*tasks)
    assert gated.most == 4


async def test_an_engine_that_has_no_memory_for_a_single_request_fails() -> None:
    starved = Raising(lambda: EngineLost("The engine failed: OOM"))
    engine = router(entry("gpu", starved, places=4), entry("hosted", says(FINE)), failures=1, open_s=60)
    reasons = [(await take(engine))[0] for _ in range(4)]
    assert [route.reason for route in reasons if isinstance(route, Routed)] == [
        *["gpu: out of memory"] * 3,
        "gpu: left alone",
    ]


async def test_a_word_that_only_looks_like_a_shortage_is_none() -> None:
    engine = router(
        entry("gpu", Raising(lambda: EngineLost("no room for zoom"))), entry("hosted", says(FINE))
    )
    assert (await take(engine))[0] == Routed("hosted", "gpu: lost")


# As an engine.


async def test_it_is_ready_as_soon_as_one_engine_is() -> None:
    dead = Raising(EngineLost)
    assert await router(entry("gpu", dead), entry("hosted", says(FINE))).ready()
    assert not await router(entry("gpu", dead)).ready()


async def test_readiness_does_not_wait_for_an_engine_that_does_not_tell() -> None:
    class Silent(Raising):
        async def ready(self) -> bool:
            await asyncio.Event().wait()
            return False

    async with asyncio.timeout(20):
        assert await router(entry("gpu", Silent(EngineLost)), entry("hosted", says(FINE))).ready()


async def test_a_candidate_alone_makes_nothing_ready() -> None:
    assert not await router(entry("gpu", Raising(EngineLost)), candidate=entry("new", says(FINE))).ready()


async def test_closing_it_closes_every_engine() -> None:
    engines = [says(FINE) for _ in range(3)]
    engine = router(entry("gpu", engines[0]), entry("hosted", engines[1]), candidate=entry("new", engines[2]))
    await engine.aclose()
    assert [await each.ready() for each in engines] == [False] * 3


def test_engines_need_labels_of_their_own() -> None:
    with pytest.raises(ValueError, match="label"):
        router(entry("gpu", says(FINE)), entry("gpu", says(FINE)))
    with pytest.raises(ValueError, match="at least one"):
        router()


async def test_counts_add_up_over_many_calls() -> None:
    engine = router(entry("gpu", says(FINE, BUSY, FINE)), entry("hosted", says(FINE)))
    for request in islice(map(call, count()), 6):
        await take(engine, request)
    assert engine.counts() == {
        ("gpu", "answered", ""): 4,
        ("gpu", "passed over", "busy"): 2,
        ("hosted", "answered", "fallback"): 2,
    }


# What is sent ahead of a turn's end.

AHEAD = replace(ASK, ahead=True)
WAIT_S = 10.0


def looking(label: str, engine: Engine, places: int = 8) -> Entry:
    return Entry(label, engine, places, 8, looks_ahead=True)


async def test_what_is_sent_ahead_goes_to_the_engine_that_will_be_asked() -> None:
    first, second = says(FINE), says(FINE)
    router = RouterEngine([looking("first", first), looking("second", second)], None, RouterConfig())
    deltas = [delta async for delta in router.respond(AHEAD)]
    assert deltas[-1] == Done()
    assert not any(isinstance(delta, Routed) for delta in deltas)
    assert router.counts() == {("first", "sent ahead", ""): 1}


@pytest.mark.parametrize("reply", [LOST, BUSY, REFUSED])
async def test_what_is_sent_ahead_is_tried_once_and_says_nothing_of_the_engine(reply: Reply) -> None:
    first, second = says(reply, reply, reply, FINE), says(FINE)
    router = RouterEngine(
        [looking("first", first), looking("second", second)], None, RouterConfig(failures=1)
    )
    for _ in range(3):
        with pytest.raises(EngineError):
            _ = [delta async for delta in router.respond(AHEAD)]
    assert Routed("first") in [delta async for delta in router.respond(ASK)]


async def test_nothing_is_sent_ahead_to_an_engine_without_caches() -> None:
    router = RouterEngine([entry("first", says(FINE)), looking("second", says(FINE))], None, RouterConfig())
    with pytest.raises(EngineBusy):
        _ = [delta async for delta in router.respond(AHEAD)]


async def test_nothing_is_sent_ahead_to_an_engine_that_is_left_alone() -> None:
    router = RouterEngine([looking("first", says(LOST, FINE))], None, RouterConfig(failures=1))
    with pytest.raises(EngineLost):
        _ = [delta async for delta in router.respond(ASK)]
    with pytest.raises(EngineBusy):
        _ = [delta async for delta in router.respond(AHEAD)]


async def test_the_last_place_is_for_an_answer() -> None:
    engine = Gated()
    router = RouterEngine([looking("first", engine, places=2)], None, RouterConfig())
    async with aclosing(router.respond(ASK)) as deltas:
        answer = asyncio.ensure_future(anext(deltas))
        while not engine.live:  # noqa: ASYNC110 - until it has been asked
            await asyncio.sleep(0)
        with pytest.raises(EngineBusy):
            _ = [delta async for delta in router.respond(AHEAD)]
        engine.gate.set()
        await answer


async def test_nothing_is_sent_ahead_beside_a_request_to_an_engine_that_serves_one_at_a_time() -> None:
    engine = Gated()
    entry_ = replace(looking("first", engine), one_at_a_time=True)
    router = RouterEngine([entry_], None, RouterConfig())
    async with aclosing(router.respond(ASK)) as deltas:
        answer = asyncio.ensure_future(anext(deltas))
        while not engine.live:  # noqa: ASYNC110 - until it has been asked
            await asyncio.sleep(0)
        with pytest.raises(EngineBusy):
            async with asyncio.timeout(WAIT_S):
                _ = [delta async for delta in router.respond(AHEAD)]
        engine.gate.set()
        await answer
    async with aclosing(router.respond(AHEAD)) as deltas:
        await anext(deltas)


async def test_what_may_be_in_vain_takes_no_place_that_an_answer_may_need() -> None:
    speculative = replace(ASK, speculative=True)
    engine = Gated()
    first, second = entry("first", engine, places=2), entry("second", says(FINE))
    router = RouterEngine([first, second], None, RouterConfig())
    async with aclosing(router.respond(speculative)) as deltas:
        answer = asyncio.ensure_future(anext(deltas))
        while not engine.live:  # noqa: ASYNC110 - until it has been asked
            await asyncio.sleep(0)
        with pytest.raises(EngineBusy):
            _ = [delta async for delta in router.respond(speculative)]
        engine.gate.set()
        await answer
    assert ("second", "answered", "fallback") not in router.counts()


# Places that several processes share; two routers stand for two processes.


@pytest.fixture
def pools(tmp_path: Path) -> Callable[[int, int], LockPool]:
    return lambda places, queue: LockPool(tmp_path / "pool", places, queue)


async def test_places_are_never_exceeded_by_all_together(pools: Callable[[int, int], LockPool]) -> None:
    gated = Gated()
    routers = [router(Entry("gpu", gated, 3, 6, pool=pools(3, 6))) for _ in range(2)]
    asks = [asyncio.create_task(take(routers[i % 2], call(i))) for i in range(7)]
    await settle()
    assert (gated.live, gated.most) == (3, 3)
    gated.gate.set()
    assert {text(deltas) for deltas in await asyncio.gather(*asks)} == {"Done waiting."}
    assert gated.most == 3
    for each in routers:
        await each.aclose()


async def test_a_queue_is_never_longer_for_all_together(pools: Callable[[int, int], LockPool]) -> None:
    gated = Gated()
    one, two = (router(Entry("gpu", gated, 1, 1, pool=pools(1, 1))) for _ in range(2))
    asks = [asyncio.create_task(take(one)), asyncio.create_task(take(two))]
    await settle()
    for each in (one, two):
        with pytest.raises(EngineBusy):
            await take(each)
    gated.gate.set()
    await asyncio.gather(*asks)
    for each in (one, two):
        await each.aclose()


async def test_who_gives_up_waiting_leaves_nothing_behind(pools: Callable[[int, int], LockPool]) -> None:
    gated = Gated()
    one, two = (router(Entry("gpu", gated, 1, 1, pool=pools(1, 1))) for _ in range(2))
    first, second = asyncio.create_task(take(one)), asyncio.create_task(take(two))
    await settle()
    second.cancel()
    await asyncio.gather(second, return_exceptions=True)
    gated.gate.set()
    await first
    assert text(await take(two)) == "Done waiting."
    for each in (one, two):
        await each.aclose()

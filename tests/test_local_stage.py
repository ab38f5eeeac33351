import asyncio
import threading
from collections.abc import Callable
from contextlib import aclosing

import pytest

from visavis.local.stage import FairQueue, Stage

WAIT_S = 10.0


def drain(queue: FairQueue[str]) -> list[str]:
    items = []
    while (item := queue.pop()) is not None:
        items.append(item)
    return items


def test_callers_take_turns_whoever_came_with_more() -> None:
    queue: FairQueue[str] = FairQueue()
    for caller, item in [("a", "a1"), ("a", "a2"), ("a", "a3"), ("b", "b1"), ("c", "c1"), ("b", "b2")]:
        queue.push(caller, item)
    assert len(queue) == 6
    assert drain(queue) == ["a1", "b1", "c1", "a2", "b2", "a3"]


def test_one_caller_is_served_in_order() -> None:
    queue: FairQueue[str] = FairQueue()
    for item in "123":
        queue.push("", item)
    assert drain(queue) == ["1", "2", "3"]


def test_a_discarded_item_does_not_come_and_leaves_no_caller_behind() -> None:
    queue: FairQueue[str] = FairQueue()
    queue.push("a", "a1")
    queue.push("b", "b1")
    assert queue.discard("a", "a1")
    assert not queue.discard("a", "a1")
    assert not queue.discard("b", "other")
    assert drain(queue) == ["b1"]


class Gate:
    """Work that tells when it has begun and goes on until it is let go or stopped."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.go = threading.Event()
        self.stopped = threading.Event()

    def work(self, stop: threading.Event) -> str:
        self.begun.set()
        while not self.go.is_set():
            if stop.wait(0.001):
                self.stopped.set()
                break
        return "done"

    async def until_begun(self) -> None:
        assert await asyncio.to_thread(self.begun.wait, WAIT_S)

    async def until_stopped(self) -> None:
        assert await asyncio.to_thread(self.stopped.wait, WAIT_S)


@pytest.fixture
async def stage() -> Stage:
    return Stage("test")


async def test_a_stage_runs_work_in_a_thread_of_its_own(stage: Stage) -> None:
    assert await stage.run("a", lambda _: threading.current_thread().name) != threading.current_thread().name
    await stage.aclose()


async def test_waiting_callers_take_turns(stage: Stage) -> None:
    gate, order = Gate(), []
    async with asyncio.TaskGroup() as group:
        group.create_task(stage.run("a", gate.work))
        await gate.until_begun()
        for name in ("a2", "a3", "b1"):
            group.create_task(stage.run(name[0], lambda _, name=name: order.append(name)))
        await asyncio.sleep(0)  # let them queue
        gate.go.set()
    assert order == ["a2", "b1", "a3"]
    await stage.aclose()


async def test_a_cancelled_caller_is_free_at_once_and_its_work_told(stage: Stage) -> None:
    gate = Gate()
    task = asyncio.create_task(stage.run("a", gate.work))
    await gate.until_begun()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await gate.until_stopped()
    assert await stage.run("b", lambda _: 1) == 1
    await stage.aclose()


async def test_a_caller_cancelled_while_waiting_gives_its_turn_away(stage: Stage) -> None:
    gate = Gate()
    async with asyncio.TaskGroup() as group:
        group.create_task(stage.run("a", gate.work))
        await gate.until_begun()
        waiting = group.create_task(stage.run("b", lambda _: pytest.fail("it was cancelled")))
        last = group.create_task(stage.run("c", lambda _: "c"))
        await asyncio.sleep(0)
        waiting.cancel()
        gate.go.set()
    assert last.result() == "c"
    await stage.aclose()


async def test_a_caller_cancelled_just_as_its_turn_comes_passes_it_on(stage: Stage) -> None:
    gate = Gate()
    first = asyncio.create_task(stage.run("a", gate.work))
    await gate.until_begun()
    second = asyncio.create_task(stage.run("b", lambda _: pytest.fail("it was cancelled")))
    await asyncio.sleep(0)
    gate.go.set()
    await first  # the turn has been handed over, and `second` has not run yet
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    assert await stage.run("c", lambda _: "c") == "c"
    await stage.aclose()


async def test_an_exception_of_the_work_is_the_callers(stage: Stage) -> None:
    def fail(_: threading.Event) -> None:
        raise KeyError("it")

    with pytest.raises(KeyError):
        await stage.run("a", fail)
    assert await stage.run("a", lambda _: 1) == 1
    await stage.aclose()


async def test_a_stream_yields_what_is_emitted_in_order(stage: Stage) -> None:
    def count(emit: Callable[[int], bool]) -> None:
        for i in range(100):
            assert not emit(i)

    assert [i async for i in stage.stream("a", count)] == list(range(100))
    await stage.aclose()


async def test_an_exception_ends_a_stream_after_what_came_before(stage: Stage) -> None:
    def fail(emit: Callable[[int], bool]) -> None:
        emit(1)
        raise KeyError("it")

    stream = stage.stream("a", fail)
    assert await anext(stream) == 1
    with pytest.raises(KeyError):
        await anext(stream)
    await stage.aclose()


async def test_closing_a_stream_makes_emit_say_so(stage: Stage) -> None:
    told = threading.Event()

    def endless(emit: Callable[[int], bool]) -> None:
        while not emit(1):
            pass
        told.set()

    async with aclosing(stage.stream("a", endless)) as stream:
        async for _ in stream:
            break
    assert await asyncio.to_thread(told.wait, WAIT_S)
    await stage.aclose()


async def test_closing_the_stage_stops_the_work_in_it(stage: Stage) -> None:
    gate = Gate()
    task = asyncio.create_task(stage.run("a", gate.work))
    await gate.until_begun()
    await stage.aclose()
    assert gate.stopped.is_set()
    assert await task == "done"

"""Both stores keep the same promises: the one in memory and the one in a real Redis."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from visavis.config import ConfigError, ResumeConfig
from visavis.store import MemoryStore, RedisStore, Store, StoreError, open_store


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextlib.asynccontextmanager
async def redis_server(folder: Path, port: int) -> AsyncIterator[asyncio.subprocess.Process]:
    """A Redis of the test's own, which writes nothing down."""
    process = await asyncio.create_subprocess_exec(
        *("redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(folder)),
        stdout=asyncio.subprocess.DEVNULL,
    )
    try:
        while True:
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.close()
                await writer.wait_closed()
                break
            assert process.returncode is None, "redis-server ended"
            await asyncio.sleep(0.02)
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


@pytest.fixture(params=["memory", pytest.param("redis", marks=[pytest.mark.slow, pytest.mark.redis])])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    if request.param == "memory":
        yield MemoryStore(1 << 20)
        return
    port = free_port()
    async with redis_server(tmp_path, port):
        store = open_store(ResumeConfig(redis=f"redis://127.0.0.1:{port}/0"))
        yield store
        await store.aclose()


async def test_what_is_put_is_taken_once(store: Store) -> None:
    await store.put("a", b"said", 60)
    assert not await store.taken("a")
    assert await store.look("a") == b"said"
    assert await store.take("a")
    assert await store.look("a") is None
    assert not await store.take("a")
    assert await store.taken("a")
    assert not await store.taken("b")


async def test_what_was_taken_is_not_renewed(store: Store) -> None:
    await store.put("a", b"said", 60)
    assert await store.renew("a", None, 60)
    assert await store.renew("a", b"said more", 60)
    assert await store.look("a") == b"said more"
    assert await store.take("a")
    assert not await store.renew("a", b"and more", 60)
    assert not await store.renew("a", None, 60)
    assert await store.look("a") is None


async def test_what_is_dropped_is_gone_and_was_not_taken(store: Store) -> None:
    await store.put("a", b"said", 60)
    await store.drop("a")
    await store.drop("never there")
    assert not await store.take("a")
    assert not await store.taken("a")


async def test_what_is_not_renewed_is_forgotten(store: Store) -> None:
    await store.put("a", b"said", 0.001)
    async with asyncio.timeout(10):
        while await store.renew("a", None, 0.001):  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.01)
    assert not await store.take("a")
    assert not await store.taken("a")


async def test_memory_keeps_no_more_than_it_may() -> None:
    clock = Clock()
    store = MemoryStore(100, clock)
    for name in "abc":
        await store.put(name, b"x" * 40, 60)
    assert not await store.take("a")
    assert await store.look("b") == b"x" * 40
    await store.put("d", b"x" * 50, 60)
    clock.now += 61
    await store.put("e", b"y", 60)
    assert len(store) == 1
    await store.aclose()
    assert len(store) == 0


async def test_memory_forgets_that_something_was_taken_after_an_hour() -> None:
    clock = Clock()
    store = MemoryStore(100, clock)
    await store.put("a", b"x", 60)
    await store.take("a")
    clock.now += 3_601
    assert not await store.taken("a")


async def test_memory_remembers_only_so_much_of_what_was_taken() -> None:
    store = MemoryStore(100)
    for number in range(10_001):
        await store.put(str(number), b"x", 60)
        await store.take(str(number))
    assert not await store.taken("0")
    assert await store.taken("1")


@pytest.mark.slow
@pytest.mark.redis
async def test_a_redis_that_is_gone_is_told_and_one_that_is_back_is_used(tmp_path: Path) -> None:
    port = free_port()
    store = RedisStore(f"redis://:secret@127.0.0.1:{port}/0")
    asks: list[Callable[[], object]] = [
        lambda: store.put("a", b"x", 60),
        lambda: store.renew("a", b"x", 60),
        lambda: store.look("a"),
        lambda: store.take("a"),
        lambda: store.taken("a"),
        lambda: store.drop("a"),
    ]
    for ask in asks:
        with pytest.raises(StoreError, match="Redis") as caught:
            await ask()  # type: ignore[misc]
        assert "secret" not in str(caught.value)
    await store.aclose()
    store = RedisStore(f"redis://127.0.0.1:{port}/0")
    async with redis_server(tmp_path, port):
        await store.put("a", b"x", 60)
    async with redis_server(tmp_path, port):
        assert not await store.renew("a", None, 60)
    await store.aclose()


@pytest.mark.slow
@pytest.mark.redis
async def test_who_stops_asking_redis_is_let_go_at_any_moment(tmp_path: Path) -> None:
    port = free_port()
    async with redis_server(tmp_path, port):
        store = RedisStore(f"redis://127.0.0.1:{port}/0")
        for steps in range(12):
            await store.put("a", b"x", 60)
            asking = asyncio.create_task(store.put("a", b"y" * 1_000, 60))
            for _ in range(steps):
                await asyncio.sleep(0)
            if asking.cancel():
                await asyncio.wait({asking})
                assert asking.cancelled(), f"cancelled after {steps} steps, it went on"
        await store.aclose()


def test_an_address_that_is_none_is_refused_with_one_that_would_do() -> None:
    with pytest.raises(ConfigError, match="redis://host:6379/0"):
        open_store(ResumeConfig(redis="localhost:6379"))


@pytest.mark.parametrize("wrong", [{"keep_s": -1.0}, {"memory_mb": 0}])
def test_impossible_numbers_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match="resume"):
        ResumeConfig(**wrong)  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.redis
async def test_of_two_who_change_the_same_value_the_second_looks_again(tmp_path: Path) -> None:
    port = free_port()
    async with redis_server(tmp_path, port):
        store = RedisStore(f"redis://127.0.0.1:{port}/0")
        assert await store.read("kiosks") is None
        assert await store.swap("kiosks", None, b"one")
        assert not await store.swap("kiosks", None, b"two")
        assert await store.swap("kiosks", b"one", b"three")
        assert not await store.swap("kiosks", b"one", b"four")
        assert await store.read("kiosks") == b"three"
        await store.aclose()

"""The supervisor with a stand-in for the engine: a real child process."""

import asyncio
import os
import signal
import stat
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from visavis.config import LocalConfig
from visavis.errors import EngineLost, ModelError
from visavis.local.__main__ import config_from_json, config_to_json
from visavis.local.supervisor import Supervisor, environment

pytestmark = pytest.mark.slow

WAIT_S = 20.0

ENGINE = """
import asyncio, json, os, sys, threading
path, config = sys.argv[2], json.loads(sys.stdin.readline())

def watch():
    while os.read(0, 100): pass
    os._exit(0)

async def serve(reader, writer):
    await reader.readuntil(b"\\r\\n\\r\\n")
    writer.write(b"HTTP/1.1 %s OK\\r\\nContent-Length: 0\\r\\nConnection: close\\r\\n\\r\\n" % status)
    await writer.drain()
    writer.close()

async def main():
    global status
    status = b"503"
    if os.path.exists(path): os.unlink(path)
    server = await asyncio.start_unix_server(serve, path)
    print("INFO engine: language", config["language"], file=sys.stderr, flush=True)
    status = b"200"
    await asyncio.sleep(1000)

threading.Thread(target=watch, daemon=True).start()
asyncio.run(main())
"""


@pytest.fixture
def engine(tmp_path: Path) -> Callable[[str], list[str]]:
    def write(code: str = ENGINE) -> list[str]:
        script = tmp_path / "engine.py"
        script.write_text(code)
        return [sys.executable, "-S", str(script)]

    return write


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not condition():  # noqa: ASYNC110 - the state of another process
            await asyncio.sleep(0.005)


async def test_an_engine_is_started_told_its_settings_and_ended(
    engine: Callable[..., list[str]], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    supervisor = Supervisor(LocalConfig(language="fr"), command=engine())
    calls: list[bool] = []
    async with asyncio.TaskGroup() as group, asyncio.timeout(WAIT_S):
        group.create_task(supervisor.run(lambda: calls.append(supervisor.ready)))
        await supervisor.wait_ready()
        assert calls == [True]
        assert supervisor.url == f"unix://{supervisor.socket}"
        assert stat.S_IMODE(supervisor.socket.parent.stat().st_mode) == 0o700
        pid = supervisor.pid
        assert pid is not None
        await supervisor.aclose()
    assert gone(pid)
    assert not supervisor.socket.parent.exists()
    assert not supervisor.ready
    assert "engine: language fr" in caplog.text


async def test_a_killed_engine_is_started_again_at_the_same_place(engine: Callable[..., list[str]]) -> None:
    supervisor = Supervisor(LocalConfig(), command=engine())
    starts: list[int | None] = []
    async with asyncio.TaskGroup() as group, asyncio.timeout(WAIT_S):
        group.create_task(supervisor.run(lambda: starts.append(supervisor.pid)))
        await supervisor.wait_ready()
        socket, first = supervisor.socket, supervisor.pid
        assert first is not None
        os.kill(first, signal.SIGKILL)
        await until(lambda: len(starts) == 2)
        assert supervisor.ready
        assert supervisor.socket == socket
        assert supervisor.restarts == 1
        assert starts[1] not in (None, first)
        await supervisor.aclose()


async def test_cancelling_ends_the_engine(engine: Callable[..., list[str]]) -> None:
    supervisor = Supervisor(LocalConfig(), command=engine())
    task = asyncio.create_task(supervisor.run())
    async with asyncio.timeout(WAIT_S):
        await supervisor.wait_ready()
        pid = supervisor.pid
        assert pid is not None
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert gone(pid)
    assert not supervisor.socket.parent.exists()


async def test_a_missing_model_is_an_error_with_the_engines_own_words(
    engine: Callable[..., list[str]],
) -> None:
    code = 'import sys; print("ERROR root: no such model: x", file=sys.stderr); sys.exit(3)'
    with pytest.raises(ModelError, match=r"^no such model: x$"):
        await Supervisor(LocalConfig(), command=engine(code)).run()


async def test_an_engine_that_dies_before_it_is_ready_is_an_error(engine: Callable[..., list[str]]) -> None:
    with pytest.raises(EngineLost, match="status 7"):
        await Supervisor(LocalConfig(), command=engine("import sys; sys.exit(7)")).run()


async def test_an_engine_that_never_gets_ready_is_an_error(engine: Callable[..., list[str]]) -> None:
    supervisor = Supervisor(
        LocalConfig(start_s=0.2), command=engine(ENGINE.replace('status = b"200"', "pass"))
    )
    with pytest.raises(EngineLost, match="not ready after"):
        await supervisor.run()
    assert not supervisor.socket.parent.exists()


async def test_an_engine_that_cannot_be_started_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(EngineLost, match="cannot be started"):
        await Supervisor(LocalConfig(), command=[str(tmp_path / "nothing")]).run()


async def test_an_engine_does_not_outlive_its_parent(
    engine: Callable[..., list[str]], tmp_path: Path
) -> None:
    code = f"""
import asyncio, sys
from visavis.config import LocalConfig
from visavis.local.supervisor import Supervisor
supervisor = Supervisor(LocalConfig(), command={engine()!r})
asyncio.run(supervisor.run(lambda: print(supervisor.pid, supervisor.socket.parent, flush=True)))
"""
    parent = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE, env=os.environ | {"TMPDIR": str(tmp_path)}
    )
    assert parent.stdout is not None
    async with asyncio.timeout(WAIT_S):
        pid = int((await parent.stdout.readline()).split()[0])
    assert not gone(pid)
    parent.kill()
    await parent.wait()
    await until(lambda: gone(pid))


def test_a_long_name_of_the_temporary_folder_does_not_spoil_the_socket(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    long = tmp_path / ("x" * 100)
    long.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(long))
    assert len(str(Supervisor(LocalConfig()).socket)) < 100


def test_settings_survive_the_way_to_the_child() -> None:
    config = LocalConfig(cache_dir=Path("/x"), llm_url="http://y", llm_api_key="z", threads=3, language="de")
    assert config_from_json(config_to_json(config)) == config
    assert config_from_json(config_to_json(LocalConfig())) == LocalConfig()


@pytest.mark.parametrize(
    ("own", "tunables"),
    [
        ({}, "glibc.malloc.hugetlb=1"),
        ({"GLIBC_TUNABLES": "glibc.malloc.check=3"}, "glibc.malloc.check=3:glibc.malloc.hugetlb=1"),
        ({"GLIBC_TUNABLES": "glibc.malloc.hugetlb=2"}, "glibc.malloc.hugetlb=2"),
    ],
)
def test_the_engine_has_large_pages_unless_somebody_decided_otherwise(
    own: dict[str, str], tunables: str
) -> None:
    given = environment({"HOME": "/", **own})
    assert (given["HOME"], given["GLIBC_TUNABLES"]) == ("/", tunables)


def test_the_models_threads_do_not_wait_busily_unless_somebody_decided_otherwise() -> None:
    assert int(environment({})["GOMP_SPINCOUNT"]) <= 10_000
    assert environment({"GOMP_SPINCOUNT": "7"})["GOMP_SPINCOUNT"] == "7"
    assert "GOMP_SPINCOUNT" not in environment({"OMP_WAIT_POLICY": "active"})

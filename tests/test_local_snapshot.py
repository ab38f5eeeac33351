"""States of the prompt on disk, with a stand-in for llama.cpp's server."""

import os
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from aiohttp import web

from visavis.local.snapshot import Snapshots, name_of

HELLO = [{"role": "system", "content": "Be kind."}]


@dataclass
class Llama:
    folder: Path
    status: int = 200
    asked: list[tuple[str | None, str, str]] = field(default_factory=list)

    async def answer(self, request: web.Request) -> web.Response:
        name = (await request.json())["filename"]
        action = request.query["action"]
        self.asked.append((request.headers.get("Authorization"), action, name))
        if action == "save" and self.status == 200:
            (self.folder / name).write_bytes(b"state")
        return web.json_response({}, status=self.status)


@pytest.fixture
async def llama(tmp_path: Path) -> AsyncGenerator[Llama, None]:
    llama = Llama(tmp_path / "prompts")
    llama.folder.mkdir()
    app = web.Application()
    app.router.add_post("/slots/0", llama.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.UnixSite(runner, tmp_path / "s").start()
    yield llama
    await runner.cleanup()


@pytest.fixture
def snapshots(llama: Llama, tmp_path: Path) -> Snapshots:
    return Snapshots(llama.folder, tmp_path / "s", "key")


async def test_what_was_saved_can_be_restored(llama: Llama, snapshots: Snapshots) -> None:
    assert not await snapshots.restore("a.bin")
    assert llama.asked == []
    await snapshots.save("a.bin")
    assert [file.name for file in llama.folder.iterdir()] == ["a.bin"]
    assert await snapshots.restore("a.bin")
    assert llama.asked[-1] == ("Bearer key", "restore", "a.bin")


async def test_a_state_that_cannot_be_used_is_as_good_as_none(llama: Llama, snapshots: Snapshots) -> None:
    await snapshots.save("a.bin")
    llama.status = 400
    assert not await snapshots.restore("a.bin")


async def test_a_state_that_cannot_be_saved_leaves_the_old_one(llama: Llama, snapshots: Snapshots) -> None:
    (llama.folder / "a.bin").write_bytes(b"old")
    llama.status = 500
    await snapshots.save("a.bin")
    assert (llama.folder / "a.bin").read_bytes() == b"old"


async def test_a_server_that_is_gone_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "a.bin").touch()
    snapshots = Snapshots(tmp_path, tmp_path / "none", "key")
    assert not await snapshots.restore("a.bin")
    await snapshots.save("a.bin")


async def test_only_the_newest_are_kept(llama: Llama, snapshots: Snapshots) -> None:
    for age in range(6):
        file = llama.folder / f"{age}.bin"
        file.touch()
        os.utime(file, (1000 - age, 1000 - age))
    await snapshots.save("new.bin")
    assert sorted(file.name for file in llama.folder.iterdir()) == ["0.bin", "1.bin", "2.bin", "new.bin"]


def test_a_name_changes_with_all_that_the_state_depends_on(tmp_path: Path) -> None:
    model = tmp_path / "m.gguf"
    model.write_bytes(b"one")
    name = name_of(model, "1", 4096, HELLO)
    assert name == name_of(model, "1", 4096, list(HELLO))
    others = {
        name_of(model, "2", 4096, HELLO),
        name_of(model, "1", 2048, HELLO),
        name_of(model, "1", 4096, []),
    }
    model.write_bytes(b"other")
    others.add(name_of(model, "1", 4096, HELLO))
    assert len(others | {name}) == 5

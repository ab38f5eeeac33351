from pathlib import Path

import pytest

from visavis.config import Config, KioskConfig, ResumeConfig
from visavis.errors import ConfigError
from visavis.kiosk_store import FileKiosks, RedisKiosks, open_kiosk_store, state_dir
from visavis.store import StoreError


def names_in(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


async def test_a_file_keeps_what_was_swapped_in(tmp_path: Path) -> None:
    path = tmp_path / "state" / "kiosks.json"
    store = FileKiosks(path)
    assert await store.load() is None
    assert await store.swap(None, b"one")
    assert await store.load() == b"one"
    assert await FileKiosks(path).load() == b"one"


async def test_who_did_not_see_the_newest_changes_nothing(tmp_path: Path) -> None:
    store = FileKiosks(tmp_path / "kiosks.json")
    await store.swap(None, b"one")
    assert not await store.swap(None, b"two")
    assert not await store.swap(b"zero", b"two")
    assert (tmp_path / "kiosks.json").read_bytes() == b"one"


async def test_a_write_that_fails_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = FileKiosks(tmp_path / "kiosks.json")
    await store.swap(None, b"one")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(StoreError, match="No space left"):
        await store.swap(b"one", b"two")
    monkeypatch.undo()
    assert await store.load() == b"one"
    assert names_in(tmp_path) == ["kiosks.json"]
    assert (tmp_path / "kiosks.json").read_bytes() == b"one"


def test_a_file_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    (tmp_path / "kiosks.json").mkdir()
    with pytest.raises(ConfigError, match=r"kiosk\.folder"):
        FileKiosks(tmp_path / "kiosks.json")


def test_state_is_kept_where_the_system_has_it() -> None:
    assert state_dir(Path("/srv/kiosks"), {"XDG_STATE_HOME": "/other"}) == Path("/srv/kiosks")
    assert state_dir(None, {"XDG_STATE_HOME": "/other"}) == Path("/other/visavis")
    assert state_dir(None, {"XDG_STATE_HOME": "other"}) == Path.home() / ".local/state/visavis"


def test_a_file_or_redis_as_configured(tmp_path: Path) -> None:
    kiosk = KioskConfig(folder=tmp_path)
    assert isinstance(open_kiosk_store(Config(kiosk=kiosk), {}), FileKiosks)
    redis = ResumeConfig(redis="redis://127.0.0.1:1/0")
    assert isinstance(open_kiosk_store(Config(kiosk=kiosk, resume=redis), {}), RedisKiosks)

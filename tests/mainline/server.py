"""Starts mainline vLLM with a tiny checkpoint, in the environment of `make test-vllm`, and ends it again."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

MODEL = "tiny"
CONTEXT = 8_192
"Tokens of the window: a turn of 20 s with pictures of 640×480 has 6300."

_TESTS = Path(__file__).parents[1]
_START_S = 300.0
_END_S = 30.0
_LEAST = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
}
"One gigabyte of cache, no cores claimed for itself alone, and nothing asked of or reported to anybody."


@dataclass(frozen=True, slots=True)
class Vllm:
    """A running server."""

    url: str
    group: int
    "Of its processes."

    def cpu_s(self) -> float:
        """Return the CPU time that its processes have taken: other work on the machine adds little to it."""
        ticks = 0
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                fields = stat.read_text().rpartition(") ")[2].split()
                if int(fields[2]) == self.group:
                    ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")


def build_checkpoint(environment: Path, folder: Path, *arguments: str) -> Path:
    """Write the tiny Qwen3-Omni to `folder`; for the arguments see `omni/tiny.py`."""
    subprocess.run(
        [environment / "bin" / "python", "-m", "omni.tiny", folder, *arguments],
        env=_environ(),
        check=True,
        stdout=subprocess.DEVNULL,
    )
    return folder


@contextlib.contextmanager
def serving(environment: Path, checkpoint: Path, log: Path, arguments: Sequence[str] = ()) -> Iterator[Vllm]:
    """Serve `checkpoint` on a free port of the loopback interface; gives the server once it answers.

    Raises RuntimeError, with the end of its log, if it does not start.
    """
    port = _free_port()
    command: list[str | Path] = [
        environment / "bin" / "python",
        Path(__file__).with_name("vllm_main.py"),
        *("--model", checkpoint, "--served-model-name", MODEL, "--host", "127.0.0.1", "--port", str(port)),
        *("--dtype", "float32", "--max-model-len", str(CONTEXT), "--max-num-seqs", "4", "--enforce-eager"),
        *("--limit-mm-per-prompt", json.dumps({"audio": 16, "image": 16, "video": 16})),
        "--trust-request-mm-kwargs",
        *arguments,
    ]
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, env=_environ(), stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
    url = f"http://127.0.0.1:{port}"
    try:
        _wait_healthy(url, process, log)
        yield Vllm(url, process.pid)
    finally:
        _end(process)


def metrics(url: str) -> dict[str, float]:
    """Read the server's counters and gauges, summed over their labels."""
    with urllib.request.urlopen(f"{url}/metrics") as response:
        text = response.read().decode()
    values: dict[str, float] = defaultdict(float)
    for line in text.splitlines():
        if line.startswith("vllm:"):
            name, _, value = line.rpartition(" ")
            values[name.partition("{")[0].removeprefix("vllm:")] += float(value)
    return values


def _environ() -> dict[str, str]:
    path = f"{_TESTS / 'mainline' / 'site'}{os.pathsep}{_TESTS}"
    return {**os.environ, **_LEAST, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _wait_healthy(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    give_up = time.monotonic() + _START_S
    while time.monotonic() < give_up and process.poll() is None:
        with contextlib.suppress(urllib.error.URLError, ConnectionError):
            urllib.request.urlopen(f"{url}/health").close()
            return
        time.sleep(0.1)
    end = log.read_text(errors="replace")[-4000:]
    raise RuntimeError(f"vLLM did not start (exit code {process.poll()}):\n{end}")


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the server and the processes it has started: all that is in its group."""
    for way in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, way)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_END_S)
            if not _group_lives(process.pid):
                return


def _group_lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True

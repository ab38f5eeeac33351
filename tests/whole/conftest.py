"""The whole product: `visavis serve` as a person starts it, its models real; one for all tests here."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

_START_S = 300.0


@dataclass
class Product:
    """A running server."""

    url: str
    process: subprocess.Popen[bytes]

    def engine_pid(self) -> int:
        """Return the process of the models."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        for child in children:
            if b"visavis.local" in Path(f"/proc/{child}/cmdline").read_bytes():
                return int(child)
        raise AssertionError("there is no engine process")

    def wait_ready(self, what: str) -> None:
        """Wait until a call would be answered."""
        give_up = time.monotonic() + _START_S
        while time.monotonic() < give_up:
            with contextlib.suppress(urllib.error.URLError, ConnectionError):
                urllib.request.urlopen(f"{self.url}/readyz").close()
                return
            assert self.process.poll() is None, f"the server ended: {what}"
            time.sleep(0.1)
        pytest.fail(f"never ready: {what}")


@pytest.fixture(scope="session")
def product() -> Iterator[Product]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, "-m", "visavis", "serve"],
        env={**os.environ, "HOST": "127.0.0.1", "PORT": str(port)},
    )
    running = Product(f"http://127.0.0.1:{port}", process)
    try:
        running.wait_ready("the first start")
        yield running
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            pytest.fail("the server did not end on SIGTERM")

"""Debian's coturn as a child on loopback, with the configuration that is deployed."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from visavis.config import IceServer

SECRET = "a secret of the tests"
CONFIGURATION = Path(__file__).parents[2] / "deploy" / "coturn" / "turnserver.conf"


@dataclass(frozen=True)
class Relay:
    host: str
    port: int
    log: Path

    def ice_server(self, transport: str) -> IceServer:
        return IceServer((f"turn:{self.host}:{self.port}?transport={transport}",), secret=SECRET)

    def said(self, text: str) -> bool:
        return text in self.log.read_text(errors="replace")


def free_port(host: str) -> int:
    """Give a port that is free for UDP and TCP."""
    while True:
        with (
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp,
            socket.socket(socket.AF_INET, socket.SOCK_STREAM) as tcp,
        ):
            udp.bind((host, 0))
            port: int = udp.getsockname()[1]
            with contextlib.suppress(OSError):
                tcp.bind((host, port))
                return port


@asynccontextmanager
async def relaying(folder: Path, *allowed: str, host: str = "127.0.0.1") -> AsyncIterator[Relay]:
    """Run coturn until the body ends; of private addresses it leads to those allowed."""
    relay = Relay(host, free_port(host), folder / "turn.log")
    options = [
        f"--listening-ip={host}",
        f"--relay-ip={host}",
        f"--listening-port={relay.port}",
        f"--pidfile={folder}/turnserver.pid",
        f"--userdb={folder}/turndb",
        f"--static-auth-secret={SECRET}",
        "--allow-loopback-peers",
        *(f"--allowed-peer-ip={address}" for address in allowed),
        "--verbose",
    ]
    with relay.log.open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *("turnserver", "-c", str(CONFIGURATION), *options),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
        try:
            await _listens(relay, process)
            yield relay
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()


async def _listens(relay: Relay, process: asyncio.subprocess.Process) -> None:
    for _ in range(500):
        assert process.returncode is None, relay.log.read_text(errors="replace")
        with contextlib.suppress(OSError):
            _, writer = await asyncio.open_connection(relay.host, relay.port)
            writer.close()
            await writer.wait_closed()
            return
        await asyncio.sleep(0.02)
    pytest.fail(f"coturn does not listen: {relay.log.read_text(errors='replace')}")

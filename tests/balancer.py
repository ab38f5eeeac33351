"""Debian's HAProxy as a child on loopback, with the configuration that is deployed."""

import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

HAPROXY = Path(__file__).parents[1] / "deploy" / "haproxy"
BINARY = shutil.which("haproxy", path=f"{os.environ['PATH']}:/usr/sbin")
"Debian's place for it is on no path but root's."
PATIENCE_S = 20.0


@dataclass(frozen=True)
class Backend:
    """A server behind the balancer."""

    name: str
    port: int
    agent_port: int


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def node_lines(nodes: list[Backend]) -> str:
    """Write nodes.cfg as it is deployed, but with these servers."""
    deployed = (HAPROXY / "nodes.cfg").read_text()
    head, servers = re.split(r"(?m)^(?=    server )", deployed, maxsplit=1)
    assert all(line.startswith("    server ") for line in servers.splitlines())
    return head + "".join(
        f"    server {node.name} 127.0.0.1:{node.port} agent-port {node.agent_port}\n" for node in nodes
    )


@contextmanager
def balancing(folder: Path, nodes: list[Backend]) -> Iterator[str]:
    """Run HAProxy before these servers; yield its URL once it listens."""
    (folder / "nodes.cfg").write_text(node_lines(nodes))
    assert BINARY is not None
    port = free_port()
    log = folder / "haproxy.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [BINARY, "-db", "-f", str(HAPROXY / "haproxy.cfg"), "-f", str(folder / "nodes.cfg")],
            env={**os.environ, "BIND": f"127.0.0.1:{port}"},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        give_up = time.monotonic() + PATIENCE_S
        while True:
            assert process.poll() is None, log.read_text()
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            if time.monotonic() > give_up:
                pytest.fail(f"HAProxy does not listen: {log.read_text()}")
            time.sleep(0.02)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()

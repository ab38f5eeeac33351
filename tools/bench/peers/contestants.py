"""Who is compared: how each server is started with its stub engine, and how it takes an offer."""

import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp

from visavis.errors import CallError

from .processes import Server, StartError, running

HERE = Path(__file__).parent

Negotiate = Callable[[str, str], Awaitable[str]]
"Gives the server at an address an offer; returns its answer. Raises CallError."


async def negotiate_sdp(url: str, offer: str) -> str:
    """As OpenAI has it, and we."""
    headers = {"Content-Type": "application/sdp"}
    async with (
        aiohttp.ClientSession() as http,
        http.post(f"{url}/v1/realtime/calls", data=offer, headers=headers) as response,
    ):
        text = await response.text()
        if response.status >= 400:
            raise CallError(f"the offer was refused: {response.status} {text}")
        return text


async def negotiate_json(url: str, offer: str, path: str = "/offer") -> str:
    """As aiortc's examples have it, and the peers."""
    body = {"sdp": offer, "type": "offer", "webrtc_id": os.urandom(4).hex()}
    async with aiohttp.ClientSession() as http, http.post(f"{url}{path}", json=body) as response:
        if response.status >= 400:
            raise CallError(f"the offer was refused: {response.status} {await response.text()}")
        told: dict[str, Any] = await response.json()
        if "sdp" not in told:
            raise CallError(f"the offer was refused: {told}")
        return str(told["sdp"])


@dataclass(frozen=True, slots=True)
class Contestant:
    script: str | None
    "In `servers`; None is our own server."
    arguments: tuple[str, ...] = ()
    environment: str | None = None
    "Folder in `.venv-peers`; None is the one that runs this."
    negotiate: Negotiate = negotiate_json


CONTESTANTS = {
    "ours": Contestant(None, negotiate=negotiate_sdp),
    "pipecat": Contestant("pipecat_server.py", ("smart-turn",), "pipecat"),
    "pipecat_vad": Contestant("pipecat_server.py", ("vad",), "pipecat"),
    "fastrtc": Contestant("fastrtc_server.py", (), "fastrtc", partial(negotiate_json, path="/webrtc/offer")),
    "floor": Contestant("floor_server.py"),
}

OURS = {"VISAVIS_ENGINE_EMBEDDED_VOICE": "false", "VISAVIS_ENGINE_EMBEDDED_EARS": "false"}
"No peer writes down what was said here: neither do we. All else is the default."


@asynccontextmanager
async def serving(contestant: Contestant, folder: Path, environments: Path) -> AsyncIterator[Server]:
    """Run a server whose stub engine answers with FOLDER/answer.pcm. Raises StartError."""
    python = Path(sys.executable)
    if contestant.environment is not None:
        python = environments / contestant.environment / "bin" / "python"
        if not python.exists():
            raise StartError("it is not installed (tools/bench-peers.sh installs it)")
    async with AsyncExitStack() as stack:
        if contestant.script is not None:
            script = HERE / "servers" / contestant.script
            command = [str(python), str(script), str(folder), *contestant.arguments]
            yield await stack.enter_async_context(running(command, folder / "server.log", {}))
            return
        socket, engine = folder / "engine.sock", HERE.parent / "instant_engine.py"
        command = [str(python), str(engine), str(socket), f"--folder={folder}"]
        await stack.enter_async_context(running(command, folder / "engine.log", {}))
        command = [str(python), "-m", "visavis", "serve", "--host", "127.0.0.1", "--port", "0"]
        command += ["--engine", "vllm", "--engine-url", f"unix://{socket}"]
        yield await stack.enter_async_context(running(command, folder / "server.log", OURS))

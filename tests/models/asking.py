"""A client of the embedded engine that asks as the server does."""

import asyncio
import base64
import io
import json
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np

from visavis.audio import RATE, Pcm, encode_wav, resample
from visavis.config import SessionConfig
from visavis.local import models
from visavis.local.supervisor import Supervisor
from visavis.local.whisper import RATE as HEARING_RATE

START_S = 300.0
"Loading on a machine that does other things too."
REPLY_S = 120.0


@dataclass
class Reply:
    heard: str | None = None
    text: str = ""
    pcm: Pcm = field(default_factory=lambda: np.zeros(0, np.int16))
    order: list[str] = field(default_factory=list)
    "Modalities of the chunks as they came."
    usage: dict[str, int] | None = None
    done: bool = False


class Client:
    """Asks the engine as the server does."""

    def __init__(self, supervisor: Supervisor) -> None:
        self.supervisor = supervisor

    @asynccontextmanager
    async def stream(
        self,
        messages: list[dict[str, Any]],
        *,
        call: str = "test",
        speak: bool = True,
        max_tokens: int = 512,
    ) -> AsyncGenerator[AsyncGenerator[dict[str, Any], None], None]:
        """Give the chunks of one response; leaving closes the connection."""
        body = {
            "stream": True,
            "stream_options": {"include_usage": True},
            "modalities": ["text", "audio"] if speak else ["text"],
            "temperature": 0.0,
            "max_tokens": max_tokens,
            "messages": messages,
        }
        data = io.BytesIO(json.dumps(body).encode())  # aiohttp writes bytes in one go, however many
        async with (
            asyncio.timeout(REPLY_S),
            aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(self.supervisor.socket))) as session,
            session.post(
                "http://l/v1/chat/completions",
                data=data,
                headers={"X-Visavis-Call": call, "Content-Type": "application/json"},
            ) as response,
        ):
            assert response.status == 200, await response.text()

            async def chunks() -> AsyncGenerator[dict[str, Any], None]:
                async for line in response.content:
                    if line.startswith(b"data: {"):
                        chunk = json.loads(line[6:])
                        assert "error" not in chunk, chunk
                        yield chunk

            yield chunks()

    async def ask(
        self, *messages: dict[str, Any], call: str = "test", speak: bool = True, max_tokens: int = 512
    ) -> Reply:
        reply, sounds = Reply(), []
        system = {"role": "system", "content": SessionConfig().instructions}
        async with self.stream([system, *messages], call=call, speak=speak, max_tokens=max_tokens) as chunks:
            async for chunk in chunks:
                if not chunk["choices"]:
                    reply.usage = chunk["usage"]
                    continue
                choice = chunk["choices"][0]
                reply.done = reply.done or choice["finish_reason"] is not None
                content = choice["delta"].get("content")
                match chunk.get("modality"):
                    case "transcript":
                        reply.heard = content
                    case "text":
                        reply.text += content
                    case "audio":
                        sounds.append(np.frombuffer(base64.b64decode(content), "<i2").astype(np.int16))
                if content:
                    reply.order.append(chunk["modality"])
        reply.pcm = np.concatenate([reply.pcm, *sounds])
        return reply

    def cpu_s(self) -> float:
        """CPU time that the engine's process has used: what work was done, however slow the machine."""
        assert self.supervisor.pid is not None
        fields = Path(f"/proc/{self.supervisor.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    async def until_idle(self) -> None:
        """Wait until the engine uses no CPU for a second."""
        async with asyncio.timeout(REPLY_S):
            before = -1.0
            while (now := self.cpu_s()) - before > 0.02:
                before = now
                await asyncio.sleep(1)


def whisper_folder() -> Path:
    return models.resolve("whisper-base", models.cache_dir(None, os.environ))


def sound(pcm: Pcm, rate: int = RATE) -> dict[str, Any]:
    """A part with speech, as the server sends it."""
    wav = encode_wav(resample(pcm, rate, HEARING_RATE), HEARING_RATE)
    return {"type": "input_audio", "input_audio": {"data": base64.b64encode(wav).decode(), "format": "wav"}}

"""`visavis doctor --engine URL` against servers of the test's own that speak the contract."""

import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import pytest
from aiohttp import web

from visavis.config import Config, EngineConfig
from visavis.doctor import examine_engine

pytestmark = pytest.mark.slow

VOICES = ("aiden", "chelsie", "ethan")
MODEL = EngineConfig().model


class Server:
    """A vLLM-Omni as far as the doctor looks; a test changes what it does."""

    def __init__(self) -> None:
        self.model = MODEL
        self.window: int | None = 32_768
        self.speaks = True
        self.refuses_audio = False
        self.voices: tuple[str, ...] = VOICES
        self.well = True
        self.key: str | None = None
        self.clip_refusal: str | None = None
        self.metrics: str | None = "vllm_omni:num_requests_running 0\nvllm:kv_cache_usage_perc 0.5\n"
        self.bodies: list[dict[str, Any]] = []

    async def health(self, _: web.Request) -> web.Response:
        return web.Response(status=200 if self.well else 503)

    async def models(self, request: web.Request) -> web.Response:
        if self.key is not None and request.headers.get("Authorization") != f"Bearer {self.key}":
            return web.json_response({"error": "Unauthorized"}, status=401)
        return web.json_response({"data": [{"id": self.model, "max_model_len": self.window}]})

    async def figures(self, _: web.Request) -> web.Response:
        return web.Response(status=404) if self.metrics is None else web.Response(text=self.metrics)

    async def chat(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.bodies.append(body)
        if (message := self._refusal(body)) is not None:
            return web.json_response({"error": {"message": message}}, status=400)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(chunk("A red square.", "text"))
        if self.speaks and "audio" in body["modalities"]:
            sound = base64.b64encode(np.zeros(2400, np.int16).tobytes()).decode()
            await response.write(chunk(sound, "audio"))
        await response.write(chunk("", "text", finish="stop"))
        await response.write(b"data: [DONE]\n\n")
        return response

    def _refusal(self, body: dict[str, Any]) -> str | None:
        parts = [
            part for message in body["messages"] for part in message["content"] if isinstance(part, dict)
        ]
        if self.clip_refusal is not None and any(part["type"] != "text" for part in parts):
            return self.clip_refusal
        if self.refuses_audio and "audio" in body["modalities"]:
            return "Unsupported output modalities audio for this model. Supported modalities: text"
        if self.voices and body.get("voice", self.voices[0]) not in self.voices:
            return f"Invalid speaker '{body['voice']}'. Supported: {', '.join(self.voices)}"
        return None


def chunk(content: str, modality: str, finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": {"content": content}, "finish_reason": finish}
    return b"data: " + json.dumps({"modality": modality, "choices": [choice]}).encode() + b"\n\n"


@asynccontextmanager
async def serving(server: Server) -> AsyncIterator[str]:
    app = web.Application()
    app.add_routes(
        [
            web.get("/health", server.health),
            web.get("/v1/models", server.models),
            web.get("/metrics", server.figures),
            web.post("/v1/chat/completions", server.chat),
        ]
    )
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def examined(
    server: Server, capsys: pytest.CaptureFixture[str], **engine: Any
) -> tuple[int, dict[str, str]]:
    """Run the doctor: its status, and what it said of each check."""
    async with serving(server) as url:
        config = Config(engine=EngineConfig(name="vllm", url=url, **engine))
        status = await examine_engine(config)
    said: dict[str, str] = {}
    name = ""
    for line in capsys.readouterr().out.splitlines()[:-1]:
        if line.startswith(("ok ", "FIX")):
            name = line[5:].partition(":")[0]
            said[name] = line
        else:
            said[name] += line
    return status, said


async def test_a_speaking_server_is_well_and_its_first_sound_is_timed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    server = Server()
    status, said = await examined(server, capsys)
    assert status == 0
    assert "first sound after 0." in said["speech"]
    assert "aiden, chelsie, ethan" in said["voices"]
    assert "context of 32768 tokens, 32768 of them used" in said["model"]
    assert "A red square." in said["camera and speech"]
    assert "memory in use 50%" in said["figures"]


async def test_camera_and_speech_travel_as_a_call_sends_them(capsys: pytest.CaptureFixture[str]) -> None:
    server = Server()
    await examined(server, capsys, media="separate")
    parts = [part["type"] for part in server.bodies[-1]["messages"][-1]["content"]]
    assert parts == ["video_url", "input_audio", "text"]


@pytest.mark.parametrize("refuses", [True, False])
async def test_a_server_without_speech_is_spoken_for_by_the_embedded_voice(
    refuses: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    server = Server()
    server.speaks, server.refuses_audio, server.voices = False, refuses, ()
    status, said = await examined(server, capsys)
    assert status == 0
    assert "the embedded voice will speak" in said["speech"]
    assert "has none" in said["voices"]
    status, said = await examined(server, capsys, embedded_voice=False)
    assert status == 1
    assert "engine.embedded_voice = true" in said["speech"]


async def test_a_voice_of_another_server_is_to_be_fixed(capsys: pytest.CaptureFixture[str]) -> None:
    status, said = await examined(Server(), capsys, voice="cherry")
    assert status == 1
    assert said["voices"].startswith("FIX")
    assert "cherry" in said["voices"]
    assert "ethan" in said["voices"]


async def test_another_model_ends_the_checks(capsys: pytest.CaptureFixture[str]) -> None:
    server = Server()
    server.model = "other"
    status, said = await examined(server, capsys)
    assert status == 1
    assert list(said) == ["health", "model"]
    assert "other" in said["model"]
    assert server.bodies == []


async def test_a_context_below_what_we_send_is_to_be_fixed(capsys: pytest.CaptureFixture[str]) -> None:
    server = Server()
    server.window = 8_192
    status, said = await examined(server, capsys)
    assert status == 1
    assert "engine.context_tokens = 8192" in said["model"]
    assert (await examined(server, capsys, context_tokens=8_192))[0] == 0


async def test_a_server_that_is_starting_ends_the_checks(capsys: pytest.CaptureFixture[str]) -> None:
    server = Server()
    server.well = False
    status, said = await examined(server, capsys)
    assert status == 1
    assert list(said) == ["health"]
    assert "/health says 503" in said["health"]


async def test_an_address_where_nothing_listens_is_told_from_a_server_that_is_starting(
    capsys: pytest.CaptureFixture[str], unused_tcp_port: int
) -> None:
    url = f"http://127.0.0.1:{unused_tcp_port}"
    assert await examine_engine(Config(engine=EngineConfig(name="vllm", url=url))) == 1
    assert f"nothing answers at {url}" in capsys.readouterr().out


async def test_the_key_is_sent_and_a_wrong_one_told(capsys: pytest.CaptureFixture[str]) -> None:
    server = Server()
    server.key = "right"
    assert (await examined(server, capsys, api_key="right"))[0] == 0
    status, said = await examined(server, capsys, api_key="wrong")
    assert status == 1
    assert "engine.api_key" in said["model"]


@pytest.mark.parametrize(
    ("message", "fix"),
    [
        ("Per-request mm_processor_kwargs are disabled", "--trust-request-mm-kwargs"),
        ("Video doesn't have audio track with `audio_in_video=True`", 'engine.media = "separate"'),
        ("At most 0 video(s) may be provided", "deploy.max_videos"),
    ],
)
async def test_a_refused_clip_is_told_with_what_helps(
    message: str, fix: str, capsys: pytest.CaptureFixture[str]
) -> None:
    server = Server()
    server.clip_refusal = message
    status, said = await examined(server, capsys)
    assert status == 1
    assert fix in said["camera and speech"]


async def test_memory_that_was_short_is_to_be_fixed_and_no_figures_are_none_of_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    server = Server()
    server.metrics = "vllm:num_preemptions_total 3\n"
    status, said = await examined(server, capsys)
    assert status == 1
    assert "deploy.max_num_seqs" in said["figures"]
    server.metrics = None
    assert (await examined(server, capsys))[0] == 0

"""The tiny Qwen3-Omni behind vLLM-Omni's contract, in a process of its own; `/answers` tells what it did.

`python -m omni.server SOCKET JSON` serves on a Unix socket the models that JSON names:
`{"name": {"folder": "…", "chunk_frames": [4, 25], "rtf": 0.47}}`. With `rtf`, which a CPU cannot keep by
itself, an answer is made whole and then given out at that pace: t seconds of sound take t * rtf.
"""

import argparse
import asyncio
import base64
import contextlib
import json
import logging
from collections.abc import AsyncGenerator, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from aiohttp import web

from omni.prepare import BadRequest, Prepared, prepare
from omni.stream import Codes, End, Piece, Sound, Text, TinyOmni

logger = logging.getLogger(__name__)

RATE = 24_000
MAX_BODY = 64 << 20
MAX_TOKENS = 32_768
"Of prompt and answer."

Json = dict[str, Any]  # of foreign requests, looked at before use


@dataclass(frozen=True, slots=True)
class Served:
    """How one model is served."""

    folder: str
    chunk_frames: tuple[int, int] = (4, 25)
    rtf: float | None = None
    "Seconds of work per second of sound; None is as fast as it goes."
    max_frames: int = 400


@dataclass(slots=True)
class Answer:
    """What became of one request."""

    id: int
    call: str
    "The caller's X-Visavis-Call."
    body: bytes = field(repr=False)
    prompt_tokens: int
    text: str = ""
    frames: int = 0
    "Codec frames made."
    state: Literal["running", "complete", "aborted"] = "running"
    "Aborted is said by the model's own generator, when it is closed."
    sound: bytes = field(default=b"", repr=False)
    "All that the vocoder made, as 16-bit PCM."

    def told(self) -> Json:
        shown = asdict(self)
        del shown["body"], shown["sound"]
        return {**shown, "samples": len(self.sound) // 2}


class OmniServer:
    """All models of the process, one worker that computes, and the book of answers."""

    def __init__(self, models: dict[str, Served]) -> None:
        self._models = models
        self._loaded = {
            folder: TinyOmni(Path(folder)) for folder in {model.folder for model in models.values()}
        }
        self._worker = ThreadPoolExecutor(1, "model")
        self.answers: list[Answer] = []

    def app(self) -> web.Application:
        app = web.Application(client_max_size=MAX_BODY)
        app.router.add_post("/v1/chat/completions", self._complete)
        app.router.add_get("/health", self._health)
        app.router.add_get("/answers", self._tell_answers)
        app.router.add_get("/answers/{id}/sound", self._tell_sound)
        app.router.add_get("/answers/{id}/request", self._tell_request)
        return app

    async def _health(self, _: web.Request) -> web.Response:
        return web.Response()

    async def _tell_answers(self, _: web.Request) -> web.Response:
        return web.json_response([answer.told() for answer in self.answers])

    async def _tell_sound(self, request: web.Request) -> web.Response:
        return web.Response(body=self.answers[int(request.match_info["id"])].sound)

    async def _tell_request(self, request: web.Request) -> web.Response:
        return web.Response(body=self.answers[int(request.match_info["id"])].body)

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        raw = await request.read()
        try:
            body = _checked(raw, self._models, self._voices)
            served = self._models[body["model"]]
            omni = self._loaded[served.folder]
            prepared = await self._compute(prepare, omni.processor, body)
            prompt = prepared.inputs["input_ids"].shape[1]
            if prompt + body.get("max_tokens", 1) > MAX_TOKENS:
                raise BadRequest(f"The prompt has {prompt} tokens: with max_tokens too many.")
        except BadRequest as error:
            return _refusal(400, str(error))
        except LookupError as error:
            return _refusal(404, str(error))
        answer = Answer(len(self.answers), request.headers.get("X-Visavis-Call", ""), raw, prompt)
        self.answers.append(answer)
        response = web.StreamResponse(
            headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache"}
        )
        await response.prepare(request)
        pieces = self._make(answer, omni, prepared, served, body)
        async with aclosing(self._paced(pieces, served.rtf)) as paced:
            writer = _Writer(response, body, answer)
            await writer.begin()
            async for piece in paced:
                await writer.write(piece)
            await writer.end()
        return response

    def _voices(self, model: str) -> list[str]:
        return self._loaded[self._models[model].folder].voices

    def _make(
        self, answer: Answer, omni: TinyOmni, prepared: Prepared, served: Served, body: Json
    ) -> Generator[Piece, None, None]:
        """Run the model, and keep the book."""
        speaks = "audio" in body.get("modalities", ["text", "audio"])
        try:
            for piece in omni.answer(
                prepared.inputs,
                interleaved=prepared.interleaved,
                voice=(body.get("voice") or "ethan") if speaks else None,
                max_tokens=body.get("max_tokens", 128),
                max_frames=served.max_frames,
                chunk_frames=served.chunk_frames,
                seed=body.get("seed", answer.id),
            ):
                match piece:
                    case Text(text):
                        answer.text += text
                    case Codes():
                        answer.frames += 1
                    case Sound(samples):
                        answer.sound += np.rint(samples * 32_767).astype("<i2").tobytes()
                yield piece
            answer.state = "complete"
        except GeneratorExit:
            answer.state = "aborted"
            raise

    async def _paced(
        self, pieces: Generator[Piece, None, None], rtf: float | None
    ) -> AsyncGenerator[Piece, None]:
        loop = asyncio.get_running_loop()
        try:
            if rtf is None:
                while (piece := await self._compute(next, pieces, None)) is not None:
                    yield piece
                return
            made: list[Piece] = await self._compute(list, pieces)
            started = loop.time()
            sounded = 0
            for piece in made:
                if isinstance(piece, Sound):
                    sounded += len(piece.samples)
                    await asyncio.sleep(started + sounded / RATE * rtf - loop.time())
                yield piece
        finally:
            # By the worker, which may still be within it.
            await asyncio.shield(self._compute(pieces.close))

    async def _compute(self, work: Any, *args: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._worker, work, *args)


def _checked(raw: bytes, models: dict[str, Served], voices: Any) -> Json:
    """Read a request. Raises BadRequest, or LookupError for an unknown model."""
    try:
        body = json.loads(raw)
    except ValueError as error:
        raise BadRequest(f"The body is not JSON: {error}") from error
    if not isinstance(body, dict) or not isinstance(body.get("messages"), list) or not body["messages"]:
        raise BadRequest("`messages` are missing.")
    if body.get("model") not in models:
        raise LookupError(f"The model {body.get('model')!r} does not exist.")
    if not body.get("stream"):
        raise BadRequest("Only streams are served here.")
    modalities = body.get("modalities", ["text", "audio"])
    if not isinstance(modalities, list) or not modalities or set(modalities) - {"text", "audio"}:
        raise BadRequest(f"`modalities` are among text and audio, not {modalities}.")
    if "audio" in modalities and body.get("audio", {}).get("format", "pcm16") != "pcm16":
        raise BadRequest("Only pcm16 is served here.")
    known = voices(body["model"])
    if (voice := body.get("voice")) is not None and voice.lower() not in known:
        raise BadRequest(f"Invalid speaker {voice!r}. Supported: {', '.join(known)}")
    return body


class _Writer:
    """Writes pieces as the events of one stream."""

    def __init__(self, response: web.StreamResponse, body: Json, answer: Answer) -> None:
        self._response = response
        self._answer = answer
        self._speaks = "audio" in body.get("modalities", ["text", "audio"])
        self._shows = "text" in body.get("modalities", ["text", "audio"])
        self._usage = bool((body.get("stream_options") or {}).get("include_usage"))
        self._common = {
            "id": f"chatcmpl-{answer.id}",
            "object": "chat.completion.chunk",
            "model": body["model"],
        }
        self._end = End("stop", ())

    async def begin(self) -> None:
        await self._choice("text", {"role": "assistant", "content": ""})

    async def write(self, piece: Piece) -> None:
        match piece:
            case Text(text) if self._shows:
                await self._choice("text", {"content": text})
            case Sound(samples):
                pcm = np.rint(samples * 32_767).astype("<i2").tobytes()
                await self._choice(
                    "audio",
                    {"content": base64.b64encode(pcm).decode()},
                    audio_metadata={
                        "format": "pcm16",
                        "sample_rate_hz": RATE,
                        "frame_count": len(samples),
                        "channels": 1,
                    },
                )
            case End():
                self._end = piece

    async def end(self) -> None:
        modality = "audio" if self._speaks else "text"
        await self._choice(modality, {"content": ""}, finish_reason=self._end.reason)
        if self._usage:
            completion = len(self._end.tokens)
            usage = {"prompt_tokens": self._answer.prompt_tokens, "completion_tokens": completion}
            usage["total_tokens"] = sum(usage.values())
            await self._event({**self._common, "choices": [], "usage": usage})
        await self._response.write(b"data: [DONE]\n\n")
        await self._response.write_eof()

    async def _choice(
        self, modality: str, delta: Json, *, finish_reason: str | None = None, **more: Any
    ) -> None:
        choice = {"index": 0, "delta": delta, "finish_reason": finish_reason, **more}
        await self._event({**self._common, "choices": [choice], "modality": modality})

    async def _event(self, event: Json) -> None:
        await self._response.write(f"data: {json.dumps(event)}\n\n".encode())


def _refusal(status: int, message: str) -> web.Response:
    error = {
        "message": message,
        "type": "BadRequestError" if status == 400 else "NotFoundError",
        "code": status,
    }
    return web.json_response({"error": error}, status=status)


async def serve(socket: Path, models: dict[str, Served]) -> None:
    """Serve until cancelled; a line on standard output says when."""
    torch.set_num_threads(1)  # the other core is for the calls
    server = OmniServer(models)
    # Cancelling the handler of a caller that is gone is what ends its answer.
    runner = web.AppRunner(server.app(), handler_cancellation=True, access_log=None)
    await runner.setup()
    try:
        await web.UnixSite(runner, str(socket)).start()
        print("ready", flush=True)
        await asyncio.Event().wait()
    finally:
        await runner.cleanup()


def _read_models(text: str) -> dict[str, Served]:
    def served(options: Json) -> Served:
        if "chunk_frames" in options:
            options["chunk_frames"] = tuple(options["chunk_frames"])
        return Served(**options)

    return {name: served(options) for name, options in json.loads(text).items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("socket", type=Path)
    parser.add_argument("models", type=_read_models)
    options = parser.parse_args()
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve(options.socket, options.models))


if __name__ == "__main__":
    main()

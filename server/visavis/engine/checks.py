"""`visavis doctor --engine URL`: ask a running server for what calls will ask of it, and say what to fix."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass

import aiohttp
import av
import numpy as np

from ..audio import RATE, Pcm
from ..config import Config
from ..errors import EngineError, EngineRefused
from ..findings import Check, Finding
from ..frames import Frame
from ..rtc.camera import encode_jpeg
from . import AudioDelta, AudioPart, FramesPart, Message, Part, Request, TextDelta, TextPart, ThinkingDelta
from .health import read_figures, read_gpus, read_json
from .vllm import VllmEngine

_SECONDS = 1
"Of sound and pictures in the clip: one pair of pictures, the least that makes a video."
_FPS = 2
_SIDE = 224
_QUALITY = 85
_NO_VOICE = "visavis-doctor"
_SLOW_SOUND_S = 2.0
"A first sound later than this is felt as silence by whoever waits for it."
_HELLO = "Hello! Please say one short sentence."
_LOOK = "Please say in one short sentence what you see."


@dataclass(slots=True)
class _Reply:
    text: str = ""
    samples: int = 0
    first_text_s: float | None = None
    first_sound_s: float | None = None


@asynccontextmanager
async def engine_checks(config: Config) -> AsyncIterator[list[tuple[str, Check]]]:
    """Yield the checks of the server at `config.engine.url`, over HTTP; they can be run in the body.

    Raises:
        ConfigError: the address is none.
    """
    engine = VllmEngine(config.engine)
    headers = {} if config.engine.api_key is None else {"Authorization": f"Bearer {config.engine.api_key}"}
    try:
        async with aiohttp.ClientSession(headers=headers) as session:
            checks = _Checks(config, engine, session)
            yield [
                ("health", checks.health),
                ("model", checks.model),
                ("speech", checks.speech),
                ("voices", checks.voices),
                ("camera and speech", checks.clip),
                ("figures", checks.figures),
                ("GPUs of this machine", checks.gpus),
            ]
    finally:
        await engine.aclose()


class _Checks:
    def __init__(self, config: Config, engine: VllmEngine, session: aiohttp.ClientSession) -> None:
        self._config = config
        self._engine = engine
        self._session = session
        self._base = config.engine.url.rstrip("/").removesuffix("/v1")
        self._only_writes = False

    async def health(self) -> Finding:
        if await self._engine.ready():
            return Finding(f"{self._base} is well")
        try:
            status, _ = await read_json(self._session, f"{self._base}/health")
        except EngineError:
            fix = "Start it (visavis engine), or check the address."
            return Finding(f"nothing answers at {self._base}", fix, hopeless=True)
        fix = "Wait until it has loaded the model, or check the address: another server may be there."
        return Finding(f"{self._base}/health says {status} and not 200", fix, hopeless=True)

    async def model(self) -> Finding:
        """Look for our model, and whether its context holds what we send."""
        wanted = self._config.engine.model
        status, answer = await read_json(self._session, f"{self._base}/v1/models")
        if status in (401, 403):
            return Finding("the key is refused", "Set engine.api_key to the server's key.", hopeless=True)
        listed = answer.get("data") if isinstance(answer, dict) else None
        cards = [card for card in listed if isinstance(card, dict)] if isinstance(listed, list) else []
        found = next((card for card in cards if card.get("id") == wanted), None)
        if found is None:
            names = ", ".join(str(card.get("id")) for card in cards)
            fix = f"Set engine.model to one of them, or serve it with --served-model-name {wanted}."
            return Finding(f"{wanted} is not served, but {names or 'nothing'}", fix, hopeless=True)
        window, assumed = found.get("max_model_len"), self._config.engine.window
        if not isinstance(window, int):
            return Finding(f"{wanted}, context unknown, {assumed} tokens assumed")
        seen = f"{wanted}, context of {window} tokens, {assumed} of them used"
        if assumed > window:
            fix = f"Serve it with --max-model-len {assumed}, or set engine.context_tokens = {window}."
            return Finding(seen, fix)
        return Finding(seen)

    async def speech(self) -> Finding:
        engine = self._config.engine
        reply = await self._ask(_HELLO)
        if not reply.text.strip():
            return Finding(
                "no text came", "Check that it serves an Instruct or Thinking model of Qwen3-Omni."
            )
        if reply.first_sound_s is not None:
            seen = (
                f"first text after {reply.first_text_s or 0:.2f} s, first sound after"
                f" {reply.first_sound_s:.2f} s, {reply.samples / RATE:.1f} s in all: “{reply.text.strip()}”"
            )
            if reply.first_sound_s > _SLOW_SOUND_S:
                return Finding(
                    seen, "Ask again when it is warm; then see deploy.codec_chunk_frames and the GPUs."
                )
            return Finding(seen)
        self._only_writes = True
        seen = f"text only, first after {reply.first_text_s or 0:.2f} s: “{reply.text.strip()}”"
        if not engine.speak or engine.thinking:
            return Finding(f"{seen}, as asked")
        if engine.embedded_voice:
            return Finding(f"{seen}; the embedded voice will speak")
        return Finding(
            seen, "Serve with speech (deploy.text_only = false), or set engine.embedded_voice = true."
        )

    async def voices(self) -> Finding:
        engine = self._config.engine
        if not engine.speak or engine.thinking:
            return Finding("not asked for")
        try:
            await self._ask(_HELLO, voice=_NO_VOICE, enough=True)
        except EngineRefused as error:
            return Finding("an unknown voice is refused, without a list", str(error))
        known = self._engine.voices
        if not known and self._only_writes:
            return Finding("it only writes and has none")
        if not known:
            return Finding("it names none: any name is taken, and its own voice speaks")
        if engine.voice is not None and engine.voice.casefold() not in {name.casefold() for name in known}:
            fix = f"Set engine.voice to one of them; “{engine.voice}” is another's."
            return Finding(", ".join(known), fix)
        return Finding(", ".join(known))

    async def clip(self) -> Finding:
        """Send camera and speech just as a call does."""
        media = self._config.engine.media
        clip = (FramesPart(_frames(), "doctor-frames"), AudioPart(_tone(), "doctor-sound"))
        try:
            reply = await self._ask(_LOOK, *clip)
        except EngineRefused as error:
            return Finding(f"refused as {media}: {error}", _media_fix(str(error)))
        if not reply.text.strip():
            return Finding("no answer to what was shown", "Check that it serves a model that sees and hears.")
        return Finding(f"taken as {media}, answered: “{reply.text.strip()}”")

    async def figures(self) -> Finding:
        """Tell how it is doing; a server without figures works too."""
        try:
            figures = await read_figures(self._session, self._base)
        except EngineError as error:
            return Finding(str(error))
        if figures.preemptions:
            fix = "Memory was short: lower deploy.max_num_seqs or deploy.max_model_len, or add GPUs."
            return Finding(str(figures), fix)
        return Finding(str(figures))

    async def gpus(self) -> Finding:
        return Finding("; ".join(map(str, await read_gpus())) or "no nvidia-smi here")

    async def _ask(self, text: str, *parts: Part, voice: str | None = None, enough: bool = False) -> _Reply:
        """Ask once; with `enough` only until it begins to answer."""
        loop = asyncio.get_running_loop()
        started, reply = loop.time(), _Reply()
        rules = Message("system", (TextPart(self._config.conversation.session.instructions),))
        request = Request("doctor", (rules, Message("user", (*parts, TextPart(text)))), voice=voice)
        async with aclosing(self._engine.respond(request)) as deltas:
            async for delta in deltas:
                passed = loop.time() - started
                match delta:
                    case TextDelta(piece):
                        reply.text += piece
                        reply.first_text_s = reply.first_text_s or passed
                    case AudioDelta(pcm):
                        reply.samples += len(pcm)
                        reply.first_sound_s = reply.first_sound_s or passed
                    case ThinkingDelta():
                        pass
                    case _:
                        continue
                if enough:
                    break
        return reply


def _media_fix(message: str) -> str:
    if "trust" in message or "mm_processor_kwargs" in message or "media_io_kwargs" in message:
        return "Start the server with --trust-request-mm-kwargs (visavis engine does), for our requests only."
    if "audio_in_video" in message:
        return 'Serve a release that takes sound within a video, or set engine.media = "separate".'
    return 'Set engine.media = "separate", or "frames"; and see deploy.max_videos and deploy.max_audios.'


def _frames() -> tuple[Frame, ...]:
    """Return pictures of a square that moves, so that no two are the same."""
    pictures = []
    for number in range(_SECONDS * _FPS):
        pixels = np.full((_SIDE, _SIDE, 3), 32, np.uint8)
        pixels[80:144, 40 + 80 * number : 104 + 80 * number] = (220, 40, 40)
        picture = av.VideoFrame.from_ndarray(pixels, format="rgb24")
        pictures.append(encode_jpeg(picture, number * RATE // _FPS, _SIDE, _QUALITY))
    return tuple(pictures)


def _tone() -> Pcm:
    steps = np.arange(_SECONDS * RATE) * (2 * np.pi * 440 / RATE)
    tone: Pcm = (8_000 * np.sin(steps)).astype(np.int16)
    return tone

"""`visavis call`: a caller without a browser. Speaks recorded questions, hears the replies, measures them.

The same media path as a browser's: a real offer, ICE, DTLS, Opus both ways and the data channel.
"""

import asyncio
import json
import logging
import statistics
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np

from .audio import BLOCK, EMPTY, RATE, Pcm, decode_wav, encode_wav, level_dbfs, resample
from .config import RtcConfig
from .dialer import Dialer
from .errors import CallError
from .film import Film
from .frames import Frame, Source
from .rtc import Media

logger = logging.getLogger(__name__)

_AUDIBLE_DBFS = -50.0
"A received block above this is sound: room tone and codec noise are well below."
_SPEECH_RANGE_DB = 30.0
"Speech ends with the last block so far below the loudest: quieter is breath and room."
_REPLY_S = 90.0
"The longest wait for a reply to end."
_CAMERA_FPS = 12.0
_PAUSE_S = 0.6
"Between the end of a reply and the next question, as a person would leave."
RECONNECTS = 5
"Lost calls after which no further one is made."
_GO_ON_S = 3.0
"A call that goes on says by then what is left of the reply, or there is nothing left."


@dataclass(frozen=True)
class Question:
    """Recorded speech. `end` is where it ends, in samples; room tone may follow."""

    name: str
    pcm: Pcm
    end: int


@dataclass
class Turn:
    """What came of one question. Times are milliseconds after the end of its speech."""

    question: str
    user_transcript: str | None = None
    reply_text: str = ""
    reply_seconds: float = 0.0
    first_audio_ms: int | None = None
    events: list[dict[str, Any]] = field(default_factory=list)
    error: str | None = None


def load_question(path: Path) -> Question:
    """Read a WAV of any rate. Raises CallError."""
    try:
        pcm, rate = decode_wav(path.read_bytes())
    except (OSError, ValueError) as error:
        raise CallError(f"cannot read the question {path}: {getattr(error, 'strerror', error)}") from error
    pcm = resample(pcm, rate, RATE)
    levels = [level_dbfs(pcm[at : at + BLOCK]) for at in range(0, len(pcm), BLOCK)]
    loudest = max(levels, default=-100.0)
    if loudest < _AUDIBLE_DBFS:
        raise CallError(f"the question {path} has no audible sound")
    voiced = max(i for i, level in enumerate(levels) if level > loudest - _SPEECH_RANGE_DB)
    return Question(str(path), pcm, min(len(pcm), (voiced + 1) * BLOCK))


class Caller:
    """The peer's handler: a microphone that plays questions, an ear that notes when sound comes."""

    def __init__(self) -> None:
        self.opened = asyncio.Event()
        self.over = asyncio.Event()
        self.why_over = ""
        self.heard: list[Pcm] = []
        "What came, 20 ms each, since the turn began."
        self.turn: Turn | None = None
        self.reply_over = asyncio.Event()
        self.reply_begun = asyncio.Event()
        "In this call."
        self.handed_in = False
        "The server has all of the question."
        self.send: Callable[[str], None] = lambda _: None
        "Sends a message in the present call."
        self._said: dict[str, str] = {}
        "The words of the reply by the items that hold them."
        self._comes_back = False
        self._loop = asyncio.get_running_loop()
        self._question = Question("", EMPTY, 0)
        self._at = 0
        self._spoken_at: float | None = None
        self._cancelled = False

    def begin_call(self) -> None:
        """There is another call from now on."""
        self.opened.clear()
        self.over.clear()
        self.reply_over.clear()
        self.reply_begun.clear()
        self._comes_back = False

    def ask(self, question: Question, turn: Turn) -> None:
        """Begin to speak."""
        self.turn = turn
        self.heard = []
        self.reply_over.clear()
        self.handed_in = False
        self._said = {}
        self._question, self._at, self._spoken_at = question, 0, None
        self._cancelled = False

    # What the peer calls.

    def pull_audio(self) -> Pcm:
        block = self._question.pcm[self._at : self._at + BLOCK]
        self._at += BLOCK
        if self.turn is not None and self._spoken_at is None and self._at >= self._question.end:
            self._spoken_at = self._loop.time()
        if len(block) == BLOCK:
            return block
        padded = np.zeros(BLOCK, np.int16)
        padded[: len(block)] = block
        return padded

    def receive_audio(self, pcm: Pcm) -> None:
        turn = self.turn
        if turn is None:
            return
        self.heard.append(pcm)
        if self._spoken_at is not None and turn.first_audio_ms is None and level_dbfs(pcm) > _AUDIBLE_DBFS:
            turn.first_audio_ms = self._since(self._spoken_at)

    def wants_frame(self, at: int, source: Source = "camera") -> bool:
        return False

    def receive_frame(self, frame: Frame) -> None:
        pass

    def receive_message(self, text: str) -> None:
        event = json.loads(text)
        kind = event.get("type", "")
        logger.debug("event %s", kind)
        if kind == "session.created":
            self.opened.set()
        turn = self.turn
        if turn is None:
            return
        note: dict[str, Any] = {"type": kind}
        if self._spoken_at is not None:
            note["ms"] = self._since(self._spoken_at)
        turn.events.append(note)
        match kind:
            case "conversation.item.input_audio_transcription.completed":
                turn.user_transcript = event["transcript"]
            case "input_audio_buffer.speech_started":
                self.handed_in = False
            case "input_audio_buffer.committed":
                self.handed_in = True
            case "visavis.resumed":
                self._go_on(event["item_ids"])
            case "conversation.item.retrieved":
                self._note_said(event["item"]["id"], event["item"]["content"][0].get("transcript") or "")
            case "response.output_audio_transcript.delta" | "response.output_text.delta":
                item_id = event["item_id"]
                self._note_said(item_id, self._said.get(item_id, "") + event["delta"])
            case "response.created":
                self.reply_begun.set()
                if not self._comes_back:
                    self._said = {}
                    turn.reply_text = ""
            case "response.done":
                response = event["response"]
                self._cancelled = response["status"] == "cancelled"
                if response["status"] == "failed":
                    error = (response.get("status_details") or {}).get("error") or {}
                    turn.error = error.get("message") or error.get("code") or "failed"
            case "visavis.turn_timings":
                note["marks"] = event["marks"]
                # A response that our own further speech broke off is followed by another one.
                if event["final"] and not self._cancelled:
                    self.reply_over.set()
            case "error":
                note["error"] = event["error"]
            case _:
                pass

    def _go_on(self, item_ids: list[str]) -> None:
        """This call goes on from the last one: of the reply so far, what was heard is there."""
        self._comes_back = True
        for item_id in [*self._said]:
            if item_id not in item_ids:
                del self._said[item_id]
            else:
                self.send(json.dumps({"type": "conversation.item.retrieve", "item_id": item_id}))

    def _note_said(self, item_id: str, text: str) -> None:
        self._said[item_id] = text
        if self.turn is not None:
            self.turn.reply_text = " ".join(text.strip() for text in self._said.values())

    def channel_opened(self) -> None:
        pass

    def connected(self) -> None:
        pass

    def closed(self, reason: str) -> None:
        self.why_over = reason
        self.over.set()
        self.reply_over.set()

    def _since(self, start: float) -> int:
        return round((self._loop.time() - start) * 1000)


async def call(
    *,
    server: str,
    key: str | None,
    questions: list[Path],
    video: Path | None = None,
    turns: int | None = None,
    save: Path | None = None,
    report: Path | None = None,
    reconnects: int = RECONNECTS,
) -> int:
    """Call, ask each question, print what came. Returns 0, or 1 if a turn had no reply.

    A call that is lost goes on in another where the server can: the reply to a question that was handed in
    is heard to its end there, any other question is asked again. Raises CallError when a call cannot be
    made, or one more than `reconnects` is lost.
    """
    if not server.startswith(("http://", "https://")):
        raise CallError(f"{server} is no address of a server; write http://… or https://…")
    asked = [load_question(path) for path in questions]
    caller = Caller()
    next_picture = Film(video, _CAMERA_FPS).next_picture if video is not None else None
    done: list[Turn] = []
    kept: list[Pcm] = []
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    # A connection that was kept is of no use on another network.
    connector = aiohttp.TCPConnector(force_close=True)
    async with (
        aiohttp.ClientSession(headers=headers, connector=connector) as http,
        Media(RtcConfig()) as media,
    ):
        line = Dialer(http, server, lambda: media.caller(caller, next_picture, _CAMERA_FPS), caller)
        try:
            await line.connect()
            for index in range(turns or len(asked)):
                question = asked[index % len(asked)]
                turn = await _ask(caller, question)
                while caller.over.is_set():
                    if not reconnects:
                        raise CallError(f"the call was lost: {caller.why_over}")
                    reconnects -= 1
                    print(f"The call was lost ({caller.why_over}); calling again.", flush=True)
                    await line.reconnect()
                    turn = await _go_on(caller, question, turn)
                turn.reply_seconds = _audible_seconds(caller.heard, turn)
                kept += caller.heard
                done.append(turn)
                _print_turn(len(done), turn)
                await asyncio.sleep(_PAUSE_S)
        finally:
            await line.aclose()
            _write_results(line.call_id, done, kept, save, report)
    return 0 if all(turn.first_audio_ms is not None and turn.error is None for turn in done) else 1


async def _ask(caller: Caller, question: Question) -> Turn:
    """Speak a question and wait for the reply's end, or the call's."""
    turn = Turn(question.name)
    caller.ask(question, turn)
    if not caller.over.is_set():
        await _wait_for_reply(caller, question, turn)
    return turn


async def _go_on(caller: Caller, question: Question, turn: Turn) -> Turn:
    """Hear the rest of a reply in another call, or ask again where there is none."""
    if caller.handed_in:
        try:
            async with asyncio.timeout(_GO_ON_S):
                await caller.reply_begun.wait()
            print("The talk goes on where it was.", flush=True)
            await _wait_for_reply(caller, question, turn)
            return turn
        except TimeoutError:
            if turn.first_audio_ms is not None:
                return turn  # all that was to be heard of it was
    print("The question is asked again.", flush=True)
    return await _ask(caller, question)


async def _wait_for_reply(caller: Caller, question: Question, turn: Turn) -> None:
    try:
        async with asyncio.timeout(len(question.pcm) / RATE + _REPLY_S):
            await caller.reply_over.wait()
    except TimeoutError:
        turn.error = f"no reply within {_REPLY_S:.0f} s"


def _audible_seconds(blocks: list[Pcm], turn: Turn) -> float:
    if turn.first_audio_ms is None:
        return 0.0
    audible = [i for i, block in enumerate(blocks) if level_dbfs(block) > _AUDIBLE_DBFS]
    return round((audible[-1] - audible[0] + 1) * BLOCK / RATE, 2) if audible else 0.0


def _print_turn(number: int, turn: Turn) -> None:
    first = f"{turn.first_audio_ms} ms" if turn.first_audio_ms is not None else "no sound"
    print(f"{number:3}  {turn.question}")
    print(f"     you:   {turn.user_transcript if turn.user_transcript is not None else '(no transcript)'}")
    print(f"     reply: {turn.reply_text.strip() or '(none)'}")
    print(f"     first audio {first}, {turn.reply_seconds:.1f} s" + (f", {turn.error}" if turn.error else ""))


def _write_results(
    call_id: str, turns: list[Turn], heard: list[Pcm], save: Path | None, report: Path | None
) -> None:
    times = [turn.first_audio_ms for turn in turns if turn.first_audio_ms is not None]
    if times:
        print(
            f"first audio: median {statistics.median(times):.0f} ms, worst {max(times)} ms"
            f" ({len(times)} turns)"
        )
    try:
        if save is not None:
            save.write_bytes(encode_wav(np.concatenate([EMPTY, *heard]), RATE))
        if report is not None:
            rows = []
            for turn in turns:
                row = asdict(turn)
                if row["error"] is None:
                    del row["error"]
                rows.append(row)
            report.write_text(json.dumps({"call_id": call_id, "turns": rows}, indent=1), encoding="utf-8")
    except OSError as error:
        raise CallError(f"cannot write the results: {error}") from error

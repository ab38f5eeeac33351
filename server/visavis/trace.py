"""What a call leaves behind: one log line a turn, and on demand one JSONL a call that can be replayed.

A record has inputs (`"in"`) and the conversation's answers (`"out"`), in order, with times in monotonic
seconds. No media is written: of sound the length and what was heard in it, of pictures size and digest.
`tools/replay.py` feeds the inputs to a fresh conversation and compares the answers.
"""

import asyncio
import dataclasses
import hashlib
import json
import logging
from pathlib import Path
from typing import Any

import numpy as np

from . import events as ev
from .actions import Action, Notify
from .audio import Pcm
from .config import TraceConfig
from .ear import Ear, Sound
from .engine import Delta
from .errors import EngineError
from .frames import Frame

logger = logging.getLogger(__name__)

_MAX_LINES = 50_000
"Lines held while the disk is slow; further ones are dropped and counted."


class CallTrace:
    """One call's record. Without a directory it only logs turns."""

    def __init__(self, config: TraceConfig, call_id: str) -> None:
        self._call_id = call_id
        self._path = None if config.dir is None else config.dir / f"{call_id}.jsonl"
        self._lines: list[str] = []
        self._dropped = 0
        self._status: dict[int, str] = {}
        self._ear: _Listening | None = None

    async def run(self) -> None:
        """Write what has gathered, once a second, off the event loop."""
        while self._path is not None:
            await asyncio.sleep(1)
            await self._flush()

    async def aclose(self) -> None:
        """Write the rest."""
        await self._flush()

    # Inputs.

    def listen_to(self, ear: Ear) -> Ear:
        """Return an ear that is `ear` and remembers its last word for the record."""
        if self._path is None:
            return ear
        self._ear = _Listening(ear)
        return self._ear

    def start(self, **settings: Any) -> None:
        """Note what a fresh conversation needs to be the same as this one."""
        self._write("in", "start", 0.0, **settings)

    def begin(self, now: float) -> None:
        self._write("in", "begin", now)

    def audio(self, samples: int, now: float) -> None:
        if self._ear is not None:
            self._write("in", "audio", now, n=samples, sound=self._ear.last)

    def frame_offered(self, at: int, wanted: bool, now: float) -> None:
        self._write("in", "offer", now, at=at, wanted=wanted)

    def frame(self, frame: Frame, now: float) -> None:
        self._write("in", "frame", now, frame=frame)

    def delta(self, response_id: int, delta: Delta, now: float) -> None:
        self._write("in", "delta", now, id=response_id, delta=delta)

    def failure(self, response_id: int, error: EngineError, now: float) -> None:
        self._write("in", "failure", now, id=response_id, code=error.code, message=str(error))

    def text(self, end: int, text: str, now: float) -> None:
        self._write("in", "text", now, end=end, text=text)

    def verdict(self, end: int, verdict: float, now: float) -> None:
        self._write("in", "verdict", now, end=end, verdict=verdict)

    def client(self, event: ev.ClientEvent, now: float) -> None:
        self._write("in", "client", now, event=event)

    def pull(self, samples: int, now: float) -> None:
        self._write("in", "pull", now, n=samples)

    def timeout(self, now: float) -> None:
        self._write("in", "timeout", now)

    # Answers.

    def action(self, action: Action) -> None:
        self._write("out", "action", None, action=action)
        match action:
            case Notify(ev.ResponseDone(response_id, status)):
                self._status[response_id] = status
            case Notify(ev.TurnTimings(response_id, item_id, marks, final=True, route=route)):
                turn = {
                    "call": self._call_id,
                    "response": response_id,
                    "item": item_id,
                    "status": self._status.pop(response_id, "unknown"),
                    **({} if route is None else {"engine": route.engine, "route": route.reason}),
                    **{f"{name}_ms": ms for name, ms in marks.items()},
                }
                logger.info("turn %s", json.dumps(turn))
            case _:
                pass

    # The file.

    def _write(self, direction: str, kind: str, now: float | None, **fields: Any) -> None:
        if self._path is None:
            return
        if len(self._lines) >= _MAX_LINES:
            self._dropped += 1
            return
        record = {direction: kind, **({} if now is None else {"t": now})}
        record.update({name: plain(value) for name, value in fields.items()})
        self._lines.append(json.dumps(record, separators=(",", ":")))

    async def _flush(self) -> None:
        if self._path is None or not self._lines:
            return
        lines, self._lines = self._lines, []
        try:
            await asyncio.to_thread(_append, self._path, lines)
        except OSError as error:
            logger.warning("%s: the trace stops here: %s", self._call_id, error)
            self._path = None
        if self._dropped:
            logger.warning("%s: the trace lacks %d records", self._call_id, self._dropped)
            self._dropped = 0


class _Listening:
    """An ear that remembers its last word."""

    def __init__(self, ear: Ear) -> None:
        self._ear = ear
        self.last = Sound(0.0)

    def receive(self, pcm: Pcm) -> Sound:
        self.last = self._ear.receive(pcm)
        return self.last

    def play(self, pcm: Pcm) -> None:
        self._ear.play(pcm)

    def reset(self) -> None:
        self._ear.reset()


def plain(value: Any) -> Any:  # JSON is untyped
    """Return a value as JSON that keeps its shape but no media."""
    match value:
        case np.ndarray():
            return {"samples": len(value)}
        case bytes():
            return {"bytes": len(value), "digest": hashlib.sha256(value).hexdigest()[:16]}
        case dict():
            return {key: plain(item) for key, item in value.items()}
        case list() | tuple():
            return [plain(item) for item in value]
        case _ if dataclasses.is_dataclass(value) and not isinstance(value, type):
            fields = {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
            return {"is": type(value).__name__, **fields}
        case Path():
            return str(value)
        case _:
            return value


def _append(path: Path, lines: list[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with path.open("a", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in lines)

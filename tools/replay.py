#!/usr/bin/env python3
"""Run a call's trace through the core again and compare what the conversation does.

usage: replay.py TRACE.jsonl

Exit status: 0 the same, 1 it differs (the first difference is shown), 2 the file is no trace.
"""

import argparse
import contextlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from visavis import config as cfg
from visavis import engine as eng
from visavis import errors, history
from visavis import events as ev
from visavis.audio import Pcm
from visavis.conversation import Conversation
from visavis.ear import Sound
from visavis.frames import Frame
from visavis.lines import NO_LINES, Line, Lines
from visavis.trace import plain
from visavis.unsaid import Unsaid

_CLASSES: dict[str, type] = {
    name: value
    for module in (cfg, ev, eng, history)
    for name, value in vars(module).items()
    if isinstance(value, type) and value.__module__ == module.__name__
} | {"Frame": Frame, "Line": Line, "Lines": Lines, "Sound": Sound, "Unsaid": Unsaid}

_ERRORS = {
    error.code: error
    for error in (errors.EngineError, errors.EngineRefused, errors.EngineBusy, errors.EngineLost)
}


class RecordedEar:
    """Says what was heard when the call was recorded."""

    def __init__(self) -> None:
        self.sound = Sound(0.0)

    def receive(self, pcm: Pcm) -> Sound:
        return self.sound

    def play(self, pcm: Pcm) -> None:
        pass

    def reset(self) -> None:
        pass


def revive(value: Any) -> Any:
    """Turn the JSON of `trace.plain` into values of the same shape; media become zeros of the same length."""
    match value:
        case {"samples": int(samples)}:
            return np.zeros(samples, np.int16)
        case {"bytes": int(size), "digest": str(digest)}:
            return digest.encode().ljust(size, b"\0")[:size]
        case {"is": str(name), **fields}:
            return _CLASSES[name](**{key: revive(item) for key, item in fields.items()})
        case list():
            return tuple(revive(item) for item in value)
        case dict():
            return {key: revive(item) for key, item in value.items()}
        case _:
            return value


def without_media(value: Any) -> Any:
    """Drop the digests: pictures are compared by size alone, since their bytes were not kept."""
    if isinstance(value, dict):
        return {key: without_media(item) for key, item in value.items() if key != "digest"}
    return [without_media(item) for item in value] if isinstance(value, list) else value


def answers(records: list[dict[str, Any]]) -> Iterator[Any]:
    """Feed the inputs to a fresh conversation and yield its actions as JSON."""
    start = records[0]
    ear = RecordedEar()
    lines = revive(start["lines"]) if "lines" in start else NO_LINES
    past = revive(start["past"]) if "past" in start else ()
    conversation = Conversation(
        revive(start["config"]),
        ear,
        start["call_id"],
        lines,
        past,
        revive(start["server_tools"]) if "server_tools" in start else (),
        unsaid=revive(start["unsaid"]) if "unsaid" in start else None,
        tells_audio=start.get("tells_audio", False),
    )
    for record in records:
        now = record.get("t", 0.0)
        match record.get("in"):
            case "begin":
                conversation.begin(now)
            case "audio":
                ear.sound = revive(record["sound"])
                conversation.receive_audio(np.zeros(record["n"], np.int16), now)
            case "offer":
                conversation.wants_frame(record["at"])
            case "frame":
                conversation.receive_frame(revive(record["frame"]), now)
            case "delta":
                conversation.receive_delta(record["id"], revive(record["delta"]), now)
            case "failure":
                conversation.receive_failure(record["id"], _ERRORS[record["code"]](record["message"]), now)
            case "client":
                # One that was refused when it was recorded is refused again and changes nothing.
                with contextlib.suppress(errors.ClientEventError):
                    conversation.receive_client(revive(record["event"]), now)
            case "text":
                conversation.receive_text(record["end"], record["text"], now)
            case "verdict":
                conversation.receive_verdict(record["end"], record["verdict"], now)
            case "pull":
                conversation.pull_audio(record["n"], now)
            case "timeout":
                conversation.handle_timeout(now)
            case _:
                pass
        while (action := conversation.next_action()) is not None:
            yield json.loads(json.dumps(plain(action)))


def replay(path: Path) -> str | None:
    """Return the first difference as text, or None. Raises ValueError for a file that is no trace."""
    records = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    if not records or records[0].get("in") != "start":
        raise ValueError(f"{path} is no trace: its first record must be the start of a call")
    recorded = [record["action"] for record in records if record.get("out") == "action"]
    replayed = list(answers(records))
    for index, (was, now) in enumerate(zip(recorded, replayed, strict=False)):
        if without_media(was) != without_media(now):
            return f"action {index}\n  recorded {json.dumps(was)}\n  replayed {json.dumps(now)}"
    if len(recorded) != len(replayed):
        return f"{len(recorded)} actions were recorded, {len(replayed)} came out of the replay"
    return None


def main() -> int:
    parser = argparse.ArgumentParser(description="Replay a call's trace and compare.")
    parser.add_argument("trace", type=Path)
    path = parser.parse_args().trace
    try:
        difference = replay(path)
    except (OSError, ValueError, KeyError) as error:
        print(f"cannot replay {path}: {error}", file=sys.stderr)
        return 2
    print(f"differs at {difference}" if difference else "the same")
    return 1 if difference else 0


if __name__ == "__main__":
    sys.exit(main())

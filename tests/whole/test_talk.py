"""Talk with the embedded engine over real WebRTC: what is asked is heard, answered, spoken and survives."""

import asyncio
import json
import os
import re
import signal
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from PIL import Image, ImageDraw, ImageFont

from loopback.kit import Caller, until
from speech import write_wav
from visavis.audio import decode_wav, resample
from visavis.caller import call
from visavis.config import LocalConfig
from visavis.local import models
from visavis.local.whisper import Recogniser

pytestmark = [pytest.mark.models, pytest.mark.loopback]

PATIENCE_S = 120.0
"Bounds a test that has failed: on a busy machine a model takes its time."


@pytest.fixture(scope="module")
def ears() -> Recogniser:
    """Hear as the product does, to check what it said."""
    folder = models.resolve(LocalConfig().whisper, models.cache_dir(None, os.environ))
    return Recogniser(folder, threads=1)


def words(text: str) -> list[str]:
    return re.findall(r"[a-z0-9']+", text.lower())


def error_rate(said: str, heard: str) -> float:
    """Word error rate: edits per word said (Levenshtein)."""
    a, b = words(said), words(heard)
    row = list(range(len(b) + 1))
    for i, word in enumerate(a, 1):
        last, row[0] = row[0], i
        for j, other in enumerate(b, 1):
            last, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, last + (word != other))
    return row[-1] / max(1, len(a))


async def ask(url: str, folder: Path, questions: list[Path], **options: Any) -> list[dict[str, Any]]:
    report = folder / "report.json"
    await call(server=url, key=None, questions=questions, report=report, **options)
    turns: list[dict[str, Any]] = json.loads(report.read_text())["turns"]
    return turns


@pytest.mark.parametrize("voice", ["hibari", "american", "deep"])
async def test_a_question_is_heard_and_answered_aloud(product, ears, say, tmp_path: Path, voice: str):
    question = write_wav(tmp_path / "question.wav", say("How do I boil an egg?", voice))
    reply = tmp_path / "reply.wav"
    [turn] = await ask(product.url, tmp_path, [question], save=reply)
    assert words(turn["user_transcript"]) == ["how", "do", "i", "boil", "an", "egg"]
    assert {"egg", "water", "boil"} & set(words(turn["reply_text"]))
    pcm, rate = decode_wav(reply.read_bytes())
    heard = await asyncio.to_thread(ears.recognise, resample(pcm, rate, 16_000))
    assert error_rate(turn["reply_text"], heard.text) <= 0.2
    assert turn["first_audio_ms"] > 0


@pytest.mark.people
async def test_people_are_understood(product, recordings: dict[Path, str], tmp_path: Path):
    names = ("hg_goforward.wav", "hu_0880.wav", "hu_0890.wav")
    said = {path: text for path, text in recordings.items() if path.name in names}
    turns = await ask(product.url, tmp_path, list(said))
    rates = {
        path.name: error_rate(text, turn["user_transcript"])
        for turn, (path, text) in zip(turns, said.items(), strict=True)
    }
    # “ten meters” comes as “10 meters”.
    assert max(rates.values()) <= 0.35, rates
    assert sum(rates.values()) / len(rates) <= 0.2, rates
    assert all(turn["reply_text"].strip() and turn["reply_seconds"] > 0.3 for turn in turns)


async def test_what_was_said_before_is_remembered(product, say, tmp_path: Path):
    questions = [
        write_wav(tmp_path / f"{i}.wav", say(text))
        for i, text in enumerate(["Hello, my name is Anna.", "Can you tell me what my name is?"])
    ]
    turns = await ask(product.url, tmp_path, questions)
    assert re.search(r"\banna\b", turns[1]["reply_text"].lower())


async def test_a_sign_before_the_camera_is_read_out(product, say, tmp_path: Path):
    sign = Image.new("RGB", (640, 360), (90, 100, 95))
    draw = ImageDraw.Draw(sign)
    draw.rectangle((120, 110, 520, 250), fill=(240, 238, 230))
    draw.text((150, 150), "MEETING AT 3 PM", fill=(20, 20, 40), font=ImageFont.load_default(size=42))
    sign.save(tmp_path / "sign.png")
    question = write_wav(tmp_path / "question.wav", say("What does the sign say?"))
    [turn] = await ask(product.url, tmp_path, [question], video=tmp_path / "sign.png")
    assert re.search(r"meeting at (3|three) p\.?m", turn["reply_text"].lower())


async def test_two_callers_at_once_get_their_own_answers(product, say):
    async with (
        aiohttp.ClientSession() as http,
        Caller(product.url, http) as one,
        Caller(product.url, http) as two,
    ):
        one.ear.say(say("What is the capital of France?"))
        two.ear.say(say("What is the capital of Japan?"))
        for ear in (one.ear, two.ear):
            await until(
                lambda ear=ear: ear.kinds()["output_audio_buffer.stopped"] >= 1, "an answer", PATIENCE_S
            )
        assert {"paris", "tokyo"} & set(words(answers(one))) == {"paris"}
        assert {"paris", "tokyo"} & set(words(answers(two))) == {"tokyo"}


async def test_an_engine_killed_in_mid_word_is_told_and_the_next_turn_works(product, say):
    async with aiohttp.ClientSession() as http, Caller(product.url, http) as caller:
        ear = caller.ear
        ear.say(say("Please tell me how to boil an egg, step by step."))
        await until(ear.hears, "the answer is heard", PATIENCE_S)
        before = product.engine_pid()
        os.kill(before, signal.SIGKILL)
        await until(lambda: ear.kinds()["response.done"] >= 1, "the end of the answer", PATIENCE_S)
        status = [event["response"]["status"] for event in ear.events if event["type"] == "response.done"]
        assert status == ["failed"]
        assert ear.kinds()["error"] == 1
        await asyncio.to_thread(product.wait_ready, "the engine after its death")
        assert product.engine_pid() != before
        ear.events.clear()
        ear.say(say("What is the capital of France?"))
        await until(lambda: ear.kinds()["output_audio_buffer.stopped"] >= 1, "the next answer", PATIENCE_S)
        assert "paris" in words(answers(caller))


def test_the_engine_is_told_not_to_report_to_the_makers_of_its_parts(product):
    environment = Path(f"/proc/{product.engine_pid()}/environ").read_bytes().split(b"\0")
    assert b"ORT_DISABLE_TELEMETRY=1" in environment


def answers(caller: Caller) -> str:
    kind = "response.output_audio_transcript.done"
    return " ".join(event["transcript"] for event in caller.ear.events if event["type"] == kind)

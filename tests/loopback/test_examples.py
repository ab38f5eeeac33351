"""The examples do what they say, as their readers run them."""

import asyncio
import sys
import wave
from pathlib import Path

import numpy as np
import pytest

from speech import silence, write_wav
from visavis.audio import RATE, Pcm
from visavis.engine.scripted import Reply, ScriptedEngine

pytestmark = pytest.mark.loopback

EXAMPLES = Path(__file__).parents[2] / "examples" / "python"
QUESTION = "What is the capital of France?"


@pytest.fixture
def answer() -> ScriptedEngine:
    tone: Pcm = (8000 * np.sin(np.arange(RATE) * 2 * np.pi * 440 / RATE)).astype(np.int16)
    return ScriptedEngine([Reply(text="It is Paris.", pcm=tone, transcript=QUESTION)])


async def run(script: str, *arguments: object) -> str:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        EXAMPLES / script,
        *map(str, arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        async with asyncio.timeout(60):
            told, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, told.decode()
    return told.decode()


async def test_a_question_is_asked_by_websocket(serve, say, answer: ScriptedEngine, tmp_path: Path):
    server = await serve(answer)
    question, said = write_wav(tmp_path / "question.wav", say(QUESTION)), tmp_path / "answer.wav"
    told = await run("ask.py", question, said, "--server", f"{server.url.replace('http', 'ws')}/v1")
    assert f"You said: {QUESTION}" in told
    assert "Answer: It is Paris." in told
    with wave.open(str(said)) as file:
        assert file.getnframes() == pytest.approx(RATE, abs=RATE // 10)


async def test_a_question_is_asked_by_webrtc(serve, say, answer: ScriptedEngine, tmp_path: Path):
    server = await serve(answer)
    sound = np.concatenate((silence(1), say(QUESTION), silence(6)))
    question, said = write_wav(tmp_path / "question.wav", sound), tmp_path / "answer.wav"
    told = await run("call.py", question, said, "--server", server.url)
    assert "Answer: It is Paris." in told
    with wave.open(str(said)) as file:
        assert np.abs(np.frombuffer(file.readframes(file.getnframes()), np.int16)).max() > 1_000

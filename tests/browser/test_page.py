"""The call page against the real server with a scripted engine: a call as a person makes it."""

import asyncio
import contextlib
import signal
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cdp import INVENTED_DEVICES, Page, chromium

from loopback.kit import Server, running_server, until
from speech import silence, write_wav
from visavis.audio import RATE, Pcm
from visavis.config import Config, RtcConfig, ServerConfig
from visavis.engine.scripted import Fault, Reply, ScriptedEngine

pytestmark = [pytest.mark.browser, pytest.mark.loopback]

Say = Callable[..., Pcm]

LONG = " ".join(f"Sentence {number} of a long answer." for number in range(1, 13))
QUESTION = "What is the capital of Norway?"
OBJECTION = "Please tell me about Sweden instead."


@contextlib.asynccontextmanager
async def caller(tmp_path: Path, *pieces: Pcm | float) -> AsyncIterator[Page]:
    """A browser whose microphone gives speech and seconds of silence, once."""
    sound = [silence(piece) if isinstance(piece, float) else piece for piece in pieces]
    wav = write_wav(tmp_path / "microphone.wav", np.concatenate([*sound, silence(120.0)]))
    async with chromium((*INVENTED_DEVICES, f"--use-file-for-fake-audio-capture={wav}%noloop")) as page:
        await page.look(1280, 800)
        yield page
        assert page.errors == []


@contextlib.asynccontextmanager
async def serving(*script: Reply, server: ServerConfig | None = None) -> AsyncIterator[tuple[Server, Any]]:
    engine = ScriptedEngine(script)
    config = Config(server=server or ServerConfig(), rtc=replace(RtcConfig(), connect_s=10.0))
    async with running_server(config, engine) as running:
        yield running, engine


async def start(page: Page, url: str) -> None:
    await page.go(url)
    await page.click("#start")
    await page.wait_for("visavis.phase === 'live'")


async def watch_states(page: Page) -> None:
    """Note the states that the face takes on from now, as `window.states`."""
    await page.evaluate(
        """(() => {
          window.states = [document.body.dataset.state];
          const note = () => window.states.push(document.body.dataset.state);
          new MutationObserver(note).observe(document.body, {attributeFilter: ["data-state"]});
        })()"""
    )


async def states_until(page: Page, end: str) -> list[str]:
    """The states that the face takes on, from now to the first time that it is `end` after speaking."""
    states: list[str] = await page.evaluate(
        f"""new Promise((resolve) => {{
          const states = [document.body.dataset.state];
          new MutationObserver(() => {{
            states.push(document.body.dataset.state);
            if (states.includes("speaking") && states.at(-1) === "{end}") resolve(states);
          }}).observe(document.body, {{attributeFilter: ["data-state"]}});
        }})"""
    )
    return [state for state, before in zip(states, [None, *states], strict=False) if state != before]


async def test_a_spoken_question_is_captioned_and_answered(tmp_path: Path, say: Say) -> None:
    reply = Reply("It is Oslo. About seven hundred thousand.", transcript=QUESTION, first_delay_s=0.3)
    async with serving(reply) as (server, engine), caller(tmp_path, 2.0, say(QUESTION)) as page:
        await start(page, server.url)
        states = await states_until(page, "listening")
        assert states == ["listening", "hearing", "thinking", "speaking", "listening"]

        captions = await page.evaluate("visavis.captions.map(({role, text, final}) => [role, text, final])")
        assert captions == [["user", QUESTION, True], ["assistant", reply.text, True]]
        [request] = engine.requests
        assert [type(part).__name__ for part in request.messages[-1].parts] == ["FramesPart", "AudioPart"]

        [turn] = await page.evaluate("visavis.timings")
        marks = turn["marks"]
        assert 0 < marks["turn_end"] <= marks["first_sent"] < marks["heard"]
        # The answer was asked for while the caller paused, so that part of its delay is over by then.
        assert marks["draft_used"] <= marks["first_audio"]
        assert await page.evaluate("document.querySelector('.assistant .strip') !== null")


async def test_speech_over_the_answer_stops_it_and_strikes_out_what_was_not_heard(
    tmp_path: Path, say: Say
) -> None:
    script = Reply(LONG, transcript=QUESTION), Reply("Gladly.", transcript=OBJECTION)
    pieces = 2.0, say(QUESTION), 4.0, say(OBJECTION)
    async with serving(*script) as (server, engine), caller(tmp_path, *pieces) as page:
        await start(page, server.url)
        await watch_states(page)
        await page.wait_for("visavis.captions.length === 4 && visavis.captions[3].final", timeout_s=40)
        first = await page.evaluate("visavis.captions[1]")
        assert 0 < first["heard"] < len(first["text"])
        assert await page.evaluate("document.querySelectorAll('.assistant s').length") == 1
        told = [message.text for message in engine.requests[-1].messages if message.role == "assistant"]
        assert told == [first["text"][: first["heard"]].strip()]
        # It made room at the first sign of speech, and was interrupted when that was sure.
        states = await page.evaluate("window.states")
        interrupted = states.index("interrupted")
        assert states.index("speaking") < states.index("yielding") < interrupted
        assert "speaking" in states[interrupted:]


async def test_the_interrupt_button_silences_an_answer(tmp_path: Path) -> None:
    async with serving(Reply(LONG)) as (server, _), caller(tmp_path) as page:
        await start(page, server.url)
        await page.click("#text")
        await page.type("Tell me a long story.")
        await page.press("Enter")
        await page.wait_for("visavis.state === 'speaking' && visavis.timings[0]?.marks.heard")
        await page.click("#interrupt")
        await page.wait_for("visavis.state === 'listening' && visavis.captions.at(-1).heard !== null")
        kinds = await page.evaluate("visavis.events.map(({type}) => type)")
        assert "error" not in kinds
        assert kinds.count("response.done") == kinds.count("output_audio_buffer.cleared") == 1


async def test_typed_messages_are_answered_and_interrupt(tmp_path: Path) -> None:
    async with serving(Reply(LONG), Reply("Good.")) as (server, engine), caller(tmp_path) as page:
        await start(page, server.url)
        await page.click("#text")
        await page.type("Tell me a long story.")
        await page.press("Enter")
        await page.wait_for("visavis.state === 'speaking' && visavis.timings[0]?.marks.heard")
        await page.type("Enough.")
        await page.press("Enter")
        await page.wait_for("visavis.captions.length === 4 && visavis.captions[3].text === 'Good.'")
        assert await page.evaluate("visavis.captions[2].text") == "Enough."
        assert engine.requests[-1].messages[-1].text.endswith("Enough.")
        assert "error" not in await page.evaluate("visavis.events.map(({type}) => type)")


async def test_a_muted_microphone_is_not_heard(tmp_path: Path, say: Say) -> None:
    async with serving(Reply()) as (server, engine), caller(tmp_path, 2.0, say(QUESTION)) as page:
        await start(page, server.url)
        await page.click("#mute")
        past = 2.0 + len(say(QUESTION)) / RATE + 1.0
        await page.wait_for(f"document.querySelector('#self-view').currentTime > {past}")
        assert await page.evaluate("visavis.captions.length") == 0
        assert len(engine.requests) == 0


async def test_without_a_microphone_one_types_and_hears() -> None:
    flags = ("--use-fake-device-for-media-stream", "--deny-permission-prompts")
    async with serving(Reply("Good to hear from you.")) as (server, _), chromium(flags) as page:
        await page.look(360, 740)
        await start(page, server.url)
        assert await page.evaluate("document.querySelector('#state-text').innerText") == "Type to talk"
        await page.click("#text")
        await page.type("Hello!")
        await page.press("Enter")
        await page.wait_for("visavis.captions.at(-1)?.text === 'Good to hear from you.'")
        await page.wait_for("visavis.timings[0].marks.heard")


async def test_hanging_up_and_leaving_the_page_free_the_call(tmp_path: Path) -> None:
    async with serving(Reply()) as (server, _), caller(tmp_path) as page:
        await start(page, server.url)
        assert len(server.calls) == 1
        await page.click("#hangup")
        await until(lambda: len(server.calls) == 0, "the call is freed by hanging up")
        await page.click("#start")
        await page.wait_for("visavis.phase === 'live'")
        await page.go("about:blank")
        await until(lambda: len(server.calls) == 0, "the call is freed by leaving")


async def test_a_key_is_asked_for_and_used(tmp_path: Path) -> None:
    locked = ServerConfig(keys=("sesame-open",))
    async with serving(Reply(), server=locked) as (server, _), caller(tmp_path) as page:
        await page.go(server.url)
        await page.click("#start")
        await page.wait_for("document.querySelector('#key-dialog').open")
        await page.type("sesame-open")
        await page.press("Enter")
        await page.wait_for("visavis.phase === 'live'")
        await page.click("#hangup")
        await until(lambda: len(server.calls) == 0, "the call is freed with the key")


async def test_a_full_server_is_waited_for(tmp_path: Path) -> None:
    none = ServerConfig(max_calls=0)
    async with serving(Reply(), server=none) as (server, _), caller(tmp_path) as page:
        await page.go(server.url)
        await page.click("#start")
        await page.wait_for("visavis.notices.includes('The server is busy')")
        await page.click("#hangup")


async def test_a_failed_answer_is_told_and_the_next_one_comes(tmp_path: Path) -> None:
    script = Reply("Half of an", fault=Fault.LOST), Reply("Now it works.")
    async with serving(*script) as (server, _), caller(tmp_path) as page:
        await start(page, server.url)
        await page.click("#text")
        await page.type("One.")
        await page.press("Enter")
        await page.wait_for("document.querySelector('#captions').innerText.includes('No answer: ')")
        await page.wait_for("visavis.state === 'listening'")
        await page.type("Two.")
        await page.press("Enter")
        await page.wait_for("visavis.captions.at(-1).text === 'Now it works.'")


async def test_a_killed_server_is_named_and_found_again_with_the_conversation(tmp_path: Path) -> None:
    async with caller(tmp_path) as page:
        process, port = await spawn(0)
        try:
            await start(page, f"http://127.0.0.1:{port}/")
            await page.click("#text")
            await page.type("My name is Ada.")
            await page.press("Enter")
            await page.wait_for("visavis.captions.at(-1)?.text.includes('You wrote: My name is Ada.')")
            process.send_signal(signal.SIGKILL)
            await process.wait()
            await page.wait_for("visavis.notices.includes('The server does not answer')", timeout_s=20)
            process, _ = await spawn(port)
            await page.wait_for("visavis.phase === 'live'", timeout_s=20)
            assert await page.evaluate("visavis.notices.length") == 0
            # The new server confirms what it is reminded of, and nothing is shown twice.
            await page.wait_for(
                """visavis.events.filter(({type, item}) => type === "conversation.item.added"
                  && item.content[0]?.text === "My name is Ada.").length === 2"""
            )
            assert await page.evaluate("visavis.captions.length") == 2
            assert "error" not in await page.evaluate("visavis.events.map(({type}) => type)")
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()


async def spawn(port: int) -> tuple[asyncio.subprocess.Process, int]:
    """Start a server of its own; it and its port."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "visavis", "serve", "--engine", "scripted", "--port", str(port)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    assert process.stdout is not None
    async with asyncio.timeout(30):
        while line := await process.stdout.readline():
            if b"http://" in line:
                return process, int(line.split(b"http://127.0.0.1:")[1].split()[0])
    raise RuntimeError("the server did not start")

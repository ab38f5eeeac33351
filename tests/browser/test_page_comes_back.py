"""The call page in the middle of an answer, when its call is lost: the talk goes on with the next word."""

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from cdp import Page

from balancer import free_port
from loopback.kit import running_server, until
from test_service import Service
from test_store import redis_server
from visavis.config import Config
from visavis.engine.scripted import Reply, ScriptedEngine, echo
from visavis.ids import read_call_id
from visavis.session import Session

pytestmark = [pytest.mark.browser, pytest.mark.loopback]

STORY = " ".join(f"Sentence {number} of a long answer." for number in range(1, 6))
TIMES = """
  window.times = {};
  const note = (name) => (window.times[name] ??= Math.round(performance.timeOrigin + performance.now()));
  new MutationObserver(() => {
    const rows = [...document.querySelectorAll("#captions .note")].map((row) => row.textContent);
    if (rows.includes("Connection lost")) note("noticed");
    if (rows.includes("Connected again")) note("connected");
    if (window.times.connected && document.body.dataset.state === "speaking") note("speaking");
  }).observe(document, {attributes: true, childList: true, subtree: true});
"""


async def ask(page: Page, text: str) -> None:
    await page.click("#text")
    await page.type(text)
    await page.press("Enter")
    await page.wait_for("visavis.state === 'speaking'")


async def answer(page: Page, *, loaded_anew: bool = False) -> dict[str, Any]:
    """Wait for all words: those that were heard in the first call, and those that are said in the second."""
    cut = "final" if loaded_anew else "heard !== null"
    await page.wait_for(
        f"visavis.captions.length === 3 && visavis.captions[2].final && visavis.captions[1].{cut}"
    )
    asked, begun, rest = await page.evaluate("visavis.captions")
    assert [asked["role"], begun["role"], rest["role"]] == ["user", "assistant", "assistant"]
    return {"begun": begun["text"][: begun["heard"]].strip(), "rest": rest["text"].strip()}


def heard_words(session: Session) -> int:
    """Count the words of the answer that is being given that were sent."""
    unsaid = session._conversation.snapshot().unsaid
    return 0 if unsaid is None else len(STORY.split()) - len(unsaid.text.split())


async def test_a_page_that_is_loaded_again_in_the_middle_of_an_answer(browser: int, page: Page) -> None:
    engine = ScriptedEngine([Reply(STORY), echo])
    async with running_server(Config(), engine) as server:
        await page.script_first(TIMES)
        await page.go(server.url)
        await page.click("#start")
        await page.wait_for("visavis.phase === 'live'")
        await ask(page, "Tell me a story.")
        await until(lambda: heard_words(server.sessions[0]) >= 5, "some words")
        left = await page.evaluate("Math.round(performance.timeOrigin + performance.now())")
        await page.go(server.url)
        await page.wait_for("window.times.speaking")
        times = await page.evaluate("window.times")
        print({name: at - left for name, at in times.items()}, "ms after it was left")
        assert len(server.calls) == 1
        heard = await answer(page, loaded_anew=True)
        assert heard["begun"]
        assert f"{heard['begun']} {heard['rest']}" == STORY
        assert await page.evaluate("visavis.captions[0].text") == "Tell me a story."


@pytest.mark.slow
@pytest.mark.redis
async def test_a_killed_worker_costs_a_page_seconds_and_no_word(page: Page, tmp_path: Path) -> None:
    port = free_port()
    async with redis_server(tmp_path, port):
        service = await asyncio.to_thread(
            lambda: Service(tmp_path, VISAVIS_RESUME_REDIS=f"redis://127.0.0.1:{port}/0")
        )
        try:
            await page.script_first(TIMES)
            await page.go(service.url)
            await page.click("#start")
            await page.wait_for("visavis.phase === 'live'")
            await ask(page, STORY)
            # What is kept follows what is heard.
            await page.wait_for("visavis.events.some(({type}) => type === 'output_audio_buffer.started')")
            call_id = read_call_id(await page.evaluate("visavis.callId"))
            assert call_id is not None
            assert call_id.worker is not None
            killed = await page.evaluate("Math.round(performance.timeOrigin + performance.now())")
            os.kill(service.workers()[call_id.worker], signal.SIGKILL)
            await page.wait_for("window.times.speaking")
            times = await page.evaluate("window.times")
            print({name: at - killed for name, at in times.items()}, "ms after the kill")
            heard = await answer(page)
            whole = f"{heard['begun']} {heard['rest']}".strip()
            assert whole.endswith(f"You wrote: {STORY}")
            assert whole.startswith("I heard 0.0 seconds")
        finally:
            await asyncio.to_thread(service.stop)

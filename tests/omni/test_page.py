"""The whole chain as a person has it: the page in a browser, its camera and microphone, the tiny model."""

from pathlib import Path

import numpy as np
import pytest

from browser.cdp import INVENTED_DEVICES, chromium
from omni.chain import PATIENCE_S, Model, running_chain
from omni.prepare import pictures_of_clip, sound_of_clip
from omni.tiny import ANSWER
from speech import silence, write_wav

pytestmark = [pytest.mark.browser, pytest.mark.loopback]

STAGES = ("turn_end", "request_sent", "first_text", "first_audio", "first_sent", "heard")


async def test_a_spoken_question_is_seen_heard_and_answered_in_the_page(
    model: Model, say, tmp_path: Path, capsys
):
    question = np.concatenate([silence(3.0), say("What can you see?"), silence(120.0)])
    wav = write_wav(tmp_path / "microphone.wav", question)
    devices = (*INVENTED_DEVICES, f"--use-file-for-fake-audio-capture={wav}%noloop")
    async with running_chain(model, model="short") as chain, chromium(devices) as page:
        await page.look(1280, 800)
        await page.go(chain.server.url)
        await page.click("#start")
        await page.wait_for(
            "visavis.captions.at(-1)?.role === 'assistant' && visavis.captions.at(-1).final", PATIENCE_S
        )
        await page.wait_for("visavis.timings[0]?.marks.heard && visavis.state === 'listening'", PATIENCE_S)
        caption = await page.evaluate("visavis.captions.at(-1).text")
        marks = await page.evaluate("visavis.timings[0].marks")
        shown = await page.evaluate("document.querySelector('details.strip dl').textContent")
        answer = await model.until_answer(chain.server.sessions[0].call_id, 0, "complete")
        made = await model.sound(answer)
        given = chain.server.sessions[0].given
        assert page.errors == []
    body = await model.request(answer)
    [clip] = [
        part["video_url"]["url"] for part in body["messages"][-1]["content"] if part["type"] == "video_url"
    ]
    pictures, sound = pictures_of_clip(clip)[0], sound_of_clip(clip)
    with capsys.disabled():
        times = ", ".join(f"{name} {marks[name]}" for name in STAGES)
        print(
            f" [{answer['prompt_tokens']} tokens asked, {len(made) / 24_000:.2f} s spoken; ms: {times}]",
            end="",
        )
    assert caption == ANSWER
    # The text comes on its own way, beside the voice.
    # It is asked while the pause lasts, so that it may be thinking when the turn ends.
    assert marks["request_sent"] <= min(marks["first_text"], marks["first_audio"])
    assert marks["first_audio"] <= marks["first_sent"] <= marks["heard"]
    # On a busy machine it may be asked after the end, and the page says that then.
    asked = "Asked in advance" if marks["request_sent"] <= marks["turn_end"] else "Asked"
    assert all(label in shown for label in (asked, "First words", "First voice", "Heard here"))
    assert np.count_nonzero(given) >= np.count_nonzero(made)
    assert len(pictures) >= 2
    assert pictures[0].std() > 10, "the camera's clock"
    assert np.abs(sound).max() > 0.05, "the question"

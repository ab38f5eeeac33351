"""The call page in a real browser, the embedded engine behind it: a call as a person has it."""

import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFont

from browser.cdp import INVENTED_DEVICES, chromium
from speech import silence, write_wav

pytestmark = [pytest.mark.models, pytest.mark.browser, pytest.mark.loopback]

QUESTION = "Please count from one to thirty."
OBJECTION = "Stop, please. What is the capital of France?"
PATIENCE_S = 120.0


# How long the first answer is differs from run to run, so whether the second question falls into it is left
# open here; that speech over an answer stops it is asserted in tests/browser/test_page.py (scripted engine).
async def test_two_questions_are_asked_and_answered(product, say, tmp_path: Path):
    lead = 2.0
    pieces = [silence(lead), say(QUESTION), silence(10.0), say(OBJECTION), silence(120.0)]
    wav = write_wav(tmp_path / "microphone.wav", np.concatenate(pieces))
    async with chromium((*INVENTED_DEVICES, f"--use-file-for-fake-audio-capture={wav}%noloop")) as page:
        await page.look(1280, 800)
        await page.go(product.url)
        await page.click("#start")
        await page.wait_for("visavis.phase === 'live'")
        await page.wait_for(
            "visavis.captions.length >= 4 && visavis.captions.at(-1).role === 'assistant'"
            " && visavis.captions.at(-1).final && visavis.state === 'listening'",
            timeout_s=PATIENCE_S,
        )
        captions = await page.evaluate("visavis.captions")
    assert "count" in captions[0]["text"].lower()
    # The pause after “please” may part the objection in two turns.
    asked = " ".join(caption["text"] for caption in captions[2:] if caption["role"] == "user")
    assert "capital of France" in asked, captions
    assert "Paris" in captions[-1]["text"], captions


async def test_a_sign_in_the_camera_is_read_out(product, say, tmp_path: Path):
    sign = Image.new("RGB", (640, 480), (90, 100, 95))
    draw = ImageDraw.Draw(sign)
    draw.rectangle((60, 150, 580, 320), fill=(240, 238, 230))
    draw.text((110, 205), "ROOM 204", fill=(20, 20, 40), font=ImageFont.load_default(size=80))
    jpeg = tmp_path / "sign.mjpeg"
    sign.save(jpeg, "JPEG", quality=92)
    wav = write_wav(
        tmp_path / "microphone.wav",
        np.concatenate([silence(3.0), say("What does the sign say?"), silence(120.0)]),
    )
    devices = (
        *INVENTED_DEVICES,
        f"--use-file-for-fake-audio-capture={wav}%noloop",
        f"--use-file-for-fake-video-capture={jpeg}",
    )
    async with chromium(devices) as page:
        await page.look(1280, 800)
        await page.go(product.url)
        await page.click("#start")
        await page.wait_for("visavis.captions.length >= 2 && visavis.captions[1].final", timeout_s=PATIENCE_S)
        text = await page.evaluate("visavis.captions[1].text")
    assert re.search(r"room (204|two (hundred|oh|zero) (and )?four)", text.lower()), text

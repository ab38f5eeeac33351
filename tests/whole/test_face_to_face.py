"""The call page in a real browser, the embedded engine behind it: a call as a person has it."""

import base64
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFont

from browser.cdp import INVENTED_DEVICES, chromium
from speech import silence, write_wav

pytestmark = [pytest.mark.models, pytest.mark.browser, pytest.mark.loopback]

QUESTION = "Can you give me a recipe for pancakes?"
OBJECTION = "Stop, please. What is the capital of France?"
PATIENCE_S = 120.0

PROMPTED_MICROPHONE = """
const audio = new AudioContext();
const microphone = audio.createMediaStreamDestination();
const real = navigator.mediaDevices.getUserMedia.bind(navigator.mediaDevices);
navigator.mediaDevices.getUserMedia = async ({ audio: sound, ...others }) => {
  const stream = others.video ? await real(others) : new MediaStream();
  if (sound) stream.addTrack(microphone.stream.getAudioTracks()[0].clone());
  return stream;
};
/** Say a WAV file in base64; when it begins and ends, in seconds of `audio`. */
globalThis.say = async (wav) => {
  const bytes = Uint8Array.from(atob(wav), (character) => character.charCodeAt(0));
  const source = new AudioBufferSourceNode(audio, { buffer: await audio.decodeAudioData(bytes.buffer) });
  source.connect(microphone);
  const begins = audio.currentTime + 0.02;
  source.start(begins);
  return { begins, ends: begins + source.buffer.duration };
};
/** When the assistant was heard first and last, in seconds of `audio`. */
globalThis.heardFirst = Infinity;
globalThis.heardAt = -1;
globalThis.listen = () => {
  const ear = new AnalyserNode(audio, { fftSize: 512 });
  audio.createMediaStreamSource(document.getElementById("voice").srcObject).connect(ear);
  const wave = new Float32Array(ear.fftSize);
  setInterval(() => {
    ear.getFloatTimeDomainData(wave);
    if (!wave.some((sample) => Math.abs(sample) > 0.01)) return;
    globalThis.heardAt = audio.currentTime;
    globalThis.heardFirst = Math.min(heardFirst, heardAt);
  }, 5);
};
"""
"A microphone that speaks when a test wants it to, and an ear on the same clock."


async def test_a_question_over_the_answer_stops_it_and_is_answered(product, say, tmp_path: Path, capsys):
    def base64_of(text: str) -> str:
        sound = say(text)
        onset = np.argmax(np.abs(sound) > 300)  # voices begin with a pause
        return base64.b64encode(write_wav(tmp_path / "said.wav", sound[onset:]).read_bytes()).decode()

    async with chromium(INVENTED_DEVICES) as page:
        await page.look(1280, 800)
        await page.script_first(PROMPTED_MICROPHONE)
        await page.go(product.url)
        await page.click("#start")
        await page.wait_for("visavis.phase === 'live' && document.getElementById('voice').srcObject !== null")
        await page.evaluate("listen()")
        await page.evaluate(f"say('{base64_of(QUESTION)}')")
        objection = base64_of(OBJECTION)
        await page.wait_for(
            "visavis.state === 'speaking' && heardAt > heardFirst + 1 && heardAt > audio.currentTime - 0.02",
            PATIENCE_S,
        )
        said = await page.evaluate(f"say('{objection}')")
        await page.wait_for(f"audio.currentTime > {said['ends']}")
        heard_last = await page.evaluate("heardAt")
        await page.wait_for(
            "visavis.captions.at(-1).role === 'assistant' && /Paris/.test(visavis.captions.at(-1).text)"
            " && visavis.captions.at(-1).final && visavis.state === 'listening'",
            PATIENCE_S,
        )
        captions = await page.evaluate("visavis.captions")
        truncated = await page.evaluate(
            "visavis.events.find(({type}) => type === 'conversation.item.truncated')"
        )
    with capsys.disabled():
        print(f" [interrupted after {heard_last - said['begins']:.2f} s]", end="")
    # The whole answer takes many seconds more than the objection does.
    assert said["begins"] < heard_last < said["ends"] - 0.5
    question, answer, *asked, reply = captions
    assert "pancake" in question["text"].lower()
    assert 0 < answer["heard"] < len(answer["text"])
    assert truncated["item_id"] == answer["id"]
    # The pause after “please” may part the objection in two turns.
    assert "capital of France" in " ".join(caption["text"] for caption in asked if caption["role"] == "user")
    assert reply["heard"] is None


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

"""A kiosk in Chromium's kiosk mode against the real server, its engine scripted."""

import asyncio
import base64
import contextlib
import os
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from cdp import INVENTED_DEVICES, Page, launched, tab
from standin import Served

from balancer import free_port
from loopback.kit import Server, running_server, until
from speech import write_wav
from visavis.audio import Pcm
from visavis.config import Config, KioskConfig, KioskDeviceConfig, RtcConfig, ServerConfig
from visavis.engine.scripted import Reply, ScriptedEngine

pytestmark = [pytest.mark.browser, pytest.mark.loopback]

Say = Callable[..., Pcm]

KEY = "key-of-an-operator"
QUESTION = "Where is the library?"
REPLY = Reply("Up the stairs and then left. It is open until eight.", transcript=QUESTION)

FREE_SOUND = "--autoplay-policy=no-user-gesture-required"
KIOSK = ("--kiosk", *INVENTED_DEVICES)

ROOM = """
const canvas = Object.assign(document.createElement("canvas"), { width: 320, height: 180 });
const context = canvas.getContext("2d");
let stirs = false;
/** Somebody moves before the camera, or nobody does. */
globalThis.stir = (does) => { stirs = does; };
setInterval(() => {
  context.fillStyle = "#89a";
  context.fillRect(0, 0, 320, 180);
  context.fillStyle = "#432";
  context.fillRect(stirs ? Math.random() * 160 : 80, 30, 120, 150);
}, 50);
const audio = new AudioContext();
const microphone = audio.createMediaStreamDestination();
const real = navigator.mediaDevices.getUserMedia.bind(navigator.mediaDevices);
navigator.mediaDevices.getUserMedia = async ({ audio: sound, video }) => {
  // Whether it may be had is the browser's affair.
  for (const track of (await real({ audio: sound, video })).getTracks()) track.stop();
  const tracks = [];
  if (sound) tracks.push(microphone.stream.getAudioTracks()[0].clone());
  if (video) tracks.push(canvas.captureStream(10).getVideoTracks()[0]);
  return new MediaStream(tracks);
};
/** Say a WAV file in base64. */
globalThis.say = async (wav) => {
  const bytes = Uint8Array.from(atob(wav), (character) => character.charCodeAt(0));
  const source = new AudioBufferSourceNode(audio, { buffer: await audio.decodeAudioData(bytes.buffer) });
  source.connect(microphone);
  source.start();
};
/** How loud the answer was at most, as the face saw it. */
globalThis.loudest = 0;
setInterval(() => {
  const level = Number(document.getElementById("face")?.style.getPropertyValue("--level"));
  if (document.body?.dataset.state === "speaking") globalThis.loudest = Math.max(loudest, level);
}, 20);
"""
"A camera before which somebody moves, and a microphone that speaks, when a test wants it."


@contextlib.asynccontextmanager
async def serving(
    folder: Path, port: int, *script: Reply, keys: tuple[str, ...] = (KEY,), idle_s: float = 5.0
) -> AsyncIterator[Server]:
    config = Config(
        server=ServerConfig(keys=keys, port=port),
        rtc=replace(RtcConfig(), connect_s=10.0),
        kiosk=KioskConfig(enabled=True, folder=folder, poll_s=0.3, device=KioskDeviceConfig(idle_s=idle_s)),
    )
    async with running_server(config, ScriptedEngine(script or (REPLY,))) as server:
        yield server


async def approve(operator: Page, url: str, code: str) -> None:
    """Have an operator let in the kiosk that shows a code, in a page of theirs."""
    await operator.go(f"{url}/kiosk/approve#{code}")
    await operator.click("#key")
    await operator.type(KEY)
    await operator.press("Enter")
    await operator.wait_for("!document.querySelector('#approve-form').hidden")
    await operator.click("#name")
    await operator.type("Reception")
    await operator.press("Enter")
    await operator.wait_for("document.querySelector('#devices h3')?.textContent === 'Reception'")


def write(path: Path, data: bytes) -> None:
    path.write_bytes(data)


async def shot(page: Page, name: str, *, sizes: str = "both") -> None:
    """Keep pictures for people to look at, lying and upright, in the folder VISAVIS_SHOTS if there is one."""
    folder = os.environ.get("VISAVIS_SHOTS")
    if not folder:
        return
    for width, height in ((1920, 1080), (1080, 1920)) if sizes == "both" else ((390, 844), (900, 1200)):
        await page.look(width, height)
        await page.evaluate("new Promise((resolve) => setTimeout(resolve, 700))")
        write(Path(folder, f"{name}-{width}x{height}.png"), await page.screenshot())


async def test_a_kiosk_is_let_in_talks_forgets_and_recovers(tmp_path: Path, say: Say) -> None:
    port = free_port()
    sound = say(QUESTION)
    wav = base64.b64encode(write_wav(tmp_path / "said.wav", sound).read_bytes()).decode()
    stack = contextlib.AsyncExitStack()
    with launched((*KIOSK, FREE_SOUND)) as browser:
        async with stack, tab(browser) as page, tab(browser) as operator:
            server = await stack.enter_async_context(serving(tmp_path, port))
            await page.look(1920, 1080)
            await operator.look(900, 1200)
            await page.script_first(ROOM)
            await page.go(f"{server.url}/kiosk")
            await page.wait_for("visavis.screen === 'pairing'")
            await page.wait_for("document.querySelector('#pairing-qr').naturalWidth > 0")
            await shot(page, "1-pairing")
            await approve(operator, server.url, await page.evaluate("visavis.code"))
            await page.wait_for("visavis.screen === 'attract' && visavis.camera !== null")
            assert await page.evaluate("visavis.microphone") is None
            await shot(page, "2-attract")

            # Somebody comes near, asks and is answered.
            await page.evaluate("stir(true)")
            await page.wait_for("visavis.live && visavis.state === 'listening'")
            await page.evaluate(f"say('{wav}')")
            await page.wait_for("visavis.state === 'speaking' && loudest > 0.2")
            await shot(page, "3-speaking")
            await page.wait_for("visavis.captions.length === 2 && visavis.captions[1].final")
            said = await page.evaluate("visavis.captions.map(({text}) => text)")
            assert said == [QUESTION, REPLY.text]
            await page.wait_for("visavis.state === 'listening'")
            await shot(page, "4-listening")
            call_id = await page.evaluate("visavis.callId")
            assert call_id in server.calls

            # They leave: it asks, ends the call and forgets what was said.
            await page.evaluate("stir(false)")
            await page.wait_for("/still there/.test(document.querySelector('#state-text').textContent)")
            await shot(page, "5-leaving")
            await page.wait_for("visavis.screen === 'attract'", timeout_s=30)
            assert (
                await page.evaluate(
                    "visavis.captions.length + document.querySelectorAll('#captions li').length"
                )
                == 0
            )
            assert await page.evaluate("visavis.microphone") is None
            await until(lambda: call_id not in server.calls, "the end of the call")

            # The operator gives it other words.
            await operator.click("#devices summary")
            await operator.click("#devices [name=title]")
            await operator.type("Ask me about books")
            await operator.click("#devices form .primary")
            await page.wait_for(
                "document.querySelector('#attract-title').textContent === 'Ask me about books'"
            )
            await shot(operator, "7-operator", sizes="one")

            # The server goes away. Even a page that is loaded meanwhile is there, and all comes back.
            await stack.aclose()
            await page.wait_for("visavis.screen === 'offline'")
            await shot(page, "6-offline")
            await page.go(f"{server.url}/kiosk")
            await page.wait_for("visavis.screen === 'offline'")
            server = await stack.enter_async_context(serving(tmp_path, port))
            await page.wait_for("visavis.screen === 'attract'", timeout_s=30)
            assert await page.evaluate("visavis.device.name") == "Reception"

            # The operator revokes it.
            await operator.click("#devices .revoke")
            await operator.click("#revoke-dialog .danger")
            await page.wait_for("visavis.screen === 'pairing'")
            assert page.errors == operator.errors == []


async def test_without_the_flag_a_touch_begins(tmp_path: Path) -> None:
    with launched(KIOSK) as browser:
        async with (
            serving(tmp_path, free_port()) as server,
            tab(browser) as page,
            tab(browser) as operator,
        ):
            await page.look(1920, 1080)
            await operator.look(900, 1200)
            await page.script_first(ROOM)
            await page.go(f"{server.url}/kiosk")
            code = await untouched(page, "visavis.code")
            await approve(operator, server.url, code)
            assert await untouched(page, "visavis.screen === 'gesture' && visavis.screen") == "gesture"
            assert await untouched(page, "visavis.camera === null")
            await page.click("#gesture-button")
            await page.wait_for("visavis.screen === 'attract' && visavis.camera !== null")
            # A touch begins a call, which takes on what the operator sets meanwhile, and another one ends it.
            await page.click("#attract")
            await page.wait_for("visavis.live")
            await set_instructions(server.url, "Talk about books alone.")
            await page.wait_for("visavis.instructions === 'Talk about books alone.'")
            await page.click("#end")
            await page.wait_for("visavis.screen === 'attract' && !visavis.live")
            await until(lambda: len(server.calls) == 0, "the end of the call")
            assert page.errors == operator.errors == []


async def set_instructions(url: str, instructions: str) -> None:
    api, key = f"{url}/v1/kiosk/devices", {"Authorization": f"Bearer {KEY}"}
    async with aiohttp.ClientSession(headers=key) as http:
        (device,) = (await (await http.get(api)).json())["devices"]
        changes = {"settings": {"instructions": instructions}}
        assert (await http.patch(f"{api}/{device['id']}", json=changes)).status == 200


async def untouched(page: Page, expression: str) -> Any:
    """Wait as `Page.wait_for` does, but without what the browser takes for a gesture."""
    async with asyncio.timeout(20):
        while True:
            result = await page.command("Runtime.evaluate", expression=expression, returnByValue=True)
            if value := result["result"].get("value"):
                return value
            await asyncio.sleep(0.05)


LOOKS = """
(async () => {
  const { changedShare, Motion, Attendance, MOTION_ALONE_MS } = await import("/kiosk-presence.js");
  const place = (at) => [at % 48, Math.floor(at / 48)];
  const cells = (make) => Float32Array.from({ length: 48 * 27 }, (_, at) => make(...place(at)));
  const room = cells((x, y) => 60 + x + y);
  const nods = (cell, at) => cell + (at % 48 === 24 && at > 600 ? 60 : 0);
  const person = (from) => cells((x, y) => (x >= from && x < from + 14 && y > 4 ? 200 : 60 + x + y));
  const watch = (shares, motion = new Motion(), from = 0) => {
    shares.forEach((share, at) => motion.receive(share, from + 200 * at));
    return motion.comes;
  };
  const distrusting = new Motion();
  distrusting.reset(0, true);
  const movesOn = watch(Array(50).fill(0.2), distrusting);
  const afterStill = watch([...Array(30).fill(0), 0.2, 0.2, 0.2, 0.2], distrusting, 10_000);
  const alone = new Attendance(0);
  alone.moved(MOTION_ALONE_MS - 1);
  alone.moved(MOTION_ALONE_MS + 5_000);
  return {
    noise: changedShare(room, cells((x, y) => 60 + x + y + 3 * Math.sin(x * y))),
    light: changedShare(room, cells((x, y) => 100 + x + y)),
    flash: changedShare(room, cells((x, y) => ((x + y) % 2) * 255)),
    arrives: changedShare(room, person(10)),
    breathes: changedShare(person(10), person(10).map(nods)),
    once: watch([0, 0.3, 0, 0, 0, 0]),
    comes: watch([0, 0.2, 0.1, 0, 0.1, 0.2]),
    farAway: watch(Array(10).fill(0.01)),
    movesOn,
    afterStill,
    idleMs: alone.idleMs(MOTION_ALONE_MS + 5_000),
    isAlone: alone.isMotionAlone(MOTION_ALONE_MS + 5_000),
  };
})()
"""


async def test_people_are_told_from_noise_and_light(page: Page, served: Served) -> None:
    await page.go(f"{served.url}icon.svg")
    seen = await page.evaluate(LOOKS)
    assert seen["noise"] == seen["light"] == seen["flash"] == 0
    assert seen["arrives"] > 0.1
    assert 0.004 < seen["breathes"] < 0.03
    assert (seen["once"], seen["comes"], seen["farAway"]) == (False, True, False)
    # What moves on and on after a call that nobody talked in begins none, until it was still for a while.
    assert (seen["movesOn"], seen["afterStill"]) == (False, True)
    assert (seen["idleMs"], seen["isAlone"]) == (5_001, True)


async def test_a_kiosk_speaks_the_operators_language(page: Page, served: Served) -> None:
    await page.go(f"{served.url}icon.svg")
    words = await page.evaluate(
        """import("/kiosk-words.js").then(({ wordsFor, filled }) => [
          wordsFor("de-AT", "fr").words.title,
          wordsFor(null, "pt-BR", "es").language,
          wordsFor("tlh").language,
          filled(wordsFor("fr").words.nextTry, { s: 3 }),
        ])"""
    )
    assert words == ["Hallo!", "es", "en", "Prochain essai dans 3 s"]


async def test_a_page_that_is_not_what_it_should_be_is_loaded_anew(page: Page, served: Served) -> None:
    await page.go(f"{served.url}icon.svg")
    faults = await page.evaluate(
        """import("/kiosk-watchdog.js").then(({ Watchdog }) => {
          const now = performance.now();
          const dog = new Watchdog();
          dog.version = "1";
          const idle = [true, false, false];
          const asked = [0, 60_000, 60_200].map((at, look) => dog.fault(now + at, idle[look]));
          dog.version = "2";
          asked.push(dog.fault(now + 60_400, false), dog.fault(now + 60_600, true));
          const stuck = [["thinking", 0], ["thinking", 89_000], ["", 89_500], ["thinking", 90_000]];
          const ends = stuck.map(([on, at]) => dog.isStuck(on, at));
          ends.push(dog.isStuck("thinking", 181_000));
          return { asked, ends };
        })"""
    )
    assert faults["asked"] == [None, "it was frozen", None, None, "the server has another one"]
    assert faults["ends"] == [False, False, False, False, True]

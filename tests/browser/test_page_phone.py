"""The call page as phones have it: on the home screen, and with a voice that the system paused."""

import asyncio
import json

import pytest
from cdp import Page
from standin import Served

pytestmark = pytest.mark.browser

AUDIO_SESSION = 'Object.defineProperty(navigator, "audioSession", { value: { type: "auto" } });'
PLAYING = '(voice => voice.srcObject !== null && !voice.paused)(document.querySelector("#voice"))'


async def test_it_can_be_put_on_the_home_screen(page: Page, served: Served) -> None:
    await page.go(served.url)
    manifest = await page.command("Page.getAppManifest")
    assert manifest["errors"] == []
    told = json.loads(manifest["data"])
    assert told["display"] == "standalone"
    obstacles = (await page.command("Page.getInstallabilityErrors"))["installabilityErrors"]
    # The tests' tabs have a storage of their own, which for Chromium is a private window.
    assert {obstacle["errorId"] for obstacle in obstacles} <= {"in-incognito"}
    for icon in told["icons"]:
        size = "any" if icon["sizes"] == "any" else int(icon["sizes"].split("x")[0])
        width = await page.evaluate(
            f"new Promise((resolve, reject) => {{ const icon = new Image(); icon.onerror = reject;"
            f"icon.onload = () => resolve(icon.naturalWidth); icon.src = {json.dumps(icon['src'])}; }})"
        )
        assert width > 0 if size == "any" else width == size


@pytest.mark.parametrize("event", ["visibilitychange", "pointerup"])
async def test_a_voice_that_the_phone_paused_goes_on(page: Page, served: Served, event: str) -> None:
    await page.script_first(AUDIO_SESSION)
    await page.go(served.url)
    await page.click("#start")
    async with asyncio.timeout(15):
        await page.wait_for(PLAYING)
    assert await page.evaluate("navigator.audioSession.type") == "play-and-record"
    await page.evaluate('document.querySelector("#voice").pause()')
    assert not await page.evaluate(PLAYING)
    await page.evaluate(f'document.dispatchEvent(new Event("{event}"))')
    await page.wait_for(PLAYING)

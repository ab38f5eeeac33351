"""The call of forty lines: on another site's page, with a client secret, in a real browser."""

from contextlib import AsyncExitStack
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from cdp import Page

from loopback.kit import running_server
from visavis.config import Config, ServerConfig
from visavis.engine.scripted import Reply, ScriptedEngine

pytestmark = [pytest.mark.browser, pytest.mark.loopback]

EXAMPLE = Path(__file__).parents[2] / "examples" / "browser"
KEY = "key-of-the-site"


async def test_the_example_talks(page: Page) -> None:
    async with AsyncExitStack() as stack:
        site = web.Application()
        site.router.add_static("/", EXAMPLE)
        runner = web.AppRunner(site)
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        origin = f"http://127.0.0.1:{runner.addresses[0][1]}"
        config = Config(server=ServerConfig(keys=(KEY,), origins=(origin,)))
        engine = ScriptedEngine([Reply(text="Good day.", transcript="beep")])
        server = await stack.enter_async_context(running_server(config, engine))
        http = await stack.enter_async_context(aiohttp.ClientSession())
        asked = await http.post(
            f"{server.url}/v1/realtime/client_secrets",
            json={"session": {"type": "realtime", "instructions": "Say good day."}},
            headers={"Authorization": f"Bearer {KEY}"},
        )
        secret = (await asked.json())["value"]
        await page.go(f"{origin}/index.html?server={server.url}&secret={secret}")
        await page.click("#call")
        await page.wait_for("document.querySelector('#voice').srcObject?.getAudioTracks().length")
        (session,) = server.sessions
        await page.wait_for("document.querySelector('#self').videoWidth")
        session.receive_message('{"type": "response.create"}')
        await page.wait_for(
            "document.querySelector('#captions').textContent.includes('Assistant: Good day.')"
        )
        await page.wait_for("document.querySelector('#voice').currentTime > 0")
        assert engine.requests[0].messages[0].text == "Say good day."

"""The call page where the network changes: its browser has a namespace of its own, and moves in it."""

from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

import pytest
from cdp import INVENTED_DEVICES, chromium
from test_page_comes_back import STORY, TIMES, answer, ask, heard_words

from loopback.kit import Server, running_server, until
from loopback.link import SERVER, Link, linked
from visavis.config import Config, RtcConfig, ServerConfig
from visavis.engine.scripted import Reply, ScriptedEngine, echo

pytestmark = [pytest.mark.browser, pytest.mark.loopback, pytest.mark.network]

KEY = "key-of-a-traveller"
NOW = "Math.round(performance.timeOrigin + performance.now())"


async def serve(stack: AsyncExitStack) -> Server:
    config = Config(server=ServerConfig(keys=(KEY,)), rtc=replace(RtcConfig(), connect_s=10.0))
    running = running_server(config, ScriptedEngine([Reply(STORY), echo]), host=SERVER)
    return await stack.enter_async_context(running)


async def talk(link: Link, server: Server) -> dict[str, Any]:
    """Call, move in the middle of the answer, hear the rest; runs where the caller is."""
    # Browsers give pages a microphone over http only on loopback.
    trusted = f"--unsafely-treat-insecure-origin-as-secure={server.url}"
    async with chromium((*INVENTED_DEVICES, trusted)) as page:
        await page.script_first(f"sessionStorage.setItem('visavis.key', '{KEY}')")
        await page.script_first(TIMES)
        await page.go(server.url)
        await page.click("#start")
        await page.wait_for("visavis.phase === 'live'")
        await ask(page, "Tell me a story.")
        await until(lambda: heard_words(server.sessions[0]) >= 5, "some words")
        moved = await page.evaluate(NOW)
        await link.move_caller()
        await page.wait_for("window.times.speaking")
        times = await page.evaluate("window.times")
        print({name: at - moved for name, at in times.items()}, "ms after the address changed")
        heard = await answer(page)
        assert page.errors == []
        return heard


def test_a_page_goes_on_at_another_address() -> None:
    with linked() as link:
        stack = AsyncExitStack()
        server = link.server.run(serve(stack))
        try:
            heard = link.caller.run(talk(link, server))
        finally:
            link.server.run(stack.aclose())
    assert heard["begun"]
    assert f"{heard['begun']} {heard['rest']}" == STORY

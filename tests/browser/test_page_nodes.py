"""The call page through HAProxy: its server goes away, and the talk goes on at another one."""

from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from cdp import INVENTED_DEVICES, chromium

from balancer import Backend, balancing, free_port
from loopback.kit import running_server
from test_store import redis_server
from visavis.config import Config, ResumeConfig, RtcConfig, ServerConfig
from visavis.engine.scripted import ScriptedEngine
from visavis.history import TextContent
from visavis.ids import read_call_id

pytestmark = [pytest.mark.browser, pytest.mark.loopback, pytest.mark.haproxy, pytest.mark.redis]

KEY = "key-of-a-friend"


async def test_a_talk_goes_on_at_another_server(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        redis_port = free_port()
        await stack.enter_async_context(redis_server(tmp_path, redis_port))
        servers, stacks = {}, {}
        for name in ("a", "b"):
            config = Config(
                server=ServerConfig(node=name, keys=(KEY,)),
                rtc=replace(RtcConfig(), connect_s=10.0),
                resume=ResumeConfig(redis=f"redis://127.0.0.1:{redis_port}/0"),
            )
            stacks[name] = await stack.enter_async_context(AsyncExitStack())
            running = running_server(config, ScriptedEngine())
            servers[name] = await stacks[name].enter_async_context(running)
        backends = [
            Backend(name, int(server.url.rpartition(":")[2]), free_port()) for name, server in servers.items()
        ]
        url = stack.enter_context(balancing(tmp_path, backends))
        page = await stack.enter_async_context(chromium(INVENTED_DEVICES))
        await page.script_first(f"sessionStorage.setItem('visavis.key', '{KEY}')")
        await page.go(url)
        await page.click("#start")
        await page.wait_for("visavis.phase === 'live'")
        call_id = read_call_id(await page.evaluate("visavis.callId"))
        assert call_id is not None
        await page.click("#text")
        await page.type("My name is Ada.")
        await page.press("Enter")
        await page.wait_for("visavis.captions.some(({text}) => text.includes('You wrote: My name is Ada.'))")
        await page.click("#interrupt")

        await stacks[call_id.node].aclose()
        other = "b" if call_id.node == "a" else "a"
        await page.wait_for(f"visavis.phase === 'live' && visavis.callId.startsWith('rtc_{other}-')")
        await page.wait_for("visavis.events.some(({type}) => type === 'visavis.resumed')")
        (session,) = servers[other].sessions
        said = [
            content.text
            for item in session.history.items
            for content in item.content[:1]
            if isinstance(content, TextContent)
        ]
        assert said[:1] == ["My name is Ada."]
        assert page.errors == []

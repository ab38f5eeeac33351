"""Clients of WHIP, as published, call: they are heard and seen, and end what they began."""

import pytest
from clients import Serve, until

from browser.cdp import tab
from visavis.audio import RATE
from visavis.engine import AudioPart, FramesPart
from visavis.engine.scripted import Reply, ScriptedEngine

pytestmark = [pytest.mark.browser, pytest.mark.stock]


@pytest.mark.parametrize(
    ("name", "trickles", "ended"),
    [
        # It closes its connection first: by its DELETE the call may be gone.
        ("medooze", True, {200, 404}),
        # It sends its candidates late only where CORS tells of PATCH.
        ("eyevinn", False, {200}),
    ],
)
async def test_who_only_sends_is_heard_and_seen_and_ends_the_call(
    serve: Serve, browser: int, name: str, trickles: bool, ended: set[int]
) -> None:
    engine = ScriptedEngine([Reply(text="I hear you.", transcript="a tone")])
    server = await serve("whip", engine)
    async with tab(browser) as page:
        await page.go(server.url)
        await page.evaluate(f"call('{name}')")
        await until(lambda: any(each._peer.stats().packets_received > 20 for each in server.sessions))
        await page.evaluate("voice.speak(1000)")
        await until(lambda: engine.requests)
        parts = engine.requests[-1].messages[-1].parts
        assert sum(len(part.pcm) for part in parts if isinstance(part, AudioPart)) > RATE // 2
        assert sum(len(part.frames) for part in parts if isinstance(part, FramesPart)) > 0

        assert len(server.sessions) == len(server.calls) == 1
        await page.evaluate("end()")
        await until(lambda: not len(server.calls))
        await page.wait_for("asked.some(([method]) => method === 'DELETE')")
        asked = await page.evaluate("asked")
        assert ["POST", 201] in asked
        assert {status for method, status in asked if method == "PATCH"} == ({204} if trickles else set())
        method, status = asked[-1]
        assert method == "DELETE"
        assert status in ended
        assert page.errors == []

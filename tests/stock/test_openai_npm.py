"""OpenAI's client for browsers, as published, calls over a WebSocket and over WebRTC."""

import base64
import json
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest
from clients import Serve, Server, check_events, until

from browser.cdp import Page, tab
from visavis.engine import AudioPart, ToolCall
from visavis.engine.scripted import Reply, ScriptedEngine, tone

pytestmark = [pytest.mark.browser, pytest.mark.stock]

WEATHER = {"type": "function", "name": "weather", "description": "Tells the weather.", "parameters": {}}
CALL = ToolCall("call_1", "weather", '{"place": "Rome"}')


@pytest.fixture
def engine() -> ScriptedEngine:
    return ScriptedEngine(
        [
            Reply(text="It is Paris.", pcm=tone(1.0), transcript="a tone"),
            Reply(text="", calls=(CALL,)),
            Reply(text="It is warm."),
        ]
    )


@pytest.fixture
async def server(serve: Serve, engine: ScriptedEngine) -> Server:
    return await serve("openai_npm", engine)


@pytest.fixture
async def page(server: Server, browser: int) -> AsyncIterator[Page]:
    """A page that has not called yet; it must not meet an error."""
    async with tab(browser) as page:
        await page.go(server.url)
        yield page
        check_events(await page.evaluate("told"))
        assert await page.evaluate("errors") == page.errors == []


async def send(page: Page, kind: str, **event: Any) -> None:
    await page.evaluate(f"link.send({json.dumps({'type': kind, **event})})")


@pytest.mark.parametrize("way", ["websocket", "webrtc"])
async def test_a_talk_by_voice_by_text_and_with_a_function(
    page: Page, server: Server, engine: ScriptedEngine, way: str
) -> None:
    settings = {"instructions": "Be brief.", "tools": [WEATHER]}
    await page.evaluate(f"connect('{way}', {json.dumps(settings)})")
    await page.evaluate("link.speak(1.0)")
    await page.wait_for("all('response.done').length === 1")
    await page.wait_for("all('conversation.item.input_audio_transcription.completed').length === 1")
    (transcript,) = await page.evaluate("all('conversation.item.input_audio_transcription.completed')")
    assert transcript["transcript"] == "a tone"
    deltas = await page.evaluate("all('response.output_audio.delta').map(({delta}) => delta)")
    if way == "websocket":
        heard = np.frombuffer(b"".join(map(base64.b64decode, deltas)), "<i2")
        np.testing.assert_array_equal(heard, tone(1.0))
    else:
        assert not deltas
        await page.wait_for("all('output_audio_buffer.stopped').length === 1")
    assert any(isinstance(part, AudioPart) for part in engine.requests[0].messages[-1].parts)
    assert "Be brief." in engine.requests[0].messages[0].text

    await send(page, "session.update", session={"type": "realtime", "output_modalities": ["text"]})
    text = {"type": "input_text", "text": "How is the weather?"}
    await send(page, "conversation.item.create", item={"type": "message", "role": "user", "content": [text]})
    await send(page, "response.create")
    await page.wait_for("all('response.done').length === 2")
    (called,) = await page.evaluate("all('response.function_call_arguments.done')")
    assert (called["name"], json.loads(called["arguments"])) == ("weather", {"place": "Rome"})
    result = {"type": "function_call_output", "call_id": called["call_id"], "output": "21 degrees"}
    await send(page, "conversation.item.create", item=result)
    await send(page, "response.create")
    await page.wait_for("all('response.done').length === 3")
    (said,) = await page.evaluate("all('response.output_text.done')")
    assert said["text"] == "It is warm."

    await page.evaluate("link.close()")
    await until(lambda: not len(server.calls))

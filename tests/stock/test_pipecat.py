"""Pipecat's client for browsers, as published, calls: its RTVI over its SmallWebRTC transport."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from clients import Serve, Server
from talker import Talker

from browser.cdp import Page, ScriptError, tab

pytestmark = [pytest.mark.browser, pytest.mark.stock]

WEATHER = {"type": "function", "name": "weather", "description": "Tells the weather.", "parameters": {}}


class Client:
    """The page with the client."""

    def __init__(self, page: Page, server: Server) -> None:
        self.page = page
        self.server = server

    async def connect(self, **session: Any) -> Any:
        """Call, and return what the bot says when it is ready."""
        request = {"endpoint": "/api/offer", "requestData": {"session": session}}
        return await self.page.evaluate(f"client.connect({{webrtcRequestParams: {json.dumps(request)}}})")

    async def all(self, kind: str) -> list[Any]:
        return await self.page.evaluate(f"all('{kind}')")

    async def until(self, condition: str) -> Any:
        return await self.page.wait_for(condition)

    async def said(self, text: str) -> list[Any]:
        """Wait until the bot's text has something in it; return all of its output so far."""
        await self.until(f"all('botOutput').some(({{text}}) => text.includes({json.dumps(text)}))")
        return await self.all("botOutput")

    async def send(self, text: str, **options: bool) -> None:
        await self.page.evaluate(f"client.sendText({json.dumps(text)}, {json.dumps(options)})")


@pytest.fixture
async def client(serve: Serve, browser: int, talker: Talker) -> AsyncIterator[Client]:
    """A page that has not called yet; it must not meet an error."""
    server = await serve("pipecat", talker)
    async with tab(browser) as page:
        await page.go(server.url)
        yield Client(page, server)
        assert page.errors == []


@pytest.fixture
def talker() -> Talker:
    return Talker()


async def test_a_turn_by_voice_with_the_camera_and_an_interruption(client: Client, talker: Talker) -> None:
    ready = await client.connect()
    assert ready["version"] == "2.1.0"
    assert await client.page.evaluate("client.state") == "ready"

    await client.page.evaluate("devices.speak(1500)")
    await client.until("all('botStartedSpeaking').length && all('userTranscript').length")
    assert len(await client.all("userStartedSpeaking")) == len(await client.all("userStoppedSpeaking")) == 1
    (transcript,) = [each for each in await client.all("userTranscript") if each["final"]]
    assert transcript["text"] == "a long tone"
    first, *_ = await client.said("a tone")
    assert first["text"].startswith("I heard it, and saw ")
    assert "saw 0" not in first["text"], "the camera of the offer must be looked at"
    assert (first["aggregated_by"], first["spoken_status"]) == ("sentence", "new")
    assert first["will_be_spoken"]
    await client.until("loudest() > 0.05")

    # Whoever speaks at once went on, and is answered anew; who has listened for a while interrupts.
    await client.page.evaluate("devices.listen(2500).then(() => devices.speak(1500))")
    await client.until("all('botStoppedSpeaking').length")
    await client.until("all('botOutput').some((output) => output.spoken_status === 'in-progress')")
    await client.until("all('botStartedSpeaking').length === 2")


async def test_texts_functions_and_settings(client: Client, talker: Talker) -> None:
    tell = "async ({arguments: {place}}) => ({place, degrees: 21})"
    await client.page.evaluate(f"client.registerFunctionCallHandler('weather', {tell})")
    await client.connect(instructions="Be brief.", tools=[WEATHER])
    request = "client.sendClientRequest"
    assert (await client.page.evaluate(f"{request}('session.get')"))["instructions"] == "Be brief."
    changed = await client.page.evaluate(f"{request}('session.update', {{instructions: 'Be kind.'}})")
    assert changed["instructions"] == "Be kind."
    with pytest.raises(ScriptError):
        await client.page.evaluate(f"{request}('conquer').catch(answer => {{ throw answer.data.error }})")

    await client.send("How is the weather?")
    assert '"degrees": 21' in (await client.said("degrees"))[-1]["text"]
    assert await client.all("llmFunctionCallStopped")

    await client.send("the sea", audio_response=False)
    assert not (await client.said("the sea"))[-1]["will_be_spoken"]
    assert "Be kind." in talker.requests[-1].messages[0].text


async def test_a_connection_that_is_lost_comes_back_in_a_call_that_goes_on(
    client: Client, talker: Talker
) -> None:
    await client.connect()
    await client.send("a red door")
    await client.said("a red door")

    await client.page.evaluate("transport.attemptReconnection(false)")  # negotiates the same connection
    await client.send("a blue door")
    await client.said("a blue door")
    assert len(client.server.sessions) == 1
    assert await client.page.evaluate("transport._lastNegotiationError") is None

    await client.page.evaluate("transport.attemptReconnection(true)")
    await client.until("transport.dc.readyState === 'open'")
    await client.send("a green door")
    await client.said("a green door")
    assert len(client.server.sessions) == 2
    assert any("a red door" in message.text for message in talker.requests[-1].messages)
    assert await client.page.evaluate("client.state") == "ready"
    assert len(client.server.calls) == 1


async def test_a_camera_that_is_switched_off_is_not_looked_at(client: Client) -> None:
    await client.connect()
    await client.page.evaluate("client.enableCam(false)")
    (session,) = client.server.sessions
    await client.send("anything")
    await client.said("anything")
    assert session._hidden == {"camera"}


@pytest.mark.parametrize("how", ["client.disconnectBot()", None])
async def test_a_bot_that_leaves_is_not_called_again(client: Client, how: str | None) -> None:
    await client.connect()
    if how is None:
        client.server.calls.hang_up_all("the server is shutting down")
    else:
        await client.page.evaluate(how)
    await client.until("client.state === 'disconnected'")
    assert await client.all("botDisconnected")
    assert len(client.server.sessions) == 1


async def test_a_call_that_is_refused_is_told_at_once(client: Client) -> None:
    with pytest.raises(ScriptError, match="rejected with status 400"):
        await client.connect(voice=7)
    assert any("status 400" in error for error in client.page.errors)
    client.page.errors.clear()

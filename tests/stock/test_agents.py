"""OpenAI's voice agents for browsers, as published, call: voice, camera, a function, an interruption."""

from collections.abc import AsyncIterator

import pytest
from clients import Serve, Server, check_events
from talker import Talker

from browser.cdp import Page, tab

pytestmark = [pytest.mark.browser, pytest.mark.stock]


@pytest.fixture
def talker() -> Talker:
    return Talker()


@pytest.fixture
async def server(serve: Serve, talker: Talker) -> Server:
    return await serve("agents", talker)


@pytest.fixture
async def page(server: Server, browser: int) -> AsyncIterator[Page]:
    """A page that is connected; it meets no error, and all that it is told is of the interface."""
    async with tab(browser) as page:
        await page.go(server.url)
        await page.evaluate("session.connect({apiKey: 'ek_none'})")
        assert await page.evaluate("transport.callId") == server.sessions[0].call_id
        yield page
        check_events(await page.evaluate("told"))
        assert await page.evaluate("noted.errors") == []
        assert page.errors == []


async def test_a_turn_by_voice_with_the_camera_and_an_interruption(page: Page, talker: Talker) -> None:
    await page.evaluate("speak(1500)")
    await page.wait_for("words().includes('a long tone')")
    await page.wait_for("words().some((text) => text?.startsWith('I heard it, and saw '))")
    assert "saw 0" not in " ".join(filter(None, await page.evaluate("words()")))
    assert talker.requests[0].messages[0].text == "Be brief."
    await page.wait_for("count('output_audio_buffer.started') === 1")
    await page.evaluate("listen(2500).then(() => speak(1500))")
    await page.wait_for("count('output_audio_buffer.cleared') === 1")
    await page.wait_for("count('conversation.item.truncated') === 1")
    await page.wait_for("count('response.done') === 2")


async def test_a_function_of_the_client_is_called_and_its_result_is_told(page: Page, talker: Talker) -> None:
    await page.evaluate("session.sendMessage('How is the weather?')")
    await page.wait_for("words().some((text) => text?.includes('21 degrees in Rome'))")
    assert await page.evaluate("noted.tools") == [["weather", "21 degrees in Rome"]]
    (offered,) = talker.requests[0].tools
    assert offered.name == "weather"
    assert "place" in offered.parameters


async def test_a_text_is_answered_and_the_answer_stopped(page: Page, server: Server) -> None:
    await page.evaluate("session.sendMessage('The sea.')")
    await page.wait_for("count('output_audio_buffer.started') === 1")
    await page.evaluate("session.interrupt()")
    await page.wait_for("count('output_audio_buffer.cleared') === 1")
    await page.evaluate("session.close()")
    await page.wait_for("transport.status === 'disconnected'")

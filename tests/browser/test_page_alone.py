"""The call page against a server that does what the test says: what goes wrong, and how it is all shown."""

import json
from typing import Any

import pytest
from cdp import INVENTED_DEVICES, Page, chromium
from standin import Served, StandIn, serving

pytestmark = pytest.mark.browser

ANSWER = "It says fresh bread, every morning, in white letters. There is a drawing of a loaf under it."
HEARD = "It says fresh bread, every morning,"
PART = {"response_id": "resp_1", "item_id": "item_2", "output_index": 0, "content_index": 0}
QUESTION: list[dict[str, Any]] = [
    {"type": "input_audio_buffer.speech_stopped", "item_id": "item_1", "audio_end_ms": 900},
    {"type": "input_audio_buffer.committed", "item_id": "item_1", "previous_item_id": None},
    {
        "type": "conversation.item.added",
        "item": {
            "id": "item_1",
            "type": "message",
            "role": "user",
            "content": [{"type": "input_audio", "transcript": None}],
        },
    },
    {"type": "response.created", "response": {"id": "resp_1", "status": "in_progress"}},
    {
        "type": "response.output_item.added",
        "response_id": "resp_1",
        "item": {"id": "item_2", "type": "message", "role": "assistant", "content": []},
    },
]
REPLY: list[dict[str, Any]] = [
    {
        "type": "conversation.item.input_audio_transcription.completed",
        "item_id": "item_1",
        "content_index": 0,
        "transcript": "What is on the sign?",
    },
    {"type": "output_audio_buffer.started", "response_id": "resp_1"},
    {"type": "response.output_audio_transcript.delta", **PART, "delta": ANSWER[:40]},
    {"type": "response.output_audio_transcript.delta", **PART, "delta": ANSWER[40:]},
]
STOPPED: list[dict[str, Any]] = [
    {"type": "output_audio_buffer.cleared", "response_id": "resp_1"},
    {"type": "response.done", "response": {"id": "resp_1", "status": "cancelled"}},
]

CHOOSE = """(choice => {
  const select = document.querySelector("#choice-turns");
  select.value = choice;
  select.dispatchEvent(new Event("change"));
})"""
SILENCE = {"type": "server_vad", "threshold": 0.5, "prefix_padding_ms": 300, "silence_duration_ms": 500}
JOINED = "What is on the sign, and on the door?"


KEEP_TRANSCEIVERS = """
  const add = RTCPeerConnection.prototype.addTransceiver;
  RTCPeerConnection.prototype.addTransceiver = function (...args) {
    return (window.transceivers ??= []).push(add.apply(this, args)), window.transceivers.at(-1);
  }
"""


def stance(stance: str, response_id: str = "resp_1") -> dict[str, Any]:
    return {"type": "visavis.output_stance", "response_id": response_id, "stance": stance}


def speech_started(item_id: str = "item_1") -> dict[str, Any]:
    return {"type": "input_audio_buffer.speech_started", "item_id": item_id, "audio_start_ms": 0}


async def start(page: Page, url: str) -> None:
    await page.go(url)
    await page.click("#start")
    await connected(page)


async def connected(page: Page) -> None:
    """Wait for the call, and until the server has its channel, too."""
    await page.wait_for("visavis.phase === 'live' && visavis.events.length > 0")


async def received(server: StandIn, *types: str) -> list[dict[str, Any]]:
    """Wait until the server has received just these of the events of these types, in this order."""

    def found() -> list[dict[str, Any]]:
        return [event for event in server.received if event["type"] in types]

    await server.until(lambda: [event["type"] for event in found()] == list(types))
    return found()


async def text_of(page: Page, selector: str) -> str:
    text = await page.evaluate(f"document.querySelector({json.dumps(selector)}).innerText")
    assert isinstance(text, str)
    return text


# What goes wrong.


async def test_a_key_is_asked_for_until_one_fits_and_stays_in_the_tab(page: Page, served: Served) -> None:
    served.server.key = "sesame"
    await page.go(served.url)
    await page.click("#start")
    await page.wait_for("document.querySelector('#key-dialog').open")
    assert await text_of(page, "#key-reason") == ""

    await page.type("simsalabim")
    await page.press("Enter")
    await page.wait_for("document.querySelector('#key-reason').innerText.includes('Incorrect API key')")

    await page.type("sesame")
    await page.press("Enter")
    await page.wait_for("visavis.phase === 'live'")
    assert await page.evaluate("sessionStorage.getItem('visavis.key')") == "sesame"
    assert "sesame" not in await page.evaluate(
        "JSON.stringify(localStorage) + document.cookie + location.href"
    )


async def test_without_a_key_there_is_no_call(page: Page, served: Served) -> None:
    served.server.key = "sesame"
    await page.go(served.url)
    await page.click("#start")
    await page.wait_for("document.querySelector('#key-dialog').open")
    await page.press("Escape")
    await page.wait_for("visavis.phase === 'idle'")
    assert await page.evaluate("visavis.microphone") is None


async def test_a_busy_server_is_waited_for_as_long_as_it_asks(page: Page, served: Served) -> None:
    served.server.refusals = [(503, "All lines are busy", {"Retry-After": "2"})]
    await page.go(served.url)
    await page.click("#start")
    await page.wait_for("visavis.notices.includes('The server is busy')")
    assert "All lines are busy. Next try in 2 s." in await text_of(page, ".notice")
    await page.wait_for("visavis.phase === 'live' && visavis.notices.length === 0")


async def test_waiting_can_be_cut_short_or_given_up(page: Page, served: Served) -> None:
    served.server.refusals = [(503, "", {"Retry-After": "999"})] * 2
    await page.go(served.url)
    await page.click("#start")
    await page.wait_for("visavis.notices.includes('The server is busy')")
    await page.click(".notice button")
    await page.wait_for("document.querySelector('.notice')?.innerText.includes('in 999 s')")
    await page.click("#hangup")
    await page.wait_for("visavis.phase === 'ended' && visavis.notices.length === 0")


async def test_a_refusal_that_will_not_change_ends_the_try_with_what_the_server_says(
    page: Page, served: Served
) -> None:
    served.server.refusals = [(403, "Pages of this origin may not call: list it in server.origins.", {})]
    await page.go(served.url)
    await page.click("#start")
    await page.wait_for("visavis.phase === 'ended' && visavis.state === 'trouble'")
    assert "list it in server.origins." in await text_of(page, ".notice")


async def test_a_lost_call_is_replaced_and_the_new_one_told_what_was_said(page: Page, served: Served) -> None:
    server = served.server
    await start(page, served.url)
    server.send(speech_started(), *QUESTION, *REPLY, *STOPPED)
    server.send(
        {"type": "conversation.item.truncated", "item_id": "item_2", "content_index": 0, "transcript": HEARD}
    )
    await page.wait_for("visavis.captions.at(-1)?.heard")

    await server.drop()
    await page.wait_for("visavis.callId === 'rtc_2' && visavis.phase === 'live'")
    # By the answer to this it is known that the server says nothing of the call before.
    await received(server, "session.update")
    assert "conversation.item.create" not in [event["type"] for event in server.received]
    server.send({"type": "session.updated", "session": {"type": "realtime"}})
    created = await received(server, "conversation.item.create", "conversation.item.create")
    said = [(event["item"]["role"], event["item"]["content"][0]["text"]) for event in created]
    assert said == [("user", "What is on the sign?"), ("assistant", HEARD)]
    assert (await text_of(page, "#captions")).endswith("Connection lost\nConnected again")


async def test_a_lost_call_is_gone_on_from_at_a_server_that_remembers_it(page: Page, served: Served) -> None:
    server = served.server
    server.remembers = True
    await start(page, served.url)
    server.send(speech_started(), *QUESTION, *REPLY)
    await page.wait_for("visavis.captions.length === 2")

    for number in (1, 2):
        await server.drop()
        await page.wait_for(f"visavis.callId === 'rtc_{number + 1}' && visavis.phase === 'live'")
        assert server.posted[-1]["former"] == f"token of rtc_{number}"
        server.send({"type": "visavis.resumed", "item_ids": ["item_1", "item_2"]})
        server.send({"type": "session.updated", "session": {"type": "realtime"}})
        await page.wait_for("visavis.events.at(-1).type === 'session.updated'")
    await page.click("#hangup")
    await server.until(lambda: server.deleted == ["rtc_3"])
    assert "conversation.item.create" not in [event["type"] for event in server.received]
    assert await page.evaluate("visavis.captions.length") == 2

    # Who hangs up does not come back.
    await page.click("#start")
    await page.wait_for("visavis.phase === 'live'")
    assert server.posted[-1]["former"] is None


async def test_what_was_gone_on_from_is_not_given_up_when_no_media_comes(page: Page, served: Served) -> None:
    server = served.server
    server.remembers = True
    await start(page, served.url)
    server.answers_media = False
    await server.drop()
    await page.wait_for("visavis.notices.includes('Sound cannot reach the server')", timeout_s=25)
    server.answers_media = True
    await page.wait_for("visavis.phase === 'live'", timeout_s=25)
    assert [posted["former"] for posted in server.posted] == [None, "token of rtc_1", "token of rtc_2"]
    assert server.deleted == []


@pytest.mark.parametrize("status", [410, 503])
async def test_a_silent_server_is_asked_whether_it_still_has_the_call(
    page: Page, served: Served, status: int
) -> None:
    server = served.server
    await start(page, served.url)
    server.fall_silent()
    await server.until(lambda: server.looked_up == ["rtc_1"] * 2)
    assert await page.evaluate("visavis.phase") == "live"
    server.call_status = status
    await page.wait_for("visavis.callId === 'rtc_2' && visavis.phase === 'live'")
    assert "Connection lost" in await text_of(page, "#captions")


async def test_a_path_that_is_silent_after_the_network_changed_is_given_up(
    page: Page, served: Served
) -> None:
    """The server has the call, but what it sends goes where this device no longer is."""
    server = served.server
    await start(page, served.url)
    await page.evaluate("dispatchEvent(new Event('online'))")
    server.fall_silent()
    await server.until(lambda: server.looked_up == ["rtc_1"])
    assert await page.evaluate("visavis.callId") == "rtc_1"
    await page.evaluate("dispatchEvent(new Event('online'))")
    await page.wait_for("visavis.callId === 'rtc_2' && visavis.phase === 'live'")


async def test_a_server_that_goes_away_is_left_for_one_that_is_ready(page: Page, served: Served) -> None:
    server = served.server
    server.remembers = True
    leaving = {"type": "visavis.call_ending", "reason": "It goes.", "seconds": 60, "code": "shutting_down"}
    await start(page, served.url)
    server.send(*QUESTION[:3], leaving)
    await page.wait_for("visavis.events.at(-1).type === 'visavis.call_ending'")
    server.ready = True
    server.send(*REPLY, *STOPPED)
    # Not while an answer is awaited or heard, but then at once.
    await page.wait_for("visavis.callId === 'rtc_2' && visavis.phase === 'live'")
    assert "output_audio_buffer.cleared" in await page.evaluate("visavis.events.map(({type}) => type)")
    assert server.posted[-1]["former"] == "token of rtc_1"
    assert server.deleted == []
    assert await page.evaluate("visavis.notices") == []


async def test_without_another_server_one_stays_until_the_end(page: Page, served: Served) -> None:
    server = served.server
    server.remembers = True
    await start(page, served.url)
    server.send({"type": "visavis.call_ending", "reason": "It goes.", "seconds": 60, "code": "shutting_down"})
    await server.until(lambda: server.asked_ready == 1)
    await page.wait_for("document.querySelector('#captions').innerText.includes('It goes. 60 s are left.')")
    assert await page.evaluate("visavis.callId") == "rtc_1"
    await server.drop()
    await page.wait_for("visavis.callId === 'rtc_2' && visavis.phase === 'live'")


async def test_a_page_that_is_loaded_again_goes_on_with_the_call(page: Page, served: Served) -> None:
    server = served.server
    server.remembers = True
    await start(page, served.url)
    await page.go(served.url)
    await connected(page)
    assert [posted["former"] for posted in server.posted] == [None, "token of rtc_1"]
    assert server.deleted == []
    server.send({"type": "visavis.resumed", "item_ids": ["item_1", "item_2", "item_3"]})
    asked = await received(server, *["conversation.item.retrieve"] * 3)
    assert [event["item_id"] for event in asked] == ["item_1", "item_2", "item_3"]
    # Whatever comes meanwhile stands after what was said before.
    server.send({**QUESTION[2], "item": {**QUESTION[2]["item"], "id": "item_4"}})
    for item_id, role, text in (("item_3", "user", "And?"), ("item_2", "assistant", HEARD)):
        content = [{"type": "output_audio" if role == "assistant" else "input_audio", "transcript": text}]
        item = {"id": item_id, "type": "message", "role": role, "content": content}
        server.send({"type": "conversation.item.retrieved", "item": item})
    call = {"id": "item_1", "type": "function_call", "name": "look", "arguments": "{}"}
    server.send({"type": "conversation.item.retrieved", "item": call})
    await page.wait_for("visavis.captions.length === 3 && visavis.captions.every(({id}) => id !== 'item_1')")
    rows = await text_of(page, "#captions")
    assert rows.index(HEARD) < rows.index("And?") < rows.index("being recognised")

    # Who hangs up does not come back, nor who stays away for long.
    await page.click("#hangup")
    await page.go(served.url)
    assert await page.evaluate("visavis.phase") == "idle"
    await page.evaluate(
        "sessionStorage.setItem('visavis.call', JSON.stringify({token: 'x', at: Date.now() - 61_000}))"
    )
    await page.go(served.url)
    assert await page.evaluate("[visavis.phase, sessionStorage.getItem('visavis.call')]") == ["idle", None]


async def test_a_dead_server_is_named_and_found_again(page: Page) -> None:
    server = StandIn()
    async with serving(server) as port:
        await start(page, f"http://127.0.0.1:{port}/")
    await page.wait_for("visavis.notices.includes('The server does not answer')")
    async with serving(server, port):
        await page.wait_for("visavis.phase === 'live'", timeout_s=20)
        assert await page.evaluate("visavis.notices.length") == 0


async def test_an_answer_without_media_is_blamed_on_the_network(page: Page, served: Served) -> None:
    served.server.answers_media = False
    await page.go(served.url)
    await page.click("#start")
    await page.wait_for("visavis.notices.includes('Sound cannot reach the server')", timeout_s=25)
    assert "UDP" in await text_of(page, ".notice")
    # The call that the server holds is given back.
    assert served.server.deleted == ["rtc_1"]


async def test_the_greatest_length_of_a_call_ends_it_for_good(page: Page, served: Served) -> None:
    await start(page, served.url)
    served.server.send(
        {"type": "visavis.call_ending", "reason": "It has been long.", "seconds": 0, "code": "too_long"}
    )
    await page.wait_for("visavis.events.at(-1)?.type === 'visavis.call_ending'")
    await served.server.drop()
    await page.wait_for("visavis.phase === 'ended'")
    assert "Start a new one" in await text_of(page, ".notice")


async def test_blocked_devices_are_named_and_one_can_still_type(served: Served) -> None:
    flags = ("--use-fake-device-for-media-stream", "--deny-permission-prompts")
    async with chromium(flags) as page:
        await start(page, served.url)
        assert await page.evaluate("visavis.notices") == ["The microphone and camera are blocked"]
        assert await text_of(page, "#state-text") == "Type to talk"
        assert "a=recvonly" in served.server.posted[0]["sdp"]
        await page.click("#text")
        await page.type("Hello?")
        await page.press("Enter")
        item, _ = await received(served.server, "conversation.item.create", "response.create")
        assert item["item"]["content"] == [{"type": "input_text", "text": "Hello?"}]
        assert await page.evaluate("document.querySelector('#text').value") == ""
        assert page.errors == []


async def test_a_machine_without_devices_still_calls(page: Page, served: Served) -> None:
    await page.script_first("navigator.mediaDevices.enumerateDevices = async () => []")
    await start(page, served.url)
    assert await page.evaluate("visavis.notices") == ["No microphone and no camera found"]
    assert "a=recvonly" in served.server.posted[0]["sdp"]


async def test_a_microphone_found_later_is_put_to_use(page: Page, served: Served) -> None:
    await page.script_first(
        """const list = navigator.mediaDevices.enumerateDevices.bind(navigator.mediaDevices);
        window.hidden = true;
        navigator.mediaDevices.enumerateDevices = async () => (await list()).filter(() => !window.hidden)"""
    )
    await start(page, served.url)
    await page.evaluate("window.hidden = false")
    await page.click(".notice button")
    await page.wait_for("visavis.phase === 'live' && visavis.callId === 'rtc_2' && visavis.microphone")
    assert "a=sendrecv" in served.server.posted[1]["sdp"]


async def test_a_camera_in_use_leaves_a_call_with_sound(page: Page, served: Served) -> None:
    await page.script_first(
        """const open = navigator.mediaDevices.getUserMedia.bind(navigator.mediaDevices);
        navigator.mediaDevices.getUserMedia = async (wanted) => {
          if (wanted.video) throw new DOMException("taken", "NotReadableError");
          return open(wanted);
        }"""
    )
    await start(page, served.url)
    assert await page.evaluate("visavis.notices") == ["The camera is in use or does not answer"]
    assert await page.evaluate("[Boolean(visavis.microphone), visavis.camera]") == [True, None]


async def test_plain_http_from_another_host_is_explained(served: Served) -> None:
    flags = (*INVENTED_DEVICES, "--host-resolver-rules=MAP visavis.test 127.0.0.1")
    async with chromium(flags) as page:
        await page.go(f"http://visavis.test:{served.port}/")
        await page.wait_for("window.visavis")
        title = "The browser gives this page no microphone and camera"
        assert await page.evaluate("visavis.notices") == [title]
        assert "Open this page with https://" in await text_of(page, ".notice")
        await page.click("#start")
        await page.wait_for("visavis.phase === 'live'")
        assert await page.evaluate("visavis.notices") == [title]


async def test_sound_that_the_browser_holds_back_waits_for_a_tap(page: Page, served: Served) -> None:
    await page.script_first(
        """const play = HTMLMediaElement.prototype.play;
        HTMLMediaElement.prototype.play = function () {
          if (this.id !== "voice" || window.allowed) return play.call(this);
          window.allowed = true;
          return Promise.reject(new DOMException("no gesture", "NotAllowedError"));
        }"""
    )
    await start(page, served.url)
    await page.wait_for("visavis.notices.includes('The browser holds the sound back')")
    await page.click(".notice button")
    await page.wait_for("visavis.notices.length === 0")


async def test_errors_that_the_server_reports_are_shown_and_the_call_goes_on(
    page: Page, served: Served
) -> None:
    await start(page, served.url)
    served.server.send(
        {"type": "error", "error": {"type": "invalid_request_error", "code": "x", "message": "No."}}
    )
    served.server.send(
        {
            "type": "response.done",
            "response": {
                "id": "resp_9",
                "status": "failed",
                "status_details": {"error": {"message": "The engine is busy."}},
            },
        }
    )
    await page.wait_for("visavis.notices.includes('The server reports a problem')")
    await page.wait_for("document.querySelector('#captions').innerText === 'No answer: The engine is busy.'")
    assert await page.evaluate("visavis.phase") == "live"


# What is shown.


async def test_the_state_follows_who_has_the_floor(page: Page, served: Served) -> None:
    server = served.server
    await start(page, served.url)
    assert await page.evaluate("document.body.dataset.state") == "listening"
    server.send(speech_started())
    await page.wait_for("document.body.dataset.state === 'hearing'")
    server.send(*QUESTION)
    await page.wait_for("document.body.dataset.state === 'thinking'")
    server.send(*REPLY)
    await page.wait_for("document.body.dataset.state === 'speaking'")
    server.send({"type": "response.done", "response": {"id": "resp_1", "status": "completed"}})
    await page.wait_for("visavis.events.at(-1)?.type === 'response.done'")
    assert await text_of(page, "#state-text") == "Speaking"
    server.send({"type": "output_audio_buffer.stopped", "response_id": "resp_1"})
    await page.wait_for("document.querySelector('#state-text').innerText === 'Listening'")


async def test_a_model_that_thinks_is_seen_to_think_until_it_answers(page: Page, served: Served) -> None:
    server = served.server
    await start(page, served.url)
    server.send(speech_started(), *QUESTION, {"type": "visavis.thinking_started", "response_id": "resp_1"})
    await page.wait_for("document.querySelector('#state-text').innerText === 'Thinking it over'")
    assert await page.evaluate("document.body.dataset.state") == "pondering"
    server.send({"type": "visavis.thinking_stopped", "response_id": "resp_1"})
    await page.wait_for("document.querySelector('#state-text').innerText === 'Thinking'")
    server.send(*REPLY)
    await page.wait_for("document.body.dataset.state === 'speaking'")
    assert await page.evaluate("visavis.captions.length") == 2


async def test_an_answer_is_seen_to_make_room_and_to_be_interrupted(page: Page, served: Served) -> None:
    server = served.server
    await start(page, served.url)
    server.send(speech_started(), *QUESTION, *REPLY, stance("ducked", "resp_0"))
    await page.wait_for("visavis.events.at(-1)?.type === 'visavis.output_stance'")
    assert await page.evaluate("visavis.state") == "speaking"
    server.send(stance("ducked"))
    await page.wait_for("document.querySelector('#state-text').innerText === 'Letting you speak'")
    assert await page.evaluate("document.body.dataset.state") == "yielding"
    # A cough: nothing is lost, and it goes on.
    server.send(stance("open"))
    await page.wait_for("document.querySelector('#state-text').innerText === 'Speaking'")
    # Speech that is only just told of may still be a murmur; what is cut off was interrupted.
    server.send(stance("ducked"), stance("held"), speech_started("item_3"))
    await page.wait_for("visavis.events.at(-1)?.type === 'input_audio_buffer.speech_started'")
    assert await page.evaluate("document.body.dataset.state") == "yielding"
    server.send(*STOPPED)
    await page.wait_for("document.querySelector('#state-text').innerText === 'Interrupted'")
    assert await page.evaluate("document.body.dataset.state") == "interrupted"
    await page.wait_for("document.querySelector('#state-text').innerText === 'Hearing you'")


async def test_an_interruption_is_forgotten_when_the_next_turn_is_over(page: Page, served: Served) -> None:
    server = served.server
    await start(page, served.url)
    server.send(speech_started(), *QUESTION, *REPLY, stance("held"), speech_started("item_3"), *STOPPED)
    server.send({"type": "input_audio_buffer.speech_stopped", "item_id": "item_3", "audio_end_ms": 2_000})
    await page.wait_for("visavis.events.at(-1)?.type === 'input_audio_buffer.speech_stopped'")
    assert await page.evaluate("visavis.state") == "thinking"


async def test_output_that_is_cleared_in_silence_interrupts_nothing(page: Page, served: Served) -> None:
    await start(page, served.url)
    served.server.send({"type": "output_audio_buffer.cleared", "response_id": "resp_1"})
    await page.wait_for("visavis.events.at(-1)?.type === 'output_audio_buffer.cleared'")
    assert await page.evaluate("visavis.state") == "listening"


async def test_states_that_pass_are_not_read_out(page: Page, served: Served) -> None:
    server = served.server
    await start(page, served.url)
    await page.evaluate(
        """(announcer => {
          window.said = [];
          const hear = () => window.said.push(announcer.textContent);
          new MutationObserver(hear).observe(announcer, {childList: true});
        })(document.querySelector("#announcer"))"""
    )
    server.send(speech_started(), *QUESTION, *REPLY, stance("ducked"), *STOPPED)
    await page.wait_for("visavis.state === 'hearing' || visavis.state === 'listening'")
    await page.wait_for("window.said.at(-1) === 'Listening'")
    assert not {"Letting you speak", "Interrupted"} & set(await page.evaluate("window.said"))


async def test_a_joined_turn_takes_the_place_of_what_it_continues(page: Page, served: Served) -> None:
    server = served.server
    await start(page, served.url)
    server.send(speech_started(), *QUESTION, *REPLY, *STOPPED)
    await page.wait_for("document.querySelectorAll('.turn:not([hidden])').length === 2")
    server.send({"type": "conversation.item.deleted", "item_id": "item_2"})
    server.send({"type": "conversation.item.deleted", "item_id": "item_1"})
    # What comes late for an item that is gone does not bring it back.
    server.send({"type": "response.output_audio_transcript.done", **PART, "transcript": ANSWER})
    await page.wait_for("visavis.events.at(-1)?.type === 'response.output_audio_transcript.done'")
    assert await page.evaluate("visavis.captions") == []
    # The caller's words stay in sight until the joined turn has them.
    assert await text_of(page, "#captions .words") == "What is on the sign?"

    server.send({"type": "input_audio_buffer.committed", "item_id": "item_3", "previous_item_id": None})
    await page.wait_for("visavis.captions.length === 1")
    assert (await text_of(page, "#captions .words")).startswith("What is on the sign?")
    assert await page.evaluate("document.querySelectorAll('#captions .dots').length") == 1
    server.send({**REPLY[0], "item_id": "item_3", "transcript": JOINED})
    await page.wait_for("visavis.captions[0].final")
    assert await page.evaluate("document.querySelector('#captions').childElementCount") == 1
    assert await text_of(page, "#captions .words") == JOINED


async def test_what_is_deleted_and_never_continued_goes_with_the_sound(page: Page, served: Served) -> None:
    server = served.server
    await start(page, served.url)
    server.send(speech_started(), *QUESTION, REPLY[0])
    server.send(
        {"type": "conversation.item.deleted", "item_id": "item_1"}, {"type": "input_audio_buffer.cleared"}
    )
    await page.wait_for("visavis.events.at(-1)?.type === 'input_audio_buffer.cleared'")
    assert await page.evaluate("document.querySelector('#captions').childElementCount") == 0


async def test_a_cough_leaves_no_trace(page: Page, served: Served) -> None:
    await start(page, served.url)
    served.server.send(speech_started(), {"type": "input_audio_buffer.cleared"})
    await page.wait_for("visavis.events.at(-1)?.type === 'input_audio_buffer.cleared'")
    assert await page.evaluate("visavis.state") == "listening"
    assert await page.evaluate("visavis.captions.length") == 0


async def test_what_was_cut_off_is_struck_through(page: Page, served: Served) -> None:
    await start(page, served.url)
    served.server.send(speech_started(), *QUESTION, *REPLY, *STOPPED)
    served.server.send(
        {"type": "conversation.item.truncated", "item_id": "item_2", "content_index": 0, "transcript": HEARD},
        {"type": "response.output_audio_transcript.done", **PART, "transcript": HEARD},
    )
    await page.wait_for("document.querySelector('.assistant s')")
    cut = await page.evaluate("document.querySelector('.assistant s').lastChild.data")
    assert cut == ANSWER.removeprefix(HEARD)


async def test_a_server_that_does_not_tell_what_is_left_is_asked(page: Page, served: Served) -> None:
    await start(page, served.url)
    served.server.send(speech_started(), *QUESTION, *REPLY, *STOPPED)
    served.server.send({"type": "conversation.item.truncated", "item_id": "item_2", "content_index": 0})
    [asked] = await received(served.server, "conversation.item.retrieve")
    assert asked["item_id"] == "item_2"
    # Spaced anew, as servers do: then words are counted.
    content = [{"type": "output_audio", "transcript": "It says  fresh bread,"}]
    item = {"id": "item_2", "type": "message", "role": "assistant", "content": content}
    served.server.send({"type": "conversation.item.retrieved", "item": item})
    await page.wait_for("visavis.captions.at(-1).heard")
    heard = await page.evaluate("visavis.captions.at(-1).text.slice(0, visavis.captions.at(-1).heard)")
    assert heard == "It says fresh bread,"


async def test_a_turn_tells_where_its_time_went(page: Page, served: Served) -> None:
    server = served.server
    await start(page, served.url)
    server.send(speech_started(), *QUESTION, *REPLY)
    marks = {
        "speech_end": 0,
        "turn_end": 500,
        "request_sent": 520,
        "transcript": 640,
        "first_text": 700,
        "first_audio": 900,
        "first_sent": 910,
    }
    server.send(
        {"type": "visavis.turn_timings", "response_id": "resp_1", "item_id": "item_1", "marks": marks}
    )
    await page.wait_for("visavis.timings[0]?.marks.first_sent")
    server.voice.sounding = True
    heard = await page.wait_for("visavis.timings[0].marks.heard")
    assert heard > 500
    assert await page.evaluate("document.querySelectorAll('.strip').length") == 1
    await page.click(".strip summary")
    rows = (await text_of(page, ".strip dl")).splitlines()
    figures = dict(zip(rows[0::2], rows[1::2], strict=True))
    assert figures.pop("Heard here") == f"{max(0, heard - 910)} ms"
    assert figures == {
        "Turn ended": "500 ms",
        "Request sent": "20 ms",
        "Words recognised": "120 ms",
        "First words": "60 ms",
        "First voice": "200 ms",
        "First sound sent": "10 ms",
    }


async def test_a_turn_that_was_asked_for_in_advance_says_so(page: Page, served: Served) -> None:
    server = served.server
    await start(page, served.url)
    server.send(speech_started(), *QUESTION, *REPLY)
    marks = {
        "speech_end": 0,
        "turn_end": 260,
        "request_sent": 90,
        "first_text": 170,
        "first_audio": 220,
        "first_sent": 265,
    }
    server.send(
        {"type": "visavis.turn_timings", "response_id": "resp_1", "item_id": "item_1", "marks": marks}
    )
    await page.click(".strip summary")
    rows = (await text_of(page, ".strip dl")).splitlines()
    assert list(zip(rows[0::2], rows[1::2], strict=True)) == [
        ("Asked in advance", "90 ms"),
        ("First words", "80 ms"),
        ("First voice", "50 ms"),
        ("Turn ended", "40 ms"),
        ("First sound sent", "5 ms"),
    ]
    assert await text_of(page, ".strip .total") == "0.27 s"


async def test_marks_from_before_the_last_word_are_drawn_from_the_earliest(
    page: Page, served: Served
) -> None:
    server = served.server
    await start(page, served.url)
    server.send(speech_started(), *QUESTION, *REPLY)
    marks = {"turn_end": 250, "request_sent": -200, "first_audio": -50, "first_sent": 300}
    server.send(
        {"type": "visavis.turn_timings", "response_id": "resp_1", "item_id": "item_1", "marks": marks}
    )
    await page.click(".strip summary")
    drawn = """[...document.querySelectorAll(".track i")].map(({style}) =>
      [parseFloat(style.marginInlineStart), parseFloat(style.width)].map(Math.round))"""
    assert await page.evaluate(drawn) == [[0, 0], [0, 30], [30, 60], [90, 10]]
    assert await text_of(page, ".strip .total") == "0.30 s"


# What the person does.


@pytest.mark.parametrize(
    ("choice", "detection"),
    [
        ("low", {"type": "semantic_vad", "eagerness": "low"}),
        ("silence", {"type": "server_vad"}),
        ("press", None),
    ],
)
async def test_when_a_turn_is_over_can_be_chosen_and_is_kept(
    page: Page, served: Served, choice: str, detection: object
) -> None:
    await start(page, served.url)
    await page.evaluate(f"{CHOOSE}('{choice}')")
    [told] = await received(served.server, "session.update")
    session = {"type": "realtime", "audio": {"input": {"turn_detection": detection}}}
    assert told["session"] == session
    served.server.received.clear()
    await start(page, served.url)
    [again] = await received(served.server, "session.update")
    assert again["session"] == session
    assert await page.evaluate("document.querySelector('#choice-turns').value") == choice


@pytest.mark.parametrize(
    ("detection", "choice"),
    [
        ({"type": "semantic_vad", "eagerness": "medium"}, "auto"),
        ({"type": "semantic_vad", "eagerness": "high"}, "high"),
        (SILENCE, "silence"),
        (None, "press"),
    ],
)
async def test_without_a_choice_turns_end_as_the_server_has_it(
    page: Page, served: Served, detection: object, choice: str
) -> None:
    await start(page, served.url)
    session = {"type": "realtime", "audio": {"input": {"turn_detection": detection}}}
    served.server.send({"type": "session.updated", "session": session})
    await page.wait_for("visavis.events.at(-1)?.type === 'session.updated'")
    assert await page.evaluate("document.querySelector('#choice-turns').value") == choice
    assert await page.evaluate("visavis.muted") == (choice == "press")
    assert served.server.received == []


async def test_push_to_talk_sends_what_is_said_between_two_presses(page: Page, served: Served) -> None:
    server = served.server
    await start(page, served.url)
    await page.evaluate(f"{CHOOSE}('press')")
    await page.wait_for("visavis.muted")
    assert await text_of(page, "#state-text") == "Press Talk to speak"
    assert await text_of(page, "#mute") == "Talk"
    server.send(*QUESTION, *REPLY)
    await page.wait_for("visavis.state === 'speaking'")
    await page.click("#mute")
    await received(server, "response.cancel", "output_audio_buffer.clear", "input_audio_buffer.clear")
    server.send(*STOPPED)
    await page.wait_for("!visavis.muted && document.querySelector('#state-text').innerText === 'Hearing you'")
    assert await text_of(page, "#mute") == "Send"
    server.received.clear()
    await page.press(" ", "Space")
    await received(server, "input_audio_buffer.commit", "response.create")
    await page.wait_for("visavis.muted")
    await page.evaluate(f"{CHOOSE}('auto')")
    await page.wait_for("!visavis.muted")
    assert await text_of(page, "#mute") == "Mute"


async def test_interrupting_stops_the_generation_only_while_there_is_one(page: Page, served: Served) -> None:
    server = served.server
    await start(page, served.url)
    assert await page.evaluate("document.querySelector('#interrupt').disabled")
    server.send(speech_started(), *QUESTION, *REPLY)
    await page.click("#interrupt")
    await received(server, "response.cancel", "output_audio_buffer.clear")
    server.received.clear()
    server.send({"type": "response.done", "response": {"id": "resp_1", "status": "completed"}})
    await page.wait_for("visavis.events.at(-1)?.type === 'response.done'")
    await page.click("#interrupt")
    await received(server, "output_audio_buffer.clear")
    assert len(server.received) == 1


async def test_a_typed_message_interrupts_and_appears_once_the_server_has_it(
    page: Page, served: Served
) -> None:
    server = served.server
    await start(page, served.url)
    server.send(speech_started(), *QUESTION, *REPLY)
    await page.wait_for("visavis.state === 'speaking'")
    await page.click("#text")
    await page.type("Stop. What time is it?")
    await page.click("#send")
    await received(
        server, "response.cancel", "output_audio_buffer.clear", "conversation.item.create", "response.create"
    )
    content = [{"type": "input_text", "text": "Stop. What time is it?"}]
    item = {"id": "item_3", "type": "message", "role": "user", "content": content}
    server.send({"type": "conversation.item.added", "item": item})
    await page.wait_for("visavis.captions.at(-1).text === 'Stop. What time is it?'")


async def test_mute_by_button_and_keys_but_not_while_typing(page: Page, served: Served) -> None:
    await start(page, served.url)
    await page.press("m", "KeyM")
    await page.wait_for("visavis.muted")
    assert await text_of(page, "#state-text") == "You are muted"
    await page.press(" ", "Space")
    await page.wait_for("!visavis.muted")
    await page.click("#mute")
    await page.wait_for("visavis.muted")
    assert await text_of(page, "#mute") == "Unmute"
    await page.click("#text")
    await page.press("m", "KeyM")
    await page.press(" ", "Space")
    assert await page.evaluate("document.querySelector('#text').value") == "m "
    assert await page.evaluate("visavis.muted")


async def test_the_camera_goes_off_and_on_within_the_call(page: Page, served: Served) -> None:
    await start(page, served.url)
    assert await page.evaluate("visavis.camera !== null")
    await page.click("#camera")
    await page.wait_for("visavis.camera === null && document.querySelector('#self').hidden")
    await page.click("#camera")
    await page.wait_for("visavis.camera !== null && !document.querySelector('#self').hidden")
    assert len(served.server.posted) == 1


async def test_the_camera_is_asked_for_few_sharp_frames(page: Page, served: Served) -> None:
    await page.script_first(KEEP_TRANSCEIVERS)
    await start(page, served.url)
    encoding = await page.evaluate("window.transceivers[1].sender.getParameters().encodings[0]")
    assert (encoding["maxFramerate"], encoding["maxBitrate"]) == (2, 300_000)
    assert await page.evaluate("window.transceivers[1].sender.track.contentHint") == "detail"
    settings = await page.evaluate("window.transceivers[0].sender.track.getSettings()")
    assert settings["echoCancellation"] not in (False, None)


async def test_the_camera_sends_as_many_pictures_as_the_server_wants(page: Page, served: Served) -> None:
    await page.script_first(KEEP_TRANSCEIVERS)
    await start(page, served.url)
    await connected(page)
    encoding = "window.transceivers[1].sender.getParameters().encodings[0]"
    wishes = "visavis.events.filter(e => e.type === 'visavis.camera.wanted').length"
    expected = [(0.5, "true", 1), (0, "false", 1), (2.0, "true", 2), (12, "true", 2)]
    for count, (fps, active, rate) in enumerate(expected, 1):
        served.server.send({"type": "visavis.camera.wanted", "fps": fps})
        await page.wait_for(f"{wishes} === {count}")
        await page.wait_for(f"{encoding}.active === {active} && {encoding}.maxFramerate === {rate}")


async def test_a_screen_is_shared_beside_the_camera_until_it_is_not(page: Page, served: Served) -> None:
    """A picture that is drawn stands in for the screen: nobody is there to choose one."""
    await page.script_first(KEEP_TRANSCEIVERS)
    await page.script_first(
        """navigator.mediaDevices.getDisplayMedia = async () => {
          const canvas = document.createElement("canvas");
          canvas.getContext("2d").fillRect(0, 0, 9, 9);
          return (window.shown = canvas.captureStream(5));
        }"""
    )
    await start(page, served.url)
    await connected(page)
    sender = "window.transceivers[2].sender"
    assert await page.evaluate(f"{sender}.track") is None
    await page.click("#share")
    await page.wait_for(f"visavis.screen && {sender}.track?.contentHint === 'text'")
    assert await page.evaluate("document.querySelector('#share').getAttribute('aria-pressed')") == "true"
    await page.click("#share")
    await page.wait_for(f"!visavis.screen && {sender}.track === null")
    assert await page.evaluate("window.shown.getVideoTracks()[0].readyState") == "ended"
    await page.click("#share")
    await page.wait_for("visavis.screen")
    await page.evaluate("window.shown.getVideoTracks()[0].dispatchEvent(new Event('ended'))")
    await page.wait_for(f"!visavis.screen && {sender}.track === null")
    await page.click("#share")
    await page.wait_for("visavis.screen")
    await page.click("#hangup")
    await page.wait_for("!visavis.screen && document.querySelector('#share').offsetParent === null")


async def test_who_shares_no_screen_after_all_is_left_in_peace(page: Page, served: Served) -> None:
    await page.script_first(
        """navigator.mediaDevices.getDisplayMedia = async () => {
          throw new DOMException("", "NotAllowedError");
        }"""
    )
    await start(page, served.url)
    await connected(page)
    await page.click("#share")
    assert not await page.evaluate("visavis.screen")
    assert await page.evaluate("visavis.notices") == []


async def test_hanging_up_frees_the_call_and_the_devices(page: Page, served: Served) -> None:
    await start(page, served.url)
    await page.click("#hangup")
    await page.wait_for("visavis.phase === 'ended' && visavis.microphone === null && visavis.camera === null")
    await served.server.until(lambda: served.server.deleted == ["rtc_1"])
    await page.click("#start")
    await page.wait_for("visavis.callId === 'rtc_2' && visavis.phase === 'live'")


async def test_leaving_the_page_frees_the_call(page: Page, served: Served) -> None:
    await start(page, served.url)
    await page.go("about:blank")
    await served.server.until(lambda: served.server.deleted == ["rtc_1"])


# For everybody.

WIDE = """[...document.querySelectorAll("body *")].filter((element) => {
  const box = element.getBoundingClientRect();
  return box.width > 1 && !element.closest(".sr, i") && (box.right > innerWidth + 0.5 || box.left < -0.5);
}).map((element) => element.outerHTML.slice(0, 80))"""

SMALL = """[...document.querySelectorAll("button, input, select")].filter((element) => {
  const box = element.getBoundingClientRect();
  return box.width && element.type !== "checkbox" && (box.height < 44 || box.width < 44);
}).map((element) => element.id)"""

CONTROLS = frozenset(
    {"button", "textbox", "combobox", "checkbox", "DisclosureTriangle", "log", "link", "listbox"}
)


async def check_fit(page: Page) -> None:
    """Nothing sticks out, and what is to be tapped is as large as a fingertip."""
    assert await page.evaluate("document.documentElement.scrollWidth") <= 360
    assert await page.evaluate(WIDE) == []
    assert await page.evaluate(SMALL) == []


async def check_names(page: Page) -> None:
    """Everything that can be operated tells a screen reader what it is."""
    nodes = [node for node in await page.accessibility() if node["role"]["value"] in CONTROLS]
    assert nodes
    assert [node["role"]["value"] for node in nodes if not node.get("name", {}).get("value")] == []


async def test_it_fits_a_small_phone_and_has_names_for_screen_readers(page: Page, served: Served) -> None:
    server = served.server
    await page.look(360, 740)
    await page.go(served.url)
    await page.wait_for("window.visavis")
    await check_fit(page)
    await check_names(page)
    await page.click("#devices-early")
    await check_fit(page)
    await check_names(page)
    await page.press("Escape")

    await page.click("#start")
    await connected(page)
    server.send(speech_started(), *QUESTION, *REPLY)
    long = {"type": "response.output_audio_transcript.delta", **PART, "delta": " " + "Wort" * 60}
    marks = {"speech_end": 0, "turn_end": 500, "first_text": 700, "first_audio": 900, "first_sent": 12_910}
    server.send(
        long, {"type": "visavis.turn_timings", "response_id": "resp_1", "item_id": "item_1", "marks": marks}
    )
    await page.click(".strip summary")
    await check_fit(page)
    await check_names(page)

    served.server.refusals = [(503, "All lines are busy; try again in a moment.", {"Retry-After": "99"})]
    await served.server.drop()
    await page.wait_for("visavis.notices.includes('The server is busy')")
    await check_fit(page)
    await check_names(page)


async def test_the_keyboard_reaches_every_control_and_shows_where_it_is(page: Page, served: Served) -> None:
    await page.go(served.url)
    await page.wait_for("window.visavis")
    await page.press("Tab")
    assert await page.evaluate("document.activeElement.id") == "start"
    await page.press("Enter")
    await connected(page)
    served.server.send(speech_started(), *QUESTION, *REPLY)
    await page.wait_for("visavis.state === 'speaking'")
    order = []
    for _ in range(10):
        await page.press("Tab")
        identity, width, style = await page.evaluate(
            """(() => {
              const {outlineWidth, outlineStyle} = getComputedStyle(document.activeElement);
              return [document.activeElement.id, parseFloat(outlineWidth), outlineStyle];
            })()"""
        )
        order.append(identity)
        assert identity == "" or (width >= 2 and style == "solid")
    wanted = ["captions", "text", "send", "mute", "camera", "share", "interrupt", "devices", "hangup"]
    assert [identity for identity in order if identity] == wanted


async def test_states_differ_by_form_not_only_by_colour(page: Page, served: Served) -> None:
    await page.look(1280, 800, still=True)
    await page.go(served.url)
    await page.wait_for("window.visavis")
    shapes = """"idle listening hearing thinking pondering speaking yielding interrupted trouble"
    .split(" ").map((state) => {
      document.body.dataset.state = state;
      return [".head", ".eyes i", ".mouth i"].map((part) => {
        const style = getComputedStyle(document.querySelector(part));
        return [style.transform, style.width, style.height, style.borderRadius].join();
      }).join();
    })"""
    found = await page.evaluate(shapes)
    assert len(set(found)) == len(found)


async def test_a_wish_for_little_motion_is_heeded(page: Page, served: Served) -> None:
    await page.look(1280, 800, still=True)
    await start(page, served.url)
    for state in ("listening", "thinking", "pondering", "yielding", "interrupted", "connecting"):
        await page.evaluate(f"document.body.dataset.state = '{state}'")
        assert await page.evaluate("document.getAnimations().length") == 0


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
async def test_text_stands_out_from_its_ground(page: Page, served: Served, dark: bool) -> None:
    await page.look(1280, 800, dark=dark)
    await page.go(served.url)
    colours = """(() => {
      const canvas = new OffscreenCanvas(1, 1).getContext("2d", {willReadFrequently: true});
      const light = (name) => {
        canvas.fillStyle = getComputedStyle(document.documentElement).getPropertyValue(name);
        canvas.fillRect(0, 0, 1, 1);
        const [r, g, b] = [...canvas.getImageData(0, 0, 1, 1).data].map((byte) => {
          const part = byte / 255;
          return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
        });
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
      };
      return (ink, ground) => {
        const [a, b] = [light(ink), light(ground)].sort((x, y) => y - x);
        return (a + 0.05) / (b + 0.05);
      };
    })()"""
    for ink, ground in [
        ("--ink", "--paper"),
        ("--ink", "--warn-paper"),
        ("--soft", "--paper"),
        ("--soft", "--card"),
        ("--soft", "--tint"),
        ("--danger", "--card"),
    ]:
        ratio = await page.evaluate(f"({colours})('{ink}', '{ground}')")
        # WCAG 2.2, 1.4.3 (AA).
        assert ratio >= 4.5, (ink, ground, ratio)

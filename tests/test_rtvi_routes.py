"""How Pipecat's clients call, against calls without media."""

from pathlib import Path
from typing import Any

import aiohttp
import pytest

from switchboard import ANSWER, KEY, OFFER, Client, Switchboard, refusal, serving
from test_app_resume import SAID, say_and_end
from test_front import front
from visavis import events as ev
from visavis.app import CALLS
from visavis.protocol.rtvi import RtviProtocol
from visavis.rtvi_routes import PATH, read_candidates, read_offer

LATE = {"candidate": "candidate:1 1 udp 1 192.0.2.1 9 typ host", "sdp_mid": "0", "sdp_mline_index": 0}


async def offer(client: Client, pc_id: str | None = None, **members: Any) -> aiohttp.ClientResponse:
    body = {"sdp": OFFER, "type": "offer", "pc_id": pc_id, "restart_pc": False} | members
    return await client.post(PATH, json=body)


async def pc_id_of(response: aiohttp.ClientResponse) -> str:
    assert response.status == 200, await response.text()
    answer = await response.json()
    assert (answer["sdp"], answer["type"]) == (ANSWER, "answer")
    return answer["pc_id"]


async def test_an_offer_opens_a_call_that_speaks_rtvi() -> None:
    board = Switchboard()
    async with serving(board) as client:
        pc_id = await pc_id_of(await offer(client))
        (call,) = board.calls
        assert pc_id.startswith(call.call_id)
        assert call.told == [OFFER]
        assert call.wire is not None
        wire = call.wire(call.call_id)
        assert isinstance(wire, RtviProtocol)
        assert wire.encode(ev.SpeechEnded("item_1", 0)) == []  # the client is not ready yet


@pytest.mark.parametrize("name", ["requestData", "request_data"])
async def test_settings_of_the_session_come_with_the_offer(name: str) -> None:
    board = Switchboard()
    async with serving(board) as client:
        await pc_id_of(await offer(client, **{name: {"session": {"instructions": "Be brief."}, "other": 1}}))
        assert board.calls[0].settings.instructions == "Be brief."
        await pc_id_of(await offer(client, **{name: "the application's own"}))
        wrong = await offer(client, **{name: {"session": {"instructions": 7}}})
        assert wrong.status == 400
        assert (await refusal(wrong))["param"] == "session.instructions"


async def test_the_same_connection_is_negotiated_anew_and_takes_candidates() -> None:
    board = Switchboard()
    async with serving(board) as client:
        pc_id = await pc_id_of(await offer(client))
        assert await pc_id_of(await offer(client, pc_id, sdp="v=0 again")) == pc_id
        response = await client.patch(PATH, json={"pc_id": pc_id, "candidates": [LATE]})
        assert (response.status, await response.json()) == (200, {"status": "success"})
        (call,) = board.calls
        assert call.told == [OFFER, "again v=0 again", f"0: {LATE['candidate']}"]


async def test_a_client_with_a_new_connection_goes_on_in_a_fresh_call() -> None:
    board = Switchboard()
    async with serving(board) as client:
        pc_id = await pc_id_of(await offer(client))
        (former,) = board.calls
        await say_and_end(former)
        fresh_id = await pc_id_of(await offer(client, pc_id, restart_pc=True))
        assert fresh_id != pc_id
        fresh = board.calls[-1]
        assert fresh.kept is not None
        assert fresh.kept.past == SAID
        assert "the caller comes back" in former.told
        assert fresh.wire is not None
        assert fresh.wire(fresh.call_id).encode(ev.SpeechEnded("item_1", 0))  # no client-ready is awaited


async def test_a_connection_that_nobody_knows_is_refused_but_a_new_one_is_a_call() -> None:
    async with serving() as client:
        unknown = "rtc_0123456789abcdef01234567.secret"
        for pc_id in (unknown, "nonsense"):
            response = await offer(client, pc_id)
            assert (response.status, (await refusal(response))["code"]) == (404, "call_not_found")
            response = await client.patch(PATH, json={"pc_id": pc_id, "candidates": []})
            assert (response.status, (await refusal(response))["code"]) == (404, "call_not_found")
            await pc_id_of(await offer(client, pc_id, restart_pc=True))


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ("nonsense", None),
        ("[]", None),
        ("{}", "sdp"),
        ('{"sdp": "v=0", "type": "answer"}', "type"),
        ('{"sdp": "v=0", "pc_id": 7}', "pc_id"),
        ('{"sdp": "v=0", "restart_pc": "yes"}', "restart_pc"),
    ],
)
async def test_a_malformed_offer_is_refused(body: str, param: str | None) -> None:
    async with serving() as client:
        response = await client.post(PATH, data=body)
        assert response.status == 400
        assert (await refusal(response))["param"] == param


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b'{"pc_id": "x"}',
        b'{"candidates": []}',
        b'{"pc_id": "x", "candidates": [7]}',
        b'{"pc_id": "x", "candidates": [{"candidate": 7}]}',
    ],
)
async def test_malformed_candidates_are_refused(body: bytes) -> None:
    async with serving() as client:
        assert (await client.patch(PATH, data=body)).status == 400


def test_bodies_as_other_sdks_write_them() -> None:
    assert not read_offer(b'{"sdp": "v=0", "type": "offer", "pc_id": "", "restart_pc": null}').renegotiates
    unnamed = b'[{"candidate": "c", "sdp_mid": null, "sdp_mline_index": 1}, {"candidate": ""}]'
    assert read_candidates(b'{"pc_id": "x", "candidates": ' + unnamed + b"}").found == (("1", "c"), ("0", ""))


async def test_a_key_is_needed() -> None:
    async with serving(keys=(KEY,)) as client:
        assert (await offer(client)).status == 401
        assert (await client.patch(PATH, json={})).status == 401
        headers = {"Authorization": f"Bearer {KEY}"}
        response = await client.post(PATH, json={"sdp": OFFER, "type": "offer"}, headers=headers)
        assert response.status == 200


async def test_pages_of_listed_origins_alone_may_call() -> None:
    async with serving(origins=("https://friend.org",)) as client:
        for origin, status in (("https://friend.org", 200), ("https://evil.org", 403)):
            response = await client.post(PATH, json={"sdp": OFFER}, headers={"Origin": origin})
            assert response.status == status
        asked = {"Origin": "https://friend.org", "Access-Control-Request-Method": "PATCH"}
        preflight = await client.options(PATH, headers=asked)
        assert "PATCH" in preflight.headers["Access-Control-Allow-Methods"]


async def test_a_full_or_closing_server_opens_no_call_but_negotiates() -> None:
    async with serving(max_calls=1) as client:
        pc_id = await pc_id_of(await offer(client))
        assert (await offer(client)).status == 503
        await pc_id_of(await offer(client, pc_id))
        await client.app[CALLS].retire(0.01)
        response = await offer(client)
        assert (response.status, (await refusal(response))["code"]) == (503, "shutting_down")


# Behind a front, where others carry the calls.


async def test_a_front_spreads_the_calls_and_finds_them_again(tmp_path: Path) -> None:
    async with front(tmp_path) as desk:
        first, second = [await pc_id_of(await offer(desk.client)) for _ in range(2)]
        assert len(desk.placement) == 2
        assert await pc_id_of(await offer(desk.client, second, sdp="v=0 again")) == second
        assert (await desk.client.patch(PATH, json={"pc_id": first, "candidates": [LATE]})).status == 200
        (one,), (other,) = (board.calls for board in desk.office.boards.values())
        assert one.told[1:] == [f"0: {LATE['candidate']}"]
        assert other.told[1:] == ["again v=0 again"]


async def test_who_comes_back_through_a_front_is_carried_where_the_conversation_is(tmp_path: Path) -> None:
    async with front(tmp_path) as desk:
        await pc_id_of(await offer(desk.client))
        pc_id = await pc_id_of(await offer(desk.client))
        board = desk.office.boards[1]
        await say_and_end(board.calls[0])
        await pc_id_of(await offer(desk.client, pc_id, restart_pc=True))
        assert len(board.calls) == 2
        assert board.calls[1].kept is not None
        assert board.calls[1].kept.past == SAID


async def test_a_front_knows_no_calls_of_others_and_tells_that_one_was_lost(tmp_path: Path) -> None:
    async with front(tmp_path) as desk:
        assert (await offer(desk.client, "rtc_0123456789abcdef01234567.secret")).status == 404
        pc_id = await pc_id_of(await offer(desk.client))
        await desk.office.fire(0)
        response = await offer(desk.client, pc_id)
        assert (response.status, (await refusal(response))["code"]) == (410, "call_lost")

"""The call resource as WHIP has it (RFC 9725), and the displays of a call, over HTTP; calls are fakes."""

import time
from typing import Any

import aiohttp
import pytest

from switchboard import ANSWER, CALLS_URL, KEY, OFFER, SDP, Client, Switchboard, refusal, serving
from test_front import front
from visavis.config import IceServer, RtcConfig
from visavis.errors import SignallingError

FRAGMENT = {"Content-Type": "application/trickle-ice-sdpfrag"}
CANDIDATE = "candidate:1 1 udp 2122260223 192.0.2.1 61764 typ host"
BODY = f"a=ice-ufrag:EsAw\r\na=ice-pwd:secret\r\nm=audio 9 RTP/AVP 0\r\na=mid:0\r\na={CANDIDATE}\r\n"
BEARER = {"Authorization": f"Bearer {KEY}"}
SERVERS = RtcConfig(
    caller_ice_servers=(
        IceServer(("stun:stun.example",)),
        IceServer(("turn:turn.example:3478?transport=udp", "turns:turn.example"), secret="north"),
        IceServer(("turn:old.example",), username='a"b', credential="c\\d"),
    )
)


async def opened(client: Client, url: str = CALLS_URL, **headers: str) -> aiohttp.ClientResponse:
    response = await client.post(url, data=OFFER, headers={**SDP, **headers})
    assert response.status == 201, await response.text()
    return response


async def patch(
    client: Client, location: str, body: str = BODY, tag: str | None = "*", **headers: str
) -> aiohttp.ClientResponse:
    named = {"If-Match": tag} if tag is not None else {}
    return await client.patch(location, data=body, headers={**FRAGMENT, **named, **headers})


async def test_a_call_is_a_resource_with_a_tag_that_takes_patches() -> None:
    async with serving() as client:
        first, second = await opened(client), await opened(client)
        assert first.headers["ETag"].startswith('"')
        assert first.headers["ETag"] != second.headers["ETag"]
        assert first.headers["Accept-Patch"] == "application/trickle-ice-sdpfrag"
        assert "Link" not in first.headers


async def test_candidates_that_come_later_reach_the_call() -> None:
    board = Switchboard()
    async with serving(board) as client:
        call = await opened(client)
        for tag in (call.headers["ETag"], "*", f'"other", {call.headers["ETag"]}'):
            response = await patch(client, call.headers["Location"], tag=tag)
            assert response.status == 204
            assert "ETag" not in response.headers
            assert await response.read() == b""
        assert board.calls[0].told[1:] == [f"0: {CANDIDATE}"] * 3


@pytest.mark.parametrize(
    ("tag", "kind", "body", "status", "code"),
    [
        (None, None, BODY, 428, "precondition_required"),
        ('"other"', None, BODY, 412, "precondition_failed"),
        ("other", None, BODY, 412, "precondition_failed"),
        ("W/{tag}", None, BODY, 412, "precondition_failed"),
        ("{tag}", "application/sdp", BODY, 415, "unsupported_media_type"),
        ("{tag}", "application/json", "{}", 415, "unsupported_media_type"),
        ("{tag}", None, "hello", 400, "invalid_sdp_fragment"),
        ("{tag}", None, "", 400, "invalid_sdp_fragment"),
    ],
)
async def test_a_patch_is_refused_as_the_rfc_says(
    tag: str | None, kind: str | None, body: str, status: int, code: str
) -> None:
    board = Switchboard()
    async with serving(board) as client:
        call = await opened(client)
        named = None if tag is None else tag.format(tag=call.headers["ETag"])
        more = {} if kind is None else {"Content-Type": kind}
        response = await patch(client, call.headers["Location"], body, named, **more)
        assert (response.status, (await refusal(response))["code"]) == (status, code)
        assert board.calls[0].told == [OFFER]
        assert (await client.get(call.headers["Location"])).status == 200


async def test_what_the_call_says_of_a_patch_is_told() -> None:
    fault = SignallingError(422, "ICE cannot be restarted.", code="ice_restart")
    async with serving(Switchboard(faults={"add_candidates": fault})) as client:
        location = (await opened(client)).headers["Location"]
        response = await patch(client, location, "a=ice-ufrag:new\r\na=ice-pwd:new\r\n")
        assert (response.status, (await refusal(response))["code"]) == (422, "ice_restart")
        assert (await client.get(location)).status == 200


async def test_a_patch_for_no_call_finds_none() -> None:
    async with serving() as client:
        response = await patch(client, f"{CALLS_URL}/rtc_1", tag=None)
        assert (response.status, (await refusal(response))["code"]) == (404, "call_not_found")


# What is taken, asked beforehand.


@pytest.mark.parametrize(
    ("path", "header", "accepted", "allowed"),
    [
        (CALLS_URL, "Accept-Post", "application/sdp, multipart/form-data", "OPTIONS, POST"),
        ("/v1/realtime", "Accept-Post", "application/sdp, multipart/form-data", "GET, OPTIONS, POST"),
        (f"{CALLS_URL}/rtc_1/whep", "Accept-Post", "application/sdp", "OPTIONS, POST"),
        (
            f"{CALLS_URL}/rtc_1",
            "Accept-Patch",
            "application/trickle-ice-sdpfrag",
            "DELETE, GET, OPTIONS, PATCH",
        ),
        (
            f"{CALLS_URL}/rtc_1/whep/1",
            "Accept-Patch",
            "application/trickle-ice-sdpfrag",
            "DELETE, OPTIONS, PATCH",
        ),
    ],
)
async def test_options_say_what_is_taken(path: str, header: str, accepted: str, allowed: str) -> None:
    async with serving(keys=(KEY,)) as client:
        response = await client.options(path)
        assert response.status == 200
        assert response.headers[header] == accepted
        assert response.headers["Allow"] == allowed


async def test_ice_servers_are_told_by_options_to_who_has_a_key() -> None:
    async with serving(rtc=SERVERS, keys=(KEY,)) as client:
        assert "Link" not in (await client.options(CALLS_URL)).headers
        assert len((await client.options(CALLS_URL, headers=BEARER)).headers.getall("Link")) == 4
        assert (await client.options(CALLS_URL, headers={"Authorization": "Bearer x"})).status == 401
    async with serving(rtc=SERVERS) as client:
        assert len((await client.options(CALLS_URL)).headers.getall("Link")) == 4


# ICE servers.


async def test_the_answer_links_to_ice_servers_with_fresh_credentials() -> None:
    async with serving(rtc=SERVERS) as client:
        links = (await opened(client)).headers.getall("Link")
        assert links[0] == '<stun:stun.example>; rel="ice-server"'
        assert links[1].startswith('<turn:turn.example:3478?transport=udp>; rel="ice-server"; username="')
        assert links[1].endswith('; credential-type="password"')
        assert links[2].startswith("<turns:turn.example>; ")
        assert links[3] == (
            '<turn:old.example>; rel="ice-server"; username="a\\"b"; credential="c\\\\d"; '
            'credential-type="password"'
        )
        assert "north" not in "".join(links)
        assert links[1] != (await opened(client)).headers.getall("Link")[1]


async def test_ice_servers_are_told_as_browsers_take_them() -> None:
    async with serving(rtc=SERVERS, keys=(KEY,)) as client:
        assert (await client.get("/v1/ice_servers")).status == 401
        response = await client.get("/v1/ice_servers", headers=BEARER)
        assert response.headers["Cache-Control"] == "no-store"
        told = await response.json()
        assert told["ttl"] == 86_400
        stun, turn, old = told["iceServers"]
        assert stun == {"urls": ["stun:stun.example"]}
        assert turn["urls"] == ["turn:turn.example:3478?transport=udp", "turns:turn.example"]
        end, _ = turn["username"].split(":")
        assert int(end) == pytest.approx(time.time() + 86_400, abs=60)
        assert old == {"urls": ["turn:old.example"], "username": 'a"b', "credential": "c\\d"}


async def test_without_ice_servers_there_are_none_to_tell() -> None:
    async with serving() as client:
        assert await (await client.get("/v1/ice_servers")).json() == {"iceServers": [], "ttl": 86_400}


# Displays.


async def test_a_display_is_opened_trickled_and_taken_away() -> None:
    board = Switchboard()
    async with serving(board, rtc=SERVERS) as client:
        call = (await opened(client)).headers["Location"]
        response = await opened(client, f"{call}/whep")
        assert response.content_type == "application/sdp"
        assert await response.text() == ANSWER
        location = response.headers["Location"]
        assert location.startswith(f"{call}/whep/")
        assert response.headers["Accept-Patch"] == "application/trickle-ice-sdpfrag"
        assert len(response.headers.getall("Link")) == 4
        (display,) = board.calls[0].shown
        assert (await patch(client, location, tag=response.headers["ETag"])).status == 204
        assert (await patch(client, location, tag='"other"')).status == 412
        assert (await client.delete(location)).status == 200
        assert display.told == [OFFER, f"0: {CANDIDATE}", "the display was taken away", "gone"]
        for gone in (await client.delete(location), await patch(client, location)):
            assert (gone.status, (await refusal(gone))["code"]) == (404, "display_not_found")
        assert board.calls[0].told == [OFFER]


async def test_a_display_is_found_at_its_own_call_alone() -> None:
    async with serving() as client:
        first, second = [(await opened(client)).headers["Location"] for _ in range(2)]
        name = (await opened(client, f"{first}/whep")).headers["Location"].rpartition("/")[2]
        assert (await client.delete(f"{second}/whep/{name}")).status == 404
        assert (await client.delete(f"{first}/whep/{name}")).status == 200


@pytest.mark.parametrize(
    ("url", "kind", "status", "code"),
    [
        (f"{CALLS_URL}/rtc_1/whep", "application/sdp", 404, "call_not_found"),
        ("{call}/whep", "multipart/form-data; boundary=x", 415, "unsupported_media_type"),
        ("{call}/whep", "text/plain", 415, "unsupported_media_type"),
    ],
)
async def test_what_opens_no_display_is_refused(url: str, kind: str, status: int, code: str) -> None:
    async with serving() as client:
        call = (await opened(client)).headers["Location"]
        response = await client.post(url.format(call=call), data=OFFER, headers={"Content-Type": kind})
        assert (response.status, (await refusal(response))["code"]) == (status, code)


async def test_a_call_that_has_no_displays_says_so() -> None:
    async with serving(Switchboard(private=True)) as client:
        call = (await opened(client)).headers["Location"]
        response = await client.post(f"{call}/whep", data=OFFER, headers=SDP)
        assert (response.status, (await refusal(response))["code"]) == (409, "no_displays")


async def test_displays_end_with_the_server() -> None:
    board = Switchboard()
    async with serving(board) as client:
        await opened(client, f"{(await opened(client)).headers['Location']}/whep")
    assert board.calls[0].shown[0].told[-1] == "gone"


# Behind a front.


async def test_behind_a_front_everything_reaches_the_calls_worker(tmp_path: Any) -> None:
    async with front(tmp_path, rtc=SERVERS) as desk:
        calls = [await opened(desk.client) for _ in range(2)]
        for number, call in enumerate(calls):
            assert len(call.headers.getall("Link")) == 4
            location = call.headers["Location"]
            assert (await patch(desk.client, location, tag=call.headers["ETag"])).status == 204
            assert (await patch(desk.client, location, tag=None)).status == 428
            carried = desk.office.boards[number].calls[0]
            assert carried.told == [OFFER, f"0: {CANDIDATE}"]
            display = await opened(desk.client, f"{location}/whep")
            resource = display.headers["Location"]
            assert (await patch(desk.client, resource, tag=display.headers["ETag"])).status == 204
            assert (await desk.client.delete(resource)).status == 200
            assert carried.shown[0].told[-1] == "gone"
        assert len(desk.placement) == 2
        assert len((await desk.client.options(CALLS_URL)).headers.getall("Link")) == 4
        assert len((await (await desk.client.get("/v1/ice_servers")).json())["iceServers"]) == 3

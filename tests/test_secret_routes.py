"""Client secrets over HTTP: who gets one, what it opens, and what stock clients make of the answer."""

import time
from typing import Any

import openai
import pytest
from openai.types.beta.realtime import SessionCreateResponse

from switchboard import CALLS_URL, KEY, OFFER, SDP, Client, Switchboard, refusal, serving
from test_front import front
from visavis import auth
from visavis.client_secrets import Secrets
from visavis.config import SessionConfig

SECRETS_URL = "/v1/realtime/client_secrets"
SESSIONS_URL = "/v1/realtime/sessions"
BEARER = {"Authorization": f"Bearer {KEY}"}


def bearing(secret: str) -> dict[str, str]:
    return {**SDP, "Authorization": f"Bearer {secret}"}


async def create(client: Client, body: Any = None, url: str = SECRETS_URL, **headers: str) -> dict[str, Any]:
    response = await client.post(url, json=body, headers={**BEARER, **headers})
    assert response.status == 200, await response.text()
    made: dict[str, Any] = await response.json()
    return made


async def test_a_holder_of_a_key_gets_a_secret_that_opens_calls_with_its_settings() -> None:
    board = Switchboard()
    async with serving(board, keys=(KEY,)) as client:
        asked = {
            "expires_after": {"anchor": "created_at", "seconds": 60},
            "session": {"type": "realtime", "instructions": "Be brief."},
        }
        made = await create(client, asked)
        assert made["value"].startswith("ek_")
        assert 55 < made["expires_at"] - time.time() <= 60
        assert made["session"]["instructions"] == "Be brief."
        assert made["session"]["id"].startswith("sess_")
        for _ in range(2):  # until it expires
            response = await client.post(CALLS_URL, data=OFFER, headers=bearing(made["value"]))
            assert response.status == 201
            assert board.calls[-1].settings == SessionConfig(instructions="Be brief.")
        location = response.headers["Location"]
        assert (await client.delete(location, headers=bearing(made["value"]))).status == 200


@pytest.mark.parametrize("body", [None, {}, {"session": None}, {"expires_after": None}])
async def test_a_secret_without_wishes_is_good_for_ten_minutes(body: Any) -> None:
    board = Switchboard()
    async with serving(board, keys=(KEY,)) as client:
        made = await create(client, body)
        assert 590 < made["expires_at"] - time.time() <= 600
        assert (await client.post(CALLS_URL, data=OFFER, headers=bearing(made["value"]))).status == 201
        assert board.calls[0].settings == SessionConfig()


async def test_the_clients_own_settings_lie_over_the_secrets() -> None:
    board = Switchboard()
    async with serving(board, keys=(KEY,)) as client:
        made = await create(client, {"session": {"instructions": "Be brief.", "voice": "Ethan"}})
        boundary = "--x\r\nContent-Disposition: form-data; name="
        form = (
            f'{boundary}"sdp"\r\n\r\n{OFFER}\r\n{boundary}"session"\r\n\r\n{{"voice":"Chelsie"}}\r\n--x--\r\n'
        )
        headers = bearing(made["value"]) | {"Content-Type": "multipart/form-data; boundary=x"}
        assert (await client.post(CALLS_URL, data=form, headers=headers)).status == 201
        assert board.calls[0].settings == SessionConfig(instructions="Be brief.", voice="Chelsie")


async def test_a_secret_makes_no_secrets_and_reads_no_figures() -> None:
    async with serving(keys=(KEY,)) as client:
        headers = bearing((await create(client))["value"])
        for method, url in (("POST", SECRETS_URL), ("POST", SESSIONS_URL), ("GET", "/metrics")):
            response = await client.request(method, url, headers=headers)
            assert response.status == 403, url
            assert (await refusal(response))["code"] == "client_secret_not_allowed"


async def test_a_secret_expires(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(keys=(KEY,)) as client:
        made = await create(client, {"expires_after": {"seconds": 10}})
        monkeypatch.setattr(auth.time, "time", lambda: made["expires_at"] + 0.1)
        response = await client.post(CALLS_URL, data=OFFER, headers=bearing(made["value"]))
        assert response.status == 401
        assert (await refusal(response))["code"] == "client_secret_expired"


async def test_a_secret_of_another_server_is_none() -> None:
    foreign, _ = Secrets(["another-key"]).issue(None, 600, time.time())
    async with serving(keys=(KEY,)) as client:
        response = await client.post(CALLS_URL, data=OFFER, headers=bearing(foreign))
        assert (response.status, (await refusal(response))["code"]) == (401, "invalid_api_key")
        assert (await client.post(SECRETS_URL, headers=bearing("wrong"))).status == 401


async def test_without_keys_secrets_can_be_tried_out() -> None:
    board = Switchboard()
    async with serving(board) as client:
        made = await create(client, {"session": {"instructions": "Be brief."}})
        for secret, instructions in (
            (made["value"], "Be brief."),
            ("ek_of_a_developer", SessionConfig().instructions),
        ):
            assert (await client.post(CALLS_URL, data=OFFER, headers=bearing(secret))).status == 201
            assert board.calls[-1].settings.instructions == instructions


@pytest.mark.parametrize(
    ("body", "code", "param"),
    [
        ([], "invalid_type", None),
        ({"expires_after": {"seconds": 9}}, "invalid_value", "expires_after.seconds"),
        ({"expires_after": {"seconds": 7_201}}, "invalid_value", "expires_after.seconds"),
        ({"expires_after": {"anchor": "now"}}, "invalid_value", "expires_after.anchor"),
        ({"session": {"instructions": 7}}, "invalid_type", "session.instructions"),
        ({"session": "realtime"}, "invalid_type", "session"),
    ],
)
async def test_a_wrong_wish_is_refused_by_name(body: Any, code: str, param: str | None) -> None:
    async with serving(keys=(KEY,)) as client:
        response = await client.post(SECRETS_URL, json=body, headers=BEARER)
        assert response.status == 400
        error = await refusal(response)
        assert (error["code"], error["param"]) == (code, param)


async def test_no_json_is_refused() -> None:
    async with serving() as client:
        response = await client.post(SECRETS_URL, data=b"{")
        assert (response.status, (await refusal(response))["code"]) == (400, "invalid_json")


async def test_the_beta_form_has_flat_settings() -> None:
    board = Switchboard()
    async with serving(board, keys=(KEY,)) as client:
        asked = {
            "model": "gpt-4o-realtime-preview",
            "modalities": ["text"],
            "voice": "Ethan",
            "turn_detection": {"type": "server_vad"},
            "client_secret": {"expires_after": {"anchor": "created_at", "seconds": 30}},
        }
        made = await create(client, asked, SESSIONS_URL)
        SessionCreateResponse.model_validate(made, strict=True)
        assert made["modalities"] == ["text"]
        assert made["voice"] == "Ethan"
        assert made["turn_detection"]["type"] == "server_vad"
        assert 25 < made["client_secret"]["expires_at"] - time.time() <= 30
        # The beta's clients post the offer to this path, and name a model.
        url = "/v1/realtime?model=gpt-4o-realtime-preview"
        response = await client.post(url, data=OFFER, headers=bearing(made["client_secret"]["value"]))
        assert response.status == 201
        assert response.content_type == "application/sdp"
        assert board.calls[0].settings.voice == "Ethan"
        assert board.calls[0].settings.output_modalities == ("text",)


async def test_sounds_modalities_in_the_beta_were_two() -> None:
    async with serving() as client:
        made = await create(client, {"temperature": 0.7}, SESSIONS_URL)
        assert made["modalities"] == ["audio", "text"]
        assert made["temperature"] == 0.7


async def test_openais_own_package_gets_a_secret() -> None:
    async with serving(keys=(KEY,)) as client:
        url = str(client.make_url("/v1"))
        async with openai.AsyncOpenAI(api_key=KEY, base_url=url) as stock:
            made = await stock.realtime.client_secrets.create(
                expires_after={"anchor": "created_at", "seconds": 7_200},
                session={
                    "type": "realtime",
                    "model": "gpt-realtime",
                    "audio": {"output": {"voice": "marin"}},
                    "tools": [{"type": "function", "name": "open_door", "parameters": {"type": "object"}}],
                },
            )
        assert made.session.type == "realtime"
        assert made.session.audio is not None
        assert made.session.audio.output is not None
        assert made.session.audio.output.voice == "marin"
        type(made).model_validate(made.model_dump(by_alias=True), strict=True)
        assert (await client.post(CALLS_URL, data=OFFER, headers=bearing(made.value))).status == 201


async def test_behind_a_front_the_worker_knows_the_settings(tmp_path: Any) -> None:
    async with front(tmp_path, keys=(KEY,)) as desk:
        made = await create(desk.client, {"session": {"instructions": "Be brief."}})
        for url in (CALLS_URL, "/v1/realtime?model=gpt-realtime"):
            response = await desk.client.post(url, data=OFFER, headers=bearing(made["value"]))
            assert response.status == 201
        assert [board.calls[0].settings.instructions for board in desk.office.boards.values()] == [
            "Be brief.",
            "Be brief.",
        ]
        assert (await desk.client.post(SECRETS_URL, headers=bearing(made["value"]))).status == 403


async def test_a_secret_stays_out_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    async with serving(keys=(KEY,)) as client:
        value = (await create(client))["value"]
        await client.post(CALLS_URL, data=OFFER, headers=bearing(value))
        await client.post(SECRETS_URL, headers=bearing(value))
    assert value not in caplog.text
    assert KEY not in caplog.text

"""Devices and operators before a server with kiosks; calls are fakes."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from switchboard import CALLS_URL, KEY, OFFER, SDP, Client, Switchboard, refusal
from visavis.app import build_app
from visavis.config import Config, ConversationConfig, KioskConfig, ServerConfig, SessionConfig
from visavis.errors import ConfigError

API = "/v1/kiosk"
OPERATOR = {"Authorization": f"Bearer {KEY}"}


def application(folder: Path, **kiosk: Any) -> web.Application:
    config = Config(
        server=ServerConfig(keys=(KEY,)),
        kiosk=KioskConfig(**{"enabled": True, "folder": folder, **kiosk}),
        conversation=ConversationConfig(session=SessionConfig(instructions="Be kind.")),
    )
    board = Switchboard()
    return build_app(config, board.open, board.ready)


@asynccontextmanager
async def serving(folder: Path, **kiosk: Any) -> AsyncIterator[Client]:
    async with TestClient(TestServer(application(folder, **kiosk), host="127.0.0.1")) as client:
        yield client


def names_in(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


async def begin(client: Client) -> dict[str, Any]:
    response = await client.post(f"{API}/pairing")
    assert response.status == 201
    offer: dict[str, Any] = await response.json()
    return offer


def bearer(offer: dict[str, Any]) -> dict[str, str]:
    return {"Authorization": f"Bearer {offer['token']}"}


async def approve(client: Client, code: str, **fields: Any) -> Any:
    return await client.post(f"{API}/devices", json={"code": code, **fields}, headers=OPERATOR)


async def let_in(client: Client) -> tuple[dict[str, Any], str]:
    """A device that was let in: its offer and id."""
    offer = await begin(client)
    response = await approve(client, offer["code"], name="Reception")
    assert response.status == 201
    return offer, (await response.json())["id"]


async def test_without_kiosks_there_is_nothing(tmp_path: Path) -> None:
    async with serving(tmp_path, enabled=False) as client:
        for path in ("/kiosk", "/kiosk/approve"):
            assert (await client.get(path)).status == 404
        assert (await client.post(f"{API}/pairing", headers=OPERATOR)).status == 404
        assert (await client.post(f"{API}/pairing")).status == 401


async def test_the_pages_are_served_with_the_policy_of_all(tmp_path: Path) -> None:
    async with serving(tmp_path) as client:
        for path, word in (("/kiosk", "kiosk.js"), ("/kiosk/approve", "kiosk-approve.js")):
            response = await client.get(path)
            assert response.status == 200
            assert response.content_type == "text/html"
            assert "script-src 'self'" in response.headers["Content-Security-Policy"]
            assert word in await response.text()
        assert (await client.post("/kiosk")).status == 405


async def test_a_device_waits_and_is_let_in(tmp_path: Path) -> None:
    async with serving(tmp_path) as client:
        offer = await begin(client)
        assert offer["url"] == f"http://127.0.0.1:{client.port}/kiosk/approve"
        assert offer["qr"].startswith("data:image/svg+xml")
        assert offer["expires_in_s"] == 600
        waiting = await client.get(f"{API}/device", headers=bearer(offer))
        assert (waiting.status, await waiting.json()) == (202, {"state": "wanting", "poll_s": 2.0})
        early = await client.post(f"{API}/session", headers=bearer(offer))
        assert (early.status, (await refusal(early))["code"]) == (403, "device_not_approved")

        listed = await (await client.get(f"{API}/devices", headers=OPERATOR)).json()
        assert [each["address"] for each in listed["wanting"]] == ["127.0.0.1"]
        assert offer["code"] not in str(listed)
        assert listed["devices"] == []

        response = await approve(client, offer["code"].lower())
        assert (response.status, (await response.json())["name"]) == (201, "Kiosk")
        answer = await client.get(f"{API}/device?doing=attract", headers=bearer(offer))
        body = await answer.json()
        assert (answer.status, body["state"], body["poll_s"]) == (200, "approved", 5.0)
        assert body["session"]["instructions"] == "Be kind."
        (device,) = (await (await client.get(f"{API}/devices", headers=OPERATOR)).json())["devices"]
        assert (device["doing"], device["settings"]) == ("attract", {})
        assert device["seen_s"] < 60


async def test_a_device_calls_with_a_secret_that_does_for_calls_alone(tmp_path: Path) -> None:
    async with serving(tmp_path, secret_s=60.0) as client:
        offer, ident = await let_in(client)
        answer = await (await client.post(f"{API}/session", headers=bearer(offer))).json()
        assert answer["expires_in_s"] == 60.0
        secret = {"Authorization": f"Bearer {answer['value']}"}
        calling = await client.post(CALLS_URL, data=OFFER, headers=SDP | secret)
        assert calling.status == 201
        assert (await client.delete(calling.headers["Location"], headers=secret)).status == 200
        for method, path in (("GET", "devices"), ("DELETE", f"devices/{ident}")):
            response = await client.request(method, f"{API}/{path}", headers=secret)
            assert (response.status, (await refusal(response))["code"]) == (403, "client_secret_not_allowed")


async def test_what_a_device_knows_is_not_told_again_until_it_changes(tmp_path: Path) -> None:
    async with serving(tmp_path) as client:
        offer, ident = await let_in(client)
        tag = (await client.get(f"{API}/device", headers=bearer(offer))).headers["ETag"]
        known = bearer(offer) | {"If-None-Match": tag}
        assert (await client.get(f"{API}/device", headers=known)).status == 304
        body = {"name": "Left door", "settings": {"idle_s": 9, "instructions": "Be brief."}}
        changed = await client.patch(f"{API}/devices/{ident}", json=body, headers=OPERATOR)
        assert (changed.status, (await changed.json())["settings"]) == (200, body["settings"])
        answer = await (await client.get(f"{API}/device", headers=known)).json()
        assert answer["device"]["name"] == "Left door"
        assert answer["settings"]["idle_s"] == 9
        assert answer["session"]["instructions"] == "Be brief."


async def test_a_revoked_device_is_told_so(tmp_path: Path) -> None:
    async with serving(tmp_path) as client:
        offer, ident = await let_in(client)
        assert (await client.delete(f"{API}/devices/{ident}", headers=OPERATOR)).status == 204
        for response in (
            await client.get(f"{API}/device", headers=bearer(offer)),
            await client.post(f"{API}/session", headers=bearer(offer)),
        ):
            assert (response.status, (await refusal(response))["code"]) == (401, "device_unknown")
        again = await client.delete(f"{API}/devices/{ident}", headers=OPERATOR)
        assert (again.status, (await refusal(again))["code"]) == (404, "device_not_found")


async def test_devices_outlive_the_server(tmp_path: Path) -> None:
    async with serving(tmp_path) as client:
        offer, _ = await let_in(client)
    async with serving(tmp_path) as client:
        assert (await client.get(f"{API}/device", headers=bearer(offer))).status == 200
    kept = (tmp_path / "kiosks.json").read_text()
    assert offer["token"] not in kept
    assert (tmp_path / "kiosks.json").stat().st_mode & 0o777 == 0o600
    assert names_in(tmp_path) == ["kiosks.json"]


async def test_a_list_of_kiosks_that_cannot_be_read_stops_the_start(tmp_path: Path) -> None:
    (tmp_path / "kiosks.json").write_text("{}[")
    runner = web.AppRunner(application(tmp_path))
    with pytest.raises(ConfigError, match=r"kiosk\.folder"):
        await runner.setup()
    await runner.cleanup()


async def test_only_operators_let_in_list_change_and_revoke(tmp_path: Path) -> None:
    async with serving(tmp_path) as client:
        offer, ident = await let_in(client)
        for headers in ({}, bearer(offer), {"Authorization": "Bearer wrong"}):
            for method, path, body in (
                ("GET", "devices", None),
                ("POST", "devices", {"code": offer["code"]}),
                ("PATCH", f"devices/{ident}", {"name": "Mine"}),
                ("DELETE", f"devices/{ident}", None),
            ):
                response = await client.request(method, f"{API}/{path}", json=body, headers=headers)
                assert response.status == 401, (method, path)
        # A device's token is no key of the rest of the server.
        offering = await client.post("/v1/realtime/calls", data="v=0", headers=bearer(offer))
        assert offering.status == 401


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Basic x"}, {"Authorization": f"Bearer {KEY}"}])
async def test_a_device_needs_its_own_token(tmp_path: Path, headers: dict[str, str]) -> None:
    async with serving(tmp_path) as client:
        response = await client.get(f"{API}/device", headers=headers)
        assert (response.status, (await refusal(response))["code"]) == (401, "device_unknown")


async def test_codes_are_not_given_without_end(tmp_path: Path) -> None:
    async with serving(tmp_path, max_pairings_per_min=3.0, max_wanting=2) as client:
        for status, code in ((201, ""), (201, ""), (201, ""), (429, "rate_limit_exceeded")):
            response = await client.post(f"{API}/pairing")
            assert response.status == status
            if code:
                assert (await refusal(response))["code"] == code
                assert int(response.headers["Retry-After"]) > 0


async def test_codes_are_not_tried_out_without_end(tmp_path: Path) -> None:
    async with serving(tmp_path) as client:
        statuses = [(await approve(client, "AAAAAA")).status for _ in range(12)]
        assert statuses[0] == 404
        assert statuses[-1] == 429


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "code"),
        ({"code": 3}, "code"),
        ({"code": "AAAAAA", "name": "x" * 81}, "name"),
    ],
)
async def test_an_approval_without_sense_is_refused_by_name(
    tmp_path: Path, body: dict[str, Any], param: str
) -> None:
    async with serving(tmp_path) as client:
        response = await client.post(f"{API}/devices", json=body, headers=OPERATOR)
        assert (response.status, (await refusal(response))["param"]) == (400, param)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"settings": []}, "settings"),
        ({"settings": {"volume": 3}}, "settings.volume"),
        ({"settings": {"colour": "red"}}, "settings.colour"),
    ],
)
async def test_a_setting_without_sense_is_refused_by_name(
    tmp_path: Path, body: dict[str, Any], param: str
) -> None:
    async with serving(tmp_path) as client:
        _, ident = await let_in(client)
        response = await client.patch(f"{API}/devices/{ident}", json=body, headers=OPERATOR)
        assert (response.status, (await refusal(response))["param"]) == (400, param)
        gone = await client.patch(f"{API}/devices/{'0' * 16}", json={}, headers=OPERATOR)
        assert gone.status == 404


async def test_the_address_in_the_code_is_the_operators(tmp_path: Path) -> None:
    async with serving(tmp_path, url="https://visavis.example/") as client:
        assert (await begin(client))["url"] == "https://visavis.example/kiosk/approve"


async def test_behind_a_proxy_the_address_is_the_proxys(tmp_path: Path) -> None:
    async with serving(tmp_path) as client:
        headers = {"Host": "visavis.example", "X-Forwarded-Proto": "https"}
        offer = await (await client.post(f"{API}/pairing", headers=headers)).json()
        assert offer["url"] == "https://visavis.example/kiosk/approve"


async def test_a_host_that_is_none_gets_no_code(tmp_path: Path) -> None:
    async with serving(tmp_path) as client:
        response = await client.post(f"{API}/pairing", headers={"Host": "x" * 4_000})
        assert (response.status, (await refusal(response))["code"]) == (400, "invalid_host")
        listed = await (await client.get(f"{API}/devices", headers=OPERATOR)).json()
        assert listed["wanting"] == []


async def test_a_folder_that_cannot_be_written_is_said_and_costs_no_500(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    async with serving(tmp_path / "file" / "folder") as client:
        response = await client.post(f"{API}/pairing")
        assert (response.status, (await refusal(response))["code"]) == (503, "unavailable")

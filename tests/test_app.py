import asyncio
import gzip
import re
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from switchboard import ANSWER, CALLS_URL, KEY, OFFER, SDP, Switchboard, raw_request, refusal, serving
from visavis.app import CALLS
from visavis.config import Config, SessionConfig
from visavis.errors import SignallingError
from visavis.page import web_root


def form(**parts: Any) -> aiohttp.FormData:
    data = aiohttp.FormData(default_to_multipart=True)
    for name, value in parts.items():
        data.add_field(name, **value) if isinstance(value, dict) else data.add_field(name, value)
    return data


# Opening and ending calls.


async def test_an_offer_opens_a_call() -> None:
    board = Switchboard()
    async with serving(board) as client:
        response = await client.post(CALLS_URL, data=OFFER, headers=SDP)
        assert response.status == 201
        assert response.headers["Content-Type"] == "application/sdp"
        assert await response.text() == ANSWER
        (call,) = board.calls
        assert response.headers["Location"] == f"{CALLS_URL}/{call.call_id}"
        assert re.fullmatch(r"rtc_[0-9a-f]{24}", call.call_id)
        assert call.told == [OFFER]
        assert call.settings == Config().conversation.session


@pytest.mark.parametrize(
    "parts",
    [
        {"sdp": OFFER, "session": '{"instructions": "Be brief."}'},
        {
            "sdp": {"value": OFFER, "content_type": "application/sdp"},
            "session": {"value": '{"instructions": "Be brief."}', "content_type": "application/json"},
        },
        {
            "sdp": {"value": OFFER.encode(), "content_type": "application/sdp", "filename": "blob"},
            "session": {
                "value": b'{"type": "realtime", "instructions": "Be brief."}',
                "content_type": "application/json",
                "filename": "blob",
            },
        },
    ],
    ids=["plain", "typed", "files"],
)
async def test_a_form_opens_a_call_with_its_session(parts: dict[str, Any]) -> None:
    board = Switchboard()
    async with serving(board) as client:
        response = await client.post(CALLS_URL, data=form(**parts))
        assert response.status == 201
        assert board.calls[0].told == [OFFER]
        assert board.calls[0].settings == SessionConfig(instructions="Be brief.")


async def test_a_form_without_session_opens_a_call_as_configured() -> None:
    board = Switchboard()
    async with serving(board) as client:
        assert (await client.post(CALLS_URL, data=form(sdp=OFFER))).status == 201
        assert board.calls[0].settings == SessionConfig()


@pytest.mark.parametrize("ending", ["delete", "hangup"])
async def test_a_call_is_ended_by_its_address(ending: str) -> None:
    board = Switchboard()
    async with serving(board, max_calls=1) as client:
        location = (await client.post(CALLS_URL, data=OFFER, headers=SDP)).headers["Location"]
        assert await (await client.get(location)).json() == {"id": board.calls[0].call_id}
        if ending == "delete":
            response = await client.delete(location)
        else:
            response = await client.post(f"{location}/hangup")
        assert response.status == 200
        assert board.calls[0].told[1:] == ["the client hung up", "gone"]
        assert (await client.get(location)).status == 404
        again = await client.delete(location)
        assert again.status == 404
        assert (await refusal(again))["code"] == "call_not_found"
        assert (await client.post(CALLS_URL, data=OFFER, headers=SDP)).status == 201


@pytest.mark.parametrize(
    ("data", "kind", "status", "code", "param"),
    [
        (b"", "application/sdp", 400, "invalid_sdp", "sdp"),
        (b"hello", "application/sdp", 400, "invalid_sdp", "sdp"),
        (b"v=0\xff", "application/sdp", 400, "invalid_sdp", "sdp"),
        (b"{}", "application/json", 415, "unsupported_media_type", None),
        (b"sdp=v%3D0", "application/x-www-form-urlencoded", 415, "unsupported_media_type", None),
        (b"hello", "multipart/form-data", 400, "invalid_form", None),
        (b"hello", "multipart/form-data; boundary=x", 400, "invalid_form", None),
        (b"--x--\r\n", "multipart/form-data; boundary=x", 400, "missing_required_parameter", "sdp"),
        (b"v=0" + bytes(300_000), "application/sdp", 413, "body_too_large", None),
    ],
)
async def test_a_body_that_is_no_offer_is_refused_by_name(
    data: bytes, kind: str, status: int, code: str, param: str | None
) -> None:
    async with serving() as client:
        response = await client.post(CALLS_URL, data=data, headers={"Content-Type": kind})
        assert response.status == status
        error = await refusal(response)
        assert (error["code"], error["param"]) == (code, param)
        assert error["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    ("session", "code", "param"),
    [
        ("nonsense", "invalid_json", "session"),
        ("[]", "invalid_type", "session"),
        ('{"turn_detection": 7}', "invalid_type", "session.turn_detection"),
    ],
)
async def test_a_wrong_session_is_refused_by_name(session: str, code: str, param: str) -> None:
    board = Switchboard()
    async with serving(board) as client:
        response = await client.post(CALLS_URL, data=form(sdp=OFFER, session=session))
        assert response.status == 400
        error = await refusal(response)
        assert (error["code"], error["param"]) == (code, param)
        assert board.calls == []


async def test_a_body_that_grows_when_unpacked_is_refused() -> None:
    async with serving() as client:
        bomb = gzip.compress(b"v=0" + bytes(5_000_000))
        response = await client.post(CALLS_URL, data=bomb, headers={**SDP, "Content-Encoding": "gzip"})
        assert response.status == 413


async def test_a_body_that_cannot_be_unpacked_is_refused() -> None:
    async with serving() as client:
        response = await client.post(CALLS_URL, data=OFFER, headers={**SDP, "Content-Encoding": "gzip"})
        assert response.status == 400
        assert (await refusal(response))["code"] == "invalid_body"


async def test_the_calls_own_refusal_reaches_the_client() -> None:
    fault = SignallingError(400, "There is no audio in the offer.", code="no_audio", param="sdp")
    async with serving(Switchboard(faults={"answer": fault})) as client:
        response = await client.post(CALLS_URL, data=OFFER, headers=SDP)
        assert response.status == 400
        assert await refusal(response) == {
            "message": "There is no audio in the offer.",
            "type": "invalid_request_error",
            "code": "no_audio",
            "param": "sdp",
        }
        assert len(client.app[CALLS]) == 0


async def test_a_fault_while_answering_is_told_without_its_details(caplog: pytest.LogCaptureFixture) -> None:
    async with serving(Switchboard(faults={"answer": RuntimeError("inner detail")})) as client:
        response = await client.post(CALLS_URL, data=OFFER, headers=SDP)
        assert response.status == 500
        error = await refusal(response)
        assert error["code"] == "internal_error"
        assert "inner detail" not in error["message"]
        assert "inner detail" in caplog.text
        assert len(client.app[CALLS]) == 0


async def test_a_fault_in_the_server_is_a_refusal_too(caplog: pytest.LogCaptureFixture) -> None:
    board = Switchboard()

    async def broken() -> bool:
        raise RuntimeError("inner detail")

    board.ready = broken
    async with serving(board) as client:
        response = await client.get("/readyz")
        assert response.status == 500
        assert "inner detail" not in (await refusal(response))["message"]
    assert "inner detail" in caplog.text


# Addresses and methods.


async def test_the_server_is_healthy_and_tells_whether_it_is_ready() -> None:
    board = Switchboard()
    warm = asyncio.Event()

    async def ready() -> bool:
        return warm.is_set()

    board.ready = ready
    async with serving(board) as client:
        assert (await client.get("/healthz")).status == 200
        cold = await client.get("/readyz")
        assert cold.status == 503
        assert (await refusal(cold))["code"] == "engine_not_ready"
        warm.set()
        assert (await client.get("/readyz")).status == 200


async def test_a_caller_who_comes_while_the_engine_is_loaded_is_told_to_come_back() -> None:
    board = Switchboard()

    async def cold() -> bool:
        return False

    board.ready = cold
    async with serving(board) as client:
        response = await client.post(CALLS_URL, data=OFFER, headers=SDP)
        assert response.status == 503
        assert int(response.headers["Retry-After"]) > 0
        assert (await refusal(response))["code"] == "engine_not_ready"
    assert not board.calls


async def test_the_server_is_not_ready_while_it_closes() -> None:
    async with serving() as client:
        await client.app[CALLS].drain(0)
        response = await client.get("/readyz")
        assert (response.status, (await refusal(response))["code"]) == (503, "shutting_down")
        assert (await client.get("/healthz")).status == 200
        refused = await client.post(CALLS_URL, data=OFFER, headers=SDP)
        assert (refused.status, (await refusal(refused))["code"]) == (503, "shutting_down")


@pytest.mark.parametrize(
    ("method", "path", "status", "code", "allow"),
    [
        ("GET", CALLS_URL, 405, "method_not_allowed", {"OPTIONS", "POST"}),
        ("PUT", f"{CALLS_URL}/rtc_1", 405, "method_not_allowed", {"DELETE", "GET", "OPTIONS", "PATCH"}),
        ("POST", "/", 405, "method_not_allowed", {"GET", "HEAD"}),
        ("DELETE", "/index.html", 405, "method_not_allowed", {"GET", "HEAD"}),
        ("POST", "/api/nothing", 404, "not_found", None),
        ("GET", "/nothing", 404, "not_found", None),
        ("GET", "/v1/nothing", 404, "not_found", None),
        ("DELETE", f"{CALLS_URL}/rtc_1", 404, "call_not_found", None),
        ("GET", f"{CALLS_URL}/rtc_1", 404, "call_not_found", None),
    ],
)
async def test_wrong_addresses_and_methods_are_refused_in_json(
    method: str, path: str, status: int, code: str, allow: set[str] | None
) -> None:
    async with serving() as client:
        response = await client.request(method, path)
        assert response.status == status
        assert (await refusal(response))["code"] == code
        if allow is not None:
            assert set(re.split(r",\s*", response.headers["Allow"])) == allow


async def test_too_many_requests_are_refused_until_later() -> None:
    async with serving(max_requests_per_s=0.01, keys=(KEY,)) as client:
        assert (await client.post(CALLS_URL, data=OFFER, headers=SDP)).status == 401
        response = await client.post(CALLS_URL, data=OFFER, headers=SDP)
        assert response.status == 429
        assert int(response.headers["Retry-After"]) > 0
        error = await refusal(response)
        assert (error["code"], error["type"]) == ("rate_limit_exceeded", "rate_limit_error")
        assert (await client.get("/healthz")).status == 200


# The page.


@pytest.fixture
def page(tmp_path: Path) -> Path:
    root = tmp_path / "web"
    (root / "js").mkdir(parents=True)
    (root / "index.html").write_text("<!doctype html><title>Visavis</title>")
    (root / "js" / "main.js").write_text("export {};")
    (root / "look.css").write_text("body {}")
    (root / ".env").write_text("secret")
    (tmp_path / "outside.txt").write_text("secret")
    (root / "link.txt").symlink_to(tmp_path / "outside.txt")
    return root


@pytest.mark.parametrize(
    ("path", "kind", "cache"),
    [
        ("/", "text/html; charset=utf-8", "no-store"),
        ("/index.html", "text/html; charset=utf-8", "no-store"),
        ("/js/main.js", "text/javascript; charset=utf-8", "no-cache"),
        ("/look.css", "text/css; charset=utf-8", "no-cache"),
    ],
)
async def test_the_page_is_served_with_its_types_and_policy(
    page: Path, path: str, kind: str, cache: str
) -> None:
    async with serving(page=page) as client:
        response = await client.get(path)
        assert response.status == 200
        assert response.headers["Content-Type"] == kind
        assert response.headers["Cache-Control"] == cache
        assert response.headers["X-Content-Type-Options"] == "nosniff"
        policy = response.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy


@pytest.mark.parametrize(
    "path",
    [
        "/../outside.txt",
        "/js/../../outside.txt",
        "/%2e%2e/outside.txt",
        "/..%2foutside.txt",
        "/js/%2e%2e%2f%2e%2e%2foutside.txt",
        "//etc/passwd",
        "/%2fetc%2fpasswd",
        "/link.txt",
        "/.env",
        "/js",
        "/js/",
        "/nul%00.txt",
        "/" + "x" * 1_000,
    ],
)
async def test_nothing_outside_the_page_is_served(page: Path, path: str) -> None:
    async with serving(page=page) as client:
        head = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        answer = await raw_request(client.port, head)
        assert answer.startswith(b"HTTP/1.1 404 ")
        assert b"secret" not in answer
        assert b"root:" not in answer


def test_the_packages_page_is_found() -> None:
    assert (web_root() / "index.html").is_file()

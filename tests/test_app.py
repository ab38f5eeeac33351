import asyncio
import gzip
import logging
import re
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer, make_mocked_request
from hypothesis import given
from hypothesis import strategies as st

from visavis.admission import RateLimit
from visavis.app import CALLS, build_app
from visavis.auth import Gate, is_loopback_host
from visavis.calls import Calls
from visavis.config import Config, RtcConfig, ServerConfig, SessionConfig
from visavis.errors import ConfigError, SignallingError
from visavis.forms import parse_form
from visavis.page import web_root
from visavis.serving import run_server

OFFER = "v=0\r\no=- 1 1 IN IP4 0.0.0.0\r\ns=-\r\nt=0 0\r\n"
ANSWER = "v=0\r\no=- 2 2 IN IP4 0.0.0.0\r\ns=-\r\nt=0 0\r\n"
SDP = {"Content-Type": "application/sdp"}
KEY = "key-of-a-friend"
CALLS_URL = "/v1/realtime/calls"

Client = TestClient[web.Request, web.Application]


@dataclass(eq=False)
class FakeCall:
    """A call without media; `fault` is raised by the method of that name."""

    call_id: str
    settings: SessionConfig
    faults: dict[str, BaseException] = field(default_factory=dict)
    told: list[str] = field(default_factory=list)
    heeds: bool = True
    "Ends when it is hung up."
    over: asyncio.Event = field(default_factory=asyncio.Event)
    stalled: asyncio.Event | None = None
    "What the answer waits for."

    async def answer(self, offer_sdp: str) -> str:
        self.told.append(offer_sdp)
        if self.stalled is not None:
            await self.stalled.wait()
        self._fail("answer")
        return ANSWER

    async def run(self) -> None:
        try:
            await self.over.wait()
            self._fail("run")
        finally:
            self.told.append("gone")

    def announce_end(self, seconds: float) -> None:
        self.told.append(f"ends in {seconds:g} s")
        self._fail("announce_end")

    def hang_up(self, reason: str) -> None:
        self.told.append(reason)
        self._fail("hang_up")
        if self.heeds:
            self.over.set()

    def _fail(self, method: str) -> None:
        if method in self.faults:
            raise self.faults[method]


class Switchboard:
    """Makes the fake calls and remembers them."""

    def __init__(self, **options: Any) -> None:
        self.calls: list[FakeCall] = []
        self.options = options
        self.ready: Callable[[], Awaitable[bool]] = self._yes

    def open(self, call_id: str, settings: SessionConfig) -> FakeCall:
        self.calls.append(FakeCall(call_id, settings, **self.options))
        return self.calls[-1]

    async def _yes(self) -> bool:
        return True


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


@pytest.fixture
def serve(page: Path) -> Callable[..., Any]:
    @asynccontextmanager
    async def serving(
        board: Switchboard | None = None, *, rtc: RtcConfig | None = None, **server: Any
    ) -> AsyncIterator[Client]:
        board = board or Switchboard()
        config = Config(server=ServerConfig(**server), rtc=rtc or RtcConfig())
        app = build_app(config, board.open, board.ready, page)
        async with TestClient(TestServer(app, host="127.0.0.1"), auto_decompress=False) as client:
            yield client

    return serving


async def refusal(response: aiohttp.ClientResponse) -> dict[str, Any]:
    assert response.content_type == "application/json"
    body = await response.json()
    assert set(body) == {"error"}
    assert set(body["error"]) == {"message", "type", "code", "param"}
    error: dict[str, Any] = body["error"]
    assert error["message"]
    return error


def form(**parts: Any) -> aiohttp.FormData:
    data = aiohttp.FormData(default_to_multipart=True)
    for name, value in parts.items():
        data.add_field(name, **value) if isinstance(value, dict) else data.add_field(name, value)
    return data


async def raw_request(port: int | None, text: str) -> bytes:
    """Send what no client would, or what it would tidy up first."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(text.encode())
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110 - the fakes have no event for each of their states
            await asyncio.sleep(0.001)


# Opening and ending calls.


async def test_an_offer_opens_a_call(serve: Callable[..., Any]) -> None:
    board = Switchboard()
    async with serve(board) as client:
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
async def test_a_form_opens_a_call_with_its_session(serve: Callable[..., Any], parts: dict[str, Any]) -> None:
    board = Switchboard()
    async with serve(board) as client:
        response = await client.post(CALLS_URL, data=form(**parts))
        assert response.status == 201
        assert board.calls[0].told == [OFFER]
        assert board.calls[0].settings == SessionConfig(instructions="Be brief.")


async def test_a_form_without_session_opens_a_call_as_configured(serve: Callable[..., Any]) -> None:
    board = Switchboard()
    async with serve(board) as client:
        assert (await client.post(CALLS_URL, data=form(sdp=OFFER))).status == 201
        assert board.calls[0].settings == SessionConfig()


@pytest.mark.parametrize("ending", ["delete", "hangup"])
async def test_a_call_is_ended_by_its_address(serve: Callable[..., Any], ending: str) -> None:
    board = Switchboard()
    async with serve(board, max_calls=1) as client:
        location = (await client.post(CALLS_URL, data=OFFER, headers=SDP)).headers["Location"]
        if ending == "delete":
            response = await client.delete(location)
        else:
            response = await client.post(f"{location}/hangup")
        assert response.status == 200
        assert board.calls[0].told[1:] == ["the client hung up", "gone"]
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
    serve: Callable[..., Any], data: bytes, kind: str, status: int, code: str, param: str | None
) -> None:
    async with serve() as client:
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
async def test_a_wrong_session_is_refused_by_name(
    serve: Callable[..., Any], session: str, code: str, param: str
) -> None:
    board = Switchboard()
    async with serve(board) as client:
        response = await client.post(CALLS_URL, data=form(sdp=OFFER, session=session))
        assert response.status == 400
        error = await refusal(response)
        assert (error["code"], error["param"]) == (code, param)
        assert board.calls == []


async def test_a_body_that_grows_when_unpacked_is_refused(serve: Callable[..., Any]) -> None:
    async with serve() as client:
        bomb = gzip.compress(b"v=0" + bytes(50_000_000))
        response = await client.post(CALLS_URL, data=bomb, headers={**SDP, "Content-Encoding": "gzip"})
        assert response.status == 413


async def test_a_body_that_cannot_be_unpacked_is_refused(serve: Callable[..., Any]) -> None:
    async with serve() as client:
        response = await client.post(CALLS_URL, data=OFFER, headers={**SDP, "Content-Encoding": "gzip"})
        assert response.status == 400
        assert (await refusal(response))["code"] == "invalid_body"


async def test_the_calls_own_refusal_reaches_the_client(serve: Callable[..., Any]) -> None:
    fault = SignallingError(400, "There is no audio in the offer.", code="no_audio", param="sdp")
    async with serve(Switchboard(faults={"answer": fault})) as client:
        response = await client.post(CALLS_URL, data=OFFER, headers=SDP)
        assert response.status == 400
        assert await refusal(response) == {
            "message": "There is no audio in the offer.",
            "type": "invalid_request_error",
            "code": "no_audio",
            "param": "sdp",
        }
        assert len(client.app[CALLS]) == 0


async def test_an_answer_that_does_not_come_is_given_up(serve: Callable[..., Any]) -> None:
    board = Switchboard(stalled=asyncio.Event())
    async with serve(board, rtc=RtcConfig(connect_s=0.01)) as client:
        response = await client.post(CALLS_URL, data=OFFER, headers=SDP)
        assert response.status == 503
        assert (await refusal(response))["code"] == "answer_timeout"
        assert len(client.app[CALLS]) == 0


async def test_no_more_calls_than_allowed(serve: Callable[..., Any]) -> None:
    async with serve(max_calls=2) as client:
        for _ in range(2):
            assert (await client.post(CALLS_URL, data=OFFER, headers=SDP)).status == 201
        response = await client.post(CALLS_URL, data=OFFER, headers=SDP)
        assert response.status == 503
        assert int(response.headers["Retry-After"]) > 0
        error = await refusal(response)
        assert (error["code"], error["type"]) == ("server_busy", "server_error")


async def test_offers_that_are_still_being_answered_count(serve: Callable[..., Any]) -> None:
    gate = asyncio.Event()
    async with serve(Switchboard(stalled=gate), max_calls=1) as client:
        first = asyncio.create_task(client.post(CALLS_URL, data=OFFER, headers=SDP))
        await until(lambda: len(client.app[CALLS]) == 1)
        assert (await client.post(CALLS_URL, data=OFFER, headers=SDP)).status == 503
        gate.set()
        assert (await first).status == 201


async def test_a_fault_in_one_call_ends_that_one_alone(
    serve: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    board = Switchboard()
    async with serve(board) as client:
        for _ in range(2):
            await client.post(CALLS_URL, data=OFFER, headers=SDP)
        faulty, other = board.calls
        faulty.faults["run"] = RuntimeError("a bug")
        faulty.over.set()
        await until(lambda: faulty.call_id not in client.app[CALLS])
        assert other.call_id in client.app[CALLS]
        assert f"{faulty.call_id}: failed" in caplog.text


async def test_a_fault_while_answering_is_told_without_its_details(
    serve: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    async with serve(Switchboard(faults={"answer": RuntimeError("inner detail")})) as client:
        response = await client.post(CALLS_URL, data=OFFER, headers=SDP)
        assert response.status == 500
        error = await refusal(response)
        assert error["code"] == "internal_error"
        assert "inner detail" not in error["message"]
        assert "inner detail" in caplog.text
        assert len(client.app[CALLS]) == 0


async def test_a_fault_in_the_server_is_a_refusal_too(
    serve: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    board = Switchboard()

    async def broken() -> bool:
        raise RuntimeError("inner detail")

    board.ready = broken
    async with serve(board) as client:
        response = await client.get("/readyz")
        assert response.status == 500
        assert "inner detail" not in (await refusal(response))["message"]
    assert "inner detail" in caplog.text


# Addresses and methods.


async def test_the_server_is_healthy_and_tells_whether_it_is_ready(serve: Callable[..., Any]) -> None:
    board = Switchboard()
    warm = asyncio.Event()

    async def ready() -> bool:
        return warm.is_set()

    board.ready = ready
    async with serve(board) as client:
        assert (await client.get("/healthz")).status == 200
        cold = await client.get("/readyz")
        assert cold.status == 503
        assert (await refusal(cold))["code"] == "engine_not_ready"
        warm.set()
        assert (await client.get("/readyz")).status == 200


async def test_the_server_is_not_ready_while_it_closes(serve: Callable[..., Any]) -> None:
    async with serve() as client:
        await client.app[CALLS].drain(0)
        response = await client.get("/readyz")
        assert (response.status, (await refusal(response))["code"]) == (503, "shutting_down")
        assert (await client.get("/healthz")).status == 200
        refused = await client.post(CALLS_URL, data=OFFER, headers=SDP)
        assert (refused.status, (await refusal(refused))["code"]) == (503, "shutting_down")


@pytest.mark.parametrize(
    ("method", "path", "status", "code", "allow"),
    [
        ("GET", CALLS_URL, 405, "method_not_allowed", {"POST"}),
        ("PUT", f"{CALLS_URL}/rtc_1", 405, "method_not_allowed", {"DELETE"}),
        ("POST", "/", 405, "method_not_allowed", {"GET", "HEAD"}),
        ("DELETE", "/js/main.js", 405, "method_not_allowed", {"GET", "HEAD"}),
        ("POST", "/api/offer", 404, "not_found", None),
        ("GET", "/nothing", 404, "not_found", None),
        ("GET", "/v1/nothing", 404, "not_found", None),
        ("DELETE", f"{CALLS_URL}/rtc_1", 404, "call_not_found", None),
    ],
)
async def test_wrong_addresses_and_methods_are_refused_in_json(
    serve: Callable[..., Any], method: str, path: str, status: int, code: str, allow: set[str] | None
) -> None:
    async with serve() as client:
        response = await client.request(method, path)
        assert response.status == status
        assert (await refusal(response))["code"] == code
        if allow is not None:
            assert set(re.split(r",\s*", response.headers["Allow"])) == allow


# The page.


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
    serve: Callable[..., Any], path: str, kind: str, cache: str
) -> None:
    async with serve() as client:
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
async def test_nothing_outside_the_page_is_served(serve: Callable[..., Any], path: str) -> None:
    async with serve() as client:
        head = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        answer = await raw_request(client.port, head)
        assert answer.startswith(b"HTTP/1.1 404 ")
        assert b"secret" not in answer
        assert b"root:" not in answer


def test_the_packages_page_is_found() -> None:
    assert (web_root() / "index.html").is_file()


# Keys.


async def test_a_key_opens_the_interface_and_nothing_else_does(serve: Callable[..., Any]) -> None:
    async with serve(keys=("another-key", KEY)) as client:
        for authorization in (
            None,
            "",
            KEY,
            f"Basic {KEY}",
            "Bearer",
            "Bearer ",
            f"Bearer {KEY}x",
            "Bearer ké",
        ):
            headers = SDP if authorization is None else {**SDP, "Authorization": authorization}
            response = await client.post(CALLS_URL, data=OFFER, headers=headers)
            assert response.status == 401, authorization
            assert response.headers["WWW-Authenticate"] == "Bearer"
            error = await refusal(response)
            assert (error["code"], error["type"]) == ("invalid_api_key", "authentication_error")
        for authorization in (f"Bearer {KEY}", f"bearer {KEY}", "Bearer another-key"):
            headers = {**SDP, "Authorization": authorization}
            assert (await client.post(CALLS_URL, data=OFFER, headers=headers)).status == 201


async def test_ending_a_call_needs_a_key_and_the_page_needs_none(serve: Callable[..., Any]) -> None:
    async with serve(keys=(KEY,)) as client:
        assert (await client.delete(f"{CALLS_URL}/rtc_1")).status == 401
        assert (await client.post(f"{CALLS_URL}/rtc_1/hangup")).status == 401
        for path in ("/", "/js/main.js", "/healthz", "/readyz"):
            assert (await client.get(path)).status == 200


@pytest.mark.parametrize(
    "path", ["/v1/realtime/calls", "/%76%31/realtime/calls", "/v1%2frealtime%2fcalls", "//v1/realtime/calls"]
)
async def test_no_spelling_of_the_address_avoids_the_key(serve: Callable[..., Any], path: str) -> None:
    board = Switchboard()
    async with serve(board, keys=(KEY,)) as client:
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/sdp\r\n"
        head += f"Content-Length: {len(OFFER)}\r\nConnection: close\r\n\r\n"
        answer = await raw_request(client.port, head + OFFER)
        assert int(answer.split()[1]) in (401, 404)
        assert board.calls == []


@pytest.mark.parametrize("key", ["", " ", "two words", "clé", "new\nline"])
def test_a_key_that_cannot_be_sent_is_refused_at_the_start(key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Gate(ServerConfig(keys=(KEY, key)))
    assert KEY not in str(caught.value)


# Without keys: this machine alone.


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "192.168.1.5", "example.org", "localhost.example.org"])
def test_listening_to_the_network_without_a_key_is_refused_at_the_start(host: str) -> None:
    with pytest.raises(ConfigError, match=r"server\.keys"):
        Gate(ServerConfig(host=host))
    assert Gate(ServerConfig(host=host, keys=(KEY,))).has_keys


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "127.1.2.3", "::1", "[::1]", "::ffff:127.0.0.1", "localhost", "LOCALHOST.", "a.localhost"],
)
def test_loopback_is_recognised(host: str) -> None:
    assert is_loopback_host(host)


class Transport:
    """As much of a connection as says who is at its other end."""

    def __init__(self, peer: object) -> None:
        self.peer = peer

    def get_extra_info(self, name: str, default: object = None) -> object:
        return self.peer if name == "peername" else default


def request_from(peer: object, **headers: str) -> web.Request:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return make_mocked_request("POST", CALLS_URL, named, transport=Transport(peer))


@pytest.mark.parametrize(
    "peer", [("192.168.1.9", 5000), ("8.8.8.8", 5000), ("fe80::1%eth0", 5000, 0, 2), "", None]
)
def test_without_keys_other_machines_are_refused(peer: object) -> None:
    with pytest.raises(SignallingError) as caught:
        Gate(ServerConfig()).check_reach(request_from(peer, Host="localhost"))
    assert (caught.value.status, caught.value.code) == (403, "loopback_only")
    Gate(ServerConfig(keys=(KEY,))).check_reach(request_from(peer, Host="localhost"))


@pytest.mark.parametrize("peer", [("127.0.0.1", 5000), ("::1", 5000, 0, 0), ("::ffff:127.0.0.1", 5000, 0, 0)])
def test_without_keys_this_machine_is_served(peer: object) -> None:
    Gate(ServerConfig()).check_reach(request_from(peer, Host="127.0.0.1:8080"))


@pytest.mark.parametrize(
    "header", ["Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Real-IP", "Via"]
)
async def test_without_keys_a_proxy_is_refused(serve: Callable[..., Any], header: str) -> None:
    async with serve() as client:
        response = await client.post(CALLS_URL, data=OFFER, headers={**SDP, header: "127.0.0.1"})
        assert (response.status, (await refusal(response))["code"]) == (403, "proxy_without_key")


@pytest.mark.parametrize(
    "host",
    [
        "rebound.example.org",
        "rebound.example.org:8080",
        "localhost@evil.org",
        "evil.org/localhost",
        "[::1",
        "",
    ],
)
async def test_without_keys_a_rebound_name_is_refused(serve: Callable[..., Any], host: str) -> None:
    async with serve() as client:
        for path in ("/", "/healthz"):
            response = await client.get(path, headers={"Host": host})
            assert response.status in (400, 403)
        response = await client.post(CALLS_URL, data=OFFER, headers={**SDP, "Host": host})
        assert response.status in (400, 403)


@pytest.mark.parametrize("host", ["localhost", "localhost:8080", "127.0.0.1:1", "[::1]:8080", "LocalHost:80"])
async def test_without_keys_names_of_this_machine_are_served(serve: Callable[..., Any], host: str) -> None:
    async with serve() as client:
        assert (await client.get("/", headers={"Host": host})).status == 200


# Origins.


@pytest.mark.parametrize(
    ("origin", "host", "status"),
    [
        ("http://127.0.0.1:8080", "127.0.0.1:8080", 201),
        ("http://localhost", "localhost:80", 201),
        ("http://LOCALHOST:8080", "localhost:8080", 201),
        ("https://127.0.0.1:8080", "127.0.0.1:8080", 403),
        ("http://127.0.0.1:8081", "127.0.0.1:8080", 403),
        ("http://localhost:8080", "127.0.0.1:8080", 403),
        ("https://evil.org", "127.0.0.1:8080", 403),
        ("null", "127.0.0.1:8080", 403),
        ("", "127.0.0.1:8080", 403),
        ("http://127.0.0.1:8080.evil.org", "127.0.0.1:8080", 403),
        ("http://127.0.0.1:8080@evil.org", "127.0.0.1:8080", 403),
        ("https://friend.org", "127.0.0.1:8080", 201),
        ("https://friend.org:443", "127.0.0.1:8080", 201),
        ("http://friend.org", "127.0.0.1:8080", 403),
    ],
)
async def test_pages_of_this_origin_and_of_listed_ones_may_call(
    serve: Callable[..., Any], origin: str, host: str, status: int
) -> None:
    async with serve(origins=("https://friend.org/",)) as client:
        headers = {**SDP, "Origin": origin, "Host": host}
        response = await client.post(CALLS_URL, data=OFFER, headers=headers)
        assert response.status == status
        allowed = response.headers.get("Access-Control-Allow-Origin")
        assert allowed == (origin if "friend.org" in origin and status == 201 else None)
        if status == 403:
            assert (await refusal(response))["code"] == "origin_not_allowed"


async def test_behind_a_proxy_with_tls_the_page_is_of_the_same_origin(serve: Callable[..., Any]) -> None:
    async with serve(keys=(KEY,)) as client:
        headers = {
            **SDP,
            "Authorization": f"Bearer {KEY}",
            "Origin": "https://talk.example.org",
            "Host": "talk.example.org",
        }
        assert (await client.post(CALLS_URL, data=OFFER, headers=headers)).status == 403
        headers["X-Forwarded-Proto"] = "https"
        assert (await client.post(CALLS_URL, data=OFFER, headers=headers)).status == 201


async def test_a_listed_page_passes_the_preflight_and_sees_what_it_needs(serve: Callable[..., Any]) -> None:
    origin = "https://friend.org"
    async with serve(origins=(origin,), keys=(KEY,)) as client:
        asked = {
            "Origin": origin,
            "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": "authorization,content-type",
        }
        preflight = await client.options(CALLS_URL, headers=asked)
        assert preflight.status == 204
        assert preflight.headers["Access-Control-Allow-Origin"] == origin
        assert preflight.headers["Vary"] == "Origin"
        assert {"POST", "DELETE"} <= set(preflight.headers["Access-Control-Allow-Methods"].split(", "))
        allowed = {name.strip() for name in preflight.headers["Access-Control-Allow-Headers"].split(",")}
        assert allowed == {"Authorization", "Content-Type", "X-OpenAI-Agents-SDK", "If-Match"}
        assert "Access-Control-Allow-Credentials" not in preflight.headers

        headers = {**SDP, "Origin": origin, "Authorization": f"Bearer {KEY}"}
        response = await client.post(CALLS_URL, data=OFFER, headers=headers)
        exposed = {name.strip() for name in response.headers["Access-Control-Expose-Headers"].split(",")}
        assert {"Location", "ETag", "Link", "Accept-Patch"} <= exposed

        refused = await client.post(CALLS_URL, data=OFFER, headers={**SDP, "Origin": origin})
        assert refused.status == 401
        assert refused.headers["Access-Control-Allow-Origin"] == origin


async def test_the_preflight_of_an_unlisted_page_fails(serve: Callable[..., Any]) -> None:
    async with serve(origins=("https://friend.org",)) as client:
        headers = {"Origin": "https://evil.org", "Access-Control-Request-Method": "POST"}
        response = await client.options(CALLS_URL, headers=headers)
        assert response.status == 403
        assert not [name for name in response.headers if name.startswith("Access-Control")]


@pytest.mark.parametrize(
    "origin", ["*", "https://*.org", "friend.org", "https://friend.org/page", "null", ""]
)
def test_an_origin_that_is_none_is_refused_at_the_start(origin: str) -> None:
    with pytest.raises(ConfigError, match=r"server\.origins"):
        Gate(ServerConfig(origins=(origin,)))


# Rates.


async def test_too_many_requests_are_refused_until_later(serve: Callable[..., Any]) -> None:
    async with serve(max_requests_per_s=0.01, keys=(KEY,)) as client:
        assert (await client.post(CALLS_URL, data=OFFER, headers=SDP)).status == 401
        response = await client.post(CALLS_URL, data=OFFER, headers=SDP)
        assert response.status == 429
        assert int(response.headers["Retry-After"]) > 0
        error = await refusal(response)
        assert (error["code"], error["type"]) == ("rate_limit_exceeded", "rate_limit_error")
        assert (await client.get("/healthz")).status == 200


def test_an_address_has_a_burst_and_then_its_rate() -> None:
    limit = RateLimit(per_s=2, burst=3)
    assert [limit.take("192.0.2.1", 0.0) for _ in range(4)] == [0, 0, 0, 0.5]
    assert limit.take("192.0.2.2", 0.0) == 0
    assert limit.take("192.0.2.1", 0.4) == pytest.approx(0.1)
    assert limit.take("192.0.2.1", 0.5) == 0
    assert [limit.take("192.0.2.1", 100.0) for _ in range(4)] == [0, 0, 0, 0.5]


def test_a_subscribers_ipv6_network_counts_as_one_and_mapped_ipv4_as_ipv4() -> None:
    limit = RateLimit(per_s=1, burst=1)
    assert limit.take("2001:db8:0:1::1", 0.0) == 0
    assert limit.take("2001:db8:0:1:ffff::2", 0.0) > 0
    assert limit.take("2001:db8:0:2::1", 0.0) == 0
    assert limit.take("::ffff:192.0.2.1", 0.0) == 0
    assert limit.take("192.0.2.1", 0.0) > 0


def test_the_table_of_addresses_is_bounded() -> None:
    limit = RateLimit(per_s=1, burst=1, max_peers=10)
    for number in range(100):
        limit.take(f"192.0.2.{number}", 0.0)
    assert len(limit) == 10
    assert limit.take("192.0.2.99", 0.0) > 0
    assert limit.take("192.0.2.0", 0.0) == 0


# Forms.


def multipart(*parts: tuple[str, bytes], boundary: str = "x") -> bytes:
    lines = [
        f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n'.encode() + content + b"\r\n"
        for name, content in parts
    ]
    return b"".join(lines) + f"--{boundary}--\r\n".encode()


@given(st.dictionaries(st.sampled_from(["sdp", "session", "other"]), st.binary(max_size=60)))
def test_the_parts_of_a_form_come_out_as_they_went_in(parts: dict[str, bytes]) -> None:
    boundary = "a boundary that no part has"
    body = multipart(*parts.items(), boundary=boundary)
    assert parse_form(f'multipart/form-data; boundary="{boundary}"', body) == parts


def test_a_name_is_not_taken_from_a_file_name() -> None:
    head = b'--x\r\ncontent-disposition: form-data; filename="name=no"; name=sdp\r\nContent-Type: a/b\r\n\r\n'
    assert parse_form("multipart/form-data;boundary=x", head + b"v=0\r\n--x--") == {"sdp": b"v=0"}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"--x",
        b"--x\r\n",
        b'--x\r\nContent-Disposition: form-data; name="sdp"\r\n\r\nv=0\r\n',
        b'--x\r\nContent-Disposition: form-data; name="sdp"\r\nv=0\r\n--x--',
        b"--xy\r\n\r\n\r\n--x--",
        multipart(*[("part", b"")] * 17),
    ],
)
def test_a_broken_form_is_refused(body: bytes) -> None:
    with pytest.raises(SignallingError) as caught:
        parse_form("multipart/form-data; boundary=x", body)
    assert caught.value.status == 400


@given(
    st.text(),
    st.lists(
        st.sampled_from([b"--x", b"\r\n", b"--", b'Content-Disposition: form-data; name="', b'"', b"a"])
    ),
)
def test_any_body_is_a_form_or_refused(kind: str, pieces: list[bytes]) -> None:
    for content_type in (kind, "multipart/form-data; boundary=x"):
        try:
            parse_form(content_type, b"".join(pieces))
        except SignallingError as error:
            refused = error.status
        else:
            continue
        assert refused == 400


# Shutting down.


async def test_draining_tells_the_callers_and_lets_them_finish(serve: Callable[..., Any]) -> None:
    board = Switchboard()
    async with serve(board) as client:
        await client.post(CALLS_URL, data=OFFER, headers=SDP)
        (call,) = board.calls
        drain = asyncio.create_task(client.app[CALLS].drain(60))
        await until(lambda: "ends in 60 s" in call.told)
        assert (await client.post(CALLS_URL, data=OFFER, headers=SDP)).status == 503
        assert not drain.done()
        call.over.set()
        await drain
        assert call.told[1:] == ["ends in 60 s", "gone"]


async def test_calls_that_stay_are_hung_up_when_the_time_is_over(serve: Callable[..., Any]) -> None:
    board = Switchboard()
    async with serve(board) as client:
        await client.post(CALLS_URL, data=OFFER, headers=SDP)
        await client.app[CALLS].drain(0.01)
        assert board.calls[0].told[1:] == ["ends in 0.01 s", "the server is shutting down", "gone"]
        assert len(client.app[CALLS]) == 0


@pytest.mark.parametrize("method", ["announce_end", "hang_up"])
async def test_a_call_that_cannot_be_told_does_not_keep_the_others_from_it(
    serve: Callable[..., Any], method: str, caplog: pytest.LogCaptureFixture
) -> None:
    board = Switchboard()
    async with serve(board) as client:
        for _ in range(2):
            await client.post(CALLS_URL, data=OFFER, headers=SDP)
        board.calls[0].faults[method] = RuntimeError("a bug")
        await client.app[CALLS].drain(0)
        assert [call.told[-1] for call in board.calls] == ["gone", "gone"]
        assert "a bug" in caplog.text


async def test_a_call_that_does_not_heed_a_hang_up_is_cancelled(caplog: pytest.LogCaptureFixture) -> None:
    board = Switchboard(heeds=False)
    calls = Calls(max_calls=1, answer_s=60, close_s=0.01)
    await calls.open("rtc_1", lambda: board.open("rtc_1", SessionConfig()), OFFER)
    await calls.aclose()
    assert len(calls) == 0
    assert board.calls[0].told[-1] == "gone"
    assert "rtc_1: does not hang up, cancelled" in caplog.text


async def test_calls_end_with_the_application(serve: Callable[..., Any]) -> None:
    board = Switchboard()
    async with serve(board) as client:
        await client.post(CALLS_URL, data=OFFER, headers=SDP)
    assert board.calls[0].told[-1] == "gone"


async def test_a_call_whose_answer_is_overtaken_by_the_shutdown_is_refused(serve: Callable[..., Any]) -> None:
    board = Switchboard(stalled=asyncio.Event())
    async with serve(board) as client:
        opening = asyncio.create_task(client.post(CALLS_URL, data=OFFER, headers=SDP))
        await until(lambda: bool(board.calls and board.calls[0].told))
        board.calls[0].faults["hang_up"] = RuntimeError("not before the answer")
        await client.app[CALLS].aclose()
        response = await opening
        assert (response.status, (await refusal(response))["code"]) == (503, "shutting_down")


async def test_a_call_nobody_waits_for_any_more_is_given_up() -> None:
    board = Switchboard(stalled=asyncio.Event())
    app = build_app(Config(), board.open, board.ready)
    calls = app[CALLS]
    opening = asyncio.create_task(calls.open("rtc_1", lambda: board.open("rtc_1", SessionConfig()), OFFER))
    await until(lambda: bool(board.calls and board.calls[0].told))
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    await until(lambda: len(calls) == 0)


# The running server.


@asynccontextmanager
async def running(
    board: Switchboard, page: Path, **server: Any
) -> AsyncIterator[tuple[str, asyncio.Task[None]]]:
    config = Config(server=ServerConfig(port=0, **server))
    address: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    app = build_app(config, board.open, board.ready, page)
    server_task = asyncio.create_task(run_server(app, config.server, address.set_result))
    try:
        yield await address, server_task
    finally:
        server_task.cancel()
        await asyncio.gather(server_task, return_exceptions=True)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_signal_drains_the_calls_and_ends_the_server(page: Path, number: signal.Signals) -> None:
    board = Switchboard()
    async with running(board, page, drain_s=60) as (address, server), aiohttp.ClientSession() as client:
        url, _, reach = address.partition(" ")
        assert "only this machine" in reach
        async with client.post(url + CALLS_URL, data=OFFER, headers=SDP) as response:
            assert response.status == 201
        signal.raise_signal(number)
        await until(lambda: "ends in 60 s" in board.calls[0].told)
        async with client.get(f"{url}/readyz") as response:
            assert response.status == 503
        board.calls[0].over.set()
        async with asyncio.timeout(5):
            await server


async def test_a_second_signal_ends_the_calls_at_once(page: Path) -> None:
    board = Switchboard()
    async with running(board, page, drain_s=3_600) as (address, server), aiohttp.ClientSession() as client:
        async with client.post(address.split()[0] + CALLS_URL, data=OFFER, headers=SDP) as response:
            assert response.status == 201
        signal.raise_signal(signal.SIGINT)
        await until(lambda: "ends in 3600 s" in board.calls[0].told)
        signal.raise_signal(signal.SIGINT)
        async with asyncio.timeout(5):
            await server
        assert board.calls[0].told[-1] == "gone"


async def test_a_port_in_use_is_an_error_that_says_what_to_do(page: Path) -> None:
    board = Switchboard()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        config = Config(server=ServerConfig(port=taken.getsockname()[1]))
        app = build_app(config, board.open, board.ready, page)
        with pytest.raises(ConfigError, match=r"in use.*another port"):
            await run_server(app, config.server, print)


async def test_a_host_that_is_not_here_is_an_error_that_says_so(page: Path) -> None:
    board = Switchboard()
    config = Config(server=ServerConfig(host="192.0.2.1", keys=(KEY,)))
    app = build_app(config, board.open, board.ready, page)
    with pytest.raises(ConfigError, match=r"server\.host"):
        await run_server(app, config.server, print)


async def test_the_log_has_a_line_a_request_and_no_secret(
    page: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    board = Switchboard()
    async with running(board, page, keys=(KEY,)) as (address, _), aiohttp.ClientSession() as client:
        url = address.split()[0]
        headers = {**SDP, "Authorization": f"Bearer {KEY}"}
        data = OFFER + "a=ice-pwd:secret-of-ice\r\n"
        async with client.post(f"{url}{CALLS_URL}?token=ek_secret", data=data, headers=headers) as response:
            assert response.status == 201
        wrong = {**SDP, "Authorization": "Bearer a-wrong-key"}
        async with client.post(f"{url}{CALLS_URL}", data=data, headers=wrong) as response:
            assert response.status == 401
        async with client.get(f"{url}/v1/a%0d%0aforged", headers=headers) as response:
            assert response.status == 404
        head = f"GET / HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {KEY}\x01\r\n\r\n"
        assert b" 400 " in (await raw_request(int(url.rpartition(":")[2]), head)).split(b"\r\n")[0]
    lines = [record.getMessage() for record in caplog.records if record.name == "visavis.access"]
    assert len(lines) == 4
    assert re.fullmatch(r"127\.0\.0\.1 POST /v1/realtime/calls 201 \d+ ms", lines[0])
    assert all(line.isprintable() for line in lines)
    assert "it is no HTTP" in caplog.text
    for secret in (KEY, "a-wrong-key", "ek_secret", "secret-of-ice"):
        assert secret not in caplog.text

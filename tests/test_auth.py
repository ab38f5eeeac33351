from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request
from multidict import CIMultiDict

from switchboard import CALLS_URL, KEY, OFFER, SDP, Switchboard, raw_request, refusal, serving
from visavis.auth import Gate, Proxies, is_loopback_host, peer_address
from visavis.config import ServerConfig
from visavis.errors import ConfigError, SignallingError
from visavis.middleware import Door
from visavis.resume import TOKEN_HEADER

# Keys.


async def test_a_key_opens_the_interface_and_nothing_else_does() -> None:
    async with serving(keys=("another-key", KEY)) as client:
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


async def test_ending_a_call_needs_a_key_and_the_page_needs_none() -> None:
    async with serving(keys=(KEY,)) as client:
        assert (await client.delete(f"{CALLS_URL}/rtc_1")).status == 401
        assert (await client.post(f"{CALLS_URL}/rtc_1/hangup")).status == 401
        for path in ("/", "/healthz", "/readyz"):
            assert (await client.get(path)).status == 200


@pytest.mark.parametrize(
    "path", ["/v1/realtime/calls", "/%76%31/realtime/calls", "/v1%2frealtime%2fcalls", "//v1/realtime/calls"]
)
async def test_no_spelling_of_the_address_avoids_the_key(path: str) -> None:
    board = Switchboard()
    async with serving(board, keys=(KEY,)) as client:
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
async def test_without_keys_a_proxy_is_refused(header: str) -> None:
    async with serving() as client:
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
async def test_without_keys_a_rebound_name_is_refused(host: str) -> None:
    async with serving() as client:
        for path in ("/", "/healthz"):
            response = await client.get(path, headers={"Host": host})
            assert response.status in (400, 403)
        response = await client.post(CALLS_URL, data=OFFER, headers={**SDP, "Host": host})
        assert response.status in (400, 403)


@pytest.mark.parametrize("host", ["localhost", "localhost:8080", "127.0.0.1:1", "[::1]:8080", "LocalHost:80"])
async def test_without_keys_names_of_this_machine_are_served(host: str) -> None:
    async with serving() as client:
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
async def test_pages_of_this_origin_and_of_listed_ones_may_call(origin: str, host: str, status: int) -> None:
    async with serving(origins=("https://friend.org/",)) as client:
        headers = {**SDP, "Origin": origin, "Host": host}
        response = await client.post(CALLS_URL, data=OFFER, headers=headers)
        assert response.status == status
        allowed = response.headers.get("Access-Control-Allow-Origin")
        assert allowed == (origin if "friend.org" in origin and status == 201 else None)
        if status == 403:
            assert (await refusal(response))["code"] == "origin_not_allowed"


async def test_behind_a_proxy_with_tls_the_page_is_of_the_same_origin() -> None:
    async with serving(keys=(KEY,)) as client:
        headers = {
            **SDP,
            "Authorization": f"Bearer {KEY}",
            "Origin": "https://talk.example.org",
            "Host": "talk.example.org",
        }
        assert (await client.post(CALLS_URL, data=OFFER, headers=headers)).status == 403
        headers["X-Forwarded-Proto"] = "https"
        assert (await client.post(CALLS_URL, data=OFFER, headers=headers)).status == 201


async def test_a_listed_page_passes_the_preflight_and_sees_what_it_needs() -> None:
    origin = "https://friend.org"
    async with serving(origins=(origin,), keys=(KEY,)) as client:
        asked = {
            "Origin": origin,
            "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": "authorization,content-type",
        }
        preflight = await client.options(CALLS_URL, headers=asked)
        assert preflight.status == 204
        assert preflight.headers["Access-Control-Allow-Origin"] == origin
        assert preflight.headers["Vary"] == "Origin"
        assert {"POST", "PATCH", "DELETE"} <= set(
            preflight.headers["Access-Control-Allow-Methods"].split(", ")
        )
        allowed = {name.strip() for name in preflight.headers["Access-Control-Allow-Headers"].split(",")}
        assert allowed == {
            "Authorization",
            "Content-Type",
            "If-Match",
            "OpenAI-Beta",
            "X-OpenAI-Agents-SDK",
            TOKEN_HEADER,
        }
        assert "Access-Control-Allow-Credentials" not in preflight.headers

        headers = {**SDP, "Origin": origin, "Authorization": f"Bearer {KEY}"}
        response = await client.post(CALLS_URL, data=OFFER, headers=headers)
        exposed = {name.strip() for name in response.headers["Access-Control-Expose-Headers"].split(",")}
        assert {"Location", "ETag", "Link", "Accept-Patch"} <= exposed

        refused = await client.post(CALLS_URL, data=OFFER, headers={**SDP, "Origin": origin})
        assert refused.status == 401
        assert refused.headers["Access-Control-Allow-Origin"] == origin


async def test_the_preflight_of_an_unlisted_page_fails() -> None:
    async with serving(origins=("https://friend.org",)) as client:
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


# Proxies.

BALANCER = ("10.0.0.5", 5000)


@pytest.mark.parametrize(
    ("peer", "told", "caller"),
    [
        (BALANCER, ["203.0.113.9"], "203.0.113.9"),
        (BALANCER, [], "10.0.0.5"),
        (("::ffff:10.0.0.5", 5000, 0, 0), ["203.0.113.9"], "203.0.113.9"),
        (BALANCER, ["2001:db8::9"], "2001:db8::9"),
        (BALANCER, ["203.0.113.9, 10.0.0.6"], "203.0.113.9"),
        (BALANCER, ["203.0.113.9", "10.0.0.6"], "203.0.113.9"),
        (BALANCER, ["192.168.7.7, 203.0.113.9"], "203.0.113.9"),
        (BALANCER, ["10.0.0.7, 203.0.113.9"], "203.0.113.9"),
        (BALANCER, ["10.0.0.7"], "10.0.0.7"),
        (BALANCER, ["203.0.113.9, unknown"], "10.0.0.5"),
        (BALANCER, ["203.0.113.9, unknown, 10.0.0.6"], "10.0.0.6"),
        (BALANCER, [""], "10.0.0.5"),
        (("203.0.113.9", 5000), ["10.0.0.5"], "203.0.113.9"),
        (("203.0.113.9", 5000), ["198.51.100.1, 10.0.0.5"], "203.0.113.9"),
        ("", ["203.0.113.9"], ""),
    ],
    ids=str,
)
def test_who_asks_is_told_by_trusted_proxies_alone(peer: object, told: list[str], caller: str) -> None:
    headers = CIMultiDict(("X-Forwarded-For", line) for line in told)
    request = make_mocked_request("POST", CALLS_URL, headers, transport=Transport(peer))
    assert Proxies(("10.0.0.0/24",)).caller_address(request) == caller
    assert Proxies(()).caller_address(request) == peer_address(request)


@pytest.mark.parametrize("text", ["", "balancer", "10.0.0.5/24", "10.0.0.0/33", "10.0.0.5:80"])
def test_a_proxy_that_has_no_address_is_refused_at_the_start(text: str) -> None:
    with pytest.raises(ConfigError, match=r"server\.trusted_proxies"):
        Door(ServerConfig(trusted_proxies=("::1", text)))


async def test_callers_behind_a_trusted_proxy_are_limited_one_by_one() -> None:
    settings = {"keys": (KEY,), "max_requests_per_s": 0.01}

    async def statuses(**more: Any) -> list[int]:
        async with serving(**settings, **more) as client:
            return [
                (await client.get(f"{CALLS_URL}/rtc_1", headers={"X-Forwarded-For": caller})).status
                for caller in ("203.0.113.1", "203.0.113.2", "203.0.113.2", "198.51.100.9, 203.0.113.2")
            ]

    assert await statuses(trusted_proxies=("127.0.0.1",)) == [401, 401, 429, 429]
    # Who is no proxy of ours cannot have a bucket for each name that they invent.
    assert await statuses() == [401, 429, 429, 429]

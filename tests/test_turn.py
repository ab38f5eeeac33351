import base64
import hashlib
import hmac
from dataclasses import replace

from visavis.config import IceServer
from visavis.turn import with_credentials

SHARED = IceServer(("turn:turn.example",), secret="north")


def test_a_secret_becomes_a_name_with_an_end_and_a_password_for_it() -> None:
    server = with_credentials(SHARED, 1_000.7, 60.0)
    assert server.username is not None
    end, _ = server.username.split(":")
    assert int(end) == 1_060
    expected = base64.b64encode(hmac.new(b"north", server.username.encode(), hashlib.sha1).digest())
    assert server.credential == expected.decode()
    assert (server.urls, server.secret) == (SHARED.urls, None)


def test_each_call_has_a_name_of_its_own() -> None:
    assert len({with_credentials(SHARED, 0.0, 60.0).username for _ in range(10)}) == 10


def test_what_somebody_wrote_down_stays() -> None:
    server = replace(SHARED, username="u", credential="c", secret=None)
    assert with_credentials(server, 0.0, 60.0) is server

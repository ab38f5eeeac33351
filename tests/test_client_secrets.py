import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from visavis.client_secrets import MAX_LENGTH, Secret, Secrets
from visavis.errors import SignallingError

NOW = 1_800_000_000.5
SESSION = {"instructions": "Antworte kurz: „ja“ oder „nein“.", "audio": {"output": {"voice": "Ethan"}}}


def test_a_secret_says_until_when_and_what_it_is_for() -> None:
    secret, expires_at = Secrets(["key"]).issue(SESSION, 600, NOW)
    assert secret.startswith("ek_")
    assert expires_at == 1_800_000_600
    assert Secrets(["key"]).read(secret) == Secret(SESSION, expires_at)


def test_a_secret_can_go_without_settings() -> None:
    secret, expires_at = Secrets(["key"]).issue(None, 10, NOW)
    assert Secrets(["key"]).read(secret) == Secret(None, expires_at)
    assert len(secret) < 60


def test_a_secret_ends_with_the_key_that_made_it() -> None:
    both = Secrets(["old", "new"])
    by_old, _ = both.issue(SESSION, 600, NOW, "old")
    by_new, _ = both.issue(SESSION, 600, NOW, "new")
    assert by_old != by_new
    assert Secrets(["new", "old"]).read(by_old) is not None
    assert Secrets(["new"]).read(by_old) is None
    assert Secrets(["new", "newest"]).read(by_new) is not None
    assert Secrets([]).read(by_new) is None


def test_who_names_no_key_has_the_first() -> None:
    assert Secrets(["a", "b"]).issue(None, 10, NOW) == Secrets(["a", "b"]).issue(None, 10, NOW, "a")
    assert Secrets(["a", "b"]).issue(None, 10, NOW, "c") == Secrets(["a"]).issue(None, 10, NOW)


def test_without_keys_there_are_secrets_all_the_same() -> None:
    secret, expires_at = Secrets([]).issue(SESSION, 600, NOW)
    assert Secrets([]).read(secret) == Secret(SESSION, expires_at)
    assert Secrets(["key"]).read(secret) is None


def test_a_secret_is_a_token_of_http() -> None:
    """A WebSocket's client sends it as a subprotocol (RFC 6455, 4.1)."""
    secret, _ = Secrets(["key"]).issue(SESSION, 600, NOW)
    assert all(char.isascii() and (char.isalnum() or char in "-_.") for char in secret)


def test_settings_that_fit_in_no_header_are_refused() -> None:
    words = random.Random(1)
    text = "".join(words.choices("abcdefghijklmnopqrstuvwxyz ", k=MAX_LENGTH * 2))
    with pytest.raises(SignallingError) as caught:
        Secrets(["key"]).issue({"instructions": text}, 600, NOW)
    assert (caught.value.status, caught.value.code, caught.value.param) == (
        400,
        "session_too_large",
        "session",
    )
    with pytest.raises(SignallingError):
        Secrets(["key"]).issue({"instructions": "a" * 600_000}, 600, NOW)
    prose = "You are a friendly assistant in a museum. Tell what the visitor shows you. " * 500
    secret, _ = Secrets(["key"]).issue({"instructions": prose}, 600, NOW)
    assert len(secret) <= MAX_LENGTH


def test_whatever_is_changed_makes_it_no_secret() -> None:
    secrets = Secrets(["key"])
    secret, _ = secrets.issue(SESSION, 600, NOW)
    for place in range(len(secret)):
        other = "A" if secret[place] != "A" else "B"
        read = secrets.read(secret[:place] + other + secret[place + 1 :])
        # The last character of a part has bits that stand for nothing.
        assert read is None or read == secrets.read(secret), place


@given(st.text(max_size=80) | st.text("ek_AB-.", max_size=120))
def test_anything_else_is_no_secret(text: str) -> None:
    assert Secrets(["key"]).read(text) is None
    assert Secrets(["key"]).read(f"ek_{text}") is None

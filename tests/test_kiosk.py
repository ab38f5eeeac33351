import json
from dataclasses import replace
from random import Random

import pytest

from visavis.config import KioskConfig, KioskDeviceConfig, SessionConfig
from visavis.errors import ClientEventError, ConfigError
from visavis.kiosk import (
    ALPHABET,
    CODE_SIGNS,
    MAX_AGENT,
    MAX_DEVICES,
    Device,
    FullError,
    Kiosks,
    UnreadableKiosksError,
    Wanting,
    merge_settings,
    normal_code,
    session_of,
    tag_of,
    told,
    unpack,
)

CONFIG = KioskConfig(code_s=600.0, max_wanting=3)
NOW = 1_700_000_000.0


def kiosks(config: KioskConfig = CONFIG) -> Kiosks:
    return Kiosks(config, random=Random(7))


def test_a_code_has_no_signs_that_are_read_as_one_another() -> None:
    assert not set("0O1IL2Z5S8B") & set(ALPHABET)
    code = kiosks().begin("10.0.0.7", "", NOW).code
    assert len(code) == CODE_SIGNS
    assert set(code) <= set(ALPHABET)


def test_a_device_is_let_in_by_its_code() -> None:
    some = kiosks()
    offer = some.begin("10.0.0.7", "Chromium", NOW)
    found = some.find(offer.token, NOW)
    assert isinstance(found, Wanting)
    assert (found.address, found.agent, found.until) == ("10.0.0.7", "Chromium", NOW + 600)

    device = some.approve(offer.code, "Reception", NOW + 1)
    assert device == Device(offer.id, found.token, "Reception", NOW + 1)
    assert some.find(offer.token, NOW + 100_000) == device
    assert some.devices == [device]
    assert some.wanting(NOW + 1) == []


def test_a_code_is_taken_as_people_type_it() -> None:
    some = kiosks()
    code = some.begin("10.0.0.7", "", NOW).code
    assert some.approve(f" {code[:3].lower()}-{code[3:]} ", "Reception", NOW) is not None
    assert normal_code(" ab-c d9") == "ABCD9"


def test_a_code_serves_once() -> None:
    some = kiosks()
    code = some.begin("10.0.0.7", "", NOW).code
    assert some.approve(code, "Reception", NOW) is not None
    assert some.approve(code, "Another", NOW) is None
    assert len(some.devices) == 1


def test_a_code_expires_and_the_token_with_it() -> None:
    some = kiosks()
    offer = some.begin("10.0.0.7", "", NOW)
    assert some.find(offer.token, NOW + 599) is not None
    assert some.find(offer.token, NOW + 600) is None
    assert some.approve(offer.code, "Reception", NOW + 600) is None
    assert some.wanting(NOW + 600) == []


@pytest.mark.parametrize("code", ["", "AAAAAA", "ACDEFGH"])
def test_a_wrong_code_lets_nobody_in(code: str) -> None:
    some = kiosks()
    some.begin("10.0.0.7", "", NOW)
    assert some.approve(code, "Reception", NOW) is None


def test_no_two_devices_show_the_same_code() -> None:
    class Repeating(Random):
        """Draws the first code twice."""

        drawn: list[list[str]] = []  # noqa: RUF012 - of one test

        def choices(self, *args, **kwargs):  # type: ignore[no-untyped-def]
            self.drawn.append(super().choices(*args, **kwargs) if len(self.drawn) != 1 else self.drawn[0])
            return self.drawn[-1]

    some = Kiosks(CONFIG, random=Repeating(7))
    assert some.begin("10.0.0.7", "", NOW).code != some.begin("10.0.0.8", "", NOW).code
    assert len(Repeating.drawn) == 3


def test_more_than_may_wait_are_turned_away_until_a_code_expires() -> None:
    some = kiosks()
    first = some.begin("10.0.0.1", "", NOW)
    for address in ("10.0.0.2", "10.0.0.3"):
        some.begin(address, "", NOW + 1)
    with pytest.raises(FullError):
        some.begin("10.0.0.4", "", NOW + 2)
    assert some.find(first.token, NOW + 2) is not None
    some.begin("10.0.0.4", "", NOW + 600)
    assert [each.address for each in some.wanting(NOW + 600)] == ["10.0.0.2", "10.0.0.3", "10.0.0.4"]


def test_one_address_has_half_of_the_places_at_most_and_pushes_out_its_own() -> None:
    some = Kiosks(KioskConfig(code_s=600.0, max_wanting=4))
    other = some.begin("10.0.0.9", "", NOW)
    offers = [some.begin("10.0.0.1", "", NOW + second) for second in range(9)]
    assert some.find(other.token, NOW + 9) is not None
    assert [some.find(offer.token, NOW + 9) is not None for offer in offers] == [False] * 7 + [True] * 2


def test_no_more_devices_are_let_in_than_are_read_and_written_together() -> None:
    many = [Device(f"{number:016x}", "", "", NOW) for number in range(MAX_DEVICES)]
    some = Kiosks(CONFIG, devices=many)
    offer = some.begin("10.0.0.7", "", NOW)
    with pytest.raises(FullError):
        some.approve(offer.code, "One more", NOW)
    assert some.dismiss(many[0].id)
    assert some.approve(offer.code, "One more", NOW) is not None


def test_a_long_name_of_a_browser_is_cut() -> None:
    some = kiosks()
    some.begin("10.0.0.7", "x" * 10_000, NOW)
    assert some.wanting(NOW)[0].agent == "x" * MAX_AGENT


@pytest.mark.parametrize("spoilt", ["", "x", "kd_", "kd_0.0", "{id}", "{token}0", "{other}", "k" * 300])
def test_no_other_token_stands_for_a_device(spoilt: str) -> None:
    some = kiosks()
    offer = some.begin("10.0.0.7", "", NOW)
    some.approve(offer.code, "Reception", NOW)
    other = f"kd_{offer.id}." + "0" * 64
    assert some.find(spoilt.format(id=f"kd_{offer.id}", token=offer.token, other=other), NOW) is None


def test_a_revoked_device_and_a_refused_one_are_gone() -> None:
    some = kiosks()
    let_in, wanting = some.begin("10.0.0.7", "", NOW), some.begin("10.0.0.8", "", NOW)
    some.approve(let_in.code, "Reception", NOW)
    assert some.dismiss(let_in.id)
    assert some.dismiss(wanting.id)
    assert not some.dismiss(wanting.id)
    assert some.find(let_in.token, NOW) is some.find(wanting.token, NOW) is None
    assert some.approve(wanting.code, "Too late", NOW) is None


def test_what_is_kept_has_neither_codes_nor_tokens_and_is_read_again() -> None:
    some = kiosks()
    first, second = some.begin("10.0.0.7", "Chromium", NOW), some.begin("10.0.0.8", "", NOW)
    some.approve(first.code, "Réception", NOW)
    some.change(first.id, None, {"idle_s": 30, "title": "Grüezi"})
    packed = some.pack()
    for secret in (first.code, first.token, second.code, second.token):
        assert secret.encode() not in packed
    again = unpack(CONFIG, packed)
    assert again.devices == some.devices
    assert again.wanting(NOW) == some.wanting(NOW)
    assert again.find(first.token, NOW) == some.devices[0]
    assert again.approve(second.code, "Second", NOW) is not None
    assert unpack(CONFIG, None).devices == []


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff",
        b"[]",
        b'{"devices": 3}',
        b'{"devices": [{"id": "x"}]}',
        b'{"wanting": [3]}',
        json.dumps(
            {"devices": [{"id": "a", "token": "b", "name": "c", "since": 1, "settings": {"idle_s": "long"}}]}
        ).encode(),
    ],
)
def test_what_is_no_list_of_kiosks_is_told(data: bytes) -> None:
    with pytest.raises(UnreadableKiosksError):
        unpack(CONFIG, data)


def test_settings_are_laid_over_those_so_far_and_taken_back() -> None:
    some = kiosks()
    offer = some.begin("10.0.0.7", "", NOW)
    some.approve(offer.code, "Reception", NOW)
    some.change(offer.id, None, {"idle_s": 30, "volume": 0.5, "language": "pt-BR"})
    device = some.change(offer.id, "Left door", {"idle_s": None, "voice": "Ethan"})
    assert device is not None
    assert (device.name, device.settings) == (
        "Left door",
        {"volume": 0.5, "language": "pt-BR", "voice": "Ethan"},
    )
    assert some.devices == [device]
    defaults = KioskDeviceConfig(idle_s=40.0, volume=1.0)
    assert device.goes_by(defaults) == replace(defaults, volume=0.5, language="pt-BR", voice="Ethan")
    assert some.change("0" * 16, None, {}) is None


@pytest.mark.parametrize(
    ("changes", "param"),
    [
        ([], "settings"),
        ({"idle": 3}, "settings.idle"),
        ({"idle_s": 1}, "settings.idle_s"),
        ({"idle_s": True}, "settings.idle_s"),
        ({"volume": 2}, "settings.volume"),
        ({"wake": "smell"}, "settings.wake"),
        ({"language": "Bavarian!"}, "settings.language"),
        ({"voice": ""}, "settings.voice"),
        ({"title": "x" * 121}, "settings.title"),
    ],
)
def test_a_setting_that_is_none_is_refused_by_name(changes: object, param: str) -> None:
    with pytest.raises(ClientEventError) as refused:
        merge_settings({"idle_s": 30.0}, changes)
    assert refused.value.param == param


def test_a_device_is_told_what_it_goes_by() -> None:
    device = Device("id", "digest", "Reception", NOW, {"title": "Welcome", "instructions": "Be brief."})
    answer = told(device, KioskConfig(poll_s=3.0), SessionConfig(voice="Ethan"), "1.2")
    assert answer == {
        "state": "approved",
        "device": {"id": "id", "name": "Reception"},
        "settings": {
            "language": None,
            "idle_s": 20.0,
            "volume": 1.0,
            "title": "Welcome",
            "text": "",
            "wake": "motion",
        },
        "session": {
            "type": "realtime",
            "instructions": "Be brief.",
            "audio": {"input": {}, "output": {"voice": "Ethan"}},
        },
        "poll_s": 3.0,
        "version": "1.2",
    }
    assert "digest" not in json.dumps(answer)


def test_an_answer_has_a_tag_that_changes_with_it() -> None:
    device = Device("id", "digest", "Reception", NOW)
    answer = told(device, CONFIG, SessionConfig(), "1.2")
    again = told(device, CONFIG, SessionConfig(), "1.2")
    assert tag_of(answer) == tag_of(again)
    changed = [
        told(replace(device, settings={"volume": 0.4}), CONFIG, SessionConfig(), "1.2"),
        told(device, CONFIG, SessionConfig(instructions="Other."), "1.2"),
        told(device, CONFIG, SessionConfig(), "1.3"),
    ]
    assert len({tag_of(each) for each in (answer, *changed)}) == 4


def test_the_language_is_asked_of_the_engine_and_of_the_recogniser() -> None:
    settings = KioskDeviceConfig(language="pt-BR", voice="Cherry")
    session = session_of(settings, SessionConfig(instructions="Be brief."))
    assert session["instructions"].startswith("Be brief.\n")
    assert '"pt-BR"' in session["instructions"]
    assert session["audio"] == {
        "input": {"transcription": {"language": "pt"}},
        "output": {"voice": "Cherry"},
    }
    unheard = session_of(settings, SessionConfig(transcribe=False))
    assert unheard["audio"]["input"] == {}


@pytest.mark.parametrize(
    "wrong",
    [
        {"poll_s": 0.0},
        {"code_s": 1.0},
        {"secret_s": 1.0},
        {"secret_s": 7_201.0},
        {"max_wanting": 0},
        {"max_pairings_per_min": 0.0},
        {"url": "visavis.example"},
    ],
)
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        KioskConfig(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", [{"volume": 1.5}, {"idle_s": 4.0}])
def test_settings_of_devices_that_make_no_sense_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError):
        KioskDeviceConfig(**wrong)  # type: ignore[arg-type]

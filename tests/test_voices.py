import pytest

from visavis.engine.voices import Voices, is_about_voice, listed

REFUSAL = "Invalid speaker 'alloy'. Supported: aiden, chelsie, ethan"


def told(default: str | None = None, message: str = REFUSAL) -> Voices:
    voices = Voices(default)
    voices.receive_refusal("alloy", message)
    return voices


@pytest.mark.parametrize(
    ("message", "names"),
    [
        (REFUSAL, ("aiden", "chelsie", "ethan")),
        ("Invalid voice. Available voices: ['Ethan', \"Chelsie\"]", ("Chelsie", "Ethan")),
        ("voice must be one of: Ethan, Chelsie and Aiden.", ("Aiden", "Chelsie", "Ethan")),
        ("Unknown speaker. Supported speakers are: Uncle Fu; Ono-Anna", ("Ono-Anna", "Uncle Fu")),
        ("No such voice. Valid voices (Ethan, Cherry) only.", ("Cherry", "Ethan")),
        ("Invalid voice: 'x'. Unsupported: (x). Supported: Ethan, Aiden", ("Aiden", "Ethan")),
        ("Supported: see https://example.org/voices", ()),
        ("Invalid speaker 'alloy'.", ()),
        ("Supported: ", ()),
        ("", ()),
    ],
)
def test_the_list_is_read_from_the_refusal(message: str, names: tuple[str, ...]) -> None:
    assert listed(message) == names


@pytest.mark.parametrize("name", ["alloy", "ash", "ballad", "marin", "cedar", "somebody", "Éva"])
def test_an_unknown_voice_always_stands_for_the_same_known_one(name: str) -> None:
    assert told().choose(name) in ("aiden", "chelsie", "ethan")
    assert told().choose(name) == told().choose(name.upper())


def test_different_unknown_voices_stay_different_as_far_as_there_are_any() -> None:
    assert {told().choose(name) for name in ("marin", "cedar", "echo")} == {"aiden", "chelsie", "ethan"}
    assert [told().choose(f"voice {number}") for number in range(6)] == [
        "ethan",
        "aiden",
        "aiden",
        "aiden",
        "aiden",
        "chelsie",
    ]


def test_without_the_one_that_sounds_alike_any_other_serves() -> None:
    voices = told(message="Supported: cherry, serena")
    assert voices.choose("marin") in ("cherry", "serena")


def test_a_known_voice_is_asked_for_as_the_engine_spells_it() -> None:
    voices = told(message="Supported: Ethan, Uncle Fu")
    assert (voices.choose("ethan"), voices.choose(" UNCLE FU ")) == ("Ethan", "Uncle Fu")


def test_who_names_no_voice_gets_the_default_or_the_engines_own_choice() -> None:
    assert Voices("ethan").choose(None) == "ethan"
    assert Voices(None).choose(None) is None
    assert told("Ethan").choose(None) == "ethan"
    assert told(None).choose(None) is None


def test_what_the_engine_has_not_told_is_tried() -> None:
    assert Voices("ethan").choose("alloy") == "alloy"


def test_without_a_list_a_refused_voice_gives_way_to_the_default_and_that_to_the_engines_own() -> None:
    voices = told("ethan", "There is no such voice.")
    assert voices.choose("Alloy") == "ethan"
    assert voices.choose("marin") == "marin"
    voices.receive_refusal("Ethan", "There is no such voice.")
    assert voices.choose("alloy") is None


def test_names_that_clients_make_up_do_not_pile_up() -> None:
    voices = Voices(None)
    for number in range(1_000):
        voices.receive_refusal(f"voice {number}", "no")
    assert voices.choose("voice 99") is None
    assert voices.choose("voice 100") == "voice 100"


@pytest.mark.parametrize(
    ("message", "about"),
    [
        (REFUSAL, True),
        ("No such Voice", True),
        ("invoice too long", False),
        ("the prompt is too long", False),
    ],
)
def test_a_refusal_is_about_the_voice_when_it_says_so(message: str, about: bool) -> None:
    assert is_about_voice(message) is about

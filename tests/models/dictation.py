"""Sentences to be read out, and how much of them a recogniser gets wrong."""

import re

SENTENCES = (
    "The meeting is in the afternoon, in the small room on the second floor.",
    "Please ask her to bring these things with her from the store.",
    "Turn left at the church, go straight ahead, and park behind the bakery.",
    "It was cheaper than last year, so we bought a new table and some chairs.",
    "My favorite season is autumn, because the leaves change their color and the air is fresh.",
    "Could you tell me what the weather will be like tomorrow morning?",
    "He opened the window and looked at the mountains on the other side of the lake.",
    "Nobody knows why the old bridge was closed, but everybody hopes that it will open soon.",
    "My sister works in a hospital near the river, and she goes there by bus every day.",
    "We should leave before the traffic gets heavy, otherwise we will miss the train.",
    "The children built a tall tower out of wooden blocks and then knocked it down.",
    "I forgot my umbrella at the office, so I walked home in the rain.",
    "This recipe needs butter, flour, a little sugar, and the juice of a fresh lemon.",
    "Her grandfather told us a long story about the winter when the harbor froze.",
    "The library closes early on Friday, but you can return your books at the front desk.",
    "They painted the kitchen yellow and put a round mirror above the fireplace.",
)

_SPELLED = {"mr": "mister", "4": "four", "5": "five", "7": "seven", "8": "eight", "10": "ten"}
"What Whisper writes in two ways."


_OPENING = 4
"Words by which a sentence is known again."


def words(text: str) -> list[str]:
    return [_SPELLED.get(word, word) for word in re.findall(r"[a-z0-9']+", text.lower())]


def once(heard: list[str]) -> list[str]:
    """Take a sentence once that Whisper wrote twice, as it does now and then however well it hears."""
    opening = heard[:_OPENING]
    for at in range(_OPENING, len(heard) - _OPENING + 1):
        if heard[at : at + _OPENING] == opening:
            return heard[:at]
    return heard


def errors(said: list[str], heard: list[str]) -> int:
    """Count the words put in, left out or taken for others: the fewest that explain what was heard."""
    row = list(range(len(heard) + 1))
    for count, word in enumerate(said, 1):
        diagonal, row[0] = row[0], count
        for at, other in enumerate(heard, 1):
            diagonal, row[at] = row[at], min(row[at] + 1, row[at - 1] + 1, diagonal + (word != other))
    return row[-1]

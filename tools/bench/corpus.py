"""What callers say and what is heard beside it, with the right answer: for `turns.py` and `peers/`. Seeded.

A `Call` is one caller who plays `Scene`s one after the other. A scene is an utterance that is answered, and
what happens during the answer. All sound is mono, 16 bit, at 24 kHz; all positions are samples in it.

Voices: the packaged English voice as it is and lower, espeak-ng's where it is installed, and the recordings
of people in the folder VISAVIS_SPEECH_DIR where it is set. What is missing is told in `Corpus.missing`.
"""

import contextlib
import functools
import hashlib
import importlib.util
import os
import random
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from noises import at_level, cough, distant, keyboard, music, traffic
from noises import far_voice as far_away

from visavis.audio import RATE, Pcm, decode_wav, from_float, resample

Kind = Literal["plain", "pause", "noise", "cough", "echo", "backchannel", "keyboard", "interruption", "far"]

LEVEL_DBFS = -26.0
"Of the words at the microphone."
END_DB = 25.0
"A voice ends with its last 10 ms within this of its loud parts: softer is breath, room and codec."
FRAME = RATE // 100
LEAST_GAP = RATE * 4 // 100
"Of silence within speech that a pause can be put into; shorter are most stops of p, t and k."

PAUSED = (
    ("I would like to book a table for Friday, but only if there is one by the window.", 1),
    ("When I get home tonight, I want to cook something simple.", 1),
    ("Tell me about the weather tomorrow, and about the weekend too.", 1),
    ("If it rains this afternoon, should we stay at home?", 1),
    ("My sister lives in Boston, because she works at the hospital.", 1),
    ("I was thinking, maybe we could go to the beach.", 1),
    ("The first one is red, the second one is blue, and the third one is green.", 2),
    ("Could you explain, in one sentence, how a battery works?", 2),
    ("I need to, uh, change my appointment.", 1),
    ("We tried the new restaurant, and the food was great.", 1),
)
"Sentences, and the pauses that they take."
PAUSES_MS = (200, 300, 400, 500, 600, 700, 800, 900, 1000, 1200)
PLAIN = (
    "What is the capital of France?",
    "Tell me a joke.",
    "How tall is that mountain?",
    "Yes please.",
    "Turn the volume down a little.",
    "I don't think so.",
    "Why is the sky blue?",
    "What time is it now?",
)
INTERRUPTIONS = (
    "Wait a moment.",
    "No, that is not what I meant.",
    "Hold on, what about Sunday?",
    "Stop, please, I have another question.",
    "Sorry, can you repeat that?",
)
BACKCHANNELS = ("Yeah.", "Uh-huh.", "Right.", "Hmm.")
ANSWER = (
    "That is a good question, and there is a lot to say about it, so let me begin with the simple part. "
    "Most people think of it as something new, but it has been known for a very long time, and many have "
    "written about it. What matters most is how you look at it, and what you want to do with it in the end."
)


@dataclass(frozen=True, slots=True)
class Utterance:
    """Something said, with silence around it."""

    text: str
    voice: str
    pcm: Pcm
    onset: int
    "The first sample of voice."
    end: int
    "One past the last sample of voice: from here on the caller has nothing more to say."
    pauses: tuple[tuple[int, int], ...] = ()
    "(start, end) of silences within it that were made long."


@dataclass(frozen=True, slots=True)
class Insertion:
    """Something that happens while the assistant talks."""

    utterance: Utterance
    after_s: float
    "Seconds of the answer heard before it."
    yields: bool
    "The assistant must stop and answer it; otherwise it must go on."


@dataclass(frozen=True, slots=True)
class Echo:
    """The assistant's voice comes back into the microphone for the whole scene."""

    gain_db: float
    delay_ms: float
    seed: int
    "Of the room."


@dataclass(frozen=True, slots=True)
class Scene:
    """An utterance, its answer, and what happens meanwhile."""

    name: str
    kind: Kind
    utterance: Utterance
    answered: bool = True
    "False: it is no speech, nothing must be answered."
    answer_s: float = 0.8
    "How long the engine talks."
    background: Pcm | None = None
    "Goes on for the whole scene, repeated."
    echo: Echo | None = None
    insertion: Insertion | None = None


@dataclass(frozen=True, slots=True)
class Call:
    voice: str
    scenes: tuple[Scene, ...]


@dataclass(frozen=True, slots=True)
class Corpus:
    calls: tuple[Call, ...]
    answer: Pcm
    "What the engine says, without a silence of 150 ms or more: cut to the length that is asked for."
    missing: tuple[str, ...]
    "What could not be had, in words."


def corpus(seed: int = 4) -> Corpus:
    """Make all scenes, in one call per voice; takes 5 s the first time on a machine."""
    voices, missing = available()
    calls = []
    for number, voice in enumerate(voices):
        scenes = _people(seed) if voice == "people" else _synthetic(voice, number, seed)
        random.Random(f"{seed} {voice}").shuffle(scenes)
        said = next(scene.utterance for scene in scenes if scene.kind == "plain")
        # Last: nobody can tell how far away a voice is before the caller's own is known.
        calls.append(Call(voice, (*scenes, *_far(voices, number, said, seed))))
    return Corpus(tuple(calls), answer_sound(), missing)


def available() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Give the voices that can be had here, and what is missing, in words. Raises SystemExit without any."""
    voices: list[str] = []
    missing: list[str] = []
    if importlib.util.find_spec("hibari"):
        voices += ["packaged", "low"]
    else:
        missing.append("no hibari-tts (pip install '.[local]')")
    if shutil.which("espeak-ng"):
        voices += ESPEAK
    else:
        missing.append("no espeak-ng (apt-get install espeak-ng): its voices are left out")
    if recordings():
        voices.append("people")
    else:
        missing.append("no recordings of people (VISAVIS_SPEECH_DIR): they are left out")
    if voices in ([], ["people"]):
        raise SystemExit(f"Nobody can speak here: {'; '.join(missing)}.")
    return tuple(voices), tuple(missing)


# Scenes


def _synthetic(voice: str, number: int, seed: int) -> list[Scene]:
    """One caller's share: a pause of each length, and of the other kinds what is this voice's turn."""
    rng = np.random.default_rng([seed, number])
    scenes = []
    for k in range(4):
        text, pauses = PAUSED[(3 * number + k) % len(PAUSED)]
        lengths = [PAUSES_MS[(4 * number + k + 3 * j) % len(PAUSES_MS)] for j in range(pauses)]
        said = with_pauses(speak(text, voice), lengths)
        scenes.append(Scene(f"{text} {lengths} ms", "pause", said))
    for k in range(2):
        text = PLAIN[(2 * number + k) % len(PLAIN)]
        scenes.append(Scene(text, "plain", speak(text, voice)))
    for k in range(3):
        kind, snr = NOISES[(3 * number + k) % len(NOISES)]
        said = speak(PLAIN[(2 * number + k + 3) % len(PLAIN)], voice)
        scenes.append(Scene(f"{kind} at {snr} dB", "noise", said, background=background(kind, snr, rng)))
    for k in range(2):
        text = BACKCHANNELS[(number + 2 * k) % len(BACKCHANNELS)]
        aside = Insertion(speak(text, voice), rng.uniform(0.5, 1.5), yields=False)
        said = speak(PLAIN[(number + k) % len(PLAIN)], voice)
        scenes.append(Scene(text, "backchannel", said, answer_s=3.5, insertion=aside))
    for k in range(2):
        text = INTERRUPTIONS[(number + 2 * k) % len(INTERRUPTIONS)]
        stop = Insertion(speak(text, voice), rng.uniform(0.4, 2.5), yields=True)
        said = speak(PLAIN[(number + k + 4) % len(PLAIN)], voice)
        echo = None if k else _echo(number, seed, loudest_db=-12.0)
        name = text if echo is None else f"{text} over an echo of {echo.gain_db:.0f} dB"
        scenes.append(Scene(name, "interruption", said, answer_s=8.0, echo=echo, insertion=stop))
    echo = _echo(number, seed)
    name = f"echo of {echo.gain_db:.0f} dB after {echo.delay_ms:.0f} ms"
    scenes.append(Scene(name, "echo", speak(PLAIN[number % len(PLAIN)], voice), answer_s=4.0, echo=echo))
    for kind, sound in (("cough", cough(rng)), ("keyboard", keyboard(1.5, rng))):
        said = speak(PLAIN[(number + (kind == "cough")) % len(PLAIN)], voice)
        noise = Insertion(_noise(kind, sound), rng.uniform(0.5, 1.5), yields=False)
        scenes.append(Scene(f"{kind} meanwhile", kind, said, answer_s=3.5, insertion=noise))  # type: ignore[arg-type]
    scenes.append(Scene("cough in silence", "cough", _noise("cough", cough(rng)), answered=False))
    return scenes


def _people(seed: int) -> list[Scene]:
    """The recordings: as they are, and with a pause where they are quietest within."""
    scenes, echo = [], _echo(5, seed)
    rng = np.random.default_rng([seed, 99])
    for k, path in enumerate(recordings()):
        said = measured(path.stem, "people", resample(*decode_wav(path.read_bytes()), RATE))
        length = PAUSES_MS[k % len(PAUSES_MS)]
        paused = with_pauses(said, [length])
        if k % 2 == 0 or not paused.pauses:
            scenes.append(Scene(f"{path.stem} as it is", "plain", said))
        if paused.pauses:
            scenes.append(Scene(f"{path.stem} with {length} ms", "pause", paused))
        if k % 4 == 0:
            stop = Insertion(said, rng.uniform(0.4, 2.5), yields=True)
            scenes.append(Scene(path.stem, "interruption", said, answer_s=8.0, insertion=stop))
        if k % 4 == 1:
            scenes.append(Scene(f"{path.stem}, echo", "echo", said, answer_s=4.0, echo=echo))
    return scenes


def _far(voices: Sequence[str], number: int, said: Utterance, seed: int) -> list[Scene]:
    """Others who talk, in the next room and across this one: when nobody else does, and over an answer."""
    rng = np.random.default_rng([seed, number, 7])
    others = [voice for voice in voices if voice not in (voices[number], "people")] or [voices[number]]
    heard = []
    for k, (place, away) in enumerate((("in the next room", far_away), ("across the room", distant))):
        other = others[(number + k) % len(others)]
        below_db = FAR_DB[(number + k) % len(FAR_DB)]
        texts = [PAUSED[(2 * number + 5 * k + j) % len(PAUSED)][0] for j in range(3)]
        talk = [piece for text in texts for piece in (speak(text, other).pcm, _pause(rng))]
        pcm = at_level(away(np.concatenate(talk), rng), LEVEL_DBFS - below_db)
        heard.append(_noise(f"{other} {place}, {below_db:.0f} dB softer", pcm))
    scenes = [Scene(one.text, "far", one, answered=False) for one in heard]
    over = Insertion(heard[number % 2], rng.uniform(0.5, 1.0), yields=False)
    return [*scenes, Scene(f"{over.utterance.text}, meanwhile", "far", said, answer_s=8.0, insertion=over)]


def _pause(rng: np.random.Generator) -> Pcm:
    return np.zeros(round(rng.uniform(0.2, 0.8) * RATE), np.int16)


def _echo(number: int, seed: int, loudest_db: float = -6.0) -> Echo:
    """One of six between −6 and −30 dB and between 20 and 400 ms."""
    gain = (-6.0, -10.0, -15.0, -20.0, -25.0, -30.0)[number % 6]
    delay = (20.0, 400.0, 60.0, 200.0, 100.0, 300.0)[number % 6]
    return Echo(min(gain, loudest_db), delay, seed + number)


NOISES = (
    *((kind, snr_db) for snr_db in (20, 10, 5) for kind in ("traffic", "music", "keyboard", "hiss")),
    ("voice", 20),
)


FAR_DB = (17.0, 20.0, 24.0)
"How much softer than the caller others are; what is less far away is not told from a caller who mumbles."


def background(kind: str, snr_db: float, rng: np.random.Generator) -> Pcm:
    """Make 12 s of noise so much below the words."""
    seconds, level = 12.0, LEVEL_DBFS - snr_db
    match kind:
        case "traffic":
            return traffic(seconds, rng, level)
        case "music":
            return music(seconds, rng, level)
        case "keyboard":
            return keyboard(seconds, rng, level)
        case "hiss":
            return hiss(seconds, rng, level)
        case "voice":
            return far_away(np.resize(answer_sound(), round(seconds * RATE)), rng, level)
        case _:
            raise ValueError(f"no noise is called {kind!r}")


def hiss(seconds: float, rng: np.random.Generator, level_dbfs: float) -> Pcm:
    """White noise, as of a fan."""
    return from_float(rng.normal(size=round(seconds * RATE)) * 10 ** (level_dbfs / 20))


# Utterances


def with_pauses(said: Utterance, lengths_ms: Sequence[int]) -> Utterance:
    """Make the longest silences in the middle of an utterance so long; fewer where it has fewer."""
    whole = said.end - said.onset
    first, last = said.onset + whole // 8, said.end - whole // 6
    within = [gap for gap in gaps(said.pcm) if first < gap[0] and gap[1] < last]
    chosen = sorted(sorted(within, key=lambda gap: gap[0] - gap[1])[: len(lengths_ms)])
    pieces: list[Pcm] = []
    pauses: list[tuple[int, int]] = []
    at = moved = 0
    for (start, end), length_ms in zip(chosen, lengths_ms, strict=False):
        wanted = length_ms * RATE // 1000
        more = wanted - (end - start)
        middle = (start + end) // 2
        if more >= 0:
            pieces += [said.pcm[at:middle], np.zeros(more, np.int16)]
            at = middle
        else:  # it is longer than wanted: take out of its middle
            pieces.append(said.pcm[at : middle + more // 2])
            at = middle + more // 2 - more
        pauses.append((start + moved, start + moved + wanted))
        moved += more
    pcm = np.concatenate([*pieces, said.pcm[at:]])
    return Utterance(said.text, said.voice, pcm, said.onset, said.end + moved, tuple(pauses))


def measured(text: str, voice: str, pcm: Pcm) -> Utterance:
    """Bring speech to its level and find its ends by `END_DB`; 60 ms of what surrounds it are kept."""
    voiced = np.flatnonzero(_loud(pcm))
    start, end = int(voiced[0]) * FRAME, (int(voiced[-1]) + 1) * FRAME
    first, last = max(0, start - 6 * FRAME), end + 6 * FRAME
    return Utterance(text, voice, at_level(pcm[first:last], LEVEL_DBFS), start - first, end - first)


def gaps(pcm: Pcm) -> list[tuple[int, int]]:
    """Find the silences of at least `LEAST_GAP`, (start, end) in samples, by `END_DB`."""
    edges = np.flatnonzero(np.diff(np.concatenate([[1], _loud(pcm), [1]])))
    pairs = [(int(a) * FRAME, int(b) * FRAME) for a, b in zip(edges[::2], edges[1::2], strict=True)]
    return [(start, end) for start, end in pairs if end - start >= LEAST_GAP]


def _loud(pcm: Pcm) -> np.ndarray[Any, np.dtype[np.int8]]:
    """Tell of each 10 ms whether it is voice."""
    frames = pcm[: len(pcm) // FRAME * FRAME].astype(np.float64).reshape(-1, FRAME)
    levels = 10 * np.log10(np.square(frames).mean(axis=1) + 1e-3)
    reference = np.percentile(levels[levels > levels.max() - 40], 95)
    return np.asarray(levels > reference - END_DB, np.int8)


def _noise(name: str, pcm: Pcm) -> Utterance:
    return Utterance(name, "noise", pcm, 0, len(pcm))


# Voices

ESPEAK = {"american": ("en-us", "150"), "british": ("en-gb+f3", "140"), "deep": ("en-us+m3", "140")}
"Voice and words a minute of espeak-ng."


def speak(text: str, voice: str) -> Utterance:
    return measured(text, voice, _spoken(text, voice))


def _spoken(text: str, voice: str) -> Pcm:
    """Speak, or take what was spoken before from the folder for temporary files."""
    folder = Path(tempfile.gettempdir()) / "visavis-bench-speech"
    kept = folder / f"{hashlib.sha256(f'{voice} {text}'.encode()).hexdigest()[:24]}.npy"
    with contextlib.suppress(OSError, ValueError):
        return np.asarray(np.load(kept), np.int16)
    pcm = _synthesise(text, voice)
    with contextlib.suppress(OSError):
        folder.mkdir(exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder, suffix=".new", delete=False) as new:
            np.save(new, pcm)
        Path(new.name).rename(kept)
    return pcm


def _synthesise(text: str, voice: str) -> Pcm:
    if voice in ESPEAK:
        name, speed = ESPEAK[voice]
        # To a file: on a pipe it promises a length that it does not know.
        with tempfile.NamedTemporaryFile(suffix=".wav") as wav:
            command = ("espeak-ng", "-v", name, "-s", speed, "--stdin", "-w", wav.name)
            subprocess.run(command, input=text.encode(), check=True, timeout=60)
            return resample(*decode_wav(wav.read()), RATE)
    if voice == "low":  # played slower, hence lower
        return resample(from_float(np.asarray(_hibari()(text, speed=1.2), np.float32)), 21_000, RATE)
    return from_float(np.asarray(_hibari()(text), np.float32))


@functools.cache
def _hibari() -> Any:  # the package has no types
    from hibari import Hibari

    return Hibari(threads=1)


@functools.cache
def answer_sound() -> Pcm:
    """What the assistant says: about 15 s of speech, its pauses cut down to 100 ms."""
    voice = "packaged" if importlib.util.find_spec("hibari") else "american"
    said = speak(ANSWER, voice)
    pcm = said.pcm[said.onset : said.end]
    pieces, at = [], 0
    for start, end in gaps(pcm):
        if (more := end - start - RATE // 10) > 0:
            pieces.append(pcm[at : start + RATE // 20])
            at = start + RATE // 20 + more
    return np.concatenate([*pieces, pcm[at:]])


def recordings() -> tuple[Path, ...]:
    """Human speech: WAV files of any rate."""
    folder = os.environ.get("VISAVIS_SPEECH_DIR")
    return tuple(sorted(Path(folder).glob("*.wav"))) if folder else ()

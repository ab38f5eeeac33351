"""Write what callers say and the engine answers, as WAV files: the packaged voice, or recordings of people.

    PYTHONPATH=tools/bench python tools/load/product/speech.py FOLDER

Runs in the product's environment, which has the voice. Makes question-*.wav, interruption-*.wav, answer.wav.
"""

import argparse
from pathlib import Path

from corpus import INTERRUPTIONS, PLAIN, Utterance, answer_sound, available, recordings, speak

from visavis.audio import RATE, decode_wav, encode_wav

ANSWER_S = 6.0
"Of what the engine says: long enough to be interrupted."


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    voice = available()[0][0]
    for kind, texts in (("question", PLAIN[:6]), ("interruption", INTERRUPTIONS[2:])):
        for number, text in enumerate(texts):
            _write(folder / f"{kind}-{number}.wav", speak(text, voice))
    for number, path in enumerate(recordings()):
        pcm, rate = decode_wav(path.read_bytes())
        (folder / f"question-recorded-{number}.wav").write_bytes(encode_wav(pcm, rate))
    answer = answer_sound()[: round(ANSWER_S * RATE)]
    (folder / "answer.wav").write_bytes(encode_wav(answer, RATE))


def _write(path: Path, said: Utterance) -> None:
    path.write_bytes(encode_wav(said.pcm, RATE))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Write what callers say.")
    parser.add_argument("folder", type=Path)
    main(parser.parse_args().folder)

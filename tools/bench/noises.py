"""Sounds of rooms, seeded: what a microphone picks up besides its caller, and how a room sends sound back.

Everything is mono at 24 kHz, 16 bit, and its RMS level is the one given, in dBFS: over all, or of the loudest
20 ms of coughs and keys. The same seed gives the same sound.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from visavis.audio import BLOCK, RATE, Pcm

Sound = NDArray[np.float64]
"Samples in the scale of 16 bit, not yet rounded; or an impulse response."

Rng = np.random.Generator


def cough(rng: Rng, level_dbfs: float = -18.0) -> Pcm:
    """Cough once or twice, 0.3 to 0.9 s: a burst through an open throat, a sigh, at times a voiced end."""
    parts = [_one_cough(rng) for _ in range(rng.integers(1, 3))]
    sound = np.concatenate([piece for part in parts for piece in (part, np.zeros(round(0.06 * RATE)))])
    return _at_level(sound, level_dbfs, loudest=True)


def keyboard(seconds: float, rng: Rng, level_dbfs: float = -32.0) -> Pcm:
    """Type about six keys a second with hesitations: each clicks, thumps, and clicks when let go."""
    sound = np.zeros(round(seconds * RATE))
    at = rng.uniform(0.05, 0.2)
    while at < seconds:
        strength = rng.uniform(0.4, 1.0)
        thump = 0.4 * np.sin(2 * np.pi * rng.uniform(150, 260) * _clock(0.03)) * _decay(0.03, 0.006)
        _add(sound, at, strength * _click(rng))
        _add(sound, at + 0.002, strength * thump)
        _add(sound, at + rng.uniform(0.06, 0.1), 0.35 * strength * _click(rng))
        at += rng.uniform(0.09, 0.22) if rng.random() < 0.88 else rng.uniform(0.4, 1.0)
    return _at_level(sound, level_dbfs, loudest=True)


def traffic(seconds: float, rng: Rng, level_dbfs: float = -36.0) -> Pcm:
    """A street: steady rumble, and vehicles that pass with a hum of the motor and a hiss of the tyres."""
    count = round(seconds * RATE)
    time = _clock(seconds)
    sound = _coloured(rng, count, 1.0)
    for _ in range(max(1, round(seconds / 3))):
        passing = np.exp(-0.5 * ((time - rng.uniform(0, seconds)) / rng.uniform(0.6, 1.6)) ** 2)
        motor = sum(
            np.sin(2 * np.pi * rng.uniform(28, 45) * harmonic * time + rng.uniform(0, 6)) / harmonic
            for harmonic in range(1, 8)
        )
        tyres = _band(_coloured(rng, count, 0.5), 300, 2_500)
        sound += passing * (1.2 * motor + 1.5 * tyres / tyres.std())
    return _at_level(sound, level_dbfs)


def music(seconds: float, rng: Rng, level_dbfs: float = -32.0) -> Pcm:
    """A band without a singer: chords, a melody with vibrato, a bass and drums, 100 beats a minute."""
    beat = 0.6
    sound = np.zeros(round(seconds * RATE))
    roots = (220.0, 174.6, 261.6, 196.0)
    scale = (1.0, 9 / 8, 5 / 4, 3 / 2, 5 / 3, 2.0)
    for number in range(int(seconds / beat) + 1):
        at = number * beat
        root = roots[number // 4 % len(roots)]
        if number % 4 == 0:
            for interval in (1.0, 5 / 4, 3 / 2):
                _add(sound, at, 0.5 * _note(rng, root * interval, 4 * beat, attack=0.08))
        for half in (0.0, 0.5):
            if rng.random() < 0.7:
                _add(
                    sound,
                    at + half * beat,
                    0.9 * _note(rng, 2 * root * rng.choice(scale), beat * 0.6, attack=0.015),
                )
            _add(sound, at + half * beat, 0.25 * _click(rng, 0.03, 5_000, 11_000))
        _add(sound, at, _note(rng, root / 2, beat, attack=0.01))
        _add(sound, at, 2.5 * _drum())
    return _at_level(sound, level_dbfs)


def hiss(seconds: float, rng: Rng, level_dbfs: float = -60.0) -> Pcm:
    """The quiet of a room and its microphone."""
    return _at_level(_coloured(rng, round(seconds * RATE), 0.5), level_dbfs)


def babble(voices: Sequence[Pcm], seconds: float, rng: Rng, level_dbfs: float = -38.0) -> Pcm:
    """Many talk at the same time at the other end of a room; six and more `voices` blend best."""
    count = round(seconds * RATE)
    sound = np.zeros(count)
    for voice in voices:
        talk = np.resize(voice.astype(np.float64), count)
        sound += np.roll(talk / max(1.0, talk.std()), int(rng.integers(count)))
    return _at_level(_convolve(sound, _far(rng)), level_dbfs)


def far_voice(pcm: Pcm, rng: Rng, level_dbfs: float = -46.0) -> Pcm:
    """The same voice from the next room, or of a television: dull, with more of the room than of the voice.

    A caller near the microphone is at −26 dBFS or so: this is 20 dB below; give −56 for 30 dB.
    """
    return _at_level(_convolve(pcm.astype(np.float64), _far(rng)), level_dbfs)


def distant(pcm: Pcm, rng: Rng, level_dbfs: float = -46.0) -> Pcm:
    """The same voice from the other end of the room: clear, but with more of the room than of the voice."""
    return _at_level(_convolve(pcm.astype(np.float64), room(rng, 0.4, direct_db=-3.0)), level_dbfs)


def room(rng: Rng, seconds: float = 0.3, direct_db: float = 3.0) -> Sound:
    """Give the impulse response of a room whose sound has died away by 60 dB after `seconds`.

    The first sample is the direct path, `direct_db` above all the reflections together; these begin after
    2 ms and lose their high tones first.
    """
    count = round(seconds * RATE)
    tail = rng.normal(size=count) * np.power(10, -3 * np.arange(count) / count)
    tail[: round(0.002 * RATE)] = 0
    dull = np.convolve(tail, np.exp(-np.arange(8) / 1.5))[:count]
    late = np.linspace(0, 1, count)
    tail = (1 - late) * tail + late * dull
    tail *= 10 ** (-direct_db / 20) / np.sqrt(np.square(tail).sum())
    tail[0] = 1.0
    return np.asarray(tail)


def echo_of(pcm: Pcm, gain_db: float, delay_ms: float, response: Sound, drive: float = 0.3) -> Pcm:
    """Tell what of `pcm`, played into a room, comes back into the microphone.

    As long as `pcm` (the rest is cut), `delay_ms` late, and its RMS level over all is `gain_db` from that of
    `pcm`. The loudspeaker is a laptop's: little below 200 Hz or above 9 kHz, and `drive` says how far loud
    parts are bent: 0 not at all, 1 badly.
    """
    played = pcm.astype(np.float64)
    peak = max(1.0, float(np.abs(played).max()))
    bent = np.tanh(drive * 2 * played / peak) if drive else played
    back = np.zeros(len(pcm))
    late = round(delay_ms / 1000 * RATE)
    back[late:] = _convolve(_band(bent, 200, 9_000), response)[: max(0, len(pcm) - late)]
    power, wanted = float(np.mean(back**2)), float(np.mean(played**2)) * 10 ** (gain_db / 10)
    return _rounded(back * np.sqrt(wanted / power)) if power else _rounded(back)


def mix(*sounds: Pcm) -> Pcm:
    """Add sounds that begin together; as long as the longest, clipped like a microphone."""
    total = np.zeros(max(map(len, sounds)))
    for sound in sounds:
        total[: len(sound)] += sound
    return _rounded(total)


def mix_at_snr(speech: Pcm, noise: Pcm, snr_db: float) -> Pcm:
    """Add noise, made so loud that the speech is `snr_db` above it; as long as the speech.

    The level of the speech is `active_dbfs`. Raises ValueError where the noise is shorter.
    """
    if len(noise) < len(speech):
        raise ValueError(f"{len(noise)} samples of noise for {len(speech)} of speech")
    part = noise[: len(speech)].astype(np.float64)
    wanted = active_dbfs(speech) - snr_db
    return mix(speech, _at_level(part, wanted))


def at_level(speech: Pcm, level_dbfs: float) -> Pcm:
    """Make speech so loud that its active parts are at `level_dbfs`."""
    return _rounded(speech.astype(np.float64) * 10 ** ((level_dbfs - active_dbfs(speech)) / 20))


def active_dbfs(speech: Pcm) -> float:
    """Tell the RMS level of the words without the pauses: of all 20 ms within 25 dB of the loudest."""
    power = _block_power(speech.astype(np.float64))
    active = power[power >= power.max() / 10**2.5]
    return float(10 * np.log10(max(1e-3, active.mean()) / 32_768.0**2))


# Parts


def _clock(seconds: float) -> Sound:
    return np.arange(round(seconds * RATE)) / RATE


def _decay(seconds: float, constant_s: float) -> Sound:
    return np.asarray(np.exp(-_clock(seconds) / constant_s))


def _coloured(rng: Rng, count: int, slope: float) -> Sound:
    """Noise of RMS 1 whose amplitude falls with frequency to the power of `slope`."""
    frequencies = np.fft.rfftfreq(count, 1 / RATE)
    spectrum = rng.normal(size=len(frequencies)) + 1j * rng.normal(size=len(frequencies))
    sound = np.fft.irfft(spectrum / np.maximum(frequencies, 20) ** slope, count)
    return np.asarray(sound / sound.std())


def _band(sound: Sound, low: float, high: float) -> Sound:
    """Keep what lies between two frequencies, with slopes of 12 dB an octave."""
    frequencies = np.maximum(np.fft.rfftfreq(len(sound), 1 / RATE), 1.0)
    gain = 1 / np.sqrt(1 + (low / frequencies) ** 4) / np.sqrt(1 + (frequencies / high) ** 4)
    return np.asarray(np.fft.irfft(np.fft.rfft(sound) * gain, len(sound)))


def _convolve(sound: Sound, response: Sound) -> Sound:
    """Send a sound through a response; what rings on after its end is cut."""
    size = 1 << (len(sound) + len(response) - 1).bit_length()
    spectrum = np.fft.rfft(sound, size) * np.fft.rfft(response, size)
    return np.asarray(np.fft.irfft(spectrum, size)[: len(sound)])


def _far(rng: Rng) -> Sound:
    """A room in which the direct path is the least, with its door ajar: little above 2 kHz."""
    return _band(room(rng, 0.5, direct_db=-9.0), 150, 2_000)


def _click(rng: Rng, seconds: float = 0.012, low: float = 1_500, high: float = 7_000) -> Sound:
    burst = _band(rng.normal(size=round(seconds * RATE)), low, high) * _decay(seconds, seconds / 5)
    return np.asarray(burst / np.abs(burst).max())


def _note(rng: Rng, pitch: float, seconds: float, attack: float) -> Sound:
    """One tone of six harmonics with vibrato."""
    time = _clock(seconds)
    phase = (
        2 * np.pi * pitch * time + 0.006 * pitch * np.sin(2 * np.pi * 5.5 * time + rng.uniform(0, 6)) / 5.5
    )
    tone = sum(np.sin(harmonic * phase) / harmonic**1.3 for harmonic in range(1, 7))
    return np.asarray(tone * np.minimum(1, time / attack) * _decay(seconds, seconds / 2))


def _drum() -> Sound:
    """A tone that falls from 150 to 50 Hz."""
    time = _clock(0.2)
    return np.asarray(np.sin(2 * np.pi * (50 * time + 5 * (1 - np.exp(-20 * time)))) * _decay(0.2, 0.06))


def _one_cough(rng: Rng) -> Sound:
    burst_s, sigh_s, voice_s = rng.uniform(0.04, 0.07), rng.uniform(0.08, 0.16), rng.uniform(0.05, 0.1)
    seconds = burst_s + sigh_s + voice_s
    time = _clock(seconds)
    breath = rng.normal(size=len(time)) * np.where(
        time < burst_s,
        np.minimum(1, time / 0.004),
        0.35 * np.exp(-(time - burst_s) / (0.6 * sigh_s)),
    )
    voiced = np.zeros(len(time))
    if rng.random() < 0.5:
        pitch = rng.uniform(180, 320) * (1 - 0.25 * time / seconds)
        pulses = np.diff(np.floor(np.cumsum(pitch) / RATE), prepend=0.0)
        late = time - burst_s - sigh_s
        voiced = 6 * pulses * np.where(late > 0, np.sin(np.pi * np.clip(late / voice_s, 0, 1)), 0)
    formants = np.zeros(round(0.02 * RATE))
    for frequency, width, gain in ((650, 180, 1.0), (1_500, 250, 0.7), (2_700, 400, 0.5)):
        ring = _clock(0.02)
        formants += (
            gain
            * np.exp(-np.pi * width * ring)
            * np.sin(2 * np.pi * frequency * rng.uniform(0.9, 1.1) * ring)
        )
    return _convolve(breath + voiced, formants)


def _add(sound: Sound, at_s: float, piece: Sound) -> None:
    """Add a piece in place; what reaches over the end is cut."""
    start = round(at_s * RATE)
    part = piece[: max(0, len(sound) - start)]
    sound[start : start + len(part)] += part


def _block_power(sound: Sound) -> Sound:
    whole = np.pad(sound, (0, -len(sound) % BLOCK))
    return np.asarray(np.square(whole).reshape(-1, BLOCK).mean(axis=1))


def _at_level(sound: Sound, level_dbfs: float, loudest: bool = False) -> Pcm:
    power = _block_power(sound)
    reference = float(power.max() if loudest else power.mean())
    return (
        _rounded(sound * 32_768 * 10 ** (level_dbfs / 20) / np.sqrt(reference))
        if reference
        else _rounded(sound)
    )


def _rounded(sound: Sound) -> Pcm:
    clipped: Pcm = np.clip(np.rint(sound), -32_768, 32_767).astype(np.int16)
    return clipped

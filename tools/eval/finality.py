"""Fit `visavis/finality.py`: does the sound of the last words tell that they were the last?

    python tools/eval/finality.py            prints how well it separates, on voices and texts not fitted
    python tools/eval/finality.py --write    and writes the weights of all voices

Sentences are spoken by synthetic voices, and by people if VISAVIS_SPEECH_DIR is set. Their ends are final;
the pauses at their commas, made long, and the ends of first clauses spoken alone are not. What is heard goes
through the ear of the product, at several levels and in some noise. It takes eight minutes.
"""

import argparse
import random
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "bench"))

from corpus import LEVEL_DBFS, Utterance, measured, recordings, with_pauses

from visavis import finality
from visavis.audio import BLOCK, RATE, Pcm, decode_wav, from_float, resample
from visavis.config import EarConfig, VadConfig
from visavis.ear import CallerEar
from visavis.hush import band_level
from visavis.prosody import Prosody
from visavis.vad import GatedVad, SileroPool

ENDS = {
    "en": """
Yes. No. Sure. Okay. Thanks. Really? Why? Why not? Hello. Good evening. Never mind. Not today. That's all.
Go on. I do. Of course. No thanks. Maybe later. What else? Which one? How much? Two coffees. In the kitchen.
I see. Stop it. That sounds good. Tell me more. Say that again. Who was it? It depends. Just a little. I
have no idea. Is this yours? Let me think. You are right. What happened then? Call my mother. Read me the
news. Play some music. Turn it off. Where are we? Thank you very much. How are you doing? Nice to meet you.
Can you hear me? See you tomorrow morning. Where did you put the keys? Please turn off the lights in the
kitchen. How long does it take to boil an egg? My brother works in a small office near the station. I would
like a cup of tea with milk. Show me your pictures. Can you help me with my homework? The train was late
again this morning. What does this word mean? Who wrote it? There is a cat on the roof. Do you think it will
rain tomorrow? Nobody told me about the meeting. I am not sure. I have lived here for ten years. Set an
alarm for seven in the morning. It was a long and difficult day. Are there any good films on tonight? Let us
begin with something simple. How much is the fish? We had dinner at eight. Which of the two is cheaper? You
can find it behind the door. I cannot remember her name. Why did they leave so early? Add milk and bread to
my list. What would you do in my place? He never answers his phone on Sundays. Add it up for me. I bought a
new chair for the garden. How do I get to the museum from here? The doctor will see you in a minute. Did you
watch the game last night? Send her a message that I am on my way. My favourite season is autumn. Is there a
bank around the corner? The meeting is at half past nine in the big room upstairs. Who is your teacher?""",
    "de": """
Ja. Nein danke. Warum? Das klingt gut. Ich weiß nicht. Na klar. Wo hast du den Schlüssel hingelegt? Wer war
das? Bitte mach das Licht in der Küche aus. Mein Bruder arbeitet in einem kleinen Büro. Wie lange dauert die
Fahrt? Ich hätte gern eine Tasse Tee. Kannst du mir helfen? Es war ein langer Tag. Der Zug war heute wieder
zu spät. Was kostet der Fisch? Ruf meine Mutter an. Morgen soll es den ganzen Tag regnen. Zeig mir die
Bilder vom Sommer.""",
    "fr": """
Oui. Non merci. Pourquoi? C'est une bonne idée. Je ne sais pas. Où as-tu mis les clés? Peux-tu m'aider? Bien
sûr. Éteins la lumière dans la cuisine. Mon frère travaille dans un petit bureau. Je voudrais une tasse de
thé. Combien de temps dure le voyage? La journée était longue. Appelle ma mère. Le train était encore en
retard.""",
    "es": """
Sí. No gracias. ¿Por qué? Es una buena idea. No lo sé. ¿Dónde pusiste las llaves? ¿Puedes ayudarme? Claro.
Apaga la luz de la cocina. Mi hermano trabaja en una oficina pequeña. Quisiera una taza de té. Llama a mi
madre. ¿Cuánto dura el viaje? Fue un día muy largo. El tren llegó tarde otra vez esta mañana.""",
}
FIRST = {
    "en": """
If you have time on Saturday, / I wanted to call you, / After the film was over, / She bought apples, /
Well, / When the bell rings, / We should leave now, / I have been to London, / Although it was cold, / To be
honest, / So, / The man in the blue coat, / First I need some flour, / As far as I know, / He said that he
would come, / Hello, / Can you tell me, / In the middle of the night, / I think, / My car is old, / Before
you go, / Okay, / By the way, / There are three rooms upstairs, / While I was waiting at the station, / We
could take the train, / I mean, / Um, / Since you asked, / What I mean is, / Unless you have a better idea,
/ Last week my neighbour, / Excuse me, / You turn right at the church, / My name is Robert, / I am looking
for a present, / Once the water boils, / It is not that I do not care, / Could you please check, / I would
like two tickets, / Yes, / No, / On the one hand, / Whenever my grandmother tells this story, / The last
time we met, / I was going to say, / Let me see, / You know, /""",
    "de": """
Wenn du am Samstag Zeit hast, / Ich wollte dich anrufen, / Nachdem der Film zu Ende war, / Ehrlich gesagt, /
Also, / Wir sollten jetzt gehen, / Obwohl es kalt war, / Zuerst brauche ich Mehl, / Ich glaube, / Bevor du
gehst, / Ja, /""",
    "fr": """
Si tu as le temps samedi, / Je voulais t'appeler, / Quand le film était fini, / Franchement, / Alors, / Oui,
/ Nous devons partir maintenant, / D'abord il me faut de la farine, / Je crois, / Avant de partir, /""",
    "es": """
Si tienes tiempo el sábado, / Quería llamarte, / Cuando terminó la película, / La verdad, / Bueno, / Sí, /
Tenemos que irnos ahora, / Primero necesito harina, / Creo, / Antes de salir, /""",
}
SECOND = {
    "en": """
we could go for a walk. / but my phone was dead. / everybody went home. / and a big melon. / please open the
door. / because the shop closes at six. / and I have been to Rome. / the children played outside. / can you
help me? / I did not like the soup. / who came yesterday, is my uncle. / then two eggs, and a little sugar.
/ is that right? / the library opens at nine. / but he never did. / how much does it cost? / somebody
knocked at the window. / it was the second street on the left. / so I take the bus to work. / could you
write down your number? / I forgot. / and the bathroom is at the end of the hall. / or we could drive. / my
favourite colour is green. / let's go. / you should try it yourself. / let us ask somebody. / a doctor,
moved to Spain. / it is the third house. / what now? / and I have a question about my bill. / something
small, for my daughter. / add the rice, and wait ten minutes. / which platform does it leave from? / if
there are any left. / we had to laugh until we cried. / for next Friday. /""",
    "de": """
könnten wir spazieren gehen. / aber mein Telefon war leer. / gingen alle nach Hause. / weil der Laden
schließt. / dann zwei Eier, und etwas Zucker. / spielten die Kinder draußen. / kannst du mir helfen? / das
war gut. /""",
    "fr": """
nous pourrions nous promener. / mais mon téléphone était déchargé. / tout le monde est rentré. / c'était
bien. / parce que le magasin ferme. / puis deux oeufs, et du sucre. / peux-tu m'aider? /""",
    "es": """
podríamos dar un paseo. / pero mi teléfono estaba apagado. / todos se fueron a casa. / estuvo bien. / porque
la tienda cierra. / luego dos huevos, y azúcar. / ¿puedes ayudarme? /""",
}
WHOLE, BROKEN, CLAUSES = 60, 70, 25
"What a voice says: sentences without a pause, with one or two, and first clauses alone."
ESPEAK = {
    "american": ("en", "en-us", 150, 50),
    "american woman": ("en", "en-us+f2", 165, 60),
    "american old": ("en", "en-us+m7", 170, 35),
    "american klatt": ("en", "en-us+klatt2", 150, 45),
    "british": ("en", "en-gb+m1", 140, 40),
    "british woman": ("en", "en-gb+f4", 150, 50),
    "german": ("de", "de", 150, 50),
    "french": ("fr", "fr+f3", 150, 50),
    "spanish": ("es", "es+m3", 150, 50),
}
"Language, name, words a minute and pitch of espeak-ng's voices."
PACKAGED = {
    "packaged": (1.0, RATE),
    "packaged fast": (1.2, RATE),
    "packaged slow": (0.85, RATE),
    "packaged low": (1.2, 20_000),
    "packaged lowest": (1.3, 18_000),
    "packaged high": (0.9, 26_000),
}
"Speed, and the rate at which it is taken to be: lower rates make lower voices."

CONFIG = EarConfig()
SNRS_DB = (10, 15, 20, 20, 30, 30, 45, 45, 45)
"Of the noise in which a voice is heard, one as likely as the next."

HIDDEN = 16
DECAY = 10.0
"Of the weights: a sum of squares worth so much beside the losses of all examples."
STEPS = 1_000
CALL = 5
"Utterances of one caller, after which another of the same voice begins."


@dataclass(frozen=True)
class Example:
    voice: str
    text: str
    kind: str
    "`end`, `pause`, `clause` (a first clause spoken alone) or `gap` (a silence within that nobody made)."
    features: np.ndarray

    @property
    def beginning(self) -> str:
        return self.text.partition(",")[0]

    @property
    def final(self) -> bool:
        return self.kind == "end"


@dataclass(frozen=True)
class Said:
    utterance: Utterance
    whole: bool


def spoken(rng: random.Random) -> Iterator[tuple[str, list[Said]]]:
    """Yield what each voice says."""
    voices: dict[str, tuple[str, Callable[[str], Pcm]]] = {}
    for name, (language, *how) in ESPEAK.items():
        voices[name] = (language, lambda text, how=how: espeak(text, *how))
    for name, how in PACKAGED.items():
        voices[name] = ("en", lambda text, how=how: packaged(text, *how))
    for name, (language, speak) in voices.items():
        said = [
            Said(measured(text, name, speak(text)), whole=True) for text in some(ends(language), WHOLE, rng)
        ]
        for first, second in some(list(product(of(FIRST[language]), of(SECOND[language]))), BROKEN, rng):
            lengths = [rng.randint(200, 1200) for _ in range(rng.randint(1, 2))]
            text = f"{first} {second}"
            said.append(Said(with_pauses(measured(text, name, speak(text)), lengths), whole=True))
        clauses = some(of(FIRST[language]), CLAUSES, rng)
        said += [Said(measured(text, name, speak(text)), whole=False) for text in clauses]
        yield name, said
    people = [
        measured(path.stem, "people", resample(*decode_wav(path.read_bytes()), RATE)) for path in recordings()
    ]
    paused = [with_pauses(said, [600, 500]) for said in people]
    yield "people", [Said(said, whole=True) for said in people + paused]


def ends(language: str) -> list[str]:
    return re.findall(r"\S[^.?]*[.?]", " ".join(ENDS[language].split()))


def of(clauses: str) -> list[str]:
    return [clause for part in clauses.split("/") if (clause := " ".join(part.split()))]


def some(of_all: list[Any], most: int, rng: random.Random) -> list[Any]:
    return rng.sample(of_all, min(most, len(of_all)))


def espeak(text: str, voice: str, speed: int, pitch: int) -> Pcm:
    with tempfile.NamedTemporaryFile(suffix=".wav") as wav:
        command = ("espeak-ng", "-v", voice, "-s", str(speed), "-p", str(pitch), "--stdin", "-w", wav.name)
        subprocess.run(command, input=text.encode(), check=True, timeout=60)
        return resample(*decode_wav(wav.read()), RATE)


def packaged(text: str, speed: float, rate: int) -> Pcm:
    from corpus import _hibari

    return resample(from_float(np.asarray(_hibari()(text, speed=speed), np.float32)), rate, RATE)


def examples(seed: int = 5) -> list[Example]:
    """Listen to everything as the product does."""
    rng, random_ = np.random.default_rng(seed), random.Random(seed)
    pool, found = SileroPool(), []
    for voice, said in spoken(random_):
        random_.shuffle(said)
        for first in range(0, len(said), CALL):
            ear, prosody = CallerEar(GatedVad(VadConfig(), pool)), Prosody()
            for one in said[first : first + CALL]:
                found += listen(one, voice, ear, prosody, rng)
            ear.reset()
    return found


def noise(samples: int, rng: np.random.Generator) -> np.ndarray:
    """White, pink or brown, with an RMS of 1."""
    spectrum = np.fft.rfft(rng.normal(size=samples))
    spectrum /= np.maximum(np.fft.rfftfreq(samples, 1 / RATE), 60) ** rng.choice([0, 0.5, 1])
    sound = np.fft.irfft(spectrum, samples)
    return np.asarray(sound / sound.std())


def listen(
    said: Said, voice: str, ear: CallerEar, prosody: Prosody, rng: np.random.Generator
) -> list[Example]:
    utterance = said.utterance
    lead, end = 6 * RATE // 10, utterance.end
    sound = np.concatenate([np.zeros(lead), utterance.pcm.astype(float), np.zeros(RATE)])
    sound *= 10 ** (rng.uniform(-6, 6) / 20)
    sound += noise(len(sound), rng) * 32768 * 10 ** ((LEVEL_DBFS - rng.choice(SNRS_DB)) / 20)
    pcm = np.clip(np.rint(sound), -32768, 32767).astype(np.int16)
    found, silence, began, voiced = [], 0, False, False
    for at in range(0, len(pcm) - BLOCK + 1, BLOCK):
        block = pcm[at : at + BLOCK]
        voiced = ear.receive(block).speech >= (CONFIG.voiced_still if voiced else CONFIG.voiced)
        prosody.receive(block, band_level(block), voiced=voiced)
        began, silence = began or voiced, 0 if voiced else silence + 1
        if began and silence == 4 and (features := prosody.features()) is not None:
            position = at - 3 * BLOCK - lead
            kind = "gap"
            if position > end - RATE // 5:
                kind = "end" if said.whole else "clause"
            elif any(start - RATE // 10 <= position <= stop for start, stop in utterance.pauses):
                kind = "pause"
            found.append(Example(voice, utterance.text, kind, features))
    return found


@dataclass(frozen=True)
class Net:
    mean: np.ndarray
    scale: np.ndarray
    hidden: np.ndarray
    "Shape (HIDDEN, features + 1), the last column is added."
    out: np.ndarray
    "Shape (HIDDEN + 1,)."

    def __call__(self, features: np.ndarray) -> np.ndarray:
        """Log-odds of rows of features."""
        inner = np.tanh(self._inputs(features) @ self.hidden.T)
        return np.asarray(inner @ self.out[:-1] + self.out[-1])

    def _inputs(self, features: np.ndarray) -> np.ndarray:
        scaled = np.clip((features - self.mean) / self.scale, -3, 3)
        return np.hstack([scaled, np.ones((len(scaled), 1))])


def fit(some: list[Example], seed: int = 1) -> Net:
    """Fit by Adam, all examples at once; voices, ends and others count the same in all."""
    features = np.array([example.features for example in some])
    final = np.array([example.final for example in some], float)
    weight = np.ones(len(some))
    groups = [(example.voice, example.final) for example in some]
    for group in set(groups):
        members = [other == group for other in groups]
        weight[members] = 1 / sum(members)
    weight *= len(some) / weight.sum()
    rng = np.random.default_rng(seed)
    mean, scale = features.mean(axis=0), features.std(axis=0)
    hidden, out = rng.normal(0, 0.3, (HIDDEN, features.shape[1] + 1)), rng.normal(0, 0.3, HIDDEN + 1)
    net = Net(mean, scale, hidden, out)
    inputs = net._inputs(features)
    moments: list[Any] = [[0.0, 0.0], [0.0, 0.0]]
    for step in range(1, STEPS + 1):
        inner = np.tanh(inputs @ net.hidden.T)
        wrong = weight * (1 / (1 + np.exp(-(inner @ net.out[:-1] + net.out[-1]))) - final)
        back = wrong[:, None] * net.out[None, :-1] * (1 - inner**2)
        decay_out, decay_hidden = net.out.copy(), net.hidden.copy()
        decay_out[-1], decay_hidden[:, -1] = 0, 0
        gradients = (
            np.append(inner.T @ wrong, wrong.sum()) + DECAY * decay_out,
            back.T @ inputs + DECAY * decay_hidden,
        )
        for parameters, gradient, moment in zip((net.out, net.hidden), gradients, moments, strict=True):
            moment[0] = 0.9 * moment[0] + 0.1 * gradient
            moment[1] = 0.99 * moment[1] + 0.01 * gradient**2
            mean_, spread = moment[0] / (1 - 0.9**step), moment[1] / (1 - 0.99**step)
            parameters -= 0.02 * mean_ / (np.sqrt(spread) + 1e-9)
    return net


def auc(scores: np.ndarray, final: np.ndarray) -> float:
    """Probability that an end is scored higher than what is none."""
    ends, others = scores[final], scores[~final]
    return float(np.mean(ends[:, None] > others[None, :])) if len(ends) and len(others) else float("nan")


def cross_validated(all_: list[Example]) -> np.ndarray:
    """Score each example by a net that knows neither its voice nor its text."""
    scores = np.zeros(len(all_))
    beginnings = sorted({example.beginning for example in all_})
    halves = {beginning: i % 2 for i, beginning in enumerate(beginnings)}
    for voice in sorted({example.voice for example in all_}):
        for half in (0, 1):
            asked = [i for i, e in enumerate(all_) if e.voice == voice and halves[e.beginning] == half]
            known = [e for e in all_ if e.voice != voice and halves[e.beginning] != half]
            scores[asked] = fit(known)(np.array([all_[i].features for i in asked]))
    return scores


def report(all_: list[Example], scores: np.ndarray) -> None:
    voices = np.array([example.voice for example in all_])
    kinds = np.array([example.kind for example in all_])
    final = kinds == "end"
    print("voice              ends others  AUC  of pauses alone")
    for voice in ["all", *sorted(set(voices))]:
        of = (voices == voice) | (voice == "all")
        plain = of & np.isin(kinds, ("end", "pause"))
        print(
            f"{voice:18} {(final & of).sum():4} {(~final & of).sum():6}  {auc(scores[of], final[of]):.2f}"
            f"  {auc(scores[plain], final[plain]):.2f}"
        )
    print("ends found:      " + "  ".join(f"{share:.0%}" for share in (0.5, 0.75, 0.9, 0.95)))
    for kind in ("pause", "clause", "gap"):
        limits = [np.quantile(scores[final], 1 - share) for share in (0.5, 0.75, 0.9, 0.95)]
        shares = [(scores[kinds == kind] > limit).mean() for limit in limits]
        print(f"{kind} taken for one: " + "  ".join(f"{share:.0%}" for share in shares))
    print("told → true, of ends and pauses")
    plain = np.isin(kinds, ("end", "pause"))
    told = 1 / (1 + np.exp(-scores))
    for low in np.arange(0, 1, 0.2):
        within = plain & (told >= low) & (told < low + 0.2)
        print(f"{low:.1f}–{low + 0.2:.1f}: {final[within].mean():.2f} of {within.sum()}")


def write(net: Net) -> None:
    path = Path(finality.__file__)
    source = path.read_text()
    for name, value in (("MEAN", net.mean), ("SCALE", net.scale), ("HIDDEN", net.hidden), ("OUT", net.out)):
        numbers = np.array2string(np.round(value, 3), separator=", ", threshold=10_000, max_line_width=100)
        source, count = re.subn(
            rf"(?ms)^_{name} = np\.array\(.*?\)$", f"_{name} = np.array(\n{numbers}\n)", source
        )
        assert count == 1, name
    path.write_text(source)
    subprocess.run(["ruff", "format", str(path)], check=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    everything = examples()
    report(everything, cross_validated(everything))
    if arguments.write:
        write(fit(everything))

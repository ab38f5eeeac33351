"""Which scenes of the corpus are played: a few of each kind, the voices in turn, the same for all servers.

Robots speak only where nobody else can: smart-turn has learned from people, and waits for more from robots.
"""

import random
from collections.abc import Sequence

from corpus import ESPEAK, Corpus, Scene

Spoken = tuple[Scene, str]
"A scene and whose voice it has."

SHARES = {"pause": 7, "interruption": 6, "echo": 1, "backchannel": 1, "cough": 1, "keyboard": 1}
"Scenes of each kind in a run: what fits two minutes a server."
LONGEST_S = 6.5
"Of all that the caller says in a scene."


def choose(corpus: Corpus, rate: int, seed: int, scale: float = 1.0) -> list[Spoken]:
    """Choose scenes and put them in an order, both by the seed; `scale` makes more or fewer of them."""
    rng = random.Random(seed)
    chosen: list[Spoken] = []
    for kind, share in SHARES.items():
        people, robots = (
            [
                [(scene, call.voice) for scene in call.scenes if scene.kind == kind and _fits(scene, rate)]
                for call in corpus.calls
                if (call.voice in ESPEAK) == robotic
            ]
            for robotic in (False, True)
        )
        rng.shuffle(people)
        chosen += (_in_turn(people) + _in_turn(robots))[: max(1, round(share * scale))]
    rng.shuffle(chosen)
    return chosen


def halves(scenes: Sequence[Spoken]) -> tuple[list[Spoken], list[Spoken]]:
    """Deal the scenes out for two rounds, each kind evenly."""
    rounds: tuple[list[Spoken], list[Spoken]] = [], []
    for scene, voice in sorted(scenes, key=lambda spoken: spoken[0].kind):
        shorter = min(rounds, key=len)
        shorter.append((scene, voice))
    order = {id(scene): place for place, (scene, _) in enumerate(scenes)}
    for part in rounds:
        part.sort(key=lambda spoken: order[id(spoken[0])])
    return rounds


def _fits(scene: Scene, rate: int) -> bool:
    # Over an echo, a server that takes it for the caller has no answer left to interrupt.
    if scene.kind == "interruption" and scene.echo is not None:
        return False
    said = len(scene.utterance.pcm) + (len(scene.insertion.utterance.pcm) if scene.insertion else 0)
    return scene.answered and said <= LONGEST_S * rate


def _in_turn(groups: Sequence[Sequence[Spoken]]) -> list[Spoken]:
    longest = max(map(len, groups), default=0)
    return [group[place] for place in range(longest) for group in groups if place < len(group)]

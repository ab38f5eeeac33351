"""What a run measures, and for how long. Sans-I/O."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from .figures import STEPS

BACKENDS = ("lean", "stock")


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run measures, and for how long."""

    window_s: float
    media_rounds: int
    "Of the costs of media alone; every second one in reverse order."
    whole_rounds: int
    "Of the costs of the whole server."
    calls: dict[str, int]
    "While costs are measured, by mode: few enough that no core is full."
    steps: Sequence[int]
    step_s: float
    climbs: Sequence[str]
    "Backends whose breaking point is looked for."
    tones_s: float

    def scaled(self, factor: float) -> "Plan":
        """Give one whose measurements take so many times as long."""
        return replace(
            self,
            window_s=self.window_s * factor,
            step_s=self.step_s * factor,
            tones_s=self.tones_s * factor,
        )


BOUNDED = Plan(
    window_s=10.0,
    media_rounds=2,
    whole_rounds=1,
    calls={"audio": 6, "camera": 6, "camera_720p30": 3},
    steps=(10, 20, 40, 60),
    step_s=12.0,
    climbs=("lean",),
    tones_s=15.0,
)
"Fits ten minutes."
FULL = Plan(
    window_s=30.0,
    media_rounds=4,
    whole_rounds=4,
    calls=BOUNDED.calls,
    steps=STEPS,
    step_s=30.0,
    climbs=BACKENDS,
    tones_s=60.0,
)

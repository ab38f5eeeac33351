"""From windows of measuring to figures: costs, the breaking point, the last line. Sans-I/O."""

import json
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from .arrivals import GAP_S

STEPS = (1, 2, 5, 10, 20, 40, 60, 80, 100, 130, 160, 200)
"Calls at once, until it breaks."
FULL = 0.95
"Of a core: more does not come out of one that is busy all the time."
LATEST_S = 0.5
"A tone that is not heard so soon was lost."
DISTURBED = 0.1
"Of the time not let run, and what a server did is no longer its own doing alone."
MODES = ("audio", "camera", "camera_720p30")
"Without a camera; one that does as our server asks; one that does not."


@dataclass(slots=True)
class Window:
    """What was seen of some calls in some seconds."""

    calls: int
    seconds: float
    failed: int = 0
    "Calls that did not come about before."
    failure: str | None = None
    server_cpu_s: float = 0.0
    front_cpu_s: float = 0.0
    "Of it, of its first process: with several workers the one in front of them."
    engine_cpu_s: float = 0.0
    callers_cpu_s: float = 0.0
    server_waited_s: float = 0.0
    "In which the server had work and was not let run: others had its core."
    stalled_s: float = 0.0
    "In which the callers were not let run: what would be gaps then is not counted."
    rss_mb: float = 0.0
    threads: int = 0
    sockets: int = 0
    answered_ms: list[float] = field(default_factory=list)
    "From the offer posted to the answer, of the calls set up before."
    connected_ms: list[float] = field(default_factory=list)
    first_audio_ms: list[float] = field(default_factory=list)
    start_ms: list[float] = field(default_factory=list)
    "From the last word to the first packet of the answer."
    barge_in_ms: list[float] = field(default_factory=list)
    "From the first word of an interruption to the last packet with sound."
    missed: int = 0
    cut_in: int = 0
    not_yielded: int = 0
    gap_ms: float = 0.0
    "The longest hole in the answers."
    gaps: int = 0
    "Holes longer than 60 ms."
    sound_s: float = 0.0
    concealed_s: float = 0.0

    @property
    def cpu_s_per_call_min(self) -> float:
        return 60 * self.server_cpu_s / (self.calls * self.seconds) if self.calls else 0.0

    def figures(self) -> dict[str, Any]:
        """Give what a report says of it."""
        return {
            "calls": self.calls,
            "failed": self.failed,
            "seconds": round(self.seconds, 1),
            "cpu_s_per_call_min": round(self.cpu_s_per_call_min, 3),
            "server_cores": round(self.server_cpu_s / self.seconds, 3),
            "front_cores": round(self.front_cpu_s / self.seconds, 3),
            "engine_cores": round(self.engine_cpu_s / self.seconds, 3),
            "callers_cores": round(self.callers_cpu_s / self.seconds, 3),
            "callers_stalled": round(self.stalled_s / self.seconds, 3),
            "server_waited": round(self.server_waited_s / self.seconds, 3),
            "rss_mb": round(self.rss_mb, 1),
            "threads": self.threads,
            "sockets": self.sockets,
            "answered_ms": spread(self.answered_ms),
            "connected_ms": spread(self.connected_ms),
            "first_audio_ms": spread(self.first_audio_ms),
            "start_ms": spread(self.start_ms),
            "barge_in_ms": spread(self.barge_in_ms),
            "missed": self.missed,
            "cut_in": self.cut_in,
            "not_yielded": self.not_yielded,
            "gap_ms": round(self.gap_ms, 1),
            "gaps": self.gaps,
            "sound_s": round(self.sound_s, 1),
            "concealed": round(self.concealed_s / self.sound_s, 5) if self.sound_s else None,
        }


def spread(values: Sequence[float]) -> dict[str, float] | None:
    """Give median, 95th percentile, most and number; None of nothing."""
    if not values:
        return None
    ordered = sorted(values)
    p95 = ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))]
    return {
        "median": round(statistics.median(ordered), 1),
        "p95": round(p95, 1),
        "most": round(ordered[-1], 1),
        "n": len(ordered),
    }


@dataclass(frozen=True, slots=True)
class End:
    """Why no more calls were tried."""

    why: str
    broke: bool
    "The server did; otherwise the callers, and the server can do more."
    noisy: bool = False
    "It may have been another's doing."


def end_of(window: Window, server_cores: int = 1, callers_cores: int = 1) -> End | None:
    """Tell whether a step is the last, and why; None: it went well, try more."""
    if window.failed:
        return End(
            f"{window.failed} of {window.calls + window.failed} calls failed: {window.failure}", broke=True
        )
    if window.server_cpu_s > FULL * server_cores * window.seconds:
        return End(f"the server's {_cores(server_cores)} full", broke=True)
    # Before the gaps: callers who lack time hear late.
    if window.callers_cpu_s > FULL * callers_cores * window.seconds:
        return End(f"the callers' {_cores(callers_cores)} full", broke=False)
    if window.gaps:
        why = f"{window.gaps} gaps above {1000 * GAP_S:.0f} ms, the longest {window.gap_ms:.0f} ms"
        if window.server_waited_s > DISTURBED * window.seconds:
            why += f"; for {window.server_waited_s / window.seconds:.0%} of the time it was not let run"
        return End(why, broke=True, noisy=True)
    return None


def _cores(count: int) -> str:
    return "core is" if count == 1 else f"{count} cores are"


@dataclass(slots=True)
class Climb:
    """The windows of one server, one a step, and where it ended."""

    windows: list[Window] = field(default_factory=list)
    end: End | None = None
    doubtful: bool = False
    "The last step had gaps the first time: on a shared machine it is measured again before it counts."

    def add(self, window: Window, server_cores: int = 1, callers_cores: int = 1) -> None:
        """Take the window of the next step, or of a doubtful step again."""
        if self.doubtful:
            first = self.windows.pop()
            window.answered_ms, window.connected_ms = first.answered_ms, first.connected_ms
            window.first_audio_ms = first.first_audio_ms
        end = end_of(window, server_cores, callers_cores)
        self.doubtful = not self.doubtful and end is not None and end.noisy
        self.windows.append(window)
        self.end = None if self.doubtful else end

    @property
    def held(self) -> int:
        """The most calls that went well."""
        good = self.windows[:-1] if self.end is not None else self.windows
        return max((window.calls for window in good), default=0)

    @property
    def is_lower_bound(self) -> bool:
        """Whether the server was not brought to its limit."""
        return self.end is None or not self.end.broke

    @property
    def gap_ms(self) -> float:
        """The longest gap of the steps that went well."""
        return max((window.gap_ms for window in self.windows if window.calls <= self.held), default=0.0)

    def mb_per_call(self) -> float | None:
        """Give the slope of memory over calls, by least squares; None of fewer than two steps."""
        points = [(window.calls, window.rss_mb) for window in self.windows]
        if len({calls for calls, _ in points}) < 2:
            return None
        slope, _ = statistics.linear_regression(*zip(*points, strict=True))
        return slope

    def figures(self) -> dict[str, Any]:
        mb = self.mb_per_call()
        return {
            "calls_per_core": self.held,
            "is_lower_bound": self.is_lower_bound,
            "ended": None if self.end is None else self.end.why,
            "mb_per_call": None if mb is None else round(mb, 2),
            "steps": [window.figures() for window in self.windows],
        }


def cost(windows: Iterable[Window]) -> float | None:
    """Give CPU seconds per call-minute over several windows; None of none."""
    some = list(windows)
    call_s = sum(window.calls * window.seconds for window in some)
    return 60 * sum(window.server_cpu_s for window in some) / call_s if call_s else None


def front_cost(windows: Iterable[Window]) -> float | None:
    """Give what of the cost is the first process's; None of no windows."""
    some = list(windows)
    call_s = sum(window.calls * window.seconds for window in some)
    return 60 * sum(window.front_cpu_s for window in some) / call_s if call_s else None


def costs(windows: dict[str, list[Window]]) -> dict[str, float | None]:
    """Give the cost of each mode."""
    found = {mode: cost(windows.get(mode, ())) for mode in MODES}
    return {mode: None if value is None else round(value, 3) for mode, value in found.items()}


def ratios(ours: dict[str, list[Window]], others: dict[str, list[Window]]) -> dict[str, float | None]:
    """Give, of each mode, how much the one costs of what the other does."""
    told: dict[str, float | None] = {}
    for mode in MODES:
        mine, its = cost(ours.get(mode, ())), cost(others.get(mode, ()))
        told[mode] = round(mine / its, 3) if mine is not None and its else None
    return told


def match(sent: Sequence[float], heard: Sequence[float]) -> tuple[list[float], int]:
    """Give the milliseconds from each tone sent to when it was heard, and how many were not."""
    delays: list[float] = []
    for at in sent:
        later = [when - at for when in heard if 0 <= when - at < LATEST_S]
        if later:
            delays.append(1000 * later[0])
    return delays, len(sent) - len(delays)


def delay(delays_ms: Sequence[float]) -> float | None:
    """Give the median."""
    return round(statistics.median(delays_ms), 1) if delays_ms else None


@dataclass(slots=True)
class Bench:
    """All that a run measured, by backend."""

    media: dict[str, dict[str, list[Window]]] = field(default_factory=dict)
    "Of servers that do media alone: ours with either backend, and aiortc as its documentation has it."
    whole: dict[str, dict[str, list[Window]]] = field(default_factory=dict)
    "Of the whole server, voice activity and turns included."
    climbs: dict[str, Climb] = field(default_factory=dict)
    delays_ms: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    "From the microphone to the server's PCM, by kind of network."

    def line(self) -> dict[str, Any]:
        """Give the last line of a run. What was not measured is None."""
        media, whole = self.media, self.whole
        climb = self.climbs.get("lean")
        delays = self.delays_ms.get("lean", {})
        return {
            "cpu_s_per_call_min": costs(media.get("lean", {})),
            "ratio_to_stock": ratios(media.get("lean", {}), media.get("aiortc", {})),
            "calls_per_core": climb.held if climb else None,
            "gap_ms_max": round(climb.gap_ms, 1) if climb else None,
            "mic_to_pcm_ms": {kind: delay(delays.get(kind, ())) for kind in ("no_loss", "loss_3pct")},
            "calls_per_core_is_lower_bound": climb.is_lower_bound if climb else None,
            "ratio_to_stock_backend": ratios(media.get("lean", {}), media.get("stock", {})),
            "server_waited": self.server_waited(),
            "whole_server": {
                "cpu_s_per_call_min": costs(whole.get("lean", {})),
                "ratio_to_stock_backend": ratios(whole.get("lean", {}), whole.get("stock", {})),
            },
        }

    def server_waited(self) -> float | None:
        """Give the most of the time that a server with few calls was kept from its core, by others."""
        windows = [
            window
            for modes in (*self.media.values(), *self.whole.values())
            for mode in ("audio", "camera")  # more pictures have threads that wait for each other
            for window in modes.get(mode, ())
        ]
        shares = [window.server_waited_s / window.seconds for window in windows]
        return round(max(shares), 3) if shares else None

    def report(self) -> dict[str, Any]:
        """Give everything, for a file."""

        def windows(some: dict[str, dict[str, list[Window]]]) -> dict[str, Any]:
            return {
                name: {mode: [one.figures() for one in each] for mode, each in modes.items()}
                for name, modes in some.items()
            }

        return {
            "line": self.line(),
            "media": windows(self.media),
            "whole": windows(self.whole),
            "climbs": {name: climb.figures() for name, climb in self.climbs.items()},
            "mic_to_pcm_ms": {
                name: {kind: spread(values) for kind, values in kinds.items()}
                for name, kinds in self.delays_ms.items()
            },
        }


@dataclass(slots=True)
class Scale:
    """One process and several workers: what is measured of them (`scale`)."""

    workers: int
    one: list[Window] = field(default_factory=list)
    same: list[Window] = field(default_factory=list)
    "Of the workers, with as many calls in all."
    same_each: list[Window] = field(default_factory=list)
    "Of the workers, with as many calls in each."
    begun: int = 0
    "Calls that the process in front has placed."
    front_begun_cpu_s: float = 0.0
    "What that took of its time."
    climbs: dict[str, Climb] = field(default_factory=dict)
    "`one` and `many`, where there are cores left for the callers."

    def line(self) -> dict[str, Any]:
        """Give the last line of a run. What was not measured is None."""
        kinds = {"one": self.one, "same": self.same, "same_each": self.same_each}
        held = {name: climb.held for name, climb in self.climbs.items()}
        one, many = held.get("one"), held.get("many")
        return {
            "workers": self.workers,
            "calls": {
                name: max((window.calls for window in some), default=None) for name, some in kinds.items()
            },
            "cpu_s_per_call_min": {name: rounded(cost(some)) for name, some in kinds.items()},
            "of_it_in_front": {
                name: rounded(front_cost(some)) for name, some in kinds.items() if name != "one"
            },
            "front_ms_per_call_begun": rounded(1000 * self.front_begun_cpu_s / self.begun)
            if self.begun
            else None,
            "capacity_of_one": {name: self.capacity(kinds[name]) for name in ("same", "same_each")},
            "calls_held": held or None,
            "held_of_one": round(many / one, 2) if one and many is not None else None,
            "gap_ms_max": {
                name: round(max((window.gap_ms for window in some), default=0.0), 1)
                for name, some in kinds.items()
            },
            "server_waited": {
                name: rounded(max((window.server_waited_s / window.seconds for window in some), default=None))
                for name, some in kinds.items()
            },
        }

    def capacity(self, windows: Iterable[Window]) -> float | None:
        """Give how many times the calls of one process all workers carry, by what a call costs in each."""
        one, many = cost(self.one), cost(windows)
        return round(self.workers * one / many, 2) if one is not None and many else None

    def report(self) -> dict[str, Any]:
        """Give everything, for a file."""
        kinds = {"one": self.one, "same": self.same, "same_each": self.same_each}
        windows = {name: [window.figures() for window in some] for name, some in kinds.items()}
        return {
            "line": self.line(),
            **windows,
            "climbs": {name: climb.figures() for name, climb in self.climbs.items()},
        }


def rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


@dataclass(frozen=True, slots=True)
class Left:
    """What lives in a server."""

    rss_mb: float
    tasks: int
    threads: int
    sockets: int


@dataclass(slots=True)
class Leftovers:
    """What is left of calls that have ended, round by round of all ways to end."""

    before: Left
    rounds: list[Left] = field(default_factory=list)
    dead_peer_s: list[float] = field(default_factory=list)
    "How long after its callers were killed the server had let go of everything."

    @property
    def latest(self) -> Left:
        return self.rounds[-1] if self.rounds else self.before

    def figures(self, warm_share: float) -> dict[str, Any]:
        """Compare the end with the beginning, and with what was left after the first share of the rounds.

        Pools and caches fill at first; growth is what came after that.
        """
        warm = self.rounds[int(warm_share * len(self.rounds))] if self.rounds else self.before
        told = {
            name: {
                "before": round(getattr(self.before, name), 1),
                "warm": round(getattr(warm, name), 1),
                "after": round(getattr(self.latest, name), 1),
                "growth": round(getattr(self.latest, name) - getattr(warm, name), 1),
            }
            for name in ("rss_mb", "tasks", "threads", "sockets")
        }
        return told | {"dead_peer_s": spread(self.dead_peer_s)}


def last_line(told: dict[str, Any]) -> str:
    return json.dumps(told, separators=(",", ":"))

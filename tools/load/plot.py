"""How a server's figures grow with its calls, as a picture."""

from collections.abc import Callable, Mapping
from pathlib import Path

import matplotlib as mpl

mpl.use("agg")  # no screen is needed
import matplotlib.pyplot as plt

from .arrivals import GAP_S
from .figures import Climb, Window

PANELS: tuple[tuple[str, Callable[[Window], float | None]], ...] = (
    ("server, cores", lambda window: window.server_cpu_s / window.seconds),
    ("CPU-s per call-minute", lambda window: window.cpu_s_per_call_min),
    ("memory, MB", lambda window: window.rss_mb),
    ("POST → connected, ms", lambda window: _median(window.connected_ms)),
    ("last word → first sound, ms", lambda window: _median(window.start_ms)),
    ("longest gap, ms", lambda window: window.gap_ms),
)


def plot(climbs: Mapping[str, Climb], path: Path) -> None:
    """Draw a line a server over the number of its calls; where it broke is a cross."""
    figure, axes = plt.subplots(2, 3, figsize=(12, 7), layout="constrained")
    for axis, (title, value) in zip(axes.flat, PANELS, strict=True):
        for name, climb in climbs.items():
            points = [(window.calls, value(window)) for window in climb.windows]
            known = [(calls, figure) for calls, figure in points if figure is not None]
            if not known:
                continue
            (line,) = axis.plot(*zip(*known, strict=True), marker="o", label=name)
            if climb.end is not None and climb.end.broke:
                axis.plot(*known[-1], marker="x", markersize=12, color=line.get_color())
        axis.set_title(title)
        axis.set_xlabel("calls")
        axis.set_ylim(bottom=0)
        axis.grid(alpha=0.3)
    axes.flat[0].axhline(1, linestyle=":", color="grey")
    axes.flat[-1].axhline(1000 * GAP_S, linestyle=":", color="grey")
    axes.flat[0].legend()
    ends = [f"{name}: {climb.end.why}" for name, climb in climbs.items() if climb.end is not None]
    figure.suptitle("; ".join(ends))
    figure.savefig(path, dpi=100)
    plt.close(figure)


def _median(values: list[float]) -> float | None:
    return sorted(values)[len(values) // 2] if values else None

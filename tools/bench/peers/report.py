"""The figures of all servers as a table for the README and as one line of JSON. Sans-I/O."""

import json
from collections.abc import Mapping
from typing import Any

OURS = "ours"
TITLES = {
    OURS: "Visavis",
    "pipecat": "pipecat, smart-turn",
    "pipecat_vad": "pipecat, VAD alone",
    "fastrtc": "FastRTC",
    "floor": "bare aiortc, 320 ms",
}
RATIOS = ("start_ms_median", "start_ms_p95", "barge_in_ms_median", "cpu_s_per_call_min")
"Rows in which a peer's figure is also told as a multiple of ours."
ROWS = {
    "start_ms_median": "last word → first sound, median, ms",
    "start_ms_p95": "the same, 95th percentile, ms",
    "cut_ins": "answers into a sentence",
    "missed_ends": "sentences without an answer within {patience:.0f} s",
    "barge_in_ms_median": "interruption → last sound, median, ms",
    "false_barge_ins": "answers lost to echo, cough, keys or “mm-hm”",
    "onset_lost_ms_max": "beginning of a sentence lost, most, ms",
    "cpu_s_per_call_min": "CPU-s per minute of a call",
}
OF = {"cut_ins": "utterances", "missed_ends": "utterances", "false_barge_ins": "disturbances"}
KEPT = (
    "start_ms_median",
    "barge_in_ms_median",
    "start_ms_p95",
    "barge_in_ms_p95",
    "utterances",
    "cut_ins",
    "missed_ends",
    "false_barge_ins",
    "asides_answered",
    "onset_lost_ms_max",
)
"Of the figures that `measure.summary` gives."

Figures = Mapping[str, Any]


def nothing() -> dict[str, Any]:
    """Give the figures of a server that could not be measured."""
    return {"start_ms_median": None, "barge_in_ms_median": None, "cpu_s_per_call_min": None}


def table(results: Mapping[str, Figures], patience_s: float) -> str:
    """Lay out a Markdown table, a column for each server and a line for each that could not be measured."""
    names = [name for name in TITLES if name in results]
    measured = [name for name in names if "utterances" in results[name]]
    lines = [
        "| | " + " | ".join(TITLES[name] for name in measured) + " |",
        "|---|" + "---|" * len(measured),
    ]
    for row, title in ROWS.items():
        cells = [_cell(row, results[name], results.get(OURS, {})) for name in measured]
        lines.append(f"| {title.format(patience=patience_s)} | " + " | ".join(cells) + " |")
    lines += [f"\n{TITLES[name]}: {results[name]['failure']}" for name in names if "failure" in results[name]]
    return "\n".join(lines)


def _cell(row: str, figures: Figures, ours: Figures) -> str:
    value = figures.get(row)
    if value is None:
        return "–"
    if row in OF:
        return f"{value}/{figures[OF[row]]}"
    base = ours.get(row)
    shown = f"{value:.1f}" if row.startswith("cpu") else f"{value:.0f}"
    return f"{shown} ({value / base:.1f}×)" if row in RATIOS and base and figures is not ours else shown


def json_line(results: Mapping[str, Figures]) -> str:
    """One JSON object: a server's figures by its name, null where there are none."""
    return json.dumps({name: results[name] for name in TITLES if name in results}, separators=(",", ":"))

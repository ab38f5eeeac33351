"""As much of PromQL as is needed to know which series a query asks for."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

_GROUPING = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)")
_RANGE = re.compile(r"\[[^\]]*\]")
_SELECTOR = re.compile(r"(?<![\w:.])([a-zA-Z_:][\w:]*)\s*(?:\{([^}]*)\})?(\s*\()?")
_MATCHER = re.compile(r'\s*(\w+)\s*(=~|!~|!=|=)\s*"((?:[^"\\]|\\.)*)"\s*(?:,|$)')
_WORDS = frozenset({"and", "or", "unless", "bool", "offset", "inf", "nan"})


@dataclass(frozen=True)
class Selector:
    """`name{label="value"}`: the series that have this name, and labels of these values."""

    name: str
    matchers: tuple[tuple[str, str, str], ...]
    "Label, operator, value."

    def accepts(self, labels: dict[str, str]) -> bool:
        return all(_accepts(op, labels.get(label, ""), value) for label, op, value in self.matchers)


def _accepts(op: str, actual: str, value: str) -> bool:
    matches = re.fullmatch(value, actual) is not None if "~" in op else actual == value
    return matches != op.startswith("!")


def selectors(query: str) -> Iterator[Selector]:
    """Give the selectors of a query, functions and operators left out."""
    for match in _SELECTOR.finditer(_RANGE.sub("", _GROUPING.sub("", query))):
        name, matchers, call = match.groups()
        if call is None and name.lower() not in _WORDS:
            yield Selector(name, tuple(_matchers(matchers or "")))


def groupings(query: str) -> set[str]:
    """Return the labels that a query groups or joins by."""
    found = (labels.split(",") for labels in _GROUPING.findall(query))
    return {label.strip() for labels in found for label in labels if label.strip()}


def _matchers(text: str) -> Iterator[tuple[str, str, str]]:
    at = 0
    while at < len(text):
        match = _MATCHER.match(text, at)
        if match is None:
            raise ValueError(f"no matcher at {text[at:]!r}")
        label, op, value = match.groups()
        yield label, op, value
        at = match.end()

"""How long to wait before something that died is started again. Sans-I/O."""


class Backoff:
    """Pauses that double from `first_s` to `longest_s`, and begin anew after a life of `steady_s`."""

    def __init__(self, first_s: float, longest_s: float, steady_s: float) -> None:
        self._first_s = first_s
        self._longest_s = longest_s
        self._steady_s = steady_s
        self._next_s = first_s

    def pause(self, lived_s: float) -> float:
        """Return the seconds to wait after a life of `lived_s`."""
        if lived_s >= self._steady_s:
            self._next_s = self._first_s
        pause_s = self._next_s
        self._next_s = min(self._longest_s, 2 * self._next_s)
        return pause_s

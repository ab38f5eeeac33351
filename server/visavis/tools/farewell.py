"""When a call ends that the model wants to end: once its goodbye has been heard. Sans-I/O."""

from enum import Enum, auto

from .. import events as ev


class _State(Enum):
    IDLE = auto()
    ASKED = auto()
    "The model has asked for the end, and is about to say goodbye."
    SAYING = auto()
    "It is being said, or heard."


class Farewell:
    """Follows what clients are told. Who says something else before the end of the goodbye keeps the call."""

    def __init__(self) -> None:
        self._state = _State.IDLE
        self._response_id = 0

    def ask(self) -> None:
        """The call shall end after the next answer."""
        self._state = _State.ASKED

    def receive(self, event: ev.ServerEvent) -> bool:
        """Take the next event; tell whether the goodbye is over, and the call with it."""
        match event:
            case ev.TurnCommitted() | ev.PlayoutCleared():
                self._state = _State.IDLE
            case ev.ResponseCreated(response_id) if self._state is _State.ASKED:
                self._state, self._response_id = _State.SAYING, response_id
            case ev.ResponseDone(response_id, calls=calls) if self._is_it(response_id) and calls:
                self._state = _State.ASKED
            case ev.TurnTimings(response_id, final=True) if self._is_it(response_id):
                self._state = _State.IDLE
                return True
            case _:
                pass
        return False

    def _is_it(self, response_id: int) -> bool:
        return self._state is _State.SAYING and response_id == self._response_id

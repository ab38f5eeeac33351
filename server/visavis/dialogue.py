"""From the parts of a talk, in order, to the messages that an engine is sent. Sans-I/O."""

from dataclasses import replace

from .engine import CallPart, Message, Part, ResultPart, TextPart


class Dialogue:
    """Takes a talk from its beginning.

    A call never goes without a result, nor a result without its call: the assistant's message with the calls
    of one response is followed by a message of role `tool` for each. So chat templates and OpenAI's interface
    have it, which refuses anything else.
    """

    def __init__(self, instructions: str) -> None:
        self._messages = [Message("system", (TextPart(instructions),))] if instructions else []
        self._calls: list[CallPart] = []
        self._results: list[ResultPart] = []
        self._response_id = 0
        "Which response made the calls gathered."

    def add(self, message: Message) -> None:
        """Add what somebody said; neighbours of one role become one message."""
        self._flush()
        self._join(message)

    def begin_call(self, response_id: int) -> None:
        """A call was made here, knowing the results so far unless it is of the same response; 0: unknown."""
        if response_id == 0 or response_id != self._response_id:
            self._flush()

    def add_call(self, call: CallPart, output: str, response_id: int) -> None:
        """Add a call and what it gave."""
        self._calls.append(call)
        self._results.append(ResultPart(call.call_id, output))
        self._response_id = response_id

    def messages(self) -> tuple[Message, ...]:
        """Return all of it."""
        self._flush()
        return tuple(self._messages)

    def _flush(self) -> None:
        if self._calls:
            self._join(Message("assistant", tuple(self._calls)))
            self._messages += (Message("tool", (result,)) for result in self._results)
            self._calls, self._results = [], []

    def _join(self, message: Message) -> None:
        last = self._messages[-1] if self._messages else None
        if last is not None and last.role == message.role:
            parts: tuple[Part, ...] = last.parts + message.parts
            self._messages[-1] = replace(last, parts=parts)
        else:
            self._messages.append(message)

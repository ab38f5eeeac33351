"""Functions that the assistant calls: whose they are, what they gave, when that is to be answered. Sans-I/O.

The client's are its own business: it sends the result and asks for a response. Those of the server are run
by whoever drives the conversation, and once they are done the next response is asked for by itself.
"""

import logging
from dataclasses import dataclass

from . import events as ev
from .actions import Mark, RunTool
from .config import AUTO, FunctionsConfig, SessionConfig, Tool, ToolChoice
from .history import CallContent, History, Item
from .outbox import Outbox
from .response import Response

logger = logging.getLogger(__name__)

MAX_CALLS = 16
"Of one response: each is told, kept and run at once, and a model that repeats itself knows no end."

_NONE = ToolChoice("none")


@dataclass(frozen=True, slots=True)
class FollowUp:
    """The response that results ask for."""

    create: ev.CreateResponse
    "As the one was asked for that made the calls."
    rounds: int
    "How many there were before it in a row, each of which called something."


@dataclass(frozen=True, slots=True)
class _Running:
    """A call of the server's own whose result is awaited."""

    item_id: str
    response_id: int
    output_index: int
    follow_up: FollowUp
    beside: tuple[str, ...]
    "Calls that the client has to answer, of the same response."


class Functions:
    """`own` are the server's, offered besides the client's: one of a name that the client has too is not."""

    def __init__(
        self, config: FunctionsConfig, own: tuple[Tool, ...], history: History, outbox: Outbox
    ) -> None:
        self.due: FollowUp | None = None
        "What is to be asked for when nobody speaks; any other request that comes first has the results too."
        self._max_rounds = config.max_rounds
        self._own = own
        self._history = history
        self._outbox = outbox
        self._running: dict[str, _Running] = {}

    @property
    def running(self) -> bool:
        """Whether a function of the server's is being run."""
        return bool(self._running)

    def offered(self, client: tuple[Tool, ...], *, outside: bool = False) -> tuple[Tool, ...]:
        """Return what the engine may call. What is `outside` of the conversation gets no result in it."""
        if outside:
            return client
        names = {tool.name for tool in client}
        return client + tuple(tool for tool in self._own if tool.name not in names)

    def choice(self, create: ev.CreateResponse, session: SessionConfig, rounds: int) -> ToolChoice:
        """Return whether it must: a demand is met by one round, and the last round calls nothing."""
        choice = session.tool_choice if create.tool_choice is None else create.tool_choice
        client = session.tools if create.tools is None else create.tools
        offered = self.offered(client, outside=create.outside)
        if not offered:
            return AUTO
        if rounds >= self._max_rounds:
            return _NONE
        if choice.mode == "function" and choice.name not in {tool.name for tool in offered}:
            return AUTO
        return AUTO if rounds and choice.mode in ("required", "function") else choice

    def begin(self, response: Response, now: float) -> tuple[Item, ...]:
        """Make items of what a response has called, and tell of them."""
        reply_id = response.item_id
        first = 0 if reply_id is None else 1
        previous_id = reply_id if reply_id is not None and self._history.get(reply_id) is not None else None
        items = []
        for index, made in enumerate(response.calls, first):
            own = not response.outside and made.name not in response.client_tools
            call = CallContent(self._history.new_call_id(made.call_id), made.name, made.arguments, own)
            item_id = self._history.new_item_id()
            previous = response.book.append_call(item_id, call, previous_id, response.id)
            item = response.book.item(item_id)
            self._outbox.notify(ev.CallBegan(response.id, item, previous, index))
            if not own:
                self._outbox.notify(
                    ev.CallArguments(response.id, item_id, index, call.call_id, call.arguments)
                )
            self._outbox.notify(ev.CallEnded(response.id, item, previous, index))
            self._outbox.put(Mark("called", response.id, now))
            items.append(item)
            previous_id = item_id
        return tuple(items)

    def run(self, response: Response, items: tuple[Item, ...]) -> None:
        """Have the server's own run, of what `begin` has made."""
        first = 0 if response.item_id is None else 1
        follow_up = FollowUp(response.create, response.rounds + 1)
        calls = [(index, item, item.call) for index, item in enumerate(items, first) if item.call is not None]
        beside = tuple(call.call_id for _, _, call in calls if not call.own)
        own = [(index, item, call) for index, item, call in calls if call.own]
        for index, item, call in own:
            self._running[call.call_id] = _Running(item.id, response.id, index, follow_up, beside)
        known = {tool.name for tool in self._own}
        for _, _, call in own:
            if call.name in known:
                self._outbox.put(RunTool(response.id, call.call_id, call.name, call.arguments))
            else:
                self.receive_result(call.call_id, f"There is no function {call.name!r}.")

    def receive_result(self, call_id: str, output: str) -> bool:
        """Take what a function of the server's gave; False if the call is none that is running."""
        running = self._running.pop(call_id, None)
        if running is None:
            return False
        if self._history.get(running.item_id) is not None:
            previous = self._history.answer(running.item_id, output)
            item = self._history.item(running.item_id)
            self._outbox.notify(ev.CallAnswered(running.response_id, item, previous, running.output_index))
        waits = any(other.response_id == running.response_id for other in self._running.values())
        if not waits and all(map(self._is_settled, running.beside)):
            self.due = running.follow_up
        return True

    def _is_settled(self, call_id: str) -> bool:
        """Tell whether the client need not answer a call any more, and ask for a response then."""
        return self._history.has_result(call_id) or self._history.find_call(call_id) is None

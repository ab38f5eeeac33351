"""The server's functions in one call: what runs them, and what they may do with it."""

import asyncio
import logging
from typing import Protocol

from .. import events as ev
from ..actions import RunTool
from ..engine import ToolCall
from ..errors import ClientEventError
from .farewell import Farewell
from .toolbox import Toolbox

logger = logging.getLogger(__name__)

LOOK_FPS = 5.0
"Pictures a second that are asked for while one is waited for: the next one is soon there."
LOOK_S = 3.0
"After which there is no picture: a sender that was told to send few may take a second or two."

_SEEN = "(This is what you see now.)"
"Beside the picture; words that make the embedded engine look at it."


class Host(Protocol):
    """`session.Session`, as far as functions have to do with it."""

    @property
    def call_id(self) -> str: ...

    def obey(self, event: ev.ClientEvent) -> None:
        """Do as if the client had asked for it. Raises ClientEventError."""
        ...

    def want_video(self, fps: float | None) -> None:
        """Ask the caller for so many pictures a second; None: for as many as the conversation wants."""
        ...

    def hang_up(self, reason: str) -> None: ...


class CallTools:
    """Owns what runs."""

    def __init__(self, toolbox: Toolbox, host: Host) -> None:
        self._toolbox = toolbox
        self._host = host
        self._running: set[asyncio.Task[None]] = set()
        self._farewell = Farewell()
        self._looking: set[asyncio.Future[None]] = set()
        "Who waits for the next picture."

    @property
    def call_id(self) -> str:
        return self._host.call_id

    @property
    def wants_frame(self) -> bool:
        """Whether the next picture is waited for."""
        return bool(self._looking)

    def start(self, action: RunTool, tasks: asyncio.TaskGroup) -> None:
        """Run one function; its result, or why there is none, goes to the conversation."""
        task = tasks.create_task(self._run(action))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    def cancel(self) -> None:
        """The call is over."""
        for task in self._running:
            task.cancel()

    def note_frame(self) -> None:
        """The conversation has been given a picture."""
        for waiting in self._looking:
            if not waiting.done():
                waiting.set_result(None)

    def receive_event(self, event: ev.ServerEvent) -> None:
        """Take what the client is told."""
        if self._farewell.receive(event):
            self._host.hang_up("the assistant ended the call")

    async def look(self) -> bool:
        """Wait for a fresh picture; False if none comes."""
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._looking.add(waiting)
        self._host.want_video(LOOK_FPS)
        try:
            async with asyncio.timeout(LOOK_S):
                await waiting
        except TimeoutError:
            return False
        finally:
            self._looking.discard(waiting)
            if not self._looking:
                self._host.want_video(None)
        return True

    def end_when_heard(self) -> None:
        self._farewell.ask()

    async def _run(self, action: RunTool) -> None:
        call, run = ToolCall(action.call_id, action.name, action.arguments), _Run(self)
        output = await self._toolbox.run(call, self.call_id, run)
        try:
            self._host.obey(ev.CreateResult(action.call_id, output, seen=_SEEN if run.seen else ""))
        except ClientEventError as error:
            logger.warning("%s: the result of %s is of no use: %s", self.call_id, action.name, error)


class _Run:
    """The `Context` of one function that is run."""

    def __init__(self, tools: CallTools) -> None:
        self.seen = False
        "A picture goes with the result."
        self._tools = tools

    @property
    def call_id(self) -> str:
        return self._tools.call_id

    async def look(self) -> bool:
        self.seen = await self._tools.look()
        return self.seen

    def end_when_heard(self) -> None:
        self._tools.end_when_heard()

"""The functions that Visavis brings along: `look` at the caller anew, and `end_call`."""

from collections.abc import Sequence

from ..config import Tool
from ..errors import ToolError
from . import Arguments, Context

_NOTHING = '{"type": "object", "properties": {}, "additionalProperties": false}'

LOOK = Tool(
    "look",
    "Takes a fresh picture with the user's camera, or of the screen that they share, when what is shown now "
    "must be seen or read.",
    _NOTHING,
)
END_CALL = Tool("end_call", "Ends the call, when the user says goodbye or asks to hang up.", _NOTHING)


class BuiltIn:
    """The source of both."""

    tools: Sequence[Tool] = (LOOK, END_CALL)

    def timeout_s(self, name: str) -> float | None:
        return None

    async def run(self, name: str, arguments: Arguments, context: Context) -> str:
        """Raises ToolError if there is nothing to see."""
        if name == END_CALL.name:
            context.end_when_heard()
            return "The call ends when you have said goodbye: do that now, in one short sentence."
        if not await context.look():
            raise ToolError("There is no picture: the camera is off.")
        return "The picture follows. Answer with what it shows."

"""An engine that tells what it was sent, so that a client's test can see that it came."""

from collections.abc import AsyncGenerator

from visavis.audio import RATE
from visavis.engine import (
    AudioDelta,
    AudioPart,
    Delta,
    Done,
    FramesPart,
    Request,
    ResultPart,
    TextDelta,
    ToolCall,
    TranscriptDelta,
)
from visavis.engine.scripted import tone


class Talker:
    """Tells at length what it was sent; of the weather it asks the client first."""

    def __init__(self) -> None:
        self.requests: list[Request] = []

    async def respond(self, request: Request) -> AsyncGenerator[Delta, None]:
        self.requests.append(request)
        last = request.messages[-1]
        results = [part.output for part in last.parts if isinstance(part, ResultPart)]
        sound = sum(len(part.pcm) for part in last.parts if isinstance(part, AudioPart)) / RATE
        frames = sum(len(part.frames) for part in last.parts if isinstance(part, FramesPart))
        if sound:
            yield TranscriptDelta("a long tone")
        if "weather" in last.text and request.tools:
            yield ToolCall("call_1", "weather", '{"place": "Rome"}')
            yield Done()
            return
        kind = "heard" if sound else "read"
        about = " ".join(results) or last.text or "a tone"
        yield TextDelta(f"I {kind} it, and saw {frames} pictures. It was about {about}.")
        if request.speak:
            yield AudioDelta(tone(10.0))
        yield Done()

    async def ready(self) -> bool:
        return True

    async def aclose(self) -> None: ...

"""What the assistant does of itself, over real WebRTC."""

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
from kit import Caller, running_server, until
from replay import replay

from visavis.audio import BLOCK, RATE, Pcm, level_dbfs
from visavis.config import Config, ConversationConfig, IdleConfig, TraceConfig
from visavis.engine.scripted import Reply, ScriptedEngine
from visavis.lines import Line, Lines
from visavis.session import Session

pytestmark = [pytest.mark.loopback, pytest.mark.usefixtures("nothing_left")]


def loud(pcm: Pcm) -> float:
    """Seconds of audible sound."""
    blocks = np.split(pcm[: len(pcm) // BLOCK * BLOCK], len(pcm) // BLOCK)
    return sum(level_dbfs(block) > -50 for block in blocks) * BLOCK / RATE


@pytest.fixture
def greeting(say: Callable[..., Pcm]) -> Line:
    return Line("Hello, how can I help you?", say("Hello, how can I help you?"))


async def test_a_caller_is_greeted_and_an_idle_call_ends(http, greeting, tmp_path):
    idle = ConversationConfig(idle=IdleConfig(end_s=6.0, warn_s=2.0))
    config = Config(conversation=idle, trace=TraceConfig(tmp_path))
    opening: type[Session] = partial(Session, lines=Lines(greeting=greeting))  # type: ignore[assignment]
    async with running_server(config, ScriptedEngine([Reply()]), opening) as server:
        async with Caller(server.url, http) as caller:
            ear = caller.ear
            await until(lambda: ear.kinds()["output_audio_buffer.stopped"] == 1, "the greeting's end")
            assert ear.events[0]["type"] == "session.created"
            (said,) = [e for e in ear.events if e["type"] == "response.output_audio_transcript.done"]
            assert said["transcript"] == greeting.text
            assert loud(np.concatenate(ear.heard)) == pytest.approx(loud(greeting.pcm), abs=0.25)
            await until(lambda: ear.closed_with is not None, "the server hangs up")
            told = [e["seconds"] for e in ear.events if e["type"] == "visavis.call_ending"]
            assert told == [2, 0]
        await until(lambda: len(server.calls) == 0, "the call is gone")
    (record,) = tmp_path.glob("*.jsonl")
    assert "HangUp" in record.read_text()
    assert replay(record) is None

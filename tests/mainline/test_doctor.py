"""`visavis doctor --engine` against a real vLLM, which has no Talker."""

import pytest

from mainline.server import CONTEXT, MODEL
from visavis.config import Config, EngineConfig
from visavis.doctor import examine_engine

pytestmark = pytest.mark.slow


async def test_plain_vllm_is_well_and_the_embedded_voice_will_speak(
    server: str, capsys: pytest.CaptureFixture[str]
) -> None:
    engine = EngineConfig(name="vllm", url=server, model=MODEL, context_tokens=CONTEXT, max_tokens=16)
    status = await examine_engine(Config(engine=engine))
    said = capsys.readouterr().out
    assert status == 0, said
    assert f"{MODEL}, context of {CONTEXT} tokens" in said
    assert "the embedded voice will speak" in said
    assert "taken as auto" in said
    assert "answering 0" in said

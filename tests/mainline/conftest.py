"""One vLLM for all tests here. Without `make test-vllm`, which installs it, nothing here is collected."""

import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mainline.server import CONTEXT, MODEL, build_checkpoint, serving
from visavis.config import EngineConfig
from visavis.engine.vllm import VllmEngine

_ENVIRONMENT = os.environ.get("VISAVIS_VLLM")
collect_ignore_glob = [] if _ENVIRONMENT else ["test_*.py"]

Connect = Callable[..., VllmEngine]


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a vLLM that answers everything with one sentence, over and over until `max_tokens`."""
    assert _ENVIRONMENT is not None
    environment, folder = Path(_ENVIRONMENT).absolute(), tmp_path_factory.mktemp("mainline")
    checkpoint = build_checkpoint(environment, folder / "tiny", "--answers", "--endless")
    with serving(environment, checkpoint, folder / "vllm.log") as vllm:
        yield vllm.url


@pytest.fixture
async def connect(server: str) -> AsyncIterator[Connect]:
    """Make clients of the server: `connect()`, with other settings than the product's if need be."""
    async with AsyncExitStack() as stack:

        def connect(**settings: Any) -> VllmEngine:
            config = replace(
                EngineConfig(), name="vllm", url=server, model=MODEL, context_tokens=CONTEXT, temperature=0.0
            )
            engine = VllmEngine(replace(config, **settings))
            stack.push_async_callback(engine.aclose)
            return engine

        yield connect

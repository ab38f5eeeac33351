"""What is described, asked of a real server in every way that a description allows, and in others."""

import asyncio
import os
import re
import sys
from pathlib import Path

import aiohttp
import pytest
from kit import Caller, until

from visavis.config import Config, KioskConfig, RtcConfig, ServerConfig
from visavis.engine.scripted import ScriptedEngine

pytestmark = [pytest.mark.loopback, pytest.mark.slow, pytest.mark.usefixtures("nothing_left")]

KEY = "key-of-a-friend"
CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "unsupported_method",
    "ignored_auth",
)


async def test_the_server_is_as_it_is_described(serve, http: aiohttp.ClientSession, tmp_path: Path) -> None:
    config = Config(
        server=ServerConfig(keys=(KEY,), max_requests_per_s=100_000.0, max_calls=500),
        rtc=RtcConfig(udp_hosts=("127.0.0.1",), connect_s=1.0),
        kiosk=KioskConfig(enabled=True, folder=tmp_path),
    )
    server = await serve(ScriptedEngine(), config)
    async with Caller(server.url, http, key=KEY) as caller:
        told = await ask(server.url, caller.call_id, tmp_path)
        cases = re.search(r"(\d+) generated", told)
        assert cases is not None, told[-2_000:]
        assert int(cases[1]) > 500
        # The call that took all this goes on.
        caller.send({"type": "response.create"})
        await until(lambda: caller.ear.kinds()["response.done"] == 1, "an answer")


async def ask(url: str, call_id: str, folder: Path) -> str:
    """Have schemathesis ask whatever is described; what is for a call goes to the one of that id."""
    process = await asyncio.create_subprocess_exec(
        *(str(Path(sys.executable).with_name("st")), "--no-color", "run", f"{url}/openapi.json"),
        *("--header", f"Authorization: Bearer {KEY}", "--checks", ",".join(CHECKS)),
        # A few of each: what matters is that every operation is tried in every way.
        *("--seed", "1", "--max-examples", "10", "--phases", "examples,coverage,fuzzing"),
        cwd=folder,
        env={
            **os.environ,
            "PYTHONPATH": str(Path(__file__).parent),
            "SCHEMATHESIS_HOOKS": "openapi_hooks",
            "VISAVIS_TEST_CALL": call_id,
        },
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    told = output.decode()
    assert process.returncode == 0, told[-8_000:]
    return told

"""Text to text: a GGUF model inside this process, or any OpenAI-compatible server."""

import asyncio
import json
import logging
import secrets
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import aiohttp

from ..errors import EngineBusy, EngineLost, EngineRefused, ModelError
from .prompt import Messages
from .snapshot import Snapshots, name_of
from .stage import Stage

logger = logging.getLogger(__name__)

CONTEXT = 4_096
"Tokens of prompt and reply together."

_BATCH = 32
"Tokens of one step of prefill, some 0.4 s: a cancelled request is noticed between steps."
_PROMPT_CACHE_MIB = 512
"Prompts of other calls kept in memory: 28 KiB a token of the 1.5B model."
_TEMPERATURE = 0.3
_TOP_P = 0.9
_REPEAT_PENALTY = 1.05
_STOP = ("\n",)
"A second line is a list or an essay, which nobody wants read out."
_CONNECT_S = 5.0
_SILENCE_S = 30.0


@dataclass(frozen=True, slots=True)
class Counts:
    """Ends a reply."""

    input_tokens: int = 0
    output_tokens: int = 0
    reason: Literal["stop", "length"] = "stop"


class LanguageModel(Protocol):
    def reply(
        self,
        messages: Messages,
        *,
        caller: str,
        max_tokens: int,
        temperature: float | None,
        grammar: str = "",
    ) -> AsyncGenerator[str | Counts, None]:
        """Stream the reply, `Counts` last. Closing the generator stops the work.

        `grammar` is what it is held to, in llguidance's Lark, where that can be done.

        Raises EngineRefused, EngineBusy or EngineLost.
        """
        ...

    async def warm(self, messages: Messages) -> None:
        """Get ready for prompts that begin with these."""
        ...

    async def read_ahead(self, messages: Messages, caller: str) -> None:
        """Take a prompt into the prefix cache, if there is one here. Cancelling stops it."""
        ...

    async def aclose(self) -> None: ...


class EmbeddedModel:
    """llama.cpp through xllamacpp. One reply is made at a time, by callers in turn."""

    def __init__(self, model: Path, socket_dir: Path, state_dir: Path, *, threads: int, stage: Stage) -> None:
        """Load; takes seconds. Raises ModelError when the file is no usable model.

        `socket_dir` must be private (0700) and empty: xllamacpp always opens an HTTP server, which
        otherwise is a loopback port, open to each web page on the machine. A Unix socket and a random key
        close it. `state_dir` keeps what was read of the fixed prompt from start to start. `stage` is
        where replies are made, and is closed with this.
        """
        import xllamacpp  # kept out of the parent process, which shares this package

        parameters = xllamacpp.CommonParams()
        parameters.model.path = str(model)
        # Weights in memory of its own, which has large pages (`supervisor.environment`), not in the file's:
        # of those that llama.cpp rearranges for this processor, the file's would stay in memory as well.
        parameters.load_mode = xllamacpp.llama_load_mode.LLAMA_LOAD_MODE_NONE
        parameters.n_ctx = CONTEXT
        parameters.n_parallel = 1
        parameters.n_batch = parameters.n_ubatch = _BATCH
        parameters.cache_ram_mib = _PROMPT_CACHE_MIB
        # By default another call's prompt is kept only where it differs by more than half, which calls that
        # begin alike never do: each would read its history anew whenever another had spoken in between.
        parameters.slot_prompt_similarity = 0.0
        parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = threads
        socket, key = socket_dir / "llama.sock", secrets.token_urlsafe(32)
        parameters.hostnames = [str(socket)]  # the ending makes it a Unix socket
        parameters.api_keys = [key]
        parameters.cors_origins = "null"
        parameters.ui = False
        parameters.endpoint_slots = True
        parameters.slot_save_path = f"{state_dir}/"
        parameters.n_threads_http = 1
        parameters.verbosity = 0
        self._model = model
        self._version = str(xllamacpp.__version__)
        self._snapshots = Snapshots(state_dir, socket, key)
        try:
            state_dir.mkdir(parents=True, exist_ok=True)
            self._server: Any = xllamacpp.Server(parameters)  # untyped extension module
        except (RuntimeError, ValueError, OSError) as error:
            raise ModelError(f"cannot load the language model {model}: {error}") from error
        address = str(self._server.listening_address)
        if not address.startswith("unix:"):
            raise ModelError(f"this xllamacpp opens a port at {address}, which is not safe; install another")
        self._stage = stage

    async def reply(
        self,
        messages: Messages,
        *,
        caller: str,
        max_tokens: int,
        temperature: float | None,
        grammar: str = "",
    ) -> AsyncGenerator[str | Counts, None]:
        body = _body(messages, max_tokens, temperature) | {
            "cache_prompt": True,
            "repeat_penalty": _REPEAT_PENALTY,
            "return_progress": True,  # a chunk after each step of prefill, whose answer may be "stop"
        }
        if grammar:
            body["grammar"] = grammar

        def work(emit: Callable[[str | Counts | None], bool]) -> None:
            reader = _Reader()
            failure: list[str] = []

            def receive(chunks: Any) -> bool:
                stopped = emit(None)
                for chunk in chunks if isinstance(chunks, list) else [chunks]:
                    if isinstance(chunk, dict) and "error" in chunk:
                        failure.append(str(chunk["error"].get("message", chunk["error"])))
                        return True
                    for piece in reader.receive(chunk):
                        stopped = emit(piece)
                return stopped

            if emit(None):
                return
            try:
                self._server.handle_chat_completions(body, receive)
            except (RuntimeError, ValueError) as error:
                raise EngineLost(f"the language model failed: {error}") from error
            if failure:
                raise EngineRefused(f"the language model refused: {failure[0]}")
            emit(reader.counts())

        async with aclosing(self._stage.stream(caller, work)) as pieces:
            async for piece in pieces:
                if piece is not None:
                    yield piece

    async def warm(self, messages: Messages) -> None:
        name = await asyncio.to_thread(name_of, self._model, self._version, CONTEXT, messages)
        if not await self._snapshots.restore(name):
            await self.read_ahead(messages, "")
            await self._snapshots.save(name)

    async def read_ahead(self, messages: Messages, caller: str) -> None:
        async with aclosing(self.reply(messages, caller=caller, max_tokens=1, temperature=None)) as pieces:
            async for _ in pieces:
                pass

    async def aclose(self) -> None:
        await self._stage.aclose()


class RemoteModel:
    """Any server of OpenAI's chat completions."""

    def __init__(self, url: str, model: str | None, api_key: str | None) -> None:
        self._url = url.rstrip("/")
        if not self._url.endswith("/v1"):
            self._url += "/v1"
        self._model = model
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._session: aiohttp.ClientSession | None = None

    async def reply(
        self,
        messages: Messages,
        *,
        caller: str,
        max_tokens: int,
        temperature: float | None,
        grammar: str = "",
    ) -> AsyncGenerator[str | Counts, None]:
        body = _body(messages, max_tokens, temperature) | {"model": self._model or "default"}
        if self._session is None:
            timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S, sock_read=_SILENCE_S)
            self._session = aiohttp.ClientSession(headers=self._headers, timeout=timeout)
        reader = _Reader()
        try:
            async with self._session.post(f"{self._url}/chat/completions", json=body) as response:
                if response.status != 200:
                    raise _refusal(response.status, (await response.text())[:300])
                async for line in response.content:
                    data = line.strip().removeprefix(b"data:").strip()
                    if not line.startswith(b"data:") or data == b"[DONE]":
                        continue
                    chunk = json.loads(data)
                    if chunk.get("error"):
                        raise EngineLost(f"the language model failed: {chunk['error']}")
                    for piece in reader.receive(chunk):
                        yield piece
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            raise EngineLost(f"the language model at {self._url} cannot be used: {error}") from error
        yield reader.counts()

    async def warm(self, messages: Messages) -> None:
        """Do nothing: the server is warm or it is not."""

    async def read_ahead(self, messages: Messages, caller: str) -> None:
        """Do nothing: the cache is the server's own, and its time may cost money."""

    async def aclose(self) -> None:
        if self._session is not None:
            await self._session.close()


class _Reader:
    """Reads the chunks of one streamed completion."""

    def __init__(self) -> None:
        self._input = self._output = 0
        self._reason: Literal["stop", "length"] = "stop"

    def receive(self, chunk: dict[str, Any]) -> Iterator[str]:
        usage = chunk.get("usage")
        if isinstance(usage, dict):
            self._input = int(usage.get("prompt_tokens") or 0)
            self._output = int(usage.get("completion_tokens") or 0)
        for choice in chunk.get("choices") or ():
            if choice.get("finish_reason") == "length":
                self._reason = "length"
            if text := (choice.get("delta") or {}).get("content"):
                yield str(text)

    def counts(self) -> Counts:
        return Counts(self._input, self._output, self._reason)


def _body(messages: Messages, max_tokens: int, temperature: float | None) -> dict[str, Any]:
    return {
        "messages": messages,
        "max_tokens": max_tokens,
        "stop": list(_STOP),
        "temperature": _TEMPERATURE if temperature is None else temperature,
        "top_p": _TOP_P,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def _refusal(status: int, detail: str) -> EngineRefused | EngineBusy | EngineLost:
    message = f"the language model answered {status}: {detail}"
    if status in (429, 503):
        return EngineBusy(message)
    return EngineRefused(message) if status < 500 else EngineLost(message)

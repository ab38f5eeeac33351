"""A headless Chromium driven over its DevTools protocol: just what the tests of the call page need.

Protocol: https://chromedevtools.github.io/devtools-protocol/
"""

import asyncio
import base64
import contextlib
import itertools
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

import aiohttp

START_S = 30.0
COMMAND_S = 20.0
REMOVE_S = 5.0

FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    "--no-first-run",
    "--no-default-browser-check",
    "--mute-audio",
    "--force-color-profile=srgb",
    "--remote-debugging-port=0",
)

INVENTED_DEVICES = ("--use-fake-ui-for-media-stream", "--use-fake-device-for-media-stream")
"A microphone that beeps and a camera that shows a clock, both allowed without asking."


class ScriptError(Exception):
    """A script evaluated in the page has thrown."""


class Page:
    """One tab, or the browser as a whole.

    `errors` collects uncaught exceptions, what the console reports as errors and broken policies. Refused
    requests are not among them: they are part of many a test.
    """

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.errors: list[str] = []
        self._socket = socket
        self._ids = itertools.count(1)
        self._pending: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._loaded = asyncio.Event()

    async def command(self, method: str, **params: Any) -> Any:
        ident = next(self._ids)
        reply = self._pending[ident] = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": ident, "method": method, "params": params})
        async with asyncio.timeout(COMMAND_S):
            return await reply

    async def read(self) -> None:
        """Take in replies and events until the tab closes."""
        try:
            async for message in self._socket:
                self._receive(json.loads(message.data))
        finally:
            for reply in self._pending.values():
                if not reply.done():
                    reply.set_exception(ConnectionError("the browser is gone"))

    def _receive(self, message: dict[str, Any]) -> None:
        params = message.get("params", {})
        match message.get("method"):
            case None:
                reply = self._pending.pop(message["id"])
                if reply.done():
                    pass
                elif "error" in message:
                    reply.set_exception(ScriptError(message["error"]["message"]))
                else:
                    reply.set_result(message["result"])
            case "Runtime.exceptionThrown":
                details = params["exceptionDetails"]
                self.errors.append(details.get("exception", {}).get("description") or details["text"])
            case "Log.entryAdded":
                entry = params["entry"]
                if entry["level"] == "error" and entry["source"] != "network":
                    self.errors.append(f"{entry['text']} {entry.get('url', '')}")
            case "Runtime.consoleAPICalled" if params["type"] == "error":
                self.errors.append(" ".join(str(arg.get("value", "")) for arg in params["args"]))
            case "Page.loadEventFired":
                self._loaded.set()

    async def go(self, url: str) -> None:
        self._loaded.clear()
        await self.command("Page.navigate", url=url)
        async with asyncio.timeout(COMMAND_S):
            await self._loaded.wait()

    async def script_first(self, source: str) -> None:
        """Run a script before those of every page that is loaded from now on."""
        await self.command("Page.addScriptToEvaluateOnNewDocument", source=source)

    async def evaluate(self, expression: str) -> Any:
        """Value of a JavaScript expression, awaited if it is a promise; must be representable as JSON."""
        result = await self.command(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True, userGesture=True
        )
        if details := result.get("exceptionDetails"):
            raise ScriptError(details.get("exception", {}).get("description") or details["text"])
        return result["result"].get("value")

    async def wait_for(self, expression: str, timeout_s: float = 15.0) -> Any:
        """Wait until a JavaScript expression is true; its value, or True for an element."""
        deadline = asyncio.get_running_loop().time() + timeout_s
        script = f"(value => value instanceof Node || value)({expression})"
        while not (value := await self.evaluate(script)):
            if asyncio.get_running_loop().time() > deadline:
                state = await self.evaluate("JSON.stringify(window.visavis ?? null)")
                raise TimeoutError(f"never true: {expression}\nlast state: {state}\nerrors: {self.errors}")
            await asyncio.sleep(0.03)
        return value

    async def click(self, selector: str) -> None:
        """Click in the middle of the first element of that selector, as a mouse does."""
        x, y = await self.wait_for(
            f"""(() => {{
              const element = document.querySelector({json.dumps(selector)});
              if (!element || element.disabled) return null;
              element.scrollIntoView({{block: "nearest"}});
              const box = element.getBoundingClientRect();
              return box.width ? [box.x + box.width / 2, box.y + box.height / 2] : null;
            }})()"""
        )
        for kind in ("mousePressed", "mouseReleased"):
            await self.command("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    async def press(self, key: str, code: str = "", text: str = "") -> None:
        named = {"Tab": 9, "Enter": 13, "Escape": 27, " ": 32}
        text = text or (key if len(key) == 1 else {"Enter": "\r"}.get(key, ""))
        number = named.get(key, ord(key[0].upper()))
        common = {"key": key, "code": code or key, "windowsVirtualKeyCode": number}
        await self.command("Input.dispatchKeyEvent", type="keyDown", text=text, **common)
        await self.command("Input.dispatchKeyEvent", type="keyUp", **common)

    async def type(self, text: str) -> None:
        await self.command("Input.insertText", text=text)

    async def look(self, width: int, height: int, *, dark: bool = False, still: bool = False) -> None:
        """Take on a size, a colour scheme and, if `still`, a wish for little motion."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        await self.command("Emulation.setDeviceMetricsOverride", **size)
        features = [
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"},
            {"name": "prefers-reduced-motion", "value": "reduce" if still else "no-preference"},
        ]
        await self.command("Emulation.setEmulatedMedia", features=features)

    async def screenshot(self) -> bytes:
        """What is seen now, as PNG."""
        result = await self.command("Page.captureScreenshot", format="png")
        return base64.b64decode(result["data"])

    async def accessibility(self) -> list[dict[str, Any]]:
        """Nodes of the browser's own accessibility tree that are not ignored."""
        result = await self.command("Accessibility.getFullAXTree")
        return [node for node in result["nodes"] if not node["ignored"]]


@contextlib.contextmanager
def launched(flags: Sequence[str] = ()) -> Iterator[int]:
    """Start a browser with a fresh profile; the port of its protocol. It ends with the context."""
    executable = shutil.which("chromium")
    if executable is None:
        raise RuntimeError("no chromium (apt-get install chromium)")
    profile = Path(tempfile.mkdtemp(prefix="visavis-browser-"))
    command = [executable, *FLAGS, *flags, f"--user-data-dir={profile}", "about:blank"]
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(command, stdout=quiet, stderr=quiet, start_new_session=True)
    try:
        yield _wait_for_port(profile / "DevToolsActivePort", process)
    finally:
        # Nothing of the profile is wanted, so nobody need tidy up: its processes are a group of their own.
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        _remove(profile)


def _remove(folder: Path) -> None:
    """Remove a folder into which processes that are dying may still write."""
    deadline = time.monotonic() + REMOVE_S
    while folder.exists() and time.monotonic() < deadline:
        shutil.rmtree(folder, ignore_errors=True)


def _wait_for_port(file: Path, process: subprocess.Popen[bytes]) -> int:
    """Wait until the browser has written down which port it took."""
    deadline = time.monotonic() + START_S
    while not (file.exists() and file.read_text().strip()):
        if process.poll() is not None:
            raise RuntimeError(f"chromium ended with status {process.returncode}")
        if time.monotonic() > deadline:
            raise TimeoutError("chromium does not say its port")
        time.sleep(0.05)
    return int(file.read_text().split()[0])


@contextlib.asynccontextmanager
async def tab(port: int) -> AsyncIterator[Page]:
    """Open a tab in a browser that is running, with storage of its own; it is closed with the context."""
    async with aiohttp.ClientSession() as http:
        async with http.get(f"http://127.0.0.1:{port}/json/version") as response:
            whole = (await response.json())["webSocketDebuggerUrl"]
        async with _connected(http, whole) as browser:
            context = (await browser.command("Target.createBrowserContext"))["browserContextId"]
            target = await browser.command("Target.createTarget", url="about:blank", browserContextId=context)
            own = f"ws://127.0.0.1:{port}/devtools/page/{target['targetId']}"
            async with _connected(http, own) as page:
                for domain in ("Page", "Runtime", "Log"):
                    await page.command(f"{domain}.enable")
                yield page
            await browser.command("Target.disposeBrowserContext", browserContextId=context)


@contextlib.asynccontextmanager
async def _connected(http: aiohttp.ClientSession, url: str) -> AsyncIterator[Page]:
    async with http.ws_connect(url, max_msg_size=0) as socket:
        page = Page(socket)
        reader = asyncio.create_task(page.read())
        try:
            yield page
        finally:
            await socket.close()
            reader.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await reader


@contextlib.asynccontextmanager
async def chromium(flags: Sequence[str] = ()) -> AsyncIterator[Page]:
    """Start a browser of its own for one tab: for flags that others do not have."""
    with launched(flags) as port:
        async with tab(port) as page:
            yield page

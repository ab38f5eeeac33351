"""A server of several processes as a person starts it: real calls, and processes that die, hang and leave."""

import asyncio
import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path

import aiohttp
import pytest

from loopback.kit import Caller, until
from visavis.ids import read_call_id
from visavis.workers import SILENCE_S

pytestmark = [
    pytest.mark.slow,
    pytest.mark.loopback,
    pytest.mark.skipif(sys.platform != "linux", reason="several processes are for Linux"),
]

PATIENCE_S = 60.0
"Bounds a test that has failed."


class Service:
    """A running `visavis serve --workers 2`."""

    def __init__(self, folder: Path, **settings: str) -> None:
        """`settings` as in the environment."""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._udp_port = free_udp_ports(4)
        self._settings = folder / "visavis.toml"
        self._log = folder / "log"
        self.set()
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "visavis", "--config", str(self._settings), "serve", "--workers", "2"],
                env={**os.environ, "HOST": "127.0.0.1", "PORT": str(self.port), **settings},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        give_up = time.monotonic() + PATIENCE_S
        while not self._is_ready():
            assert self.process.poll() is None, self.log()
            assert time.monotonic() < give_up, self.log()
            time.sleep(0.05)

    def set(self, instructions: str = "Be brief.", drain_s: float = 60.0, max_calls: int = 20) -> None:
        """Write the settings."""
        self._settings.write_text(
            f'[engine]\nname = "scripted"\n[rtc]\nudp_port = {self._udp_port}\n'
            f"[server]\ndrain_s = {drain_s}\nmax_calls = {max_calls}\n"
            f'[conversation.session]\ninstructions = "{instructions}"\n'
            f'[kiosk]\nenabled = true\nfolder = "{self._settings.parent}"\n'
        )

    def log(self) -> str:
        return self._log.read_text()

    def workers(self) -> dict[int, int]:
        """Return the process ids of the workers by their numbers."""
        pids = {}
        for child in children(self.process.pid):
            arguments = command(child)
            if "visavis.worker" in arguments:
                pids[int(arguments[-1])] = child
        return pids

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(timeout=1)
            self.process.send_signal(signal.SIGINT)
            try:
                self.process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
                pytest.fail(f"the server did not end:\n{self.log()}")

    def _is_ready(self) -> bool:
        try:
            urllib.request.urlopen(f"{self.url}/readyz").close()
        except (urllib.error.URLError, ConnectionError):
            return False
        return True


def free_udp_ports(number: int) -> int:
    """Return the first of so many in a row."""
    while True:
        with ExitStack() as stack:
            sockets = [stack.enter_context(socket.socket(type=socket.SOCK_DGRAM)) for _ in range(number)]
            sockets[0].bind(("127.0.0.1", 0))
            first: int = sockets[0].getsockname()[1]
            with contextlib.suppress(OSError, OverflowError):
                for i, each in enumerate(sockets[1:], 1):
                    each.bind(("127.0.0.1", first + i))
                return first


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def command(pid: int) -> list[str]:
    """Return a process's command line, nothing of one that is gone."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/cmdline").read_text().split("\0")[:-1]
    return []


def lives(pid: int) -> bool:
    """Tell whether a process is there and no zombie."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def worker_of(caller: Caller) -> int:
    call_id = read_call_id(caller.call_id)
    assert call_id is not None
    assert call_id.worker is not None
    return call_id.worker


async def talk(caller: Caller, *, to_the_end: bool = False) -> None:
    """Ask for an answer and hear it; cut it short, or hear all of it."""
    done = caller.ear.kinds()["response.done"]
    caller.send({"type": "response.create"})
    await until(caller.ear.hears, "an answer is heard", PATIENCE_S)
    if not to_the_end:
        caller.send({"type": "response.cancel"})
    await until(lambda: caller.ear.kinds()["response.done"] > done, "its end", PATIENCE_S)
    await until(lambda: not caller.ear.hears(), "silence", PATIENCE_S)


async def end(service: Service, http: aiohttp.ClientSession, caller: Caller) -> tuple[int, str]:
    """End a call by its address; return the status and the code of a refusal."""
    async with http.delete(f"{service.url}/v1/realtime/calls/{caller.call_id}") as response:
        return response.status, "" if response.status == 200 else (await response.json())["error"]["code"]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """One server for the tests that leave it as it was."""
    service = Service(tmp_path_factory.mktemp("service"))
    yield service
    service.stop()


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Service]:
    """A server for a test that ends it."""
    service = Service(tmp_path)
    yield service
    service.stop()


async def test_a_kiosk_is_let_in_and_calls_whichever_worker_takes_it(shared: Service) -> None:
    api = f"{shared.url}/v1/kiosk"
    async with aiohttp.ClientSession() as http:
        assert (await http.get(f"{shared.url}/kiosk")).status == 200
        offer = await (await http.post(f"{api}/pairing")).json()
        assert (await http.post(f"{api}/devices", json={"code": offer["code"]})).status == 201
        device = {"Authorization": f"Bearer {offer['token']}"}
        told = await (await http.get(f"{api}/device", headers=device)).json()
        assert told["session"]["instructions"] == "Be brief."
        secret = await (await http.post(f"{api}/session", headers=device)).json()
    async with (
        aiohttp.ClientSession(headers={"Authorization": f"Bearer {secret['value']}"}) as http,
        Caller(shared.url, http) as caller,
    ):
        await talk(caller)


async def test_calls_are_spread_evenly_and_all_of_them_answered(shared: Service) -> None:
    async with aiohttp.ClientSession() as http, AsyncExitStack() as stack:
        callers = [await stack.enter_async_context(Caller(shared.url, http)) for _ in range(4)]
        assert set(Counter(worker_of(caller) for caller in callers).values()) == {2}
        await asyncio.gather(*(talk(caller) for caller in callers))
        for caller in callers:
            assert await end(shared, http, caller) == (200, "")


async def test_calls_over_websockets_are_passed_on_to_workers_and_come_back(shared: Service) -> None:
    """Each is told its token; with that a later call goes on from it, where its conversation is kept."""
    async with aiohttp.ClientSession() as http, AsyncExitStack() as stack:
        sockets = [
            await stack.enter_async_context(http.ws_connect(f"{shared.url}/v1/realtime")) for _ in range(2)
        ]
        tokens = [await answer_in_text(socket) for socket in sockets]
        places = [read_call_id(token.partition(".")[0]) for token in tokens]
        assert len({place.worker for place in places if place is not None}) == 2
        await sockets[0].close()
        url = f"{shared.url}/v1/realtime?session_token={tokens[0]}"
        back = await stack.enter_async_context(http.ws_connect(url))
        events = [json.loads(await back.receive_str()) for _ in range(3)]
        assert "visavis.resumed" in [event["type"] for event in events]


async def test_the_betas_clients_are_understood_through_the_front(shared: Service) -> None:
    url, name = f"{shared.url}/v1/realtime", "openai-beta.realtime-v1"
    async with aiohttp.ClientSession() as http:
        for asked in ({"protocols": ["realtime", name]}, {"headers": {"OpenAI-Beta": "realtime=v1"}}, {}):
            async with http.ws_connect(url, **asked) as socket:
                session = json.loads(await socket.receive_str())["session"]
                assert ("modalities" in session) is bool(asked)


async def answer_in_text(socket: aiohttp.ClientWebSocketResponse) -> str:
    """Have something answered; return the session's token."""
    content = [{"type": "input_text", "text": "Hello."}]
    item = {"type": "message", "role": "user", "content": content}
    await socket.send_json({"type": "conversation.item.create", "item": item})
    await socket.send_json({"type": "response.create", "response": {"output_modalities": ["text"]}})
    token = ""
    async for message in socket:
        event = json.loads(message.data)
        if event["type"] == "visavis.session_token":
            token = event["token"]
        if event["type"] == "response.done":
            break
    return token


@pytest.mark.parametrize("fate", [signal.SIGKILL, signal.SIGSTOP])
async def test_a_worker_that_dies_or_hangs_loses_its_calls_alone_and_is_replaced(
    shared: Service, fate: signal.Signals
) -> None:
    async with (
        aiohttp.ClientSession() as http,
        Caller(shared.url, http) as victim,
        Caller(shared.url, http) as other,
    ):
        lost, spared = worker_of(victim), worker_of(other)
        assert lost != spared
        talking = asyncio.create_task(talk(other, to_the_end=True))
        os.kill(shared.workers()[lost], fate)
        await talking
        replaced = re.compile(r"worker (\d+) takes calls")
        await until(
            lambda: int(replaced.findall(shared.log())[-1]) > max(lost, spared), "another", PATIENCE_S
        )
        assert lost not in shared.workers()
        assert await end(shared, http, victim) == (410, "call_lost")
        async with Caller(shared.url, http) as newcomer:
            assert worker_of(newcomer) not in (lost, spared)
            await talk(newcomer)
        await talk(other)
        assert re.search(rf"worker {lost} .*; calls lost: 1,", shared.log())
        assert await end(shared, http, other) == (200, "")


async def test_new_settings_come_with_new_workers_and_a_running_call_goes_on(shared: Service) -> None:
    async with aiohttp.ClientSession() as http, Caller(shared.url, http) as early:
        before = {*shared.workers()}
        shared.set(instructions="Be kind.")
        talking = asyncio.create_task(talk(early, to_the_end=True))
        shared.process.send_signal(signal.SIGHUP)
        await until(lambda: "go by the settings as they are now" in shared.log(), "new workers", PATIENCE_S)
        async with Caller(shared.url, http) as late:
            assert worker_of(late) not in before
            assert late.ear.events[0]["session"]["instructions"] == "Be kind."
            await talk(late)
        await talking
        await talk(early)
        await until(lambda: len({*shared.workers()} & before) == 1, "the idle old one ends", PATIENCE_S)
        assert "visavis.call_ending" not in early.ear.kinds()
        shared.process.send_signal(signal.SIGHUP)
        await until(lambda: "calls still go on by the settings before" in shared.log(), "patience")
        assert await end(shared, http, early) == (200, "")
        await until(lambda: not {*shared.workers()} & before, "the old ones end", PATIENCE_S)
        assert len(shared.workers()) == 2
        shared.set()


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("[server]\nmax_calls = true", "server.max_calls must be a whole number"),
        ("[server]\nmax_body = 7", "server.max_body cannot change while the server runs"),
        ("[conversation.vad]\ngate_mode = 9", "mode"),
    ],
    ids=["unreadable", "unchangeable", "unworkable"],
)
async def test_settings_that_are_no_good_change_nothing(shared: Service, line: str, told: str) -> None:
    before = shared.workers()
    _, _, kiosk = shared._settings.read_text().partition("[kiosk]")
    shared._settings.write_text(f'{line}\n[engine]\nname = "scripted"\n[kiosk]{kiosk}')
    said = len(shared.log())
    shared.process.send_signal(signal.SIGHUP)
    await until(lambda: "SIGHUP changes nothing" in shared.log()[said:], "a refusal", PATIENCE_S)
    assert re.search(f"SIGHUP changes nothing: .*{re.escape(told)}", shared.log()[said:])
    await until(lambda: shared.workers() == before, "only the old workers")
    async with aiohttp.ClientSession() as http, Caller(shared.url, http) as caller:
        assert worker_of(caller) in before
        assert await end(shared, http, caller) == (200, "")
    shared.set()


async def test_the_front_counts_for_all(shared: Service) -> None:
    async def live(http: aiohttp.ClientSession) -> float:
        async with http.get(f"{shared.url}/metrics") as response:
            text = await response.text()
        return sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith("visavis_calls{"))

    async def becomes(calls: int, http: aiohttp.ClientSession) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while await live(http) != calls:  # noqa: ASYNC110 - over HTTP
                await asyncio.sleep(0.05)

    async with aiohttp.ClientSession() as http:
        async with Caller(shared.url, http) as one, Caller(shared.url, http) as two:
            assert worker_of(one) != worker_of(two)
            await becomes(2, http)
            for caller in (one, two):
                await end(shared, http, caller)
        await becomes(0, http)


async def test_a_front_that_stands_still_for_a_while_loses_nobody(own: Service) -> None:
    async with aiohttp.ClientSession() as http, Caller(own.url, http) as caller:
        before = own.workers()
        own.process.send_signal(signal.SIGSTOP)
        await asyncio.sleep(SILENCE_S + 1)
        own.process.send_signal(signal.SIGCONT)
        await talk(caller)
        assert await end(own, http, caller) == (200, "")
        assert own.workers() == before


async def test_a_signal_drains_all_workers(own: Service) -> None:
    async with (
        aiohttp.ClientSession() as http,
        Caller(own.url, http) as one,
        Caller(own.url, http) as two,
    ):
        assert worker_of(one) != worker_of(two)
        workers = own.workers().values()
        own.process.send_signal(signal.SIGTERM)
        for caller in (one, two):
            await until(lambda caller=caller: caller.ear.kinds()["visavis.call_ending"] == 1, "a warning")
        headers = {"Content-Type": "application/sdp"}
        async with http.post(f"{own.url}/v1/realtime/calls", data="v=0", headers=headers) as response:
            assert (response.status, (await response.json())["error"]["code"]) == (503, "shutting_down")
        await asyncio.gather(talk(one), talk(two))
        for caller in (one, two):
            assert await end(own, http, caller) == (200, "")
        assert await asyncio.to_thread(own.process.wait, PATIENCE_S) == 0
        assert not any(lives(pid) for pid in workers)


async def test_a_second_signal_ends_all_calls(own: Service) -> None:
    async with aiohttp.ClientSession() as http, Caller(own.url, http) as caller:
        own.process.send_signal(signal.SIGTERM)
        await until(lambda: caller.ear.kinds()["visavis.call_ending"] == 1, "a warning")
        own.process.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(own.process.wait, PATIENCE_S) == 0
        await until(lambda: caller.ear.closed_with is not None, "the caller notices")


async def test_nothing_outlives_a_killed_front(own: Service) -> None:
    async with aiohttp.ClientSession() as http, Caller(own.url, http) as one, Caller(own.url, http) as two:
        workers = own.workers()
        os.kill(workers[worker_of(one)], signal.SIGSTOP)
        own.process.kill()
        await until(lambda: two.ear.closed_with is not None, "a goodbye")
        await until(lambda: not any(map(lives, workers.values())), "no process left", PATIENCE_S)

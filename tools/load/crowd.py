"""Many callers in one process: one beat for all of them, windows of measuring over them."""

import asyncio
import resource
import time
from contextlib import suppress
from dataclasses import dataclass, field

import aiohttp

from .arrivals import heard_gaps
from .calls import CallFailed, Kinds, Line
from .clips import BLOCK_S
from .figures import Window
from .film import Film
from .proc import Meter
from .talk import Heard, Script, Talk

STALL_S = 0.015
"So much later than due, the beat was not let run: what comes meanwhile is seen late."
TOGETHER = 4
"Calls set up at once."


@dataclass(slots=True)
class Caller:
    line: Line
    talk: Talk
    location: str
    "Of the call at the server; empty if it told none."
    next_picture: float
    is_new: bool = True
    "No window told of its set-up yet."


@dataclass(slots=True)
class Address:
    """A server that takes an offer at /v1/realtime/calls, as OpenAI's does."""

    url: str
    key: str | None = None

    async def signal(self, http: aiohttp.ClientSession, offer: str) -> tuple[str, str]:
        """Give the answer and the place of the call. Raises CallFailed."""
        headers = {"Content-Type": "application/sdp"} | self.headers
        try:
            async with http.post(f"{self.url}/v1/realtime/calls", data=offer, headers=headers) as response:
                text = await response.text()
        except (aiohttp.ClientError, TimeoutError) as error:
            raise CallFailed(f"the server cannot be reached: {error}") from error
        if response.status not in (200, 201):
            raise CallFailed(f"refused with {response.status}: {text[:200]}")
        return text, response.headers.get("Location", "")

    async def hang_up(self, http: aiohttp.ClientSession, place: str) -> None:
        with suppress(aiohttp.ClientError, TimeoutError):
            async with http.delete(f"{self.url}{place}", headers=self.headers) as response:
                await response.read()

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.key}"} if self.key else {}


@dataclass
class Crowd:
    """The callers of one server. `async with` it; `grow` and `shrink` change how many there are."""

    kinds: Kinds
    address: Address
    script: Script
    film: Film | None = None
    callers: list[Caller] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    "Of calls that did not come about, since the last window."
    stalls: list[tuple[float, float]] = field(default_factory=list)
    "When this process was not let run."
    _seed: int = 0

    async def __aenter__(self) -> "Crowd":
        self._http = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))
        self._beat = asyncio.create_task(self._play())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._beat.cancel()
        with suppress(asyncio.CancelledError):
            await self._beat
        await self.shrink(0)
        await self._http.close()

    async def grow(self, calls: int) -> None:
        """Call until there are so many; failures are noted."""
        room = asyncio.Semaphore(TOGETHER)

        async def one(place: int, seed: int) -> None:
            async with room:
                try:
                    self.callers.append(await self._call(place, seed))
                except CallFailed as error:
                    self.failures.append(str(error))

        async with asyncio.TaskGroup() as tasks:
            for place in range(len(self.callers), calls):
                self._seed += 1
                tasks.create_task(one(place, self._seed))

    async def shrink(self, calls: int) -> None:
        """Hang up until there are so many left."""
        gone, self.callers = self.callers[calls:], self.callers[:calls]
        for at in range(0, len(gone), TOGETHER):
            some = gone[at : at + TOGETHER]
            await asyncio.gather(*(self.address.hang_up(self._http, one.location) for one in some))
            for one in some:
                one.line.close()

    def drop(self) -> None:
        """Leave all calls without a word to the server, as a page that is reloaded."""
        gone, self.callers = self.callers, []
        for one in gone:
            one.line.close()

    async def _call(self, place: int, seed: int) -> Caller:
        line = self.kinds.line(place, self.film)
        location = ""

        async def signal(offer: str) -> str:
            nonlocal location
            answer, location = await self.address.signal(self._http, offer)
            return answer

        try:
            await line.open(signal)
        except CallFailed:
            line.close()
            if location:
                await self.address.hang_up(self._http, location)
            raise
        now = time.monotonic()
        return Caller(line, Talk(self.script, seed, now), location, now)

    async def _play(self) -> None:
        """Let all callers say, show and hear 20 ms, on an absolute schedule."""
        began, beats = time.monotonic(), 0
        while True:
            for caller in self.callers:
                now = time.monotonic()
                for at in caller.line.poll():
                    caller.talk.hear(at)
                caller.line.say(caller.talk.next_block(now))
                if self.film is not None and now >= caller.next_picture:
                    caller.line.show()
                    caller.next_picture = max(caller.next_picture + 1 / self.film.fps, now - BLOCK_S)
            beats += 1
            due, now = began + beats * BLOCK_S, time.monotonic()
            await asyncio.sleep(max(0.0, due - now))
            late = time.monotonic() - max(due, now)
            if late > STALL_S or now - due > STALL_S:
                self.stalls.append((min(due, now), time.monotonic()))


async def measure(crowd: Crowd, seconds: float, meter: Meter) -> Window:
    """Watch a crowd for some seconds; set-ups and failures since the last window are told with it."""
    window = _set_up(crowd)
    for caller in crowd.callers:
        caller.line.arrivals.forget()
        caller.talk.heard = Heard()
    crowd.stalls.clear()
    before, front_before, engine_before = meter.server(), meter.front(), meter.engine()
    own_before, began = _own_cpu_s(), time.monotonic()
    await asyncio.sleep(seconds)
    window.seconds = time.monotonic() - began
    after, front_after, engine_after = meter.server(), meter.front(), meter.engine()
    window.callers_cpu_s = _own_cpu_s() - own_before
    window.server_cpu_s = after.cpu_s - before.cpu_s
    window.front_cpu_s = front_after.cpu_s - front_before.cpu_s
    window.engine_cpu_s = engine_after.cpu_s - engine_before.cpu_s
    window.server_waited_s = after.waited_s - before.waited_s
    window.rss_mb, window.threads, window.sockets = after.rss_mb, after.threads, after.sockets
    _add_heard(window, crowd)
    return window


def _set_up(crowd: Crowd) -> Window:
    """Begin a window with how the calls came about that no window told of yet."""
    window = Window(calls=len(crowd.callers), seconds=0.0, failed=len(crowd.failures))
    window.failure = crowd.failures[0] if crowd.failures else None
    crowd.failures.clear()
    for caller in crowd.callers:
        times, first_at = caller.line.set_up, caller.line.arrivals.first_at
        if caller.is_new and times.answered is not None and times.connected is not None:
            window.answered_ms.append(1000 * (times.answered - times.posted))
            window.connected_ms.append(1000 * (times.connected - times.posted))
            if first_at is not None:
                window.first_audio_ms.append(1000 * (first_at - times.posted))
        caller.is_new = False
    return window


def _add_heard(window: Window, crowd: Crowd) -> None:
    window.stalled_s = sum(end - start for start, end in crowd.stalls)
    for caller in crowd.callers:
        arrivals, heard = caller.line.arrivals, caller.talk.heard
        gaps = heard_gaps(arrivals.gaps, crowd.stalls)
        window.gaps += len(gaps)
        window.gap_ms = max(window.gap_ms, 1000 * arrivals.gap_s, *(1000 * gap for gap in gaps))
        window.sound_s += arrivals.sound_s
        window.concealed_s += arrivals.concealed_s
        window.start_ms += heard.start_ms
        window.barge_in_ms += heard.barge_in_ms
        window.missed += heard.missed
        window.cut_in += heard.cut_in
        window.not_yielded += heard.not_yielded


def _own_cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime

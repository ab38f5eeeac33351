"""Many callers in one process: one beat for all of them, windows of measuring over them."""

import asyncio
import resource
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

import aiohttp

from .arrivals import Arrivals, heard_gaps
from .clips import BLOCK_S
from .figures import Window
from .film import Film
from .line import CallFailed, SetUp, Signal
from .proc import Meter
from .talk import Heard, Script, Talk

STALL_S = 0.015
"So much later than due, the beat was not let run: what comes meanwhile is seen late."
TOGETHER = 4
"Calls set up at once."


class Line(Protocol):
    """A call: `line.Line` and `light.LightLine`."""

    arrivals: Arrivals
    set_up: SetUp

    async def open(self, signal: Signal) -> None: ...

    def say(self, block: bytes | None) -> None: ...

    def show(self) -> None: ...

    def poll(self) -> list[float]: ...

    def close(self) -> None: ...


class Lines(Protocol):
    """Makes lines: `line.Exchange` and `light.Light`."""

    def line(self, film: Film | None = None) -> Line: ...


@dataclass(frozen=True, slots=True)
class Kinds:
    """The first callers are of libwebrtc, and from some number on light ones."""

    libwebrtc: Lines
    light: Lines | None = None
    most_libwebrtc: int = 0

    def line(self, place: int, film: Film | None) -> Line:
        """Make the line of the call at a place, counted from 0."""
        light = self.light is not None and place >= self.most_libwebrtc
        return (self.light if light and self.light else self.libwebrtc).line(film)


@dataclass(slots=True)
class Caller:
    line: Line
    talk: Talk
    location: str
    "Of the call at the server; empty if it told none."
    next_picture: float


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
    set_ups: list[tuple[float, float]] = field(default_factory=list)
    "(POST → answer, POST → connected) in seconds, since the last window."
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
        set_up = line.set_up
        assert set_up.answered is not None and set_up.connected is not None  # noqa: PT018
        self.set_ups.append((set_up.answered - set_up.posted, set_up.connected - set_up.posted))
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
    for caller in crowd.callers:
        arrivals = caller.line.arrivals
        arrivals.gap_s, arrivals.sound_s, arrivals.concealed_s = 0.0, 0.0, 0.0
        arrivals.gaps.clear()
        caller.talk.heard = Heard()
    crowd.stalls.clear()
    before, engine_before, own_before, began = meter.server(), meter.engine(), _own_cpu_s(), time.monotonic()
    await asyncio.sleep(seconds)
    spent = time.monotonic() - began
    after, engine_after, own = meter.server(), meter.engine(), _own_cpu_s() - own_before
    arrivals = [caller.line.arrivals for caller in crowd.callers]
    heard = [caller.talk.heard for caller in crowd.callers]
    firsts = [
        1000 * (caller.line.arrivals.first_at - caller.line.set_up.posted)
        for caller in crowd.callers[-len(crowd.set_ups) :]
        if caller.line.arrivals.first_at is not None and crowd.set_ups
    ]
    gaps = [one for each in arrivals for one in heard_gaps(each.gaps, crowd.stalls)]
    window = Window(
        calls=len(crowd.callers),
        failed=len(crowd.failures),
        failure=crowd.failures[0] if crowd.failures else None,
        seconds=spent,
        server_cpu_s=after.cpu_s - before.cpu_s,
        engine_cpu_s=engine_after.cpu_s - engine_before.cpu_s,
        callers_cpu_s=own,
        stalled_s=sum(end - start for start, end in crowd.stalls),
        rss_mb=after.rss_mb,
        threads=after.threads,
        sockets=after.sockets,
        answered_ms=[1000 * answered for answered, _ in crowd.set_ups],
        connected_ms=[1000 * connected for _, connected in crowd.set_ups],
        first_audio_ms=firsts,
        start_ms=_join(one.start_ms for one in heard),
        barge_in_ms=_join(one.barge_in_ms for one in heard),
        missed=sum(one.missed for one in heard),
        cut_in=sum(one.cut_in for one in heard),
        not_yielded=sum(one.not_yielded for one in heard),
        gap_ms=1000 * max([*gaps, *(each.gap_s for each in arrivals)], default=0.0),
        gaps=len(gaps),
        sound_s=sum(each.sound_s for each in arrivals),
        concealed_s=sum(each.concealed_s for each in arrivals),
    )
    crowd.failures.clear()
    crowd.set_ups.clear()
    return window


def _join(parts: Iterable[list[float]]) -> list[float]:
    return [value for part in parts for value in part]


def _own_cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime

"""A session speaks what it is told to: another wire than OpenAI's, and its own messages."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from types import SimpleNamespace

import pytest

from sim import UNHURRIED, LevelEar
from visavis import events as ev
from visavis.audio import RATE
from visavis.config import Config, SessionConfig
from visavis.engine.scripted import ScriptedEngine
from visavis.errors import ClientEventError, VisavisError
from visavis.rtc import PeerStats
from visavis.session import Session
from visavis.trace import CallTrace
from visavis.wire import Asked


class Plain:
    """One word a message."""

    label = "plain"
    tells_audio = False

    def __init__(self) -> None:
        self.dry = threading.Event()

    def _paint(self, word: str) -> ev.ClientEvent:
        """Take as long as the test likes, and a thread of its own."""
        assert threading.current_thread() is not threading.main_thread()
        self.dry.wait()
        if word == "mud":
            raise ClientEventError("mud?", code="unknown")
        return ev.CreateItem("user", word)

    def encode(self, event: ev.ServerEvent) -> list[str]:
        return [event.item.content[0].text] if isinstance(event, ev.ItemDone) else []

    def encode_error(self, error: VisavisError, *, echo: bool = True) -> str:
        return f"refused: {error}"

    def farewell(self) -> list[str]:
        return ["farewell"]

    def decode(self, message: str, session: SessionConfig) -> Asked:
        match message.split():
            case ["ping"]:
                return Asked()
            case ["say", *words]:
                items = tuple(ev.CreateItem("user", word, item_id=word) for word in words)
                return Asked(items, replies=("so it be",))
            case ["paint", word]:
                return Asked(later=partial(self._paint, word))
            case ["hide", "camera"]:
                return Asked(shown=(("camera", False),))
            case ["show", "camera"]:
                return Asked(shown=(("camera", True),))
            case ["bye"]:
                return Asked(hangs_up=True)
        raise ClientEventError("what?", code="unknown")


class Peer:
    def __init__(self, handler: object, label: str) -> None:
        self.label = label
        self.told: list[str] = []

    def send_message(self, text: str) -> None:
        self.told.append(text)

    def want_video(self, fps: float) -> None: ...

    def stats(self) -> PeerStats:
        return PeerStats()

    async def aclose(self) -> None: ...


@asynccontextmanager
async def calling(wire: Plain | None = None) -> AsyncIterator[tuple[Session, Peer]]:
    config = Config(conversation=UNHURRIED)
    peers: list[Peer] = []

    def make_peer(handler: object, label: str) -> Peer:
        peers.append(Peer(handler, label))
        return peers[-1]

    session = Session(
        "call",
        config,
        SessionConfig(),
        ScriptedEngine(),
        LevelEar(),
        CallTrace(config.trace, "call"),
        media=SimpleNamespace(peer=make_peer),
        wire=lambda call_id: wire or Plain(),
    )
    running = asyncio.create_task(session.run())
    await asyncio.sleep(0)
    session.channel_opened()
    try:
        yield session, peers[0]
    finally:
        session.hang_up("the test is over")
        await running


async def test_a_session_speaks_the_wire_it_is_given() -> None:
    async with calling() as (session, peer):
        for message in ("ping", "say one two", "sing"):
            session.receive_message(message)
    assert peer.label == "plain"
    assert peer.told == ["so it be", "one", "two", "refused: what?", "farewell"]


async def test_what_is_refused_has_no_reply() -> None:
    async with calling() as (session, peer):
        session.receive_message("say one one two")
        await asyncio.sleep(0)
        assert sorted(peer.told) == ["one", "refused: There is an item 'one' already."]


async def test_what_takes_its_time_is_made_elsewhere_and_what_came_after_it_waits() -> None:
    wire = Plain()
    async with calling(wire) as (session, peer):
        for message in ("say one", "paint two", "say three", "paint mud", "say four"):
            session.receive_message(message)
        assert session.wants_frame(0)  # the loop goes on
        await asyncio.sleep(0)
        assert peer.told == ["so it be", "one"]
        wire.dry.set()
        await session.caught_up()
    said = [text for text in peer.told if text != "so it be"]
    assert said == ["one", "two", "three", "refused: mud?", "four", "farewell"]


async def test_who_hangs_up_meanwhile_is_not_kept_waiting() -> None:
    wire = Plain()
    async with calling(wire) as (session, peer):
        session.receive_message("paint two")
    wire.dry.set()
    assert peer.told == ["farewell"]


async def test_what_the_client_hides_is_not_looked_at() -> None:
    async with calling() as (session, _):
        assert session.wants_frame(0)
        session.receive_message("hide camera")
        assert not session.wants_frame(0)
        assert session.wants_frame(0, "screen")
        session.receive_message("show camera")
        assert session.wants_frame(RATE)


async def test_a_client_may_hang_up_by_a_message() -> None:
    async with calling() as (session, peer):
        session.receive_message("bye")
    assert peer.told == ["farewell"]


@pytest.mark.parametrize("reason", ["the caller comes back", "the caller went on in another call"])
async def test_who_goes_on_elsewhere_is_told_no_farewell(reason: str) -> None:
    async with calling() as (session, peer):
        session.hang_up(reason)
    assert peer.told == []

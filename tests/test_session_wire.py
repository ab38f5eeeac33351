"""A session speaks what it is told to: another wire than OpenAI's, and its own messages."""

import asyncio
from types import SimpleNamespace

from sim import UNHURRIED, LevelEar
from visavis import events as ev
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

    def encode(self, event: ev.ServerEvent) -> list[str]:
        return [event.item.content[0].text] if isinstance(event, ev.ItemDone) else []

    def encode_error(self, error: VisavisError, *, echo: bool = True) -> str:
        return f"refused: {error}"

    def decode(self, message: str, session: SessionConfig) -> Asked:
        match message.split():
            case ["ping"]:
                return Asked()
            case ["say", *words]:
                items = tuple(ev.CreateItem("user", word) for word in words)
                return Asked(items, replies=("so it be",))
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


async def test_a_session_speaks_the_wire_it_is_given() -> None:
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
        wire=lambda call_id: Plain(),
    )
    running = asyncio.create_task(session.run())
    await asyncio.sleep(0)
    session.channel_opened()
    for message in ("ping", "say one two", "sing"):
        session.receive_message(message)
    session.hang_up("the test is over")
    await running
    (peer,) = peers
    assert peer.label == "plain"
    assert peer.told == ["so it be", "one", "two", "refused: what?"]

from collections.abc import Callable
from typing import Any

from aiortc.exceptions import InvalidStateError

from visavis.rtc.channel import LABEL, MAX_BUFFERED, MAX_WAITING, Channel


class Wire:
    """Stands in for aiortc's data channel."""

    def __init__(self, label: str = LABEL, state: str = "open") -> None:
        self.label = label
        self.readyState = state
        self.bufferedAmount = 0
        self.sent: list[str] = []
        self.broken = False
        self.handlers: dict[str, Callable[..., None]] = {}

    def on(self, event: str, handler: Callable[..., None]) -> None:
        self.handlers[event] = handler

    def send(self, text: str) -> None:
        if self.broken:
            raise InvalidStateError
        self.sent.append(text)

    def open(self) -> None:
        self.readyState = "open"
        self.handlers["open"]()


class Log:
    def __init__(self, label: str = LABEL) -> None:
        self.heard: list[str] = []
        self.opened = 0
        self.channel = Channel(self.heard.append, self.open, label)

    def open(self) -> None:
        self.opened += 1

    def adopt(self, wire: Any) -> None:
        self.channel.adopt(wire)


def test_messages_wait_until_the_channel_opens() -> None:
    log, wire = Log(), Wire(state="connecting")
    log.channel.send("one")
    log.adopt(wire)
    log.channel.send("two")
    assert (wire.sent, log.opened) == ([], 0)
    wire.open()
    log.channel.send("three")
    assert (wire.sent, log.opened) == (["one", "two", "three"], 1)


def test_without_a_channel_only_so_many_messages_are_kept_and_the_rest_counted() -> None:
    log, wire = Log(), Wire()
    for n in range(MAX_WAITING + 10):
        log.channel.send(str(n))
    log.adopt(wire)
    assert log.channel.dropped == 10
    assert wire.sent == [str(n) for n in range(10, MAX_WAITING + 10)]


def test_a_reader_that_takes_nothing_costs_no_memory() -> None:
    log, wire = Log(), Wire()
    log.adopt(wire)
    wire.bufferedAmount = MAX_BUFFERED + 1
    log.channel.send("lost")
    wire.bufferedAmount = 0
    log.channel.send("sent")
    assert (wire.sent, log.channel.dropped) == (["sent"], 1)


def test_a_closed_or_broken_channel_drops_messages_and_raises_nothing() -> None:
    log, wire = Log(), Wire()
    log.adopt(wire)
    wire.broken = True
    log.channel.send("one")
    wire.readyState = "closed"
    log.channel.send("two")
    assert (wire.sent, log.channel.dropped) == ([], 2)


def test_a_channel_with_another_label_does_not_replace_an_open_one() -> None:
    log, known, other = Log(), Wire(), Wire("chat")
    log.adopt(known)
    log.adopt(other)
    log.channel.send("hello")
    other.handlers["message"]("from the other")
    assert (known.sent, other.sent, log.heard, log.opened) == (["hello"], [], ["from the other"], 1)


def test_the_known_label_replaces_another() -> None:
    log, other, known = Log(), Wire("chat"), Wire()
    log.adopt(other)
    log.adopt(known)
    log.channel.send("hello")
    assert (known.sent, other.sent, log.opened) == (["hello"], [], 1)
    assert log.channel.present


def test_the_label_that_is_known_is_whatever_the_caller_says() -> None:
    log, chat, other = Log("chat"), Wire("chat"), Wire()
    log.adopt(chat)
    log.adopt(other)
    log.channel.send("hello")
    assert (chat.sent, other.sent) == (["hello"], [])


def test_text_and_bytes_are_both_heard() -> None:
    log, wire = Log(), Wire()
    assert not log.channel.present
    log.adopt(wire)
    wire.handlers["message"]("text")
    wire.handlers["message"]("bytes ✓".encode())
    wire.handlers["message"](b"\xff")
    assert log.heard == ["text", "bytes ✓", "\N{REPLACEMENT CHARACTER}"]

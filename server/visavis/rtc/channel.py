"""The data channel: any label, opened by either side, maybe late, maybe never; never a queue without end."""

import logging
from collections import deque
from collections.abc import Callable

from aiortc import RTCDataChannel
from aiortc.exceptions import InvalidStateError

logger = logging.getLogger(__name__)

LABEL = "oai-events"
"OpenAI's, as our own caller and page have it."

MAX_WAITING = 256
"Messages kept until the channel opens; then the oldest are dropped."

MAX_BUFFERED = 4_194_304
"Bytes unsent from where on the reader is taken for gone and messages are dropped."


class Channel:
    """Sends text on the newest channel that has the known label, else on any; receives from all."""

    def __init__(
        self, on_message: Callable[[str], None], on_open: Callable[[], None], label: str = LABEL
    ) -> None:
        self.label = label
        self._on_message = on_message
        self._on_open = on_open
        self._channel: RTCDataChannel | None = None
        self._waiting: deque[str] = deque(maxlen=MAX_WAITING)
        self._announced = False
        self.dropped = 0
        "Messages that were not sent because nobody took them."

    @property
    def present(self) -> bool:
        return self._channel is not None

    def adopt(self, channel: RTCDataChannel) -> None:
        """Use a channel that the other side has opened or that we have created."""
        channel.on("message", self._receive)
        if self._channel is not None and self._channel.readyState == "open" and channel.label != self.label:
            return
        self._channel = channel
        if channel.readyState == "open":
            self._opened()
        else:
            channel.on("open", self._opened)

    def send(self, text: str) -> None:
        """Send, or keep until the channel opens; what is too much is dropped and counted."""
        if self._channel is None or self._channel.readyState == "connecting":
            self.dropped += len(self._waiting) == MAX_WAITING
            self._waiting.append(text)
        elif self._channel.readyState != "open" or self._channel.bufferedAmount > MAX_BUFFERED:
            self.dropped += 1
        else:
            try:
                self._channel.send(text)
            except (InvalidStateError, ConnectionError, ValueError) as error:
                logger.debug("a message was not sent: %s", error)
                self.dropped += 1

    def _opened(self) -> None:
        if not self._announced:
            self._announced = True
            self._on_open()
        waiting = list(self._waiting)
        self._waiting.clear()
        for text in waiting:
            self.send(text)

    def _receive(self, message: str | bytes) -> None:
        self._on_message(message if isinstance(message, str) else message.decode(errors="replace"))

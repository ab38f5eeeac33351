"""What a client has sent and is still to be dealt with: messages, and sound between them. Sans-I/O.

A message may bring seconds of sound at once. It is heard block by block, and what was sent after it waits.
"""

from collections import deque

import numpy as np

from .audio import BLOCK, EMPTY, Pcm

MAX_WAITING = 256
"Messages that wait for sound to be heard, where nobody can be told to send more slowly."


class Inbox:
    """Messages in the order of their sending. `take` what is next, and `hear` the sound that it brought."""

    def __init__(self) -> None:
        self._messages: deque[str] = deque()
        self._sound: deque[Pcm] = deque()
        self._samples = 0

    def __bool__(self) -> bool:
        """Whether there is anything to take."""
        return bool(self._messages) or self._samples >= BLOCK

    def put(self, message: str) -> bool:
        """Take in a message; False if too many wait already."""
        if len(self._messages) >= MAX_WAITING:
            return False
        self._messages.append(message)
        return True

    def hear(self, sound: Pcm) -> None:
        """Take in the sound (mono, 24 kHz) of the message taken last: it comes before the next one."""
        if len(sound):
            self._sound.append(sound)
            self._samples += len(sound)

    def take(self) -> str | Pcm | None:
        """Return the next message, or before it the next 480 samples of sound; None if there is neither."""
        if self._samples >= BLOCK:
            return self._block()
        return self._messages.popleft() if self._messages else None

    def rest(self) -> Pcm | None:
        """Return what is left of the sound as a block, filled up with silence; None if nothing is."""
        if not self._samples:
            return None
        self._sound.append(np.zeros(BLOCK - self._samples, np.int16))
        self._samples = BLOCK
        return self._block()

    def forget_rest(self) -> None:
        """What was left of the sound is not wanted."""
        self._sound.clear()
        self._samples = 0

    def _block(self) -> Pcm:
        parts: list[Pcm] = []
        missing = BLOCK
        while missing:
            head = self._sound.popleft()
            if len(head) > missing:
                self._sound.appendleft(head[missing:])
                head = head[:missing]
            parts.append(head)
            missing -= len(head)
        self._samples -= BLOCK
        return parts[0] if len(parts) == 1 else np.concatenate((EMPTY, *parts))

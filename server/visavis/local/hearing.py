"""The recogniser as all requests share it: one at a time, callers in turn, each sound heard once."""

from collections import OrderedDict
from threading import Event
from typing import Protocol

from ..audio import Pcm
from .contract import Sound
from .stage import Stage
from .whisper import Heard

_CACHED_SOUNDS = 512
"Transcripts kept by the content of their sound: history repeats it."


class Ears(Protocol):
    """`whisper.Recogniser`, or a stand-in."""

    def recognise(self, pcm: Pcm, *, hint: str | None = None, stop: Event | None = None) -> Heard: ...


class Hearing:
    """Owns the thread in which `ears` work."""

    def __init__(self, ears: Ears) -> None:
        self._ears = ears
        self._stage = Stage("hearing")
        self._heard: OrderedDict[str, Heard] = OrderedDict()

    async def hear(self, sound: Sound, caller: str, hint: str | None) -> Heard:
        """Write down a sound; `hint` is the language to assume when it cannot be told.

        Cancelling returns at once. Raises EngineRefused for what is no sound, EngineLost.
        """
        if (heard := self._heard.get(sound.key)) is not None:
            self._heard.move_to_end(sound.key)
            return heard

        def work(stop: Event) -> Heard | None:
            heard = self._ears.recognise(sound.pcm(), hint=hint, stop=stop)
            return None if stop.is_set() else heard

        heard = await self._stage.run(caller, work)
        assert heard is not None, "only a cancelled caller stops, and it does not come here"
        self._heard[sound.key] = heard
        while len(self._heard) > _CACHED_SOUNDS:
            self._heard.popitem(last=False)
        return heard

    async def aclose(self) -> None:
        await self._stage.aclose()

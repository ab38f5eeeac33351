"""What was said and heard: items, and what of them an engine is sent within a budget. Sans-I/O.

Ids that are not, or no longer, there are ignored by the methods that report progress on an item, since a
client may delete any item at any time.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from .audio import RATE, Pcm
from .config import HistoryConfig, Truncation
from .dialogue import Dialogue
from .engine import AudioPart, CallPart, FramesPart, Message, Part, TextPart
from .frames import Frame, Source, spread
from .spoken import SpokenText
from .tokens import FPS, video_tokens

Role = Literal["system", "user", "assistant", "tool"]
Status = Literal["in_progress", "completed", "incomplete"]

_KEEP = 0.6
"Share of `max_sounds` that is left when old sound goes: the engine's prefix cache then lasts many turns."

_SIGHT = 0.5
"Share of the budget that one turn's pictures may take: a long look must not push out what was said."

_MAX_IMAGES = 8
"Items with images of the user's that are kept, the newest: they are talked about longer than what was seen."

_INAUDIBLE = "(inaudible)"
"Stands for a turn whose sound is gone and that was not understood."

_RESULT = 0.25
"Share of the budget that what one function gave may take; the rest of it is left out."

_NO_RESULT = "(No result yet.)"
"Stands for what a function has not given: an engine that knew of no call would make it again."

_MAX_CHARACTERS = 1_000_000
_ITEM_CHARACTERS = 1_000
"Text kept in all, and what an item counts beside its text: beyond, the oldest items are forgotten."

_BYTES_PER_TOKEN = 3.5
"UTF-8 bytes of text: English has 4, Chinese 4 to 5, code and names fewer. Better too many than too few."

_AUDIO_TOKENS_PER_S = 12.5
_PIXELS_PER_TOKEN = 32 * 32
"Qwen3-Omni's; two frames of a sequence share one grid of tokens."

_MESSAGE_TOKENS = 5
"Role and separators."


@dataclass(frozen=True, slots=True)
class TextContent:
    """Written text, of any role."""

    text: str


@dataclass(frozen=True, slots=True)
class AudioContent:
    """What the user said."""

    pcm: Pcm | None = field(compare=False)
    "Mono, 24 kHz; None once it is not needed any more."
    transcript: str | None = None
    at: int = 0
    "Position of the first sample on the conversation's audio clock (24 kHz), on which frames lie too."
    cuts: tuple[int, ...] = ()
    "Positions up to which it was sent ahead with the frames before them."

    def moved(self, at: int) -> "AudioContent":
        """Return it as said at another time."""
        return replace(self, at=at)


@dataclass(frozen=True, slots=True)
class SpokenContent:
    """What the assistant said, as far as it was heard."""

    transcript: str


@dataclass(frozen=True, slots=True)
class FramesContent:
    """What the camera saw meanwhile, what was on the shared screen then, or images that the user sent."""

    frames: tuple[Frame, ...]
    "At least one, all of one source, in order of time."

    @property
    def source(self) -> Source:
        return self.frames[0].source

    def moved(self, at: int) -> "FramesContent":
        """Return them as seen one after the other from another time on."""
        return FramesContent(tuple(replace(frame, at=at + n) for n, frame in enumerate(self.frames)))


@dataclass(frozen=True, slots=True)
class CallContent:
    """A function that the assistant called: the only content of its item, but for its result if it is own."""

    call_id: str
    name: str
    arguments: str
    "JSON, as the model wrote it."
    own: bool = False
    "The server's: no client runs it, and what it gives becomes part of this item."


@dataclass(frozen=True, slots=True)
class ResultContent:
    """What a call gave: the only content of an item of role `tool`, or the second of an own call's."""

    call_id: str
    output: str


Content = TextContent | AudioContent | SpokenContent | FramesContent | CallContent | ResultContent


@dataclass(frozen=True, slots=True)
class Item:
    """One entry of the conversation, with at most one AudioContent, and one FramesContent of each source."""

    id: str
    role: Role
    content: tuple[Content, ...]
    status: Status = "completed"

    @property
    def call(self) -> CallContent | None:
        """The function that it calls."""
        return next((content for content in self.content if isinstance(content, CallContent)), None)

    @property
    def result(self) -> ResultContent | None:
        """What a call gave."""
        return next((content for content in self.content if isinstance(content, ResultContent)), None)


@dataclass(slots=True, eq=False)
class _Entry:
    item: Item
    serial: int
    "Names the item's media in the engine's caches; never used twice in a call."
    awaits_transcript: bool = False
    dropped: bool = False
    "Too old for the budget, for good."
    reply: SpokenText | None = None
    "What an assistant's item grew from."
    whole: bool = False
    "The engine said all it had to say."
    heard: int | None = None
    "Samples of a reply to which it was cut."
    engine_said: int | None = None
    "Characters of a reply that are the engine's; what follows is ours. None: all are."
    response_id: int = 0
    "Of a call: which response made it. 0 is unknown."


class History:
    """The items of one call, in order.

    `call_id` must be random: with a serial number it names media in caches that calls share.
    """

    def __init__(self, config: HistoryConfig, call_id: str) -> None:
        self.truncation = Truncation()
        "What goes when the budget is used up, as the client has it."
        self._config = config
        self._call_id = call_id
        self._serial = 0
        self._named = 0
        self._entries: list[_Entry] = []

    @property
    def items(self) -> tuple[Item, ...]:
        return tuple(entry.item for entry in self._entries)

    def remembered(self, reply_id: str | None = None, heard: int = 0) -> tuple[Item, ...]:
        """Return the items that another call can go on from, with `add`, as engines know them.

        There are no pictures in them, and sound only where it stands for words that nobody has written down.
        Of the reply that is being given there are the words within its first `heard` samples (24 kHz). Others
        that have not ended are not among them, nor is one of which nothing was heard.
        """
        entries = (_as_heard(entry, heard) if entry.item.id == reply_id else entry for entry in self._entries)
        items = (_without_sight(_as_engines_know(entry)) for entry in entries)
        return tuple(
            replace(item, content=tuple(map(_without_needless_sound, item.content)))
            for item in items
            if item.status != "in_progress" and any(_is_said(content) for content in item.content)
        )

    def get(self, item_id: str) -> Item | None:
        entry = self._find(item_id)
        return entry.item if entry is not None else None

    def item(self, item_id: str) -> Item:
        """Return an item that is known to be there."""
        item = self.get(item_id)
        assert item is not None
        return item

    def new_item_id(self) -> str:
        """Give an id that no item has: clients name items too."""
        while True:
            self._named += 1
            item_id = f"item_{self._call_id}_{self._named}"
            if self.get(item_id) is None:
                return item_id

    def previous_id(self, item_id: str) -> str | None:
        """Return the id of the item before this one, None for the first."""
        ids = [entry.item.id for entry in self._entries]
        at = ids.index(item_id) if item_id in ids else 0
        return ids[at - 1] if at else None

    def joined_before(self, item_id: str) -> list[str]:
        """Return the ids of the user items right before this one, which `messages` joins with it."""
        ids: list[str] = []
        exchanges = self._exchanges()
        for entry in self._entries:
            if entry.item.id == item_id:
                break
            if entry.item.role == "user":
                ids.append(entry.item.id)
            elif entry.item.id in exchanges or self._parts(entry):
                ids.clear()
        return ids

    def add(self, item: Item, previous_item_id: str | None = None) -> str | None:
        """Add an item after another, at the start for "root", at the end for None; return the id before it.

        Pictures beyond half of the budget are left out, evenly. Raises ValueError for an id that is there
        already and for a predecessor that is not.
        """
        self._insert(item, previous_item_id)
        return self.previous_id(item.id)

    def append_text(
        self,
        item_id: str,
        role: Role,
        text: str,
        frames: Sequence[Frame] = (),
        previous_item_id: str | None = None,
    ) -> str | None:
        """Add a written message and what was seen with it, as `add` does."""
        return self.append_message(Item(item_id, role, (TextContent(text),)), frames, previous_item_id)

    def append_message(
        self,
        item: Item,
        frames: Sequence[Frame] = (),
        previous_item_id: str | None = None,
        *,
        awaits_transcript: bool = False,
    ) -> str | None:
        """Add a message and what was seen with it, as `add` does.

        If it `awaits_transcript`, its sound is sent until `set_transcript`, however old it is.
        """
        item = replace(item, content=(*item.content, *_sights(frames)))
        self._insert(item, previous_item_id).awaits_transcript = awaits_transcript
        return self.previous_id(item.id)

    def append_call(
        self,
        item_id: str,
        call: CallContent,
        previous_item_id: str | None = None,
        response_id: int = 0,
    ) -> str | None:
        """Add a call that the assistant makes, as `add` does. `response_id` is the same for parallel ones."""
        self._insert(Item(item_id, "assistant", (call,)), previous_item_id).response_id = response_id
        return self.previous_id(item_id)

    def append_result(
        self, item_id: str, call_id: str, output: str, previous_item_id: str | None = None
    ) -> str | None:
        """Add what a call of the client's gave, as `add` does."""
        return self.add(Item(item_id, "tool", (ResultContent(call_id, output),)), previous_item_id)

    def answer(self, item_id: str, output: str) -> str | None:
        """Put into an own call's item what the call gave; return the id before it.

        The item moves behind what was said meanwhile: the result is news to whoever is asked next.
        """
        entry = self._find(item_id)
        assert entry is not None
        assert entry.item.call is not None
        result = ResultContent(entry.item.call.call_id, output)
        entry.item = replace(entry.item, content=(entry.item.call, result))
        later = self._entries[self._entries.index(entry) + 1 :]
        if any(other.item.call is None for other in later):
            self._entries.remove(entry)
            self._entries.append(entry)
        return self.previous_id(item_id)

    def find_call(self, call_id: str) -> Item | None:
        """Return the item of a call."""
        items = (entry.item for entry in self._entries)
        return next((item for item in items if item.call is not None and item.call.call_id == call_id), None)

    def has_result(self, call_id: str) -> bool:
        """Tell whether a call has given something."""
        results = (entry.item.result for entry in self._entries)
        return any(result is not None and result.call_id == call_id for result in results)

    def new_call_id(self, wanted: str = "") -> str:
        """Return the id that an engine gave to a call, or another if it gave none, or the same twice."""
        call_id = wanted
        while not call_id or self.find_call(call_id) is not None:
            self._named += 1
            call_id = f"call_{self._call_id}_{self._named}"
        return call_id

    def append_user_turn(
        self,
        item_id: str,
        pcm: Pcm,
        frames: Sequence[Frame] = (),
        at: int = 0,
        cuts: tuple[int, ...] = (),
        serial: int | None = None,
    ) -> str | None:
        """Add what the user said (mono, 24 kHz) and what was seen; return the id before it.

        `at` is the position of the first sample on the clock of the frames. The sound is sent until
        `set_transcript`, however old it is. `cuts` and `serial` are for a turn of which something was sent
        ahead: where, and what `reserve` gave.
        """
        content = AudioContent(pcm, at=at, cuts=cuts)
        entry = self._insert(Item(item_id, "user", (content, *_sights(frames))), serial=serial)
        entry.awaits_transcript = True
        return self.previous_id(item_id)

    def reserve(self) -> int:
        """Give the number of a turn that goes on, by which its media are named; it is used for no other."""
        self._serial += 1
        return self._serial

    def can_show(self, frames: Sequence[Frame]) -> bool:
        """Tell whether one turn can keep so many pictures."""
        return self._sight_tokens(frames) <= self._room_for_sight

    def ahead(
        self,
        instructions: str,
        pcm: Pcm,
        frames: Sequence[Frame],
        at: int,
        cuts: tuple[int, ...],
        serial: int,
    ) -> tuple[Message, ...]:
        """Return what `messages` will be up to the last cut once this turn is appended, changing nothing."""
        then = self.apart()
        then._serial = self._serial
        then._entries = [replace(entry) for entry in self._entries]
        then.append_user_turn("", pcm, frames, at, cuts, serial)
        return then.messages(instructions)

    def set_transcript(self, item_id: str, text: str) -> None:
        """Note what was said: once the turn is an older one, this stands for its sound."""
        entry = self._find(item_id)
        if entry is not None:
            entry.awaits_transcript = False
            entry.item = replace(
                entry.item,
                content=tuple(
                    replace(c, transcript=text) if isinstance(c, AudioContent) else c
                    for c in entry.item.content
                ),
            )
            self._release_media()

    def fail_transcript(self, item_id: str) -> None:
        """No transcript will come: the turn's sound is still sent, but goes first for want of room."""
        entry = self._find(item_id)
        if entry is not None:
            entry.awaits_transcript = False

    def begin_reply(self, item_id: str, spoken: bool = True) -> str | None:
        """Add the assistant's item, in progress and empty; return the id before it."""
        content = SpokenContent("") if spoken else TextContent("")
        self._insert(Item(item_id, "assistant", (content,), "in_progress")).reply = SpokenText()
        return self.previous_id(item_id)

    def extend_reply(self, item_id: str, text: str, samples: int = 0) -> None:
        """Add text to a reply in progress, and the audio (samples at 24 kHz) that came after it."""
        entry = self._find(item_id)
        if entry is not None and entry.reply is not None and entry.item.status == "in_progress":
            entry.reply.extend(text, samples)
            spoken = isinstance(entry.item.content[0], SpokenContent)
            content = SpokenContent(entry.reply.text) if spoken else TextContent(entry.reply.text)
            entry.item = replace(entry.item, content=(content,))

    def apologise(self, item_id: str, text: str, samples: int) -> str:
        """End the words of a reply in progress with some of our own; return them as they were added.

        They can be heard and cut like the rest, but engines are not sent them.
        """
        entry = self._find(item_id)
        if entry is not None and entry.reply is not None and entry.item.status == "in_progress":
            entry.engine_said = len(entry.reply.text)
            text = f" {text}" if entry.reply.text else text
            self.extend_reply(item_id, text, samples)
        return text

    def end_reply(self, item_id: str, completed: bool = True) -> None:
        """Close a reply in progress: `completed` if the engine said all it had to say."""
        entry = self._find(item_id)
        if entry is not None and entry.item.status == "in_progress":
            entry.whole = completed
            entry.item = replace(entry.item, status="completed" if completed else "incomplete")

    def truncate(self, item_id: str, heard: int) -> str:
        """Cut a spoken reply to the words within its first `heard` samples (24 kHz); return what is left.

        The item is incomplete then, unless all was heard. A reply that was not heard keeps its place, empty,
        and is not sent to engines. What was cut does not come back. An item that is no spoken reply stays
        as it is and gives "".
        """
        entry = self._find(item_id)
        if entry is None or entry.reply is None or not isinstance(entry.item.content[0], SpokenContent):
            return ""
        kept = entry.item.content[0].transcript
        entry.heard = heard if entry.heard is None else min(heard, entry.heard)
        text = entry.reply.heard(heard, whole=entry.whole)
        if len(text) >= len(kept):
            return kept
        entry.item = replace(entry.item, content=(SpokenContent(text),), status="incomplete")
        return text

    def unheard(self, item_id: str, heard: int) -> tuple[str, bool]:
        """Return the engine's words after the first `heard` samples of a reply, and whether that is all.

        Of a written one there are none: all are told as they come.
        """
        entry = self._find(item_id)
        if entry is None or entry.reply is None:
            return "", True
        spoken = isinstance(entry.item.content[0], SpokenContent)
        said = len(entry.reply.heard(heard, whole=entry.whole)) if spoken else None
        rest = "" if said is None else entry.reply.text[said : entry.engine_said]
        return rest.strip(), entry.whole

    def spoken_length(self, item_id: str) -> int | None:
        """Return the samples (24 kHz) of a spoken reply; None for what is none of this call."""
        entry = self._find(item_id)
        if entry is None or entry.reply is None or not isinstance(entry.item.content[0], SpokenContent):
            return None
        return entry.reply.samples

    def heard_length(self, item_id: str) -> int:
        """Return the samples to which a reply was truncated, 0 for an item that was not."""
        entry = self._find(item_id)
        return 0 if entry is None or entry.heard is None else entry.heard

    def release_media(self) -> None:
        """Let go of all sound and pictures: an engine refused a request, and they may be why.

        What was said and has no transcript is inaudible from now on.
        """
        for entry in self._entries:
            entry.awaits_transcript = False
            entry.item = _without_media(entry.item)

    def delete(self, item_id: str) -> bool:
        """Remove an item; tell whether it was there."""
        entry = self._find(item_id)
        if entry is not None:
            self._entries.remove(entry)
        return entry is not None

    def messages(self, instructions: str) -> tuple[Message, ...]:
        """Return what an engine is sent: the instructions, then the items within the budget, oldest first.

        While all fits, one request's messages extend the last one's but for the media of the turns that
        are no longer among the newest. When it does not, media and then turns go, oldest first and for
        good, until 60 % of the budget is used. The instructions, the newest user message with its media
        and what follows it always stay; if deletions made an old turn the newest, it comes back as text.
        Neighbours of one role become one message. A call and its result go and stay together.
        """
        if self.truncation.type != "disabled":
            self._make_room(_text_tokens(instructions) if instructions else 0)
        dialogue = Dialogue(instructions)
        exchanges = self._exchanges()
        for entry in self._entries:
            if entry.item.call is not None:
                dialogue.begin_call(entry.response_id)
            if entry.dropped:
                continue
            if (exchange := exchanges.get(entry.item.id)) is not None:
                dialogue.add_call(*exchange)
            elif parts := self._parts(entry):
                dialogue.add(Message(entry.item.role, parts))
        return dialogue.messages()

    def apart(self) -> "History":
        """Return an empty history for what is said outside of this one."""
        apart = History(self._config, self._call_id)
        apart.truncation = self.truncation
        return apart

    def messages_of(self, instructions: str, items: Sequence[Item | str]) -> tuple[Message, ...]:
        """Return what an engine is sent of these items alone, and of those of this history by their ids.

        Ids of items that are gone are passed over.
        """
        apart = self.apart()
        for number, item in enumerate(items):
            if isinstance(item, Item):
                apart._insert(replace(item, id=f"input_{number}"), serial=self.reserve())
            elif (entry := self._find(item)) is not None:
                apart._entries.append(replace(entry, dropped=False))
        return apart.messages(instructions)

    def _exchanges(self) -> dict[str, tuple[CallPart, str, int]]:
        """Return the calls and what each gave, by the item at whose place engines are sent both.

        That is the result's: what was said before it was said without knowing it, and the beginning of what
        engines were sent before stays as it was. A call that has no result stands at its own place, with a
        note; a result whose call was deleted stands nowhere.
        """
        results = {
            result.call_id: (entry.item.id, result.output)
            for entry in self._entries
            if (result := entry.item.result) is not None
        }
        exchanges = {}
        for entry in self._entries:
            if (call := entry.item.call) is not None:
                place, output = results.get(call.call_id, (entry.item.id, _NO_RESULT))
                part = CallPart(call.call_id, call.name, call.arguments)
                exchanges[place] = (part, _cut(output, self._room_for_result), entry.response_id)
        return exchanges

    def _make_room(self, instructions: int) -> None:
        """Let go of what has no room beside so many tokens of instructions."""
        budget = most = self._config.budget
        if self.truncation.post_instructions is not None:
            most = min(budget, self.truncation.post_instructions)
        room = min(budget - instructions, most)
        users = [i for i, entry in enumerate(self._entries) if entry.item.role == "user"]
        stays = users[-1] if users else max(len(self._entries) - 1, 0)
        for entry in self._entries[stays:]:
            entry.dropped = False
        newest = sum(not entry.dropped for entry in self._entries[:stays])
        entries = [entry for entry in self._entries if not entry.dropped]
        if sum(self._tokens(entry.item) for entry in entries) <= room:
            return
        target = room - round((1 - self.truncation.retention_ratio) * most)
        least = [_at_least(entry) if i < newest else entry.item for i, entry in enumerate(entries)]
        costs = [self._tokens(item) for item in least]
        used = sum(costs)
        start = 0
        if used > room:
            while start < newest and (used > target or entries[start].item.role in ("assistant", "tool")):
                used -= costs[start]
                entries[start].dropped = True
                entries[start].item = _without_media(entries[start].item)
                start += 1
        for i in reversed(range(start, newest)):
            item = entries[i].item
            for choice in (item, _without_sight(item), least[i]):
                entries[i].item = choice
                if used + self._tokens(choice) - costs[i] <= target:
                    break
            used += self._tokens(entries[i].item) - costs[i]

    def _parts(self, entry: _Entry) -> tuple[Part, ...]:
        name = f"{self._call_id}-{entry.serial}"
        seen = _is_filmed(entry.item)
        sight: list[Part] = []
        rest: list[Part] = []
        screen: list[Part] = []
        images: list[Part] = []
        for content in entry.item.content:
            match content:
                case FramesContent(frames) if content.source == "screen":
                    screen.append(FramesPart(frames, f"{name}-screen"))
                case FramesContent(frames) if content.source == "image":
                    images.append(FramesPart(frames, f"{name}-image"))
                case FramesContent(frames):
                    sight.append(FramesPart(frames, f"{name}-frames"))
                case AudioContent(pcm) if pcm is not None:
                    rest.append(AudioPart(pcm, f"{name}-audio", content.at, content.cuts if seen else ()))
                case CallContent() | ResultContent():
                    pass  # see `_exchanges`
                case _ if text := _text(content)[: entry.engine_said].strip():
                    rest.append(TextPart(text))
        return (
            *images,
            *sight,
            *rest,
            *screen,
        )  # what the camera saw stands before what was said, as one clip

    def _with_sight_within(self, item: Item, tokens: int) -> Item:
        """Leave out pictures, evenly, until they cost no more than `tokens`; one stays at any price.

        Those that were sent ahead stay: there were no more of them than `tokens` allow. In a clip it is their
        size that gives way, and not here (`visavis.fusion`).
        """
        if self._config.clip_tokens is not None:
            return item
        sent = max((cut for c in item.content if isinstance(c, AudioContent) for cut in c.cuts), default=None)

        def thinned(content: Content) -> Content:
            if not isinstance(content, FramesContent) or content.source != "camera":
                return content
            frames = content.frames
            fixed = tuple(frame for frame in frames if sent is not None and frame.at < sent)
            loose = frames[len(fixed) :]
            for most in range(len(loose), 0, -1):
                frames = fixed + spread(loose, most)
                if self._sight_tokens(frames) <= tokens:
                    break
            return FramesContent(frames)

        return replace(item, content=tuple(map(thinned, item.content)))

    def _tokens(self, item: Item) -> int:
        """Estimate what an item costs an engine."""
        tokens = _MESSAGE_TOKENS
        for content in item.content:
            match content:
                case AudioContent(pcm) if pcm is not None:
                    tokens += math.ceil(len(pcm) / RATE * _AUDIO_TOKENS_PER_S)
                case FramesContent(frames):
                    tokens += self._sight_tokens(frames)
                case ResultContent(_, output):
                    tokens += min(self._room_for_result, _text_tokens(output))
                case _:
                    tokens += _text_tokens(_text(content))
        return tokens

    def _sight_tokens(self, frames: Sequence[Frame]) -> int:
        """Estimate what one turn's pictures cost; a clip shows two a second from its first to its last."""
        newest, bound = frames[-1], self._config.clip_tokens
        if newest.source != "camera":
            return sum(math.ceil(frame.width * frame.height / _PIXELS_PER_TOKEN) for frame in frames)
        if bound is None:
            return sum(math.ceil(frame.width * frame.height / _PIXELS_PER_TOKEN) for frame in frames[::2])
        pictures = 1 + math.ceil((newest.at - frames[0].at) / RATE * FPS)
        return min(bound, video_tokens(pictures, newest.width, newest.height))

    @property
    def _room_for_sight(self) -> int:
        return int(_SIGHT * self._config.budget)

    @property
    def _room_for_result(self) -> int:
        return int(_RESULT * self._config.budget)

    def _find(self, item_id: str) -> _Entry | None:
        return next((entry for entry in self._entries if entry.item.id == item_id), None)

    def _insert(self, item: Item, previous_item_id: str | None = None, serial: int | None = None) -> _Entry:
        if self._find(item.id) is not None:
            raise ValueError(f"There is an item {item.id!r} already.")
        at = len(self._entries)
        if previous_item_id is not None:
            ids = ["root", *(entry.item.id for entry in self._entries)]
            if previous_item_id not in ids:
                raise ValueError(f"There is no item {previous_item_id!r}.")
            at = ids.index(previous_item_id)
        serial = self.reserve() if serial is None else serial
        entry = _Entry(self._with_sight_within(item, self._room_for_sight), serial)
        self._entries.insert(at, entry)
        self._release_media()
        self._forget_oldest(entry)
        return entry

    def _forget_oldest(self, newest: _Entry) -> None:
        """Keep the text within its bound. What was just added stays, as does a reply that still grows."""
        excess = sum(_characters(entry.item) for entry in self._entries) - _MAX_CHARACTERS
        for entry in tuple(self._entries):
            if excess <= 0:
                break
            if entry is not newest and entry.item.status != "in_progress":
                excess -= _characters(entry.item)
                self._entries.remove(entry)

    def _release_media(self) -> None:
        """Let go of what is not sent any more: sound that has a transcript and pictures, of older turns.

        Of other older sound only so much is kept as a request can hold, the newest, and 60 % once it is more
        than `max_sounds`.
        """
        users = [entry for entry in self._entries if entry.item.role == "user"]
        for entry in users[: -max(1, self._config.media_turns)]:
            for content in entry.item.content:
                match content:
                    case AudioContent(pcm, str()) if pcm is not None:
                        entry.item = _without_sound(_without_camera(entry.item))
                    case FramesContent():
                        entry.item = _without_camera(entry.item)
        images = [entry for entry in users if any(_is_image(content) for content in entry.item.content)]
        for entry in images[:-_MAX_IMAGES]:
            entry.item = _without_sight(entry.item)
        room = self._config.budget * RATE / _AUDIO_TOKENS_PER_S
        places = self._config.max_sounds
        if sum(_sounds(entry.item) for entry in users) > places:
            places = int(_KEEP * places)
        for entry in reversed(users):
            room -= _samples(entry.item)
            places -= _sounds(entry.item)
            if (room < 0 or places < 0) and entry is not users[-1]:
                entry.item = _without_media(entry.item)


def _sights(frames: Sequence[Frame]) -> tuple[Content, ...]:
    """Put together what was seen, each source by itself."""
    sources: tuple[Source, ...] = ("camera", "screen")
    seen = (tuple(frame for frame in frames if frame.source == source) for source in sources)
    return tuple(FramesContent(shown) for shown in seen if shown)


def _at_least(entry: _Entry) -> Item:
    """Return what must be sent of a turn that is not the newest, as long as it is sent at all."""
    return _without_sight(entry.item) if entry.awaits_transcript else _without_media(entry.item)


def _without_sight(item: Item) -> Item:
    return replace(item, content=tuple(c for c in item.content if not isinstance(c, FramesContent)))


def _without_camera(item: Item) -> Item:
    """Leave out what was seen meanwhile, not what the user has sent to be looked at."""
    seen = (c for c in item.content if not isinstance(c, FramesContent) or _is_image(c))
    return replace(item, content=tuple(seen))


def _without_sound(item: Item) -> Item:
    content = (replace(c, pcm=None) if isinstance(c, AudioContent) else c for c in item.content)
    return replace(item, content=tuple(content))


def _without_media(item: Item) -> Item:
    return _without_sight(_without_sound(item))


def _is_image(content: Content) -> bool:
    return isinstance(content, FramesContent) and content.source == "image"


def _text(content: Content) -> str:
    """Return the text that stands for a content when its media are not sent: none for pictures."""
    match content:
        case TextContent(text) | SpokenContent(text):
            return text
        case AudioContent(_, transcript):
            return transcript if transcript and transcript.strip() else _INAUDIBLE
        case CallContent(_, name, arguments):
            return f"{name} {arguments}"
        case ResultContent(_, output):
            return output
        case _:
            return ""


def _text_tokens(text: str) -> int:
    return math.ceil(len(text.encode(errors="surrogatepass")) / _BYTES_PER_TOKEN)


def _cut(text: str, tokens: int) -> str:
    """Return the beginning of a text that costs no more than so many tokens."""
    if _text_tokens(text) <= tokens:
        return text
    room = int(tokens * _BYTES_PER_TOKEN)
    return f"{text.encode(errors='replace')[:room].decode(errors='ignore')} …"


def _samples(item: Item) -> int:
    return sum(len(c.pcm) for c in item.content if isinstance(c, AudioContent) and c.pcm is not None)


def _sounds(item: Item) -> int:
    """Count the sounds that are sent of an item: where there are pictures, each cut makes one more."""
    seen = _is_filmed(item)
    return sum(
        1 + seen * len(c.cuts) for c in item.content if isinstance(c, AudioContent) and c.pcm is not None
    )


def _as_heard(entry: _Entry, heard: int) -> _Entry:
    """Cut a reply that is being given to what was heard of it; a written one is as it is told."""
    item = replace(entry.item, status="incomplete")
    if entry.reply is not None and isinstance(item.content[0], SpokenContent):
        text = entry.reply.heard(heard, whole=entry.whole)
        item = item if text == entry.reply.text else replace(item, content=(SpokenContent(text),))
    return replace(entry, item=item)


def _as_engines_know(entry: _Entry) -> Item:
    """Leave out of a reply what we have added to it."""
    if entry.engine_said is None:
        return entry.item
    content = entry.item.content[0]
    assert isinstance(content, SpokenContent | TextContent)
    said = _text(content)[: entry.engine_said]
    known = SpokenContent(said) if isinstance(content, SpokenContent) else TextContent(said)
    return replace(entry.item, content=(known,))


def _without_needless_sound(content: Content) -> Content:
    if not isinstance(content, AudioContent) or content.transcript is None:
        return content
    return replace(content, pcm=None, cuts=())


def _is_said(content: Content) -> bool:
    if isinstance(content, CallContent):
        return not content.own  # what runs one's own ends with the call
    return isinstance(content, AudioContent | ResultContent) or bool(_text(content).strip())


def _is_filmed(item: Item) -> bool:
    return any(isinstance(c, FramesContent) and c.source == "camera" for c in item.content)


def _characters(item: Item) -> int:
    return _ITEM_CHARACTERS + sum(len(_text(content)) for content in item.content)

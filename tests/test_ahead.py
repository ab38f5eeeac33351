import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim import SILENCE, UNHURRIED, VOICE, LevelEar, Reply, Sim
from visavis import events as ev
from visavis.actions import CancelResponse, SendAhead, StartResponse, StopAhead
from visavis.ahead import PLACE, OpenTurn, pieces
from visavis.audio import RATE, Pcm
from visavis.clip import blank_jpeg
from visavis.config import (
    AheadConfig,
    CameraConfig,
    Config,
    EngineConfig,
    HistoryConfig,
    LocalConfig,
    SessionConfig,
    TurnConfig,
    TurnDetection,
)
from visavis.engine import AudioPart, Delta, Engine, FramesPart, Message, Request, TextDelta
from visavis.errors import ConfigError, EngineBusy
from visavis.frames import Frame, FrameSampler
from visavis.fusion import Fuser, FusionConfig
from visavis.rtc import PeerStats
from visavis.session import Session
from visavis.trace import CallTrace

SECOND = RATE
WAIT_S = 10.0


def frame(at: int) -> Frame:
    return Frame(b"%d" % at, 320, 192, at)


def shown(frames: tuple[Frame, ...]) -> list[int]:
    return [int(frame.jpeg) for frame in frames]


# Cutting.


def sampler(*ats: int) -> FrameSampler:
    """What the camera saw, at these positions."""
    seen = FrameSampler(CameraConfig())
    for at in ats:
        seen.receive(frame(at))
    return seen


def anything(_: object) -> bool:
    return True


def test_a_turn_is_cut_at_equal_steps_until_there_are_enough():
    turn, seen = OpenTurn(AheadConfig(words_s=0.0, clip_s=2.0, max_clips=2), 100), sampler(90, 90 + 3 * RATE)
    assert not turn.advance(99 + 2 * RATE, seen, anything)
    assert turn.advance(100 + 2 * RATE, seen, anything)
    assert not turn.advance(100 + 2 * RATE, seen, anything)
    assert turn.advance(100 + 4 * RATE, seen, anything)
    assert turn.cuts == (90 + 2 * RATE, 90 + 4 * RATE)
    assert shown(turn.frames) == [90, 90 + 3 * RATE]
    assert turn.next_cut is None


def test_a_turn_without_pictures_or_with_too_many_is_not_cut_any_more():
    for seen, fits in ((sampler(), anything), (sampler(0), lambda _: False)):
        turn = OpenTurn(AheadConfig(words_s=0.0, clip_s=2.0), 0)
        assert not turn.advance(2 * RATE, seen, fits)
        assert turn.next_cut is None
        assert turn.cuts == ()


def test_what_is_seen_after_the_last_cut_belongs_to_the_rest():
    turn, seen = OpenTurn(AheadConfig(words_s=0.0, clip_s=2.0), 0), sampler(0, 3 * RATE)
    assert turn.advance(2 * RATE, seen, anything)
    assert shown(turn.frames_until(3 * RATE, seen)) == [0, 3 * RATE]
    assert shown(turn.frames) == [0]


@given(st.integers(-6 * RATE, 2 * RATE - 1))
def test_cuts_lie_on_the_half_seconds_of_the_pictures(first: int):
    turn = OpenTurn(AheadConfig(words_s=0.0, clip_s=2.0, max_clips=2), 0)
    cut = turn.cut_for([frame(first)])
    assert (cut - first) % PLACE == 0
    assert 0 <= 2 * RATE - cut < PLACE


def test_words_are_sent_again_once_there_are_more():
    turn = OpenTurn(AheadConfig(clip_s=0.0, words_s=2.0), 100)
    assert not turn.grow(99 + 2 * RATE)
    assert not turn.sent
    assert turn.grow(150 + 2 * RATE)
    assert turn.sent
    assert not turn.grow(149 + 4 * RATE)
    assert turn.grow(150 + 4 * RATE)
    assert not OpenTurn(AheadConfig(clip_s=0.0, words_s=0.0), 0).grow(60 * RATE)


def test_words_are_not_sent_at_every_moment():
    AheadConfig(words_s=0.5)
    with pytest.raises(ConfigError):
        AheadConfig(words_s=0.4)


def test_no_clips_are_made_where_none_are_wanted():
    assert OpenTurn(AheadConfig(words_s=0.0, clip_s=0.0), 0).next_cut is None


def test_pictures_go_with_the_sound_of_their_time():
    frames = [frame(at) for at in (5, 12, 20, 29, 31)]
    cut = list(pieces(np.arange(25, dtype=np.int16), 10, frames, (20, 30)))
    assert [(piece.at, *piece.pcm[[0, -1]]) for piece in cut] == [(10, 0, 9), (20, 10, 19), (30, 20, 24)]
    assert [shown(piece.frames) for piece in cut] == [[5, 12], [20, 29], [31]]


def test_a_piece_without_a_picture_shows_the_last_one_before_it():
    cut = list(pieces(np.zeros(30, np.int16), 0, [frame(4)], (10, 20)))
    assert [shown(piece.frames) for piece in cut] == [[4], [4], [4]]
    assert [piece.frames[0].at for piece in cut] == [4, 10, 20]


def test_a_picture_from_before_its_cut_alone_opens_the_turn_it_is_first_of():
    cut = list(pieces(np.zeros(30, np.int16), 0, [frame(14)], (10,)))
    assert [(piece.frames[0].at, shown(piece.frames)) for piece in cut] == [(0, [14]), (14, [14])]


@given(st.lists(st.integers(0, 299), min_size=1), st.sets(st.integers(1, 300)), st.integers(0, 50))
def test_nothing_is_lost_or_doubled_by_cutting(ats: list[int], cuts: set[int], start: int):
    sound = np.arange(300, dtype=np.int16)
    frames = [frame(start + at) for at in sorted(set(ats))]
    cut = list(pieces(sound, start, frames, [start + at for at in sorted(cuts)]))
    assert np.array_equal(np.concatenate([piece.pcm for piece in cut]), sound)
    assert all(piece.frames for piece in cut)
    own = [one for piece in cut for one in piece.frames if int(one.jpeg) == one.at]
    assert own == frames


@given(st.integers(1, 3), st.data())
def test_what_was_sent_ahead_is_the_same_in_the_end(clips: int, data: st.DataObject):
    """Whatever is seen later, the first pieces keep their names, their sound and their pictures."""
    fuser = Fuser(FusionConfig(cache_mb=0), "interleaved")
    cuts = tuple(2 * SECOND * (k + 1) for k in range(clips))
    total = cuts[-1] + data.draw(st.integers(0, 3 * SECOND))
    sound = np.random.default_rng(clips).integers(-3000, 3000, total, np.int16)
    jpeg = blank_jpeg((64, 64))
    ats = sorted(data.draw(st.sets(st.integers(0, total), min_size=1)) | {0})
    frames = tuple(Frame(jpeg, 64, 64, at) for at in ats)
    ahead = tuple(one for one in frames if one.at < cuts[-1])

    def fuse(heard: np.ndarray, seen: tuple[Frame, ...]) -> list[object]:
        parts = (FramesPart(seen, "c-1-frames"), AudioPart(heard, "c-1-audio", 0, cuts))
        return fuser.fuse([Message("user", parts)])[0]

    assert fuse(sound, frames)[:clips] == fuse(sound[: cuts[-1]], ahead)


# In a conversation.


def talk(seconds: float, *, camera_fps: float = 4.0, run: float = 3.0, **changes: object) -> Sim:
    settings = {"history": HistoryConfig(24_000), **changes}
    config = replace(UNHURRIED, ahead=AheadConfig(words_s=0.0, clip_s=2.0, max_clips=3), **settings)  # type: ignore[arg-type]
    return Sim(speech=[(1.0, 1.0 + seconds)], camera_fps=camera_fps, config=config).run(1.0 + seconds + run)


def sent(sim: Sim) -> list[Request]:
    return [action.request for _, action in sim.log if isinstance(action, SendAhead)]


def media(request: Request) -> tuple[FramesPart, AudioPart]:
    seen, heard = request.messages[-1].parts
    assert isinstance(seen, FramesPart)
    assert isinstance(heard, AudioPart)
    return seen, heard


def test_a_long_turn_is_sent_ahead_as_it_grows_and_asked_about_in_the_same_pieces():
    sim = talk(4.6)
    first, second = sent(sim)
    (asked,) = sim.requests()
    assert (first.ahead, first.speak, first.max_tokens, asked.ahead) == (True, False, 1, False)
    assert first.messages[:-1] == second.messages[:-1] == asked.messages[:-1]
    for earlier, later in ((first, second), (second, asked)):
        (seen, heard), (more_seen, more_heard) = media(earlier), media(later)
        assert (seen.uuid, heard.uuid, heard.at) == (more_seen.uuid, more_heard.uuid, more_heard.at)
        assert heard.at + len(heard.pcm) == heard.cuts[-1]
        assert np.array_equal(more_heard.pcm[: len(heard.pcm)], heard.pcm)
        assert more_heard.cuts[: len(heard.cuts)] == heard.cuts
        assert more_seen.frames[: len(seen.frames)] == seen.frames
    assert media(second)[1].cuts == media(asked)[1].cuts
    assert all(one.at < media(second)[1].cuts[-1] for one in media(second)[0].frames)


def test_what_is_sent_ahead_is_stopped_before_the_answer_is_asked_for():
    sim = talk(4.6)
    (stopped,) = [k for k, (_, action) in enumerate(sim.log) if isinstance(action, StopAhead)]
    (asked,) = [k for k, (_, action) in enumerate(sim.log) if isinstance(action, StartResponse)]
    assert stopped < asked


def test_a_short_turn_and_one_without_pictures_are_not_sent_ahead():
    for sim in (talk(1.2), talk(4.6, camera_fps=0.0)):
        assert not sent(sim)
        assert not sim.times(StopAhead)
        assert all(
            part.cuts == () for part in sim.requests()[0].messages[-1].parts if isinstance(part, AudioPart)
        )


def test_no_more_clips_are_sent_ahead_than_allowed():
    sim = talk(15.0)
    assert len(sent(sim)) == 3
    assert len(media(sim.requests()[0])[1].cuts) == 3


def test_a_cut_in_the_silence_after_the_last_word_ends_the_turn_there():
    """All of it was sent ahead then, and no rest is left to look at."""
    sim = talk(1.22)
    (asked,) = sim.requests()
    _, heard = media(asked)
    assert heard.at + len(heard.pcm) == heard.cuts[-1]
    assert len(sent(sim)) == 1


def test_a_turn_with_more_pictures_than_the_history_keeps_is_not_cut_further():
    sim = talk(7.0, history=HistoryConfig(max_tokens=2_600))
    seen, heard = media(sim.requests()[0])
    assert len(heard.cuts) == len(sent(sim)) == 2
    earlier, _ = media(sent(sim)[1])
    assert seen.frames[: len(earlier.frames)] == earlier.frames
    assert len(seen.frames) > len(earlier.frames)


def test_a_turn_dropped_by_the_client_leaves_its_name_unused():
    sim = Sim(
        speech=[(1.0, 4.0), (6.0, 8.5)],
        camera_fps=4,
        config=replace(UNHURRIED, ahead=AheadConfig(words_s=0.0, clip_s=2.0)),
        client=[(3.9, ev.ClearAudio())],
    ).run(12)
    dropped, kept = sent(sim)
    assert media(dropped)[1].uuid != media(kept)[1].uuid == media(sim.requests()[0])[1].uuid
    assert len(sim.times(StopAhead)) == 2


def test_while_an_answer_goes_on_nothing_is_sent_but_the_turn_is_cut_all_the_same():
    session = SessionConfig(turn_detection=TurnDetection(interrupt_response=False))
    sim = Sim(
        speech=[(1.0, 2.0), (4.0, 7.5)],
        camera_fps=4,
        replies=[Reply(seconds=20.0)],
        config=replace(UNHURRIED, session=session, ahead=AheadConfig(words_s=0.0, clip_s=2.0)),
    ).run(30)
    assert not sent(sim)
    assert not sim.times(CancelResponse)
    assert len(media(sim.requests()[1])[1].cuts) == 2


def test_each_part_of_a_turn_that_is_too_long_is_cut_by_itself():
    sim = talk(9.0, turns=TurnConfig(max_turn_ms=5_000))
    parts = [part for part in sim.requests()[0].messages[-1].parts if isinstance(part, AudioPart)]
    assert [len(part.cuts) for part in parts] == [2, 2]
    assert [request.messages[-1].parts[-1].cuts for request in sent(sim)][-1] == parts[1].cuts  # type: ignore[union-attr]


def tell(seconds: float, *, words_s: float = 1.0) -> Sim:
    ahead = AheadConfig(clip_s=0.0, words_s=words_s)
    config = replace(UNHURRIED, history=HistoryConfig(24_000), ahead=ahead)
    return Sim(speech=[(1.0, 1.0 + seconds)], camera_fps=4.0, config=config).run(12)


def sounds(request: Request) -> Pcm:
    (heard,) = (part for part in request.messages[-1].parts if isinstance(part, AudioPart))
    return heard.pcm


def test_the_words_so_far_are_sent_ahead_without_pictures_and_answered_as_a_whole():
    sim = tell(2.6)
    first, second = sent(sim)
    (asked,) = sim.requests()
    assert (first.ahead, first.speak, first.max_tokens, asked.ahead) == (True, False, 1, False)
    assert [type(part) for part in second.messages[-1].parts] == [AudioPart]
    assert first.messages[:-1] == second.messages[:-1] == asked.messages[:-1]
    for earlier, later in ((first, second), (second, asked)):
        pcm = sounds(earlier)
        assert len(pcm) < len(sounds(later))
        assert np.array_equal(sounds(later)[: len(pcm)], pcm)
    assert not any(action.replaces for _, action in sim.log if isinstance(action, SendAhead))


def test_words_sent_ahead_are_stopped_before_the_answer_is_asked_for():
    sim = tell(2.6)
    order = [type(action) for _, action in sim.log if isinstance(action, StopAhead | StartResponse)]
    assert order[:2] == [StopAhead, StartResponse]


def test_few_words_are_not_sent_ahead():
    sim = tell(1.2, words_s=2.0)
    assert len(sim.requests()) == 1
    assert not sent(sim)
    assert not sim.times(StopAhead)


def test_no_words_are_sent_while_an_answer_goes_on():
    session = SessionConfig(turn_detection=TurnDetection(interrupt_response=False))
    sim = Sim(
        speech=[(1.0, 2.0), (4.0, 7.5)],
        replies=[Reply(seconds=20.0)],
        config=replace(UNHURRIED, session=session, ahead=AheadConfig(clip_s=0.0, words_s=2.0)),
    ).run(30)
    assert len(sim.requests()) == 2
    assert not sent(sim)


def test_only_engines_with_such_caches_are_sent_anything_ahead():
    def clip_s(**engine: object) -> float:
        config = Config(engine=EngineConfig(**engine))  # type: ignore[arg-type]
        return config.conversation_with(SessionConfig()).ahead.clip_s

    assert clip_s(name="vllm") == clip_s(name="vllm", media="interleaved") == AheadConfig().clip_s > 0
    assert clip_s(name="vllm", media="separate") == clip_s(name="local") == clip_s(name="dashscope") == 0


def test_words_are_sent_ahead_to_the_embedded_engine_alone():
    def words_s(local: LocalConfig | None = None, **engine: object) -> float:
        config = Config(engine=EngineConfig(**engine), local=local or LocalConfig())  # type: ignore[arg-type]
        return config.conversation_with(SessionConfig()).ahead.words_s

    assert words_s(name="local") == AheadConfig().words_s > 0
    assert words_s(name="vllm") == words_s(name="vllm", media="separate") == words_s(name="dashscope") == 0
    assert words_s(LocalConfig(llm_url="http://127.0.0.1:1"), name="local") == 0


def test_pictures_that_come_late_belong_to_the_clip_that_is_not_sent_yet():
    config = replace(UNHURRIED, ahead=AheadConfig(words_s=0.0, clip_s=2.0), camera=CameraConfig())
    sim = Sim(speech=[(1.0, 6.0)], camera_fps=4, config=config)
    late = 3 * RATE + RATE // 4

    def look() -> None:
        sim.conversation.receive_frame(Frame(b"late", 640, 360, late), sim.now)

    sim.at(3.3, look)
    sim.run(9)
    before = [media(request)[0].frames for request in sent(sim)]
    after = media(sim.requests()[0])[0].frames
    assert after[: len(before[-1])] == before[-1]


# In a session.


class NobodyThere:
    """In place of the WebRTC peer."""

    def __init__(self, *_: object) -> None: ...

    def send_message(self, text: str) -> None: ...

    def want_video(self, fps: float) -> None: ...

    def stats(self) -> PeerStats:
        return PeerStats()

    async def aclose(self) -> None: ...


class Waiting:
    """Holds each request until it is closed, or fails it; notes what it was asked and what is open."""

    def __init__(self, fails: bool = False) -> None:
        self.asked: list[Request] = []
        self.open = 0
        self._fails = fails

    async def respond(self, request: Request) -> AsyncGenerator[Delta, None]:
        self.asked.append(request)
        self.open += 1
        try:
            if self._fails:
                raise EngineBusy("no place")
            await asyncio.Event().wait()
            yield TextDelta("never")
        finally:
            self.open -= 1

    async def ready(self) -> bool:
        return True

    async def aclose(self) -> None: ...


@asynccontextmanager
async def calling(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, name: Literal["vllm", "local"] = "vllm"
) -> AsyncIterator[Callable[..., Awaitable[None]]]:
    """A call; gives what speaks, or is silent, for some seconds, all at once."""
    conversation = replace(UNHURRIED, ahead=AheadConfig(words_s=2.0, clip_s=2.0))
    config = Config(engine=EngineConfig(name=name), conversation=conversation)
    trace, media = CallTrace(config.trace, "call"), SimpleNamespace(peer=NobodyThere)
    session = Session("call", config, SessionConfig(), engine, LevelEar(), trace, media=media)
    running = asyncio.create_task(session.run())
    at = 0

    async def speak(seconds: float, block: Pcm = VOICE) -> None:
        nonlocal at
        for _ in range(round(seconds * RATE / len(block))):
            session.receive_audio(block)
            at += len(block)
            if session.wants_frame(at):
                session.receive_frame(frame(at))
        for _ in range(10):
            await asyncio.sleep(0)

    try:
        await asyncio.sleep(0)
        yield speak
    finally:
        session.hang_up("the test is over")
        async with asyncio.timeout(WAIT_S):
            await running


async def test_a_session_sends_one_request_ahead_at_a_time_and_none_beside_the_answer(
    monkeypatch: pytest.MonkeyPatch,
):
    engine = Waiting()
    async with calling(engine, monkeypatch) as speak:
        await speak(1.9)
        assert not engine.asked
        await speak(0.2)
        assert [request.ahead for request in engine.asked] == [True]
        await speak(2.0)
        assert [request.ahead for request in engine.asked] == [True, True]
        assert engine.open == 1
        await speak(1.0, SILENCE)
        assert [request.ahead for request in engine.asked] == [True, True, False]
        assert engine.open == 1


async def test_a_session_lets_words_arrive_before_it_sends_more(monkeypatch: pytest.MonkeyPatch):
    engine = Waiting()
    async with calling(engine, monkeypatch, "local") as speak:
        await speak(4.5)
        assert [request.ahead for request in engine.asked] == [True]
        assert engine.open == 1
        await speak(1.0, SILENCE)
        assert [request.ahead for request in engine.asked] == [True, False]
        assert engine.open == 1


async def test_a_session_sends_more_words_once_the_first_have_arrived(monkeypatch: pytest.MonkeyPatch):
    engine = Waiting(fails=True)
    async with calling(engine, monkeypatch, "local") as speak:
        await speak(2.5)
        await speak(2.0)
    assert [request.ahead for request in engine.asked] == [True, True]


async def test_a_call_that_ends_within_a_long_turn_leaves_nothing_open(monkeypatch: pytest.MonkeyPatch):
    engine = Waiting()
    async with calling(engine, monkeypatch) as speak:
        await speak(3.0)
        assert engine.open == 1
    assert engine.open == 0


async def test_a_turn_that_could_not_be_sent_ahead_is_asked_about_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
):
    engine = Waiting(fails=True)
    async with calling(engine, monkeypatch) as speak:
        await speak(3.0)
        await speak(1.0, SILENCE)
    assert [request.ahead for request in engine.asked] == [True, False]

"""Whole calls: the command-line caller and a bare peer against the real server."""

import asyncio
import json
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from kit import Caller, Counted, until

from speech import silence, write_wav
from visavis.audio import BLOCK, RATE, Pcm, decode_wav, level_dbfs
from visavis.caller import call
from visavis.config import (
    Config,
    ConversationConfig,
    ServerConfig,
    SpeculationConfig,
    TraceConfig,
    WatchdogConfig,
)
from visavis.conversation import Floor
from visavis.engine import Delta, Done, Request
from visavis.engine.scripted import Fault, Reply, ScriptedEngine
from visavis.errors import CallError

pytestmark = [pytest.mark.loopback, pytest.mark.usefixtures("nothing_left")]

QUESTION = "What is the capital of France?"
LONG = Reply(text="word " * 60, transcript="go on")
UNHURRIED = ConversationConfig(speculation=SpeculationConfig(enabled=False))


def tone(seconds: float, hertz: float) -> Pcm:
    return (8000 * np.sin(np.arange(round(seconds * RATE)) * 2 * np.pi * hertz / RATE)).astype(np.int16)


@pytest.fixture
def question(tmp_path: Path, say) -> Path:
    return write_wav(tmp_path / "question.wav", say(QUESTION))


async def test_a_spoken_question_is_answered_and_reported(serve, question: Path, tmp_path: Path):
    reply = Reply(text="It is Paris.", pcm=tone(1.0, 440), transcript=QUESTION)
    server = await serve(ScriptedEngine([reply]))
    save, report = tmp_path / "reply.wav", tmp_path / "out.json"
    status = await call(server=server.url, key=None, questions=[question], turns=2, save=save, report=report)
    assert status == 0
    result = json.loads(report.read_text())
    assert result["call_id"] == server.sessions[0].call_id
    assert len(result["turns"]) == 2
    for turn in result["turns"]:
        assert turn["user_transcript"] == QUESTION
        assert turn["reply_text"].strip() == "It is Paris."
        assert turn["reply_seconds"] == pytest.approx(1.0, abs=0.1)
        assert turn["first_audio_ms"] > 0
    heard, rate = decode_wav(save.read_bytes())
    loud = [b for b in np.array_split(heard, len(heard) // BLOCK) if level_dbfs(b) > -50]
    assert rate == RATE
    assert len(loud) * BLOCK / rate == pytest.approx(2.0, abs=0.2)
    await until(lambda: len(server.calls) == 0, "the call is gone")


async def test_the_camera_is_seen_at_two_pictures_a_second(serve, question: Path, tmp_path: Path):
    import av

    picture = tmp_path / "sign.png"
    frame = av.VideoFrame.from_ndarray(np.full((480, 640, 3), 180, np.uint8), format="rgb24")
    with av.open(str(picture), "w", format="image2") as out:
        stream = out.add_stream("png", rate=1, options={})
        stream.width, stream.height, stream.pix_fmt = 640, 480, "rgb24"
        out.mux([*stream.encode(frame), *stream.encode(None)])
    engine = ScriptedEngine([Reply(text="A sign.", transcript="look")])
    server = await serve(engine)
    assert await call(server=server.url, key=None, questions=[question], video=picture, turns=2) == 0
    sights = [part for part in engine.requests[-1].messages[-1].parts if type(part).__name__ == "FramesPart"]
    assert sights
    assert (sights[0].frames[0].width, sights[0].frames[0].height) == (640, 480)
    assert sights[0].frames[0].jpeg.startswith(b"\xff\xd8")


async def test_speech_over_the_answer_silences_it_and_the_next_answer_comes(serve, http, say):
    server = await serve(ScriptedEngine([LONG, Reply(text="Yes.", pcm=tone(0.5, 440))]))
    async with Caller(server.url, http) as caller:
        ear = caller.ear
        ear.say(say(QUESTION))
        await until(ear.hears, "the first answer is heard")
        ear.say(say("Stop, please, I have another question."))
        await until(lambda: ear.kinds()["output_audio_buffer.cleared"] == 1, "the answer is cleared")
        await until(lambda: ear.kinds()["response.done"] == 2, "a second answer")
        truncated = next(e for e in ear.events if e["type"] == "conversation.item.truncated")
        assert 0 < truncated["audio_end_ms"] < 20_000
        item = server.sessions[0].history.get(truncated["item_id"])
        assert item is not None
        assert len(item.content[0].transcript.split()) < 60


@pytest.mark.parametrize("after", [None, 0.3])
async def test_a_failed_answer_is_told_and_the_next_turn_works(serve, http, say, after):
    broken = replace(LONG, fault=Fault.LOST, fault_after_s=after)
    engine = ScriptedEngine([broken, Reply(text="Back again.", transcript="hello")])
    server = await serve(engine, Config(conversation=UNHURRIED))
    async with Caller(server.url, http) as caller:
        ear = caller.ear
        ear.say(say(QUESTION))
        await until(lambda: ear.kinds()["response.done"] == 1, "the failure is told")
        assert [e["response"]["status"] for e in ear.events if e["type"] == "response.done"] == ["failed"]
        assert ear.kinds()["error"] == 1
        ear.say(say(QUESTION))
        await until(lambda: ear.kinds()["response.done"] == 2, "the next answer")
        done = [e["response"]["status"] for e in ear.events if e["type"] == "response.done"]
        assert done == ["failed", "completed"]


async def test_an_answer_in_advance_that_fails_is_asked_for_again_and_nobody_hears_of_it(serve, http, say):
    broken = replace(LONG, fault=Fault.LOST, fault_after_s=None)
    server = await serve(ScriptedEngine([broken, Reply(text="Here I am.", transcript="hello")]))
    async with Caller(server.url, http) as caller:
        ear = caller.ear
        ear.say(say(QUESTION))
        await until(lambda: ear.kinds()["response.done"] == 1, "the answer")
        done = [e["response"]["status"] for e in ear.events if e["type"] == "response.done"]
        assert done == ["completed"]
        assert ear.kinds()["error"] == 0


async def test_hanging_up_closes_the_engines_stream_and_leaves_nothing(serve, http, say):
    engine = Counted(ScriptedEngine([replace(LONG, rtf=2.0)]))
    server = await serve(engine)
    async with Caller(server.url, http) as caller:
        caller.ear.say(say(QUESTION))
        await until(lambda: engine.running == 1, "a response runs")
        async with http.delete(f"{server.url}/v1/realtime/calls/{caller.call_id}") as response:
            assert response.status == 200
        await until(lambda: engine.running == 0, "the engine's stream is closed")
        await until(lambda: len(server.calls) == 0, "the call is gone")


class Stubborn(ScriptedEngine):
    """Does not let go of a response before `released`, cancelled or not."""

    def __init__(self) -> None:
        super().__init__([LONG])
        self.released = asyncio.Event()

    async def respond(self, request: Request) -> AsyncGenerator[Delta, None]:
        async with aclosing(super().respond(request)) as deltas:
            try:
                async for delta in deltas:
                    yield delta
            finally:
                while not self.released.is_set():
                    with suppress(asyncio.CancelledError):
                        await self.released.wait()


async def test_who_hangs_up_is_let_go_although_the_engine_is_not(serve, http, say):
    engine = Stubborn()
    server = await serve(engine)
    async with Caller(server.url, http) as caller:
        caller.ear.say(say(QUESTION))
        await until(caller.ear.hears, "an answer")
        async with http.post(f"{server.url}/v1/realtime/calls/{caller.call_id}/hangup") as done:
            hung_up_with_calls = len(server.calls)
            told = caller.ear.closed_with
            engine.released.set()
            assert done.status == 200
        assert hung_up_with_calls == 1
        assert told == "remote"
        assert len(engine.requests) == 1
    await until(lambda: len(server.calls) == 0, "the call is gone")


class Odd(ScriptedEngine):
    """Ends its answers otherwise than it should."""

    def __init__(self, *, done: bool) -> None:
        super().__init__([Reply(text="Fine.")])
        self._done = done

    async def respond(self, request: Request) -> AsyncGenerator[Delta, None]:
        async with aclosing(super().respond(request)) as deltas:
            async for delta in deltas:
                if self._done or not isinstance(delta, Done):
                    yield delta
        if self._done:
            await asyncio.Event().wait()


async def test_an_answer_that_stops_before_its_end_has_failed_at_once(serve, http):
    patient = replace(ConversationConfig(), watchdog=WatchdogConfig(idle_delta_s=3_600, response_s=3_600))
    server = await serve(Odd(done=False), Config(conversation=patient))
    async with Caller(server.url, http) as caller:
        caller.send({"type": "response.create"})
        await until(lambda: caller.ear.kinds()["response.done"] == 1, "the failure")
        assert [e["response"]["status"] for e in caller.ear.events if "response" in e][-1] == "failed"


async def test_an_engine_that_goes_on_after_its_end_is_let_go(serve, http):
    engine = Counted(Odd(done=True))
    server = await serve(engine)
    async with Caller(server.url, http) as caller:
        caller.send({"type": "response.create"})
        await until(lambda: caller.ear.kinds()["response.done"] == 1, "the answer")
        await until(lambda: engine.running == 0, "the stream is closed")


async def test_two_calls_at_once_hear_their_own_answers(serve, http, say):
    replies = [Reply(text="Low.", pcm=tone(2.0, 300)), Reply(text="High.", pcm=tone(2.0, 1500))]
    server = await serve(ScriptedEngine(replies))
    async with Caller(server.url, http) as one, Caller(server.url, http) as two:
        one.ear.say(say(QUESTION))
        await until(lambda: one.ear.kinds()["response.created"] == 1, "the first is asked")
        two.ear.say(say(QUESTION))
        for caller in (one, two):
            await until(lambda ear=caller.ear: ear.kinds()["output_audio_buffer.stopped"] == 1, "an answer")
        for caller, own, other in ((one, 300, 1500), (two, 1500, 300)):
            sound = np.concatenate(caller.ear.heard).astype(float)
            power = np.abs(np.fft.rfft(sound)) ** 2
            hertz = np.fft.rfftfreq(len(sound), 1 / RATE)
            near = [power[np.abs(hertz - f) < 20].sum() for f in (own, other)]
            assert near[0] > 1000 * near[1]


async def test_bad_messages_are_answered_with_errors_and_the_call_lives_on(serve, http):
    server = await serve(ScriptedEngine([Reply(text="Fine.")]))
    async with Caller(server.url, http) as caller:
        ear = caller.ear
        for text in ("{", "[]", '{"type":"nonsense","event_id":"e1"}', '{"type":"response.cancel"}'):
            caller.peer.send_message(text)
        await until(lambda: ear.kinds()["error"] == 4, "four errors")
        assert [e["error"].get("event_id") for e in ear.events if e["type"] == "error"][2] == "e1"
        item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi"}]}
        caller.send({"type": "conversation.item.create", "item": item})
        caller.send({"type": "response.create"})
        await until(lambda: ear.kinds()["output_audio_buffer.stopped"] == 1, "a typed question is answered")


async def test_a_function_of_the_clients_is_called_and_what_it_gave_is_answered(serve, http, tmp_path: Path):
    from replay import replay

    server = await serve(ScriptedEngine(), Config(trace=TraceConfig(tmp_path)))
    async with Caller(server.url, http) as caller:
        ear = caller.ear
        weather = {"type": "function", "name": "weather", "parameters": {"type": "object"}}
        caller.send(
            {"type": "session.update", "session": {"tools": [weather], "output_modalities": ["text"]}}
        )
        words = {"type": "input_text", "text": 'call weather {"city": "Rome"}'}
        message = {"type": "message", "role": "user", "content": [words]}
        caller.send({"type": "conversation.item.create", "item": message})
        caller.send({"type": "response.create"})
        await until(lambda: ear.kinds()["response.done"] == 1, "the call")
        (called,) = next(e for e in ear.events if e["type"] == "response.done")["response"]["output"]
        assert (called["name"], json.loads(called["arguments"])) == ("weather", {"city": "Rome"})
        result = {"type": "function_call_output", "call_id": called["call_id"], "output": "It rains."}
        caller.send({"type": "conversation.item.create", "item": result})
        caller.send({"type": "response.create"})
        await until(lambda: ear.kinds()["response.done"] == 2, "the answer")
        (told,) = (e["text"] for e in ear.events if e["type"] == "response.output_text.done")
        assert told == "The function gave: It rains."
        assert ear.kinds()["error"] == 0
    await until(lambda: len(server.calls) == 0, "the call is gone")
    assert await asyncio.to_thread(replay, tmp_path / f"{caller.call_id}.jsonl") is None


async def test_a_flood_of_messages_is_refused_and_the_call_lives_on(serve, http):
    config = Config(server=replace(ServerConfig(), max_events_per_s=5.0))
    server = await serve(ScriptedEngine([Reply(text="Fine.")]), config)
    async with Caller(server.url, http) as caller:
        for _ in range(50):
            caller.send({"type": "session.update", "session": {"type": "realtime"}})
        await until(lambda: sum(caller.ear.kinds().values()) >= 51, "all are answered")
        codes = {e["error"]["code"] for e in caller.ear.events if e["type"] == "error"}
        assert codes == {"rate_limit_exceeded"}
        assert len(server.calls) == 1


async def test_a_message_that_is_too_long_is_refused_and_the_call_lives_on(serve, http):
    server = await serve(ScriptedEngine([Reply()]), Config(server=replace(ServerConfig(), max_message=1000)))
    async with Caller(server.url, http) as caller:
        caller.send({"type": "session.update", "session": {"instructions": "x" * 1000}})
        await until(lambda: caller.ear.kinds()["error"] == 1, "an error")
        assert caller.ear.events[-1]["error"]["code"] == "message_too_large"
        caller.send({"type": "session.update", "session": {"instructions": "x"}})
        await until(lambda: caller.ear.kinds()["session.updated"] == 1, "the next one is obeyed")


async def test_a_call_ends_at_its_greatest_length(serve, http):
    config = Config(server=replace(ServerConfig(), max_call_s=1.0))
    server = await serve(ScriptedEngine([Reply()]), config)
    async with Caller(server.url, http) as caller:
        await until(lambda: caller.ear.closed_with is not None or not len(server.calls), "the end")
        await until(lambda: len(server.calls) == 0, "the call is gone")


async def test_an_internal_error_ends_its_call_and_no_other(serve, http, say, caplog):
    server = await serve(ScriptedEngine([Reply(text="Fine.", pcm=tone(0.4, 440))]))
    async with Caller(server.url, http) as bad, Caller(server.url, http) as good:

        class Broken:
            def receive(self, pcm: Pcm) -> float:
                raise RuntimeError("broken on purpose")

            def play(self, pcm: Pcm) -> None: ...

        server.sessions[0]._conversation._listener._ear = Broken()  # type: ignore[assignment]
        await until(lambda: len(server.calls) == 1, "the broken call is gone")
        assert "broken on purpose" in caplog.text
        good.ear.say(say(QUESTION))
        await until(lambda: good.ear.kinds()["output_audio_buffer.stopped"] == 1, "the other is answered")
        assert bad.call_id not in server.calls


async def test_a_trace_replays_to_the_same(serve, http, say, tmp_path: Path):
    from replay import replay  # type: ignore[import-not-found]

    config = Config(trace=TraceConfig(dir=tmp_path))
    server = await serve(ScriptedEngine([LONG, replace(LONG, fault=Fault.LOST, fault_after_s=2.3)]), config)
    async with Caller(server.url, http) as caller:
        ear = caller.ear
        ear.say(say(QUESTION))
        await until(ear.hears, "an answer")
        caller.send({"type": "response.cancel"})
        ear.say(say(QUESTION))
        await until(lambda: ear.kinds()["response.done"] == 2, "the second fails")
    async with http.delete(f"{server.url}/v1/realtime/calls/{caller.call_id}"):
        pass
    await until(lambda: len(server.calls) == 0, "the call is gone")
    path = tmp_path / f"{caller.call_id}.jsonl"
    assert await asyncio.to_thread(replay, path) is None
    lines = (await asyncio.to_thread(path.read_text)).splitlines()
    assert not any("word word" in line for line in lines if '"in":"audio"' in line)
    broken = [line.replace('"speech":0.', '"speech":0.0') for line in lines]
    await asyncio.to_thread(path.write_text, "\n".join(broken))
    assert await asyncio.to_thread(replay, path) is not None


async def test_refusals_of_a_server_are_told_in_a_sentence(serve, question: Path):
    server = await serve(ScriptedEngine([Reply()]), Config(server=replace(ServerConfig(), keys=("secret",))))
    with pytest.raises(CallError, match="401"):
        await call(server=server.url, key=None, questions=[question])
    with pytest.raises(CallError, match="cannot reach"):
        await call(server="http://127.0.0.1:9", key=None, questions=[question])
    assert await call(server=server.url, key="secret", questions=[question]) == 0


async def test_the_call_is_hung_up_while_the_server_still_has_it(serve, question: Path, caplog):
    caplog.set_level(logging.INFO, "visavis.session")
    server = await serve(ScriptedEngine([Reply(text="Fine.", pcm=tone(0.3, 440))]))
    assert await call(server=server.url, key=None, questions=[question]) == 0
    await until(lambda: len(server.calls) == 0, "the call is gone")
    assert "call over: the client hung up" in caplog.text


STORY = " ".join(f"word{number}" for number in range(1, 19))


def story(request: Request) -> Reply:
    """Tell it, or the rest of it."""
    return Reply(request.recite or STORY, transcript=None if request.recite else "Tell me a story.")


async def test_a_lost_call_is_gone_on_from_and_its_answer_heard_to_the_end(
    serve, question: Path, tmp_path: Path, capsys
):
    server, report = await serve(ScriptedEngine([story])), tmp_path / "out.json"
    calling = asyncio.create_task(call(server=server.url, key=None, questions=[question], report=report))

    def unheard() -> int:
        unsaid = server.sessions[-1]._conversation.snapshot().unsaid if server.sessions else None
        return len(unsaid.text.split()) if unsaid else 0

    for left in (15, 12):
        await until(lambda left=left: 0 < unheard() <= left, "some words")
        server.calls.hang_up_all("a test")
        sessions = len(server.sessions)
        await until(lambda sessions=sessions: len(server.sessions) > sessions, "another call")
    assert await calling == 0
    assert capsys.readouterr().out.count("The talk goes on where it was.") == 2
    (turn,) = json.loads(report.read_text())["turns"]
    assert turn["reply_text"] == STORY
    assert turn["user_transcript"] == "Tell me a story."
    assert turn["reply_seconds"] > 0.3 * 18


async def test_a_question_that_the_loss_cut_short_is_asked_again(serve, question: Path, capsys):
    engine = ScriptedEngine([Reply(text="Fine.", pcm=tone(0.3, 440), transcript="How are you?")])
    server = await serve(engine)
    calling = asyncio.create_task(call(server=server.url, key=None, questions=[question], turns=2))
    await until(lambda: bool(server.sessions), "the call")
    talk = server.sessions[0]._conversation
    await until(lambda: len(talk.history.items) == 2 and talk.floor is Floor.IDLE, "the first answer")
    await until(lambda: talk._listener.speaking, "the second question")
    server.calls.hang_up_all("a test")
    assert await calling == 0
    first, second = server.sessions
    assert [item.id for item in second.history.items][:2] == [item.id for item in first.history.items][:2]
    assert "The question is asked again." in capsys.readouterr().out


async def test_who_does_not_want_to_come_back_is_told_that_the_call_was_lost(serve, question: Path):
    server = await serve(ScriptedEngine([LONG]))
    calling = asyncio.create_task(call(server=server.url, key=None, questions=[question], reconnects=0))
    await until(
        lambda: bool(server.sessions) and server.sessions[0]._conversation._listener.speaking, "speech"
    )
    server.calls.hang_up_all("a test")
    with pytest.raises(CallError, match="the call was lost"):
        await calling
    assert len(server.sessions) == 1


class Waking(ScriptedEngine):
    """Is ready when it has been asked often enough."""

    left = 2

    async def ready(self) -> bool:
        self.left -= 1
        return self.left < 0


async def test_a_server_that_warms_up_is_asked_again_and_this_is_said_once(serve, question: Path, capsys):
    server = await serve(Waking([Reply(text="Fine.")]))
    await call(server=server.url, key=None, questions=[question])
    assert capsys.readouterr().out.count("Asking again every 3 s") == 1


async def test_a_question_that_is_no_sound_is_refused(tmp_path: Path):
    for name, content in (("none.wav", b"RIFF"), ("still.wav", None)):
        path = tmp_path / name
        if content is None:
            write_wav(path, silence(1.0))
        else:
            path.write_bytes(content)
        with pytest.raises(CallError, match=name):
            await call(server="http://127.0.0.1:9", key=None, questions=[path])

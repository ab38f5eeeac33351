import json
import logging
from collections.abc import Iterable
from itertools import groupby, pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from visavis.config import EngineConfig, FusionConfig
from visavis.engine import (
    AudioDelta,
    CallPart,
    Delta,
    Done,
    Message,
    Request,
    ResultPart,
    TextDelta,
    TextPart,
    ThinkingDelta,
    Tool,
    ToolCall,
    ToolChoice,
)
from visavis.engine.calling import CallSplitter, is_about_tools
from visavis.engine.chat import ReplyDecoder, request_body
from visavis.errors import EngineRefused
from visavis.fusion import Fuser

FUSER = Fuser(FusionConfig(), "separate")
PLACE = {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]}
WEATHER = Tool("weather", "Tells the weather.", json.dumps(PLACE))
OFFERED = {
    "type": "function",
    "function": {"name": "weather", "description": "Tells the weather.", "parameters": PLACE},
}
ASKED = Message("user", (TextPart("Is it raining in Rome?"),))
CALLED = Message("assistant", (TextPart("Let me see."), CallPart("c1", "weather", '{"place": "Rome"}')))
GIVEN = Message("tool", (ResultPart("c1", "It rains."),))


def body(*messages: Message, tools: Any = (WEATHER,), manner: str = "server", **fields: Any) -> Any:
    config = EngineConfig(name="vllm", tools=manner)  # type: ignore[arg-type]  # one of two
    return json.loads(request_body(Request("call-1", messages, tools=tools, **fields), config, FUSER))


# The request.


def test_a_server_that_reads_calls_is_offered_the_tools() -> None:
    sent = body(ASKED)
    assert sent["tools"] == [OFFERED]
    assert sent["tool_choice"] == "auto"
    assert [message["role"] for message in sent["messages"]] == ["user"]


def test_a_request_without_tools_says_nothing_of_any() -> None:
    assert not {"tools", "tool_choice"} & body(ASKED, tools=()).keys()
    assert len(body(ASKED, tools=(), manner="text")["messages"]) == 1


@pytest.mark.parametrize(
    ("choice", "sent"),
    [
        (ToolChoice("none"), "none"),
        (ToolChoice("required"), "required"),
        (ToolChoice("function", "weather"), {"type": "function", "function": {"name": "weather"}}),
    ],
)
def test_the_choice_goes_as_openai_writes_it(choice: ToolChoice, sent: object) -> None:
    assert body(ASKED, tool_choice=choice)["tool_choice"] == sent


def test_calls_and_results_of_the_past_go_as_openai_writes_them() -> None:
    both = Message("tool", (ResultPart("c1", "It rains."), ResultPart("c2", "It is noon.")))
    silent = Message("assistant", (CallPart("c2", "clock", "oops"),))
    assert body(ASKED, CALLED, silent, both)["messages"][1:] == [
        {
            "role": "assistant",
            "content": "Let me see.",
            "tool_calls": [
                {
                    "id": "c1",
                    "type": "function",
                    "function": {"name": "weather", "arguments": '{"place": "Rome"}'},
                }
            ],
        },
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "c2", "type": "function", "function": {"name": "clock", "arguments": "{}"}}
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "It rains."},
        {"role": "tool", "tool_call_id": "c2", "content": "It is noon."},
    ]


def test_to_a_server_that_reads_no_calls_all_of_it_is_text() -> None:
    rules = Message("system", (TextPart("Be kind."),))
    sent = body(rules, ASKED, CALLED, GIVEN, manner="text")
    assert not {"tools", "tool_choice"} & sent.keys()
    system, asked, called, given_ = sent["messages"]
    assert system["role"] == "system"
    assert system["content"].startswith("Be kind.\n\n# Tools\n")
    assert f"<tools>\n{json.dumps(OFFERED)}\n</tools>" in system["content"]
    assert asked == {"role": "user", "content": "Is it raining in Rome?"}
    call = '<tool_call>\n{"name": "weather", "arguments": {"place": "Rome"}}\n</tool_call>'
    assert called == {"role": "assistant", "content": f"Let me see.\n{call}"}
    assert given_ == {"role": "user", "content": "<tool_response>\nIt rains.\n</tool_response>"}


@pytest.mark.parametrize(
    ("choice", "end"),
    [
        (ToolChoice(), "</tool_call>"),
        (ToolChoice("required"), "Call at least one function now."),
        (ToolChoice("function", "weather"), "Call the function weather now."),
    ],
)
def test_a_description_is_a_system_message_of_its_own_where_there_is_none(
    choice: ToolChoice, end: str
) -> None:
    system, asked = body(ASKED, manner="text", tool_choice=choice)["messages"]
    assert system["role"] == "system"
    assert system["content"].endswith(end)
    assert asked["role"] == "user"


def test_what_may_not_be_called_is_not_described() -> None:
    assert len(body(ASKED, manner="text", tool_choice=ToolChoice("none"))["messages"]) == 1


@pytest.mark.parametrize(
    ("message", "about"),
    [
        ('"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set', True),
        ("tools are not supported by this model", True),
        ("This model's maximum context length is 4096 tokens", False),
    ],
)
def test_a_refusal_of_tools_is_told_from_others(message: str, about: bool) -> None:
    assert is_about_tools(EngineRefused(message)) is about


# Calls in the text.

CALL = '<tool_call>\n{"name": "weather", "arguments": {"place": "Rome"}}\n</tool_call>'
ROME = ("weather", {"place": "Rome"})


def plain(told: Iterable[Delta]) -> list[object]:
    """Join neighbouring texts, and leave out what calls are named."""
    out: list[object] = []
    for kind, run in groupby(told, type):
        if kind is TextDelta:
            out.append("".join(one.text for one in run if isinstance(one, TextDelta)))
        else:
            out += [
                (one.name, json.loads(one.arguments)) if isinstance(one, ToolCall) else one for one in run
            ]
    return out


def split(*texts: str) -> list[object]:
    splitter = CallSplitter()
    return plain([told for text in texts for told in splitter.receive(text)] + splitter.finish())


PIECES = st.sampled_from(
    [
        CALL,
        "<tool_call>",
        "</tool_call>",
        "<tool",
        "_call>",
        "<",
        "</",
        "{",
        '"name"',
        "\n",
        " ",
        "Hm. ",
        "1 < 2",
    ]
)


@given(st.lists(PIECES, max_size=10).map("".join), st.lists(st.integers(0, 400), max_size=20))
def test_any_cutting_gives_the_same(text: str, cuts: list[int]) -> None:
    edges = [0, *sorted(at % (len(text) + 1) for at in cuts), len(text)]
    whole = split(text)
    assert split(*(text[start:end] for start, end in pairwise(edges))) == whole
    assert split(*text) == whole


@given(st.text(st.characters(exclude_characters="<"), max_size=40))
def test_an_answer_without_calls_is_not_touched(text: str) -> None:
    assert split(text) == ([text] if text else [])


def test_words_around_calls_are_text_and_calls_are_none() -> None:
    assert split(f"Let me see. {CALL}\n{CALL}\n\nDone.") == ["Let me see. ", ROME, ROME, "Done."]


def test_words_are_held_back_only_while_they_may_be_a_tag() -> None:
    splitter = CallSplitter()
    assert splitter.receive("1 <") == [TextDelta("1 ")]
    assert splitter.receive(" 2 <tool_") == [TextDelta("< 2 ")]
    assert splitter.finish() == [TextDelta("<tool_")]


@pytest.mark.parametrize(
    "written",
    [
        '{"name": "weather", "arguments": {"place": "Rome"}}',
        '{"name": "weather", "arguments": "{\\"place\\": \\"Rome\\"}"}',
    ],
)
def test_a_last_call_need_not_be_closed_and_arguments_may_be_in_a_string(written: str) -> None:
    assert split(f"<tool_call>{written}") == [ROME]


def test_a_function_without_arguments_may_be_called_without_any() -> None:
    assert split('<tool_call>{"name": "clock"}</tool_call>') == [("clock", {})]


@pytest.mark.parametrize(
    "written", ["", "{", "[]", '{"arguments": {}}', '{"name": "a", "arguments": 3}', "[" * 5_000]
)
def test_a_call_that_cannot_be_read_is_none_and_the_log_says_so(
    written: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        assert split(f"a <tool_call>{written}</tool_call> b") == ["a b"]
    assert "cannot be read" in caplog.text


def test_a_call_without_end_is_not_kept_whole() -> None:
    splitter = CallSplitter()
    splitter.receive("<tool_call>")
    for _ in range(300):
        assert splitter.receive("x" * 1_000) == []
    assert splitter.receive("</tool_call>so") == [TextDelta("so")]


# The stream.


def chunk(modality: str | None = None, finish: str | None = None, **delta: Any) -> str:
    data: dict[str, Any] = {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}
    return json.dumps(data if modality is None else data | {"modality": modality})


def piece(index: int, arguments: str | None = None, **more: Any) -> str:
    function = more | ({} if arguments is None else {"arguments": arguments})
    named = {"id": f"c{index}", "type": "function"} if "name" in more else {}
    return chunk(tool_calls=[{"index": index, "function": function, **named}])


SOUND = chunk("audio", content="AAAA")


def decode(*events: str, speak: bool = False, tools: bool = True, thinking: bool = False) -> list[Delta]:
    decoder = ReplyDecoder(speak=speak, tools=tools, thinking=thinking)
    return [delta for event in events for delta in decoder.receive_event(event)]


def test_calls_come_whole_however_the_server_cuts_them_and_end_the_answer() -> None:
    assert decode(
        chunk(content="Let me see."),
        piece(0, "", name="weather"),
        piece(0, '{"place": "'),
        piece(0, 'Rome"}'),
        piece(1, '{"place": "Oslo"}', name="weather"),
        chunk(finish="tool_calls"),
        "[DONE]",
    ) == [
        TextDelta("Let me see."),
        ToolCall("c0", "weather", '{"place": "Rome"}'),
        ToolCall("c1", "weather", '{"place": "Oslo"}'),
        Done("tool_calls"),
    ]


def test_what_vllm_streams_for_a_function_that_must_be_called_is_read() -> None:
    """As vLLM 0.32 sends it: the role, the name without arguments, pieces, and "stop" in the end."""
    named = {"id": "chatcmpl-tool-b7b4", "type": "function", "index": 0, "function": {"name": "weather"}}
    pieces = [{"index": 0, "function": {"arguments": part}} for part in ('{"pl', 'ace": ', '"Rome"', "}")]
    events = [chunk(role="assistant", content="")]
    events += [chunk(content=None, tool_calls=[call]) for call in (named, *pieces)]
    assert decode(*events, chunk(finish="stop"), "[DONE]") == [
        ToolCall("chatcmpl-tool-b7b4", "weather", '{"place": "Rome"}'),
        Done("tool_calls"),
    ]


def test_a_call_is_told_before_the_end_of_the_answer() -> None:
    assert decode(piece(0, '{"place": "Rome"}', name="weather"))[0] == ToolCall(
        "c0", "weather", '{"place": "Rome"}'
    )


def test_calls_without_arguments_end_with_the_next_one_or_the_answer() -> None:
    told = decode(piece(0, name="clock"), piece(1, "", name="date"), chunk(finish="stop"), "[DONE]")
    assert told == [ToolCall("c0", "clock", "{}"), ToolCall("c1", "date", "{}"), Done("tool_calls")]


def test_servers_that_number_all_calls_alike_are_understood_by_the_ids() -> None:
    one, other = ({"index": 0, "id": name, "function": {"name": name, "arguments": "{}"}} for name in "ab")
    more = {"index": 0, "id": "b", "function": {"arguments": " "}}
    told = decode(*(chunk(tool_calls=[call]) for call in (one, other, more)), "[DONE]")
    assert told == [ToolCall("a", "a", "{}"), ToolCall("b", "b", "{}"), Done("tool_calls")]


def test_a_call_that_the_server_has_not_named_gets_a_name() -> None:
    told = decode(chunk(tool_calls=[{"function": {"name": "clock", "arguments": "{}"}}]))
    (call,) = told
    assert isinstance(call, ToolCall)
    assert call.call_id.startswith("call_")


@pytest.mark.parametrize("reason", ["length", "stop"])
def test_a_call_whose_arguments_are_cut_off_is_none(reason: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        told = decode(piece(0, '{"place": "Ro', name="weather"), chunk(finish=reason), "[DONE]")
    assert told == [Done(reason)]  # type: ignore[arg-type]  # one of them
    assert "'weather' is left out" in caplog.text


@pytest.mark.parametrize("calls", [None, 3, [], [3], [{"function": 3}], [{"index": 0}]])
def test_what_is_no_call_says_nothing(calls: object) -> None:
    assert decode(chunk(content="Hi.", tool_calls=calls)) == [TextDelta("Hi.")]


def test_calls_in_the_text_are_neither_text_nor_sound() -> None:
    text = [chunk("text", content=part) for part in ("See. <tool", f"{CALL[5:30]}", CALL[30:])]
    deltas = decode(*text, SOUND, chunk("audio", "stop"), "[DONE]", speak=True)
    assert plain(deltas) == ["See. ", ROME, Done("tool_calls")]


def test_a_call_at_the_very_end_of_the_text_counts() -> None:
    deltas = decode(chunk(content=CALL.removesuffix("</tool_call>")), chunk(finish="stop"), "[DONE]")
    assert plain(deltas) == [ROME, Done("tool_calls")]


def test_sound_is_heard_until_a_call_begins_and_not_from_then_on() -> None:
    events = (chunk("text", content="See."), SOUND, piece(0, '{"a', name="weather"), SOUND, piece(0, '":1}'))
    kinds = [type(delta) for delta in decode(*events, SOUND, speak=True)]
    assert kinds == [TextDelta, AudioDelta, ToolCall]


def test_a_call_that_is_only_thought_of_is_none() -> None:
    deltas = decode(chunk(content=f"I could {CALL}"), chunk(content="</think>Hi."), thinking=True)
    assert [type(delta) for delta in deltas] == [ThinkingDelta, TextDelta]


def test_without_tools_the_text_is_left_as_it_is() -> None:
    assert plain(decode(chunk(content=CALL), tools=False)) == [CALL]

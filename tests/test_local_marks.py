import json
import logging
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from visavis.config import AUTO, Tool, ToolChoice
from visavis.engine import ToolCall
from visavis.local.marks import MarkReader, call_line, grammar, introduction, marked, result_line

PLACE = {"type": "object", "properties": {"place": {"type": "string"}}}
WEATHER = Tool("weather", "Tells the weather.", json.dumps(PLACE))
CLOCK = Tool("clock", "Tells the time.")
NONE = Tool("none", "A name that is taken.")
TOOLS = (WEATHER, CLOCK, NONE)


def rules(choice: ToolChoice = AUTO, *, after_result: bool = False) -> dict[str, str]:
    first, *lines = grammar(TOOLS, choice, after_result=after_result).split("\n")
    assert first == "%llguidance {}"
    return dict(line.split(": ", 1) for line in lines)


def test_a_reply_is_an_answer_or_a_call_whose_arguments_fit() -> None:
    told = rules()
    assert told["start"] == "answer | call0 | call1"
    assert told["call0"] == '"[weather] " arguments0'
    schema = json.loads(told["arguments0"].removeprefix("%json "))
    assert schema.items() >= PLACE.items()
    assert json.loads(told["arguments1"].removeprefix("%json "))["type"] == "object"


@pytest.mark.parametrize(
    ("choice", "after_result", "start"),
    [
        (ToolChoice("required"), False, "call0 | call1"),
        (ToolChoice("function", "clock"), False, "call0"),
        (ToolChoice("function", "nobody"), False, "answer"),
        (ToolChoice("none"), False, "answer"),
        (AUTO, True, "answer"),
        (ToolChoice("required"), True, "answer"),
    ],
)
def test_the_choice_decides_what_may_be_said(choice: ToolChoice, after_result: bool, start: str) -> None:
    assert rules(choice, after_result=after_result)["start"] == start


def test_without_functions_there_is_neither_grammar_nor_introduction() -> None:
    assert grammar((), AUTO, after_result=False) == ""
    assert introduction(()) == []


def test_functions_are_introduced_with_examples_that_call_none() -> None:
    first, *talk = introduction(TOOLS)
    assert "[weather] Tells the weather. Arguments: " in first["content"]
    assert "taken" not in first["content"]
    assert [message["role"] for message in talk] == ["user", "assistant"] * (len(talk) // 2)
    assert all(message["content"].startswith("[none] ") for message in talk[1::2])


def test_a_long_result_is_cut() -> None:
    assert result_line("noon") == "[Result]\nnoon"
    assert len(result_line("x" * 10_000)) < 2_100
    assert result_line("x" * 10_000).endswith("x …")


def read(*pieces: str) -> tuple[str, ToolCall | None]:
    reader = MarkReader(TOOLS)
    said = "".join(map(reader.receive, pieces))
    last = reader.finish()
    return (said, last) if isinstance(last, ToolCall) else (said + last, None)


REPLIES = st.sampled_from(
    [
        marked("It is noon. [1]"),
        call_line("weather", '{"place": "Rome"}'),
        "Just so.",
        "[Camera off] Hm.",
        "[wea",
        "",
        "[none]",
    ]
)


@given(REPLIES, st.lists(st.integers(0, 60), max_size=8))
def test_any_cutting_gives_the_same(reply: str, cuts: list[int]) -> None:
    edges = [0, *sorted(at % (len(reply) + 1) for at in cuts), len(reply)]
    (said, call), (whole, called) = read(*(reply[a:b] for a, b in pairwise(edges))), read(reply)
    assert said == whole
    assert (call and (call.name, call.arguments)) == (called and (called.name, called.arguments))


def test_the_mark_of_an_answer_is_taken_off() -> None:
    assert read("[none]", " ", "It is", " noon.") == ("It is noon.", None)


def test_what_follows_a_name_is_a_call() -> None:
    said, call = read("[weather] ", '{"place":"Rome"}')
    assert said == ""
    assert call is not None
    assert (call.name, call.arguments) == ("weather", '{"place": "Rome"}')


@pytest.mark.parametrize("reply", ["Just so.", "[Camera off] Hm.", "[wea", "[clock"])
def test_a_reply_without_a_mark_is_an_answer(reply: str) -> None:
    assert read(reply) == (reply, None)


@pytest.mark.parametrize("arguments", ["", '{"place": "Ro', "[]"])
def test_a_call_that_was_cut_off_is_none_and_the_log_says_so(
    arguments: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        assert read(f"[weather] {arguments}") == ("", None)
    assert "is left out" in caplog.text

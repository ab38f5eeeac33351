"""The server's own functions: what is offered, what fits, what a result is."""

import asyncio
import logging
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest

from visavis.config import McpConfig, Tool, ToolsConfig
from visavis.engine import ToolCall
from visavis.errors import ConfigError, ToolError
from visavis.tools import Arguments, Context, Source
from visavis.tools.builtin import END_CALL, LOOK, BuiltIn
from visavis.tools.python import MAX_THREADS, PythonTools, read_entry_point, read_function
from visavis.tools.toolbox import Toolbox, fitting, opened_toolbox

ROOM = Tool(
    "light",
    "Switches a light.",
    '{"properties": {"room": {"enum": ["hall", "attic"]}}, "required": ["room"]}',
)
ALL = ToolsConfig(allow=("*",))


@dataclass
class Call:
    """The call that functions are run in."""

    call_id: str = "call"
    shows: bool = True
    looked: int = 0
    ending: bool = False

    async def look(self) -> bool:
        self.looked += 1
        return self.shows

    def end_when_heard(self) -> None:
        self.ending = True


@dataclass
class Lamps:
    """A source with one function, which does what it is told to."""

    does: Callable[[Arguments], Any] = lambda arguments: "on"
    tools: Sequence[Tool] = (ROOM,)
    own_s: float | None = None
    ran: list[Arguments] = field(default_factory=list)

    def timeout_s(self, name: str) -> float | None:
        return self.own_s

    async def run(self, name: str, arguments: Arguments, context: Context) -> str:
        self.ran.append(arguments)
        result = self.does(arguments)
        return await result if asyncio.iscoroutine(result) else result


async def run(
    source: Source, arguments: str = '{"room": "hall"}', config: ToolsConfig = ALL, name: str = "light"
) -> str:
    return await Toolbox(config, [source]).run(ToolCall("c1", name, arguments), "call", Call())


# What there is.


def test_nothing_is_there_that_is_not_allowed() -> None:
    sources = [BuiltIn(), Lamps()]
    assert Toolbox(ToolsConfig(), sources).tools() == ()
    assert Toolbox(ToolsConfig(allow=("light",)), sources).tools() == (ROOM,)
    assert Toolbox(ToolsConfig(allow=("l*",)), sources).tools() == (LOOK, ROOM)


def test_of_two_of_one_name_the_first_sources_is_there() -> None:
    mine = Tool("look", "Mine.")
    assert Toolbox(ALL, [BuiltIn(), Lamps(tools=(mine,))]).tools() == (LOOK, END_CALL)


async def test_what_is_not_there_is_told_of_and_not_run() -> None:
    lamps = Lamps()
    told = await run(lamps, config=ToolsConfig(allow=("look",)))
    assert told == "There is no function 'light' at present."
    assert lamps.ran == []


# What fits.


async def test_arguments_that_fit_are_passed_on() -> None:
    lamps = Lamps()
    assert await run(lamps) == "on"
    assert lamps.ran == [{"room": "hall"}]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("{", "are no JSON"),
        ("[" * 100_000, "are no JSON"),
        ("[]", "is not of type 'object'"),
        ("", "'room' is a required property"),
        ('{"room": "cellar"}', r"\$\.room: 'cellar' is not one of \['hall', 'attic'\]"),
    ],
)
async def test_arguments_that_do_not_fit_are_refused_in_words_that_help(arguments: str, said: str) -> None:
    lamps = Lamps()
    with pytest.raises(ToolError, match=said):
        fitting(ROOM, arguments)
    assert "Call it again" in await run(lamps, arguments)
    assert lamps.ran == []


@pytest.mark.parametrize(
    "schema", ['{"type": 3}', '{"$ref": "http://nobody.invalid/schema"}', '{"$ref": "#/missing"}']
)
def test_a_broken_schema_refuses_everything_and_fetches_nothing(
    schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("urllib.request.urlopen", lambda *_, **__: pytest.fail("something was fetched"))
    with pytest.raises(ToolError, match="its schema is broken"):
        fitting(Tool("odd", parameters=schema), "{}")


# What a result is.


async def test_a_long_result_is_cut_and_says_so() -> None:
    told = await run(Lamps(lambda _: "x" * 50_000), config=ToolsConfig(allow=("*",), max_output=100))
    assert told == "x" * 100 + "\n[The result is longer; this is its beginning.]"


async def test_a_function_that_takes_too_long_is_cancelled_and_the_model_told() -> None:
    cancelled = asyncio.Event()

    async def hang() -> str:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        return ""

    lamps = Lamps(lambda _: hang(), own_s=0.01)
    assert await run(lamps) == "light gave nothing within 0.01 s."
    assert cancelled.is_set()


async def test_a_fault_is_told_by_its_kind_alone_and_logged_whole(caplog: pytest.LogCaptureFixture) -> None:
    def fail(_: Arguments) -> str:
        raise ValueError("the secret is 42")

    assert await run(Lamps(fail)) == "light failed (ValueError)."
    assert "the secret is 42" in caplog.text


async def test_a_refusal_is_told_in_its_own_words() -> None:
    def refuse(_: Arguments) -> str:
        raise ToolError("The bulb is broken.")

    assert await run(Lamps(refuse)) == "The bulb is broken."


async def test_a_fault_of_one_does_not_reach_another() -> None:
    gate = asyncio.Event()

    async def wait() -> str:
        await gate.wait()
        return "on"

    def fail(_: Arguments) -> str:
        raise ValueError

    slow = asyncio.create_task(run(Lamps(lambda _: wait())))
    assert "failed" in await run(Lamps(fail))
    gate.set()
    assert await slow == "on"


# What is built in.


async def test_look_sees_or_says_that_there_is_nothing_to_see() -> None:
    box = Toolbox(ALL, [BuiltIn()])
    seeing, blind = Call(), Call(shows=False)
    assert "picture follows" in await box.run(ToolCall("c", "look", "{}"), "call", seeing)
    assert "camera is off" in await box.run(ToolCall("c", "look", "{}"), "call", blind)
    assert (seeing.looked, blind.looked) == (1, 1)


async def test_end_call_asks_for_a_goodbye_first() -> None:
    call = Call()
    told = await Toolbox(ALL, [BuiltIn()]).run(ToolCall("c", "end_call", ""), "call", call)
    assert "goodbye" in told
    assert call.ending


# Functions in Python.


async def shop(
    name: str,
    day: Annotated[Literal["today", "tomorrow"], "When."] = "today",
    floors: list[int] | None = None,
    prices: dict[str, float] | None = None,
) -> dict[str, object]:
    """Tells when a shop is open."""
    return {"name": name, "day": day}


def test_a_function_is_described_by_its_types_and_docstring() -> None:
    tool, _ = read_function("shop", shop)
    assert (tool.name, tool.description) == ("shop", "Tells when a shop is open.")
    assert fitting(tool, '{"name": "bakery", "floors": [1], "prices": {"bun": 0.5}}')
    for wrong in ("{}", '{"name": 3}', '{"name": "b", "day": "never"}', '{"name": "b", "colour": "red"}'):
        with pytest.raises(ToolError):
            fitting(tool, wrong)
    assert '"description": "When."' in tool.parameters


async def test_functions_get_their_call_and_give_json() -> None:
    def who(context: Context, loud: bool = False) -> str:
        return context.call_id.upper() if loud else context.call_id

    box = Toolbox(ALL, [PythonTools([read_function("who", who), read_function("shop", shop)])])
    assert await box.run(ToolCall("c", "who", '{"loud": true}'), "x", Call()) == "CALL"
    assert (
        await box.run(ToolCall("c", "shop", '{"name": "b"}'), "x", Call()) == '{"name": "b", "day": "today"}'
    )


def _unsaid(name) -> None: ...  # type: ignore[no-untyped-def]


def _odd(name: bytes) -> None: ...


def _many(*names: str) -> None: ...


def _unknown(name: "Nobody") -> None: ...  # type: ignore[name-defined]  # noqa: F821


@pytest.mark.parametrize("function", [_unsaid, _odd, _many, _unknown])
def test_types_that_no_schema_can_say_are_refused_at_the_start(function: Callable[..., object]) -> None:
    with pytest.raises(ConfigError, match="the tool odd"):
        read_function("odd", function)


async def test_what_blocks_runs_in_a_thread_and_may_raise_or_hang() -> None:
    go = threading.Event()
    source = PythonTools([read_function("wait", lambda: go.wait(20)), read_function("fail", _fail)])
    hasty = Toolbox(ToolsConfig(allow=("*",), timeout_s=0.05), [source])
    call, wait = Call(), ToolCall("c", "wait", "{}")
    told = await asyncio.gather(*(hasty.run(wait, "x", call) for _ in range(MAX_THREADS)))
    assert set(told) == {"wait gave nothing within 0.05 s."}
    box, fail = Toolbox(ALL, [source]), ToolCall("c", "fail", "{}")
    assert "Too many" in await box.run(fail, "x", call)
    go.set()
    async with asyncio.timeout(20):
        while "Too many" in (said := await box.run(fail, "x", call)):  # noqa: ASYNC110 - told by threads
            await asyncio.sleep(0)
    assert said == "fail failed (ZeroDivisionError)."


def _fail() -> float:
    return 1 / 0


class _Scales:
    tool = Tool("anything", "Weighs.", '{"type": "object"}')

    def run(self, arguments: Arguments, context: Context) -> object:
        return self._weigh()

    async def _weigh(self) -> int:
        return 7


PACKAGE = """
def greet(name: str) -> str:
    "Greets somebody."
    return f"Hello {name}."

class Scales:
    pass

number = 3
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An installed package with entry points of ours, one of which cannot be loaded."""
    info = tmp_path / "parlour-1.0.dist-info"
    info.mkdir()
    (tmp_path / "parlour_t2.py").write_text(PACKAGE)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: parlour\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[visavis.tools]\ngreet = parlour_t2:greet\nbroken = parlour_none:gone\nnumber = parlour_t2:number\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "parlour_t2", raising=False)
    return tmp_path


async def test_an_entry_point_that_is_allowed_is_a_tool_and_others_are_not_even_loaded(package: Path) -> None:
    async with opened_toolbox(ToolsConfig(allow=("greet", "end_call"))) as box:
        assert box is not None
        assert [tool.name for tool in box.tools()] == ["end_call", "greet"]
        assert await box.run(ToolCall("c", "greet", '{"name": "Ann"}'), "x", Call()) == "Hello Ann."


@pytest.mark.parametrize("name", ["broken", "number"])
async def test_an_entry_point_that_is_no_tool_is_told_of_at_the_start(package: Path, name: str) -> None:
    with pytest.raises(ConfigError, match=f"The tool {name}"):
        async with opened_toolbox(ToolsConfig(allow=(name,))):
            pass


async def test_an_object_with_a_description_and_a_run_is_a_tool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "scales", _Scales(), raising=False)
    tool, runs = read_entry_point(EntryPoint("scales", f"{__name__}:scales", "visavis.tools"))
    assert tool == Tool("scales", "Weighs.", '{"type": "object"}')
    assert await PythonTools([(tool, runs)]).run("scales", {}, Call()) == "7"


async def test_a_name_that_is_allowed_and_that_nothing_has_is_told_of_at_the_start() -> None:
    with pytest.raises(ConfigError, match="'lok'"):
        async with opened_toolbox(ToolsConfig(allow=("lok",))):
            pass


async def test_without_leave_there_is_no_toolbox(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        async with opened_toolbox(ToolsConfig(mcp=(McpConfig("x", ("nothing",)),))) as box:
            assert box is None
    assert caplog.text == ""


# Settings.


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"name": "a_b", "command": ("x",)}, "is no name"),
        ({"name": "a"}, "a command or a url"),
        ({"name": "a", "command": ("x",), "url": "http://b"}, "a command or a url"),
        ({"name": "a", "url": "ftp://b"}, "http"),
        ({"name": "a", "command": ("x",), "env": ("TOKEN",)}, "NAME=value"),
        ({"name": "a", "url": "http://b", "headers": ("Token",)}, "Name: value"),
        ({"name": "a", "url": "http://b", "headers": ("A: b\r\nC: d",)}, "Name: value"),
    ],
)
def test_settings_of_a_server_that_make_no_sense_are_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        McpConfig(**settings)


def test_secrets_of_a_server_are_in_no_repr() -> None:
    config = McpConfig("a", ("x",), env=("TOKEN=tell-nobody",), headers=("Authorization: tell-nobody",))
    assert "tell-nobody" not in repr(ToolsConfig(mcp=(config,)))

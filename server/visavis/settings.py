"""Reading the settings: TOML file, then environment, then flags, checked against the types of `config`.

Nothing here knows a single setting: names, types and defaults are those of the dataclasses.
"""

import dataclasses
import difflib
import json
import math
import tomllib
import types
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from visavis.config import Config
from visavis.errors import ConfigError

PREFIX = "VISAVIS_"
PLAIN = {"HOST": "server.host", "PORT": "server.port"}
"Names that hosting platforms set; the prefixed name wins."

_PORTS = ("server.port", "rtc.udp_port", "deploy.port", "deploy.master_port")

_SIGNED = (
    "conversation.playout.duck_db",
    "conversation.turns.endpoint.unfinished_text",
    "conversation.turns.endpoint.open_text",
    "conversation.turns.endpoint.draft_units",
)
"Numbers that may be below 0."

_NONE = ("", "none")
"How a text says None for a setting that may be None; TOML has no word for it."

_TRUTH = {
    "true": True,
    "yes": True,
    "on": True,
    "1": True,
    "false": False,
    "no": False,
    "off": False,
    "0": False,
}

Tree = dict[str, Any]
"A table of settings by name; each value is a `_Given`, or the table of a nested dataclass."


@dataclasses.dataclass(frozen=True, slots=True)
class _Given:
    """A value as somebody wrote it."""

    value: Any  # whatever TOML or a flag holds
    source: str
    text: bool = False
    "It comes from the environment, where everything is text."
    name: str = ""
    secret: bool = False

    def wrong(self, wanted: str) -> ConfigError:
        shown = "the value given" if self.secret else json.dumps(self.value, default=str)
        return ConfigError(f"{self.name} must be {wanted}, not {shown} (from {self.source}).")


def load(
    path: Path | None, environ: Mapping[str, str], overrides: Mapping[str, object] | None = None
) -> Config:
    """Read all settings once.

    Args:
        path: a TOML file whose tables are the sections of `Config`.
        environ: `VISAVIS_SECTION_FIELD`, and plain `HOST` and `PORT`. Lists are written with commas or as in
            TOML; "none" says None where a setting may be None.
        overrides: flags by dotted name, such as `server.port`; they win over the rest.

    Raises:
        ConfigError: the file cannot be read, a name is unknown or a value is none of its type. The message
            names the setting, and the nearest valid name; it never has the value of a secret.
    """
    tree = _read(path) if path is not None else {}
    names = variables()
    for name in sorted(environ.keys() & PLAIN.keys()):
        if environ[name]:
            _put(tree, PLAIN[name], _Given(environ[name], name, text=True))
    # Shorter names first, so that the setting within a table wins over the word for the whole table.
    for name in sorted(environ.keys() & names.keys(), key=lambda name: (len(names[name].split(".")), name)):
        _put(tree, names[name], _Given(environ[name], name, text=True))
    for name in sorted(environ):
        _refuse_typing_error(name, names)
    for dotted, value in (overrides or {}).items():
        _put(tree, dotted, _Given(value, "a flag"))
    config = _build(Config, tree, "")
    assert isinstance(config, Config)
    return config


def variables() -> dict[str, str]:
    """Return the dotted name of each setting by its environment variable."""
    return {PREFIX + dotted.replace(".", "_").upper(): dotted for dotted, _ in leaves(Config)}


def leaves(cls: type, prefix: str = "") -> Iterator[tuple[str, dataclasses.Field[Any]]]:
    """Go through all settings below a dataclass by dotted name; an optional table counts too."""
    hints = get_type_hints(cls)
    for field in dataclasses.fields(cls):
        nested = _nested(hints[field.name])
        if nested is None or _optional(hints[field.name]):
            yield prefix + field.name, field
        if nested is not None:
            yield from leaves(nested, f"{prefix}{field.name}.")


def _read(path: Path) -> Tree:
    try:
        with path.open("rb") as stream:
            return _tree(tomllib.load(stream), str(path))
    except OSError as error:
        raise ConfigError(f"The settings file {path} cannot be read: {error.strerror}.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"The settings file {path} is not TOML: {error}.") from error


def _tree(table: Mapping[str, Any], source: str) -> Tree:
    return {
        name: _tree(value, source) if isinstance(value, dict) else _Given(value, source)
        for name, value in table.items()
    }


def _put(tree: Tree, dotted: str, given: _Given) -> None:
    *tables, name = dotted.split(".")
    for table in tables:
        if not isinstance(tree.get(table), dict):
            tree[table] = {}
        tree = tree[table]
    tree[name] = given


def _refuse_typing_error(name: str, names: Mapping[str, str]) -> None:
    """Refuse a variable that begins like a section of ours and names no setting; others are none of ours."""
    sections = tuple(f"{PREFIX}{field.name.upper()}_" for field in dataclasses.fields(Config))
    if name.startswith(sections) and name not in names:
        near = difflib.get_close_matches(name, names, 1)
        raise ConfigError(f"There is no setting {name}{f'; did you mean {near[0]}?' if near else '.'}")


def _build(cls: type[Any], tree: Tree, prefix: str) -> object:
    hints = get_type_hints(cls)
    fields = {field.name: field for field in dataclasses.fields(cls)}
    values: dict[str, object] = {}
    for name, given in tree.items():
        if name not in fields:
            raise ConfigError(f"There is no setting {prefix}{name}{_meant(prefix + name, prefix, fields)}")
        if isinstance(given, _Given):
            given = dataclasses.replace(given, name=prefix + name, secret=not fields[name].repr)
        values[name] = _value(hints[name], given, f"{prefix}{name}")
    for name, field in fields.items():
        if name not in values and field.default is field.default_factory is dataclasses.MISSING:
            raise ConfigError(f"{prefix.rstrip('.')} lacks {name}.")
    return cls(**values)


def _value(hint: Any, given: _Given | Tree, name: str) -> object:
    nested, optional = _nested(hint), _optional(hint)
    if isinstance(given, dict):
        if nested is None:
            raise ConfigError(f"{name} is one setting and no table.")
        return _build(nested, given, f"{name}.")
    if optional and (given.value is None or given.value in _NONE):
        return None
    if nested is not None:
        raise given.wrong(f"a table [{name}]" + (' or "none"' if optional else ""))
    if isinstance(hint, types.UnionType):
        hint = next(choice for choice in get_args(hint) if choice is not types.NoneType)
    return _leaf(hint, given)


def _leaf(hint: Any, given: _Given) -> object:
    """Convert one value to its type, or raise the ConfigError that says what it had to be."""
    value = given.value
    if get_origin(hint) is tuple:
        return _items(get_args(hint)[0], given)
    if get_origin(hint) is Literal:
        if value in get_args(hint):
            return value
        raise given.wrong(f"one of {', '.join(get_args(hint))}")
    if hint is bool:
        truth = value if isinstance(value, bool) else _TRUTH.get(value.lower()) if given.text else None
        if truth is None:
            raise given.wrong("true or false")
        return truth
    if hint in (int, float):
        return _number(hint, given)
    if hint is Path and isinstance(value, str | Path):
        return Path(value).expanduser()
    if hint is str and isinstance(value, str):
        return value
    raise given.wrong("a path" if hint is Path else "a text")


def _number(hint: type[int] | type[float], given: _Given) -> int | float:
    value, wanted = given.value, "a whole number" if hint is int else "a number"
    if given.text:
        try:
            value = hint(value)
        except ValueError as error:
            raise given.wrong(wanted) from error
    if isinstance(value, bool) or not isinstance(value, int if hint is int else int | float):
        raise given.wrong(wanted)
    signed = given.name in _SIGNED
    if not math.isfinite(value) or (value < 0 and not signed):
        raise given.wrong(wanted if signed else f"{wanted} from 0 on")
    if given.name in _PORTS and value > 65_535:
        raise given.wrong("a port up to 65535")
    return hint(value)


def _items(hint: Any, given: _Given) -> tuple[object, ...]:
    value = given.value
    if given.text:
        value = _list_in_text(value, given)
    if not isinstance(value, list | tuple):
        raise given.wrong("a list")
    one = dataclasses.replace(given, text=False)
    nested = _nested(hint)
    items = []
    for i, item in enumerate(value):
        name = f"{given.name}[{i}]"
        if nested is not None and isinstance(item, dict):
            items.append(_build(nested, _tree(item, given.source), f"{name}."))
        else:
            items.append(_value(hint, dataclasses.replace(one, value=item, name=name), name))
    return tuple(items)


def _list_in_text(text: str, given: _Given) -> list[Any]:
    if not text.strip().startswith("["):
        return [item.strip() for item in text.split(",") if item.strip()]
    try:
        value = tomllib.loads(f"list = {text}")["list"]
    except tomllib.TOMLDecodeError as error:
        raise given.wrong("a list with commas, or one as in TOML") from error
    assert isinstance(value, list)
    return value


def _nested(hint: Any) -> type[Any] | None:
    """Return the dataclass of a table, whether or not it may be None."""
    choices = get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    return next(
        (choice for choice in choices if isinstance(choice, type) and dataclasses.is_dataclass(choice)), None
    )


def _optional(hint: Any) -> bool:
    return isinstance(hint, types.UnionType) and types.NoneType in get_args(hint)


def _meant(name: str, prefix: str, fields: Iterable[str]) -> str:
    """Guess what a wrong name was meant to be: a neighbour, or the same name in another table."""
    last = name.removeprefix(prefix)
    near = [prefix + match for match in difflib.get_close_matches(last, fields, 1)]
    near += [dotted for dotted, _ in leaves(Config) if dotted.rpartition(".")[2] == last]
    return f"; did you mean {near[0]}?" if near else f"; there are {', '.join(fields)}."

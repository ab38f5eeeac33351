"""Write README's configuration reference from the dataclasses of `visavis.config`.

`python tools/config_reference.py` prints it; with `--write README.md` it goes between the markers.
"""

import argparse
import ast
import dataclasses
import inspect
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from visavis import config

BEGIN = "<!-- configuration: written by tools/config_reference.py -->"
END = "<!-- configuration: end -->"
LONGEST_DEFAULT = 48


def render() -> str:
    """Return the reference as Markdown: a table of settings for each table of the TOML file."""
    notes = _notes(inspect.getsource(config))
    headings: dict[type[Any], list[str]] = {}
    for heading, cls in _tables(config.Config, ""):
        headings.setdefault(cls, []).append(f"**`{heading}`**")
    blocks = [_table("**At the top, before any table**", config.Config, notes)]
    blocks += [_table(", ".join(names), cls, notes) for cls, names in headings.items()]
    return "\n\n".join(block for block in blocks if block)


def _table(heading: str, cls: type[Any], notes: dict[str, dict[str, str]]) -> str:
    rows = list(_rows(cls, notes.get(cls.__name__, {})))
    head = [heading, "", "| setting | type | default | |", "|---|---|---|---|"]
    return "\n".join(head + rows) if rows else ""


def replace_between_markers(text: str) -> str:
    """Return a README with its reference made current.

    Raises:
        ValueError: a marker is missing.
    """
    before, found, rest = text.partition(BEGIN)
    _, ended, after = rest.partition(END)
    if not (found and ended):
        raise ValueError(f"README lacks the line {BEGIN!r} or {END!r} after it")
    return f"{before}{BEGIN}\n\n{render()}\n\n{END}{after}"


def _tables(cls: type[Any], prefix: str) -> Iterator[tuple[str, type[Any]]]:
    """Go through the tables of the file: heading as in TOML, dataclass."""
    hints = get_type_hints(cls)
    for field in dataclasses.fields(cls):
        hint, name = hints[field.name], f"{prefix}{field.name}"
        for choice in _choices(hint):
            item = get_args(choice)[0] if get_origin(choice) is tuple else None
            if isinstance(choice, type) and dataclasses.is_dataclass(choice):
                yield f"[{name}]", choice
                yield from _tables(choice, f"{name}.")
            elif isinstance(item, type) and dataclasses.is_dataclass(item):
                yield f"[[{name}]]", item
                yield from _tables(item, f"{name}.")


def _rows(cls: type[Any], notes: dict[str, str]) -> Iterator[str]:
    hints = get_type_hints(cls)
    for field in dataclasses.fields(cls):
        hint = hints[field.name]
        if dataclasses.is_dataclass(hint):
            continue
        cells = (f"`{field.name}`", _type(hint), _default(field), notes.get(field.name, ""))
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _type(hint: Any) -> str:
    names = {str: "text", int: "whole number", float: "number", bool: "true, false", Path: "path"}
    words = []
    for choice in _choices(hint):
        if choice is types.NoneType:
            words.append("none")
        elif get_origin(choice) is tuple:
            words.append(f"list of {_type(get_args(choice)[0])}")
        elif get_origin(choice) is Literal:
            words.append(", ".join(f"`{option}`" for option in get_args(choice)))
        else:
            words.append("table" if dataclasses.is_dataclass(choice) else names[choice])
    return " or ".join(words)


def _default(field: dataclasses.Field[Any]) -> str:
    if field.default_factory is not dataclasses.MISSING:
        return "the table below"
    match field.default:
        case dataclasses.MISSING:
            return "must be given"
        case None:
            return "none"
        case bool():
            return str(field.default).lower()
        case tuple():
            return ", ".join(f"`{item}`" for item in field.default) or "empty"
        case str() if len(field.default) > LONGEST_DEFAULT:
            return f"`{field.default[:LONGEST_DEFAULT].rstrip()}…`"
        case str():
            return f"`{field.default}`"
        case number:
            return f"{number:g}" if isinstance(number, float) else str(number)


def _choices(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if isinstance(hint, types.UnionType) else (hint,)


def _notes(source: str) -> dict[str, dict[str, str]]:
    """Read the docstring line after each field, by class and field."""
    notes: dict[str, dict[str, str]] = {}
    for cls in ast.parse(source).body:
        if not isinstance(cls, ast.ClassDef):
            continue
        found = notes.setdefault(cls.name, {})
        for statement, after in zip(cls.body, cls.body[1:], strict=False):
            match statement, after:
                case (
                    ast.AnnAssign(target=ast.Name(id=name)),
                    ast.Expr(value=ast.Constant(value=str(note))),
                ):
                    found[name] = " ".join(note.split())
    return notes


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--write", type=Path, metavar="README")
    readme = parser.parse_args().write
    if readme is None:
        sys.stdout.write(render() + "\n")
    else:
        readme.write_text(replace_between_markers(readme.read_text()))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Checked reading of a client's JSON: whatever is wrong is refused by its name. Sans-I/O."""

import json
import reprlib
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

from ..errors import ClientEventError

T = TypeVar("T")
D = TypeVar("D")

Check = Callable[[Any, str], T]
"Takes a JSON value and the name of its place; returns what it stands for or raises ClientEventError."


class Fields:
    """The members of one JSON object, read by name with a check. Is itself a check: for an object."""

    def __init__(self, value: Any, param: str = "") -> None:
        if not isinstance(value, dict):
            refuse_type(value, param, "an object")
        self._members: dict[str, Any] = value
        self._param = param

    def param(self, name: str) -> str:
        """Return the full name of a member, as it appears in errors."""
        return f"{self._param}.{name}" if self._param else name

    def read(self, name: str, check: Check[T], default: D) -> T | D:
        """Return the checked member, or the default if it is absent."""
        if name not in self._members:
            return default
        return check(self._members[name], self.param(name))

    def require(self, name: str, check: Check[T]) -> T:
        """Return the checked member; absence is an error."""
        if name not in self._members:
            raise ClientEventError(
                f"{self.param(name)} is missing.", code="missing_required_parameter", param=self.param(name)
            )
        return check(self._members[name], self.param(name))

    def within(self, name: str) -> "Fields":
        """Return the object at `name`, without members if it is absent or null."""
        return self.read(name, optional(Fields), None) or Fields({}, self.param(name))


def parse(text: str | bytes) -> Any:
    """Parse JSON. Raises ClientEventError for anything that is no JSON by RFC 8259, NaN included."""
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except RecursionError as error:
        raise ClientEventError("The message is nested too deeply.", code="invalid_json") from error
    except ValueError as error:
        # Includes bytes that are no UTF-8 and integers of thousands of digits.
        raise ClientEventError(f"The message is not valid JSON: {error}.", code="invalid_json") from error


def optional(check: Check[T]) -> Check[T | None]:
    """Let null through as None."""

    def check_value(value: Any, param: str) -> T | None:
        return None if value is None else check(value, param)

    return check_value


def text(most: int, least: int = 0) -> Check[str]:
    """Accept a string of so many characters at most."""

    def check_value(value: Any, param: str) -> str:
        if not isinstance(value, str):
            refuse_type(value, param, "a string")
        if not least <= len(value) <= most:
            length = f"{least} to {most}" if least else f"at most {most}"
            refuse(f"{param} must have {length} characters, not {len(value)}.", param)
        if any("\ud800" <= char <= "\udfff" for char in value):
            # JSON can spell half a surrogate pair; no UTF-8 can.
            refuse(f"{param} is not valid Unicode.", param)
        return value

    return check_value


def integer(low: int, high: int) -> Check[int]:
    def check_value(value: Any, param: str) -> int:
        if not isinstance(value, int) or isinstance(value, bool):
            refuse_type(value, param, "an integer")
        if not low <= value <= high:
            refuse(f"{param} must be from {low} to {high}, not {shown(value)}.", param)
        return value

    return check_value


def number(low: float, high: float) -> Check[float]:
    def check_value(value: Any, param: str) -> float:
        if not isinstance(value, int | float) or isinstance(value, bool):
            refuse_type(value, param, "a number")
        if not low <= value <= high:
            refuse(f"{param} must be from {low:g} to {high:g}, not {shown(value)}.", param)
        return float(value)

    return check_value


def boolean(value: Any, param: str) -> bool:
    if not isinstance(value, bool):
        refuse_type(value, param, "true or false")
    return value


def array(most: int, least: int = 0) -> Check[list[Any]]:
    def check_value(value: Any, param: str) -> list[Any]:
        if not isinstance(value, list):
            refuse_type(value, param, "an array")
        if not least <= len(value) <= most:
            refuse(f"{param} must have {least} to {most} elements, not {len(value)}.", param)
        return value

    return check_value


def one_of(*words: T) -> Check[T]:
    """Accept one of these strings."""

    def check_value(value: Any, param: str) -> T:
        for word in words:
            if value == word:
                return word
        return refuse(f"{param} must be {_listed(words)}, not {shown(value)}.", param)

    return check_value


def refuse(message: str, param: str, code: str = "invalid_value") -> NoReturn:
    raise ClientEventError(message, code=code, param=param)


def refuse_type(value: Any, param: str, wanted: str) -> NoReturn:
    name = param or "The message"
    raise ClientEventError(
        f"{name} must be {wanted}, not {shown(value)}.", code="invalid_type", param=param or None
    )


def shown(value: Any) -> str:
    """Return a short, printable form of a value for a message."""
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    return reprlib.repr(value)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")


def _listed(words: tuple[Any, ...]) -> str:
    return " or ".join(repr(word) for word in words)

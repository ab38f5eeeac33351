"""Errors that Visavis raises on purpose.

VisavisError
├── ConfigError          a setting is missing or wrong; the message says which and what to write
├── ModelError           a model file is missing, incomplete or not what its digest says
├── SignallingError      an offer or session cannot be accepted (HTTP 4xx/503)
├── ClientEventError     an event on the data channel is malformed or refused; the call lives on
├── CallError            an outgoing call (``visavis call``) could not be made or was lost
├── ToolError            a function of the server's gives no result; the message is for the model
└── EngineError          one response failed; the call lives on
    ├── EngineRefused    the engine will not take this request (HTTP 4xx); a retry is pointless
    ├── EngineBusy       no room now (429/503); later or elsewhere it may work
    └── EngineLost       unreachable, died, broke the stream or went silent
"""

from collections.abc import Iterator
from contextlib import contextmanager


class VisavisError(Exception):
    """Base of all errors of this package. The message is a sentence a person can act on."""


class ConfigError(VisavisError):
    pass


class ModelError(VisavisError):
    pass


class CallError(VisavisError):
    pass


class ToolError(VisavisError):
    pass


class SignallingError(VisavisError):
    """A refusal of the HTTP API."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str,
        param: str | None = None,
        retry_after_s: int | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.param = param
        self.retry_after_s = retry_after_s


class ClientEventError(VisavisError):
    """A refusal of one client event; ``param`` names the field, ``event_id`` echoes the client's."""

    def __init__(
        self, message: str, *, code: str, param: str | None = None, event_id: str | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.param = param
        self.event_id = event_id


class EngineError(VisavisError):
    """A response failed."""

    code = "engine_error"


class EngineRefused(EngineError):
    code = "engine_refused"


class EngineBusy(EngineError):
    code = "engine_busy"


class EngineLost(EngineError):
    code = "engine_lost"


@contextmanager
def unwrapped() -> Iterator[None]:
    """Turn a task group's group of our errors into the first of them."""
    try:
        yield
    except* VisavisError as group:
        error: BaseException = group
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        raise error from None

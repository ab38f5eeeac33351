"""What schemathesis is told of us: how our media types are written, and which call is there."""

import os
from typing import Any

import schemathesis


@schemathesis.serializer("application/sdp", "application/trickle-ice-sdpfrag")
def as_text(context: object, value: object) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "replace")


@schemathesis.hook
def before_call(context: object, case: Any, kwargs: object) -> None:
    """Have what is for a call meet the one that is there, and what would end it another."""
    if "call_id" in case.path_parameters:
        ends = case.method.upper() == "DELETE" or "hangup" in case.path
        case.path_parameters["call_id"] = "rtc_1" if ends else os.environ["VISAVIS_TEST_CALL"]

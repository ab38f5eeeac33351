"""The parts of a multipart/form-data body that is in memory already (RFC 7578). Sans-I/O."""

import re

from .errors import SignallingError

_MAX_PARTS = 16

_BOUNDARY = re.compile(r""";\s*boundary=(?:"([^"]{1,70})"|([^\s;"]{1,70}))""", re.IGNORECASE)
_NAME = re.compile(
    rb"""^content-disposition:[^\r\n]*?;\s*name=(?:"([^"\r\n]*)"|([^\s;"]+))""", re.IGNORECASE | re.MULTILINE
)


def parse_form(content_type: str, body: bytes) -> dict[str, bytes]:
    """Return each part's content by its name; file names, types and parts without a name do not matter.

    Raises SignallingError (400) for a body that is no form.
    """
    found = _BOUNDARY.search(content_type)
    if found is None or not content_type.isascii():
        raise _refused("its Content-Type names no boundary")
    boundary = (found[1] or found[2]).encode()
    sections = (b"\r\n" + body).split(b"\r\n--" + boundary)
    # What precedes the first boundary is no part, and the last boundary is followed by two dashes.
    if len(sections) < 2 or not sections[-1].startswith(b"--"):
        raise _refused("the last boundary is missing")
    if len(sections) - 2 > _MAX_PARTS:
        raise _refused(f"it has more than {_MAX_PARTS} parts")
    parts: dict[str, bytes] = {}
    for section in sections[1:-1]:
        padding, newline, rest = section.partition(b"\r\n")
        head, blank, content = (b"\r\n" + rest).partition(b"\r\n\r\n")
        if padding.strip(b" \t") or not newline or not blank:
            raise _refused("a part has no header")
        if named := _NAME.search(head):
            name = named[2] if named[1] is None else named[1]
            parts[name.decode("utf-8", "replace")] = content
    return parts


def _refused(why: str) -> SignallingError:
    return SignallingError(400, f"The body is no multipart form: {why}.", code="invalid_form")

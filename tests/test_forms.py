import pytest
from hypothesis import given
from hypothesis import strategies as st

from visavis.errors import SignallingError
from visavis.forms import parse_form


def multipart(*parts: tuple[str, bytes], boundary: str = "x") -> bytes:
    lines = [
        f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n'.encode() + content + b"\r\n"
        for name, content in parts
    ]
    return b"".join(lines) + f"--{boundary}--\r\n".encode()


@given(st.dictionaries(st.sampled_from(["sdp", "session", "other"]), st.binary(max_size=60)))
def test_the_parts_of_a_form_come_out_as_they_went_in(parts: dict[str, bytes]) -> None:
    boundary = "a boundary that no part has"
    body = multipart(*parts.items(), boundary=boundary)
    assert parse_form(f'multipart/form-data; boundary="{boundary}"', body) == parts


def test_a_name_is_not_taken_from_a_file_name() -> None:
    head = b'--x\r\ncontent-disposition: form-data; filename="name=no"; name=sdp\r\nContent-Type: a/b\r\n\r\n'
    assert parse_form("multipart/form-data;boundary=x", head + b"v=0\r\n--x--") == {"sdp": b"v=0"}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"--x",
        b"--x\r\n",
        b'--x\r\nContent-Disposition: form-data; name="sdp"\r\n\r\nv=0\r\n',
        b'--x\r\nContent-Disposition: form-data; name="sdp"\r\nv=0\r\n--x--',
        b"--xy\r\n\r\n\r\n--x--",
        multipart(*[("part", b"")] * 17),
    ],
)
def test_a_broken_form_is_refused(body: bytes) -> None:
    with pytest.raises(SignallingError) as caught:
        parse_form("multipart/form-data; boundary=x", body)
    assert caught.value.status == 400


@given(
    st.text(),
    st.lists(
        st.sampled_from([b"--x", b"\r\n", b"--", b'Content-Disposition: form-data; name="', b'"', b"a"])
    ),
)
def test_any_body_is_a_form_or_refused(kind: str, pieces: list[bytes]) -> None:
    for content_type in (kind, "multipart/form-data; boundary=x"):
        try:
            parse_form(content_type, b"".join(pieces))
        except SignallingError as error:
            refused = error.status
        else:
            continue
        assert refused == 400

"""Tokens over HTTP: who has one goes on from another call, and nobody else."""

from typing import Literal

import aiohttp
import pytest

from switchboard import CALLS_URL, OFFER, SDP, Client, FakeCall, Switchboard, refusal, serving
from visavis.config import ResumeConfig, SessionConfig
from visavis.history import Item, TextContent
from visavis.resume import TOKEN_HEADER
from visavis.snapshot import Snapshot
from visavis.unsaid import Unsaid

SAID = (Item("item_1", "user", (TextContent("My name is Ada."),)),)
REST = Unsaid(True, "Nice to meet you.", True)
OTHER = "rtc_0123456789abcdef01234567.nobody"


async def say_and_end(call: FakeCall, *, forget: bool = False) -> None:
    """What a call does in its life: it says what it keeps, and keeps it at its end."""
    assert call.kept is not None
    call.kept.keeping.follow(lambda: Snapshot(SAID, SessionConfig(voice="Ethan"), REST))
    await call.kept.keeping.aclose(forget=forget)


async def post(client: Client, token: str | None = None, **form: str) -> aiohttp.ClientResponse:
    headers = {} if token is None else {TOKEN_HEADER: token}
    if form:
        parts = aiohttp.MultipartWriter("form-data")
        for name, value in {"sdp": OFFER, **form}.items():
            parts.append(value).set_content_disposition("form-data", name=name)
        return await client.post(CALLS_URL, data=parts, headers=headers)
    return await client.post(CALLS_URL, data=OFFER, headers=SDP | headers)


async def test_every_call_has_a_token_of_its_own() -> None:
    async with serving() as client:
        tokens = [(await post(client)).headers[TOKEN_HEADER] for _ in range(2)]
    assert tokens[0] != tokens[1]


async def test_who_has_the_token_goes_on_until_one_call_is_connected() -> None:
    """An answer may be lost on its way: the caller then has the old token alone."""
    board = Switchboard()
    async with serving(board) as client:
        token = (await post(client)).headers[TOKEN_HEADER]
        await say_and_end(board.calls[0])
        for past in (SAID, SAID, ()):
            response = await post(client, token)
            assert response.status == 201
            assert response.headers[TOKEN_HEADER] != token
            kept = board.calls[-1].kept
            assert kept is not None
            assert kept.past == past
            if len(board.calls) == 3:
                assert kept.claim is not None
                assert await kept.claim()
                assert not await kept.claim()


async def test_what_was_set_holds_on_but_for_what_is_set_anew() -> None:
    board = Switchboard()
    async with serving(board) as client:
        token = (await post(client)).headers[TOKEN_HEADER]
        await say_and_end(board.calls[0])
        await post(client, token, session='{"instructions": "Be brief."}')
    assert board.calls[-1].settings == SessionConfig(voice="Ethan", instructions="Be brief.")


async def test_a_call_that_still_seems_to_live_is_ended_first() -> None:
    board = Switchboard()
    async with serving(board) as client:
        token = (await post(client)).headers[TOKEN_HEADER]
        await post(client, token)
        assert board.calls[0].told[-1] == "gone"
        assert "gone" not in board.calls[1].told


async def test_who_knows_a_call_but_not_its_token_ends_nothing() -> None:
    board = Switchboard()
    async with serving(board) as client:
        token = (await post(client)).headers[TOKEN_HEADER]
        await post(client, token[:-1] + ("A" if token[-1] != "A" else "B"))
        await post(client, f"{token.partition('.')[0]}.")
        assert "gone" not in board.calls[0].told


async def test_a_token_is_of_one_conversation() -> None:
    """Not with another's secret behind its name, nor changed by a sign; and the right one still opens it."""
    board = Switchboard()
    async with serving(board) as client:
        one, two = [(await post(client)).headers[TOKEN_HEADER] for _ in range(2)]
        for call in board.calls:
            await say_and_end(call)
        mixed = f"{one.partition('.')[0]}.{two.partition('.')[2]}"
        for token, past in ((mixed, ()), (one.swapcase(), ()), (f"{one} ", SAID), (one, SAID)):
            assert (await post(client, token)).status == 201
            kept = board.calls[-1].kept
            assert kept is not None
            assert kept.past == past, token


@pytest.mark.parametrize(("cut_short", "unsaid"), [("again", REST), ("skip", None)])
async def test_what_was_not_heard_goes_with_the_conversation_if_it_is_to_be_said(
    cut_short: Literal["again", "skip"], unsaid: Unsaid | None
) -> None:
    board = Switchboard()
    async with serving(board, resume=ResumeConfig(cut_short=cut_short)) as client:
        token = (await post(client)).headers[TOKEN_HEADER]
        await say_and_end(board.calls[0])
        await post(client, token)
    assert board.calls[1].kept is not None
    assert board.calls[1].kept.past == SAID
    assert board.calls[1].kept.unsaid == unsaid


async def test_an_offer_that_is_no_use_costs_no_token() -> None:
    board = Switchboard()
    async with serving(board) as client:
        token = (await post(client)).headers[TOKEN_HEADER]
        await say_and_end(board.calls[0])
        response = await post(client, token, session='{"instructions": 7}')
        assert (response.status, (await refusal(response))["param"]) == (400, "session.instructions")
        await post(client, token)
    assert board.calls[-1].kept is not None
    assert board.calls[-1].kept.past == SAID


@pytest.mark.parametrize("token", ["", "nonsense", OTHER, "é"])
async def test_other_tokens_begin_a_new_call(token: str) -> None:
    board = Switchboard()
    async with serving(board) as client:
        assert (await post(client, token)).status == 201
    assert board.calls[0].kept is not None
    assert board.calls[0].kept.past == ()

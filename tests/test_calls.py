import asyncio

import pytest

from switchboard import ANSWER, CALLS_URL, OFFER, SDP, Switchboard, refusal, serving, until
from visavis.app import CALLS, build_app
from visavis.calls import Calls
from visavis.config import Config, RtcConfig, SessionConfig
from visavis.errors import SignallingError


async def test_an_answer_that_does_not_come_is_given_up() -> None:
    board = Switchboard(stalled=asyncio.Event())
    async with serving(board, rtc=RtcConfig(connect_s=0.01)) as client:
        response = await client.post(CALLS_URL, data=OFFER, headers=SDP)
        assert response.status == 503
        assert (await refusal(response))["code"] == "answer_timeout"
        assert len(client.app[CALLS]) == 0


async def test_no_more_calls_than_allowed() -> None:
    async with serving(max_calls=2) as client:
        for _ in range(2):
            assert (await client.post(CALLS_URL, data=OFFER, headers=SDP)).status == 201
        response = await client.post(CALLS_URL, data=OFFER, headers=SDP)
        assert response.status == 503
        assert int(response.headers["Retry-After"]) > 0
        error = await refusal(response)
        assert (error["code"], error["type"]) == ("server_busy", "server_error")


async def test_offers_that_are_still_being_answered_count() -> None:
    gate = asyncio.Event()
    async with serving(Switchboard(stalled=gate), max_calls=1) as client:
        first = asyncio.create_task(client.post(CALLS_URL, data=OFFER, headers=SDP))
        await until(lambda: len(client.app[CALLS]) == 1)
        assert (await client.post(CALLS_URL, data=OFFER, headers=SDP)).status == 503
        gate.set()
        assert (await first).status == 201


async def test_a_fault_in_one_call_ends_that_one_alone(caplog: pytest.LogCaptureFixture) -> None:
    board = Switchboard()
    async with serving(board) as client:
        for _ in range(2):
            await client.post(CALLS_URL, data=OFFER, headers=SDP)
        faulty, other = board.calls
        faulty.faults["run"] = RuntimeError("a bug")
        faulty.over.set()
        await until(lambda: faulty.call_id not in client.app[CALLS])
        assert other.call_id in client.app[CALLS]
        assert f"{faulty.call_id}: failed" in caplog.text


async def test_a_further_offer_is_answered_by_the_call_and_its_candidates_reach_it() -> None:
    board = Switchboard()
    async with serving(board) as client:
        await client.post(CALLS_URL, data=OFFER, headers=SDP)
        calls, (call,) = client.app[CALLS], board.calls
        assert await calls.renegotiate(call.call_id, "another") == ANSWER
        await calls.add_candidates(call.call_id, [("0", "candidate:1")])
        assert call.told == [OFFER, "again another", "0: candidate:1"]
        for vain in (calls.renegotiate("rtc_none", "another"), calls.add_candidates("rtc_none", [])):
            with pytest.raises(SignallingError) as caught:
                await vain
            assert caught.value.status == 404


async def test_a_further_answer_that_does_not_come_is_given_up_and_the_call_goes_on() -> None:
    board = Switchboard()
    async with serving(board, rtc=RtcConfig(connect_s=0.01)) as client:
        await client.post(CALLS_URL, data=OFFER, headers=SDP)
        (call,) = board.calls
        call.stalled = asyncio.Event()
        with pytest.raises(SignallingError) as caught:
            await client.app[CALLS].renegotiate(call.call_id, "another")
        assert caught.value.code == "answer_timeout"
        assert call.call_id in client.app[CALLS]


# Shutting down.


async def test_draining_tells_the_callers_and_lets_them_finish() -> None:
    board = Switchboard()
    async with serving(board) as client:
        await client.post(CALLS_URL, data=OFFER, headers=SDP)
        (call,) = board.calls
        drain = asyncio.create_task(client.app[CALLS].drain(60))
        await until(lambda: "ends in 60 s" in call.told)
        assert (await client.post(CALLS_URL, data=OFFER, headers=SDP)).status == 503
        assert not drain.done()
        call.over.set()
        await drain
        assert call.told[1:] == ["ends in 60 s", "gone"]


async def test_calls_that_stay_are_hung_up_when_the_time_is_over() -> None:
    board = Switchboard()
    async with serving(board) as client:
        await client.post(CALLS_URL, data=OFFER, headers=SDP)
        await client.app[CALLS].drain(0.01)
        assert board.calls[0].told[1:] == ["ends in 0.01 s", "the server is shutting down", "gone"]
        assert len(client.app[CALLS]) == 0


@pytest.mark.parametrize("method", ["announce_end", "hang_up"])
async def test_a_call_that_cannot_be_told_does_not_keep_the_others_from_it(
    method: str, caplog: pytest.LogCaptureFixture
) -> None:
    board = Switchboard()
    async with serving(board) as client:
        for _ in range(2):
            await client.post(CALLS_URL, data=OFFER, headers=SDP)
        board.calls[0].faults[method] = RuntimeError("a bug")
        await client.app[CALLS].drain(0)
        assert [call.told[-1] for call in board.calls] == ["gone", "gone"]
        assert "a bug" in caplog.text


async def test_a_call_that_does_not_heed_a_hang_up_is_cancelled(caplog: pytest.LogCaptureFixture) -> None:
    board = Switchboard(heeds=False)
    calls = Calls(max_calls=1, answer_s=60, close_s=0.01)
    await calls.open("rtc_1", lambda: board.open("rtc_1", SessionConfig()), OFFER)
    await calls.aclose()
    assert len(calls) == 0
    assert board.calls[0].told[-1] == "gone"
    assert "rtc_1: does not hang up, cancelled" in caplog.text


async def test_calls_end_with_the_application() -> None:
    board = Switchboard()
    async with serving(board) as client:
        await client.post(CALLS_URL, data=OFFER, headers=SDP)
    assert board.calls[0].told[-1] == "gone"


async def test_a_call_whose_answer_is_overtaken_by_the_shutdown_is_refused() -> None:
    board = Switchboard(stalled=asyncio.Event())
    async with serving(board) as client:
        opening = asyncio.create_task(client.post(CALLS_URL, data=OFFER, headers=SDP))
        await until(lambda: bool(board.calls and board.calls[0].told))
        board.calls[0].faults["hang_up"] = RuntimeError("not before the answer")
        await client.app[CALLS].aclose()
        response = await opening
        assert (response.status, (await refusal(response))["code"]) == (503, "shutting_down")


async def test_a_call_nobody_waits_for_any_more_is_given_up() -> None:
    board = Switchboard(stalled=asyncio.Event())
    app = build_app(Config(), board.open, board.ready)
    calls = app[CALLS]
    opening = asyncio.create_task(calls.open("rtc_1", lambda: board.open("rtc_1", SessionConfig()), OFFER))
    await until(lambda: bool(board.calls and board.calls[0].told))
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    await until(lambda: len(calls) == 0)

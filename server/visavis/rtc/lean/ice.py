"""Consent checks: by their answers a caller who sends nothing is known to be alive."""

import asyncio
import random
from collections.abc import Callable
from functools import partial

import aioice
from aioice.stun import TransactionError

CHECK_S = 5.0
"Between the checks of a caller who is heard, give or take a fifth (RFC 7675 section 5.1)."

QUIET_S = 1.0
"""From the last datagram to a check: a caller who is silent and shows nothing is heard of only through the
answers. At five seconds a dead one could not be told from a quiet one within `RtcConfig.dead_peer_s`."""

EXPIRY_S = 30.0
"Without an answer for so long, whatever else comes, nobody wants what we send (RFC 7675 section 5.1)."


def keep_consent(connection: aioice.Connection, heard: Callable[[], float]) -> None:
    """Have a connection check that the other side wants what we send, and close when not.

    `heard` tells when anything last came from there, in seconds of the event loop.
    """
    vars(connection)["query_consent"] = partial(_query_consent, connection, heard)


async def _query_consent(connection: aioice.Connection, heard: Callable[[], float]) -> None:
    loop = asyncio.get_running_loop()
    asked = answered = loop.time()
    spread = _spread()
    while (now := loop.time()) < answered + EXPIRY_S:
        due = min(max(asked, heard()) + QUIET_S * spread, asked + CHECK_S * spread)
        if now < due:
            await asyncio.sleep(due - now)
            continue
        asked, spread = now, _spread()
        if await _answers(connection):
            answered = loop.time()
    connection._query_consent_task = None  # this is it, and closing would cancel it
    await connection.close()


async def _answers(connection: aioice.Connection) -> bool:
    pair, password = connection._nominated.get(1), connection.remote_password
    if pair is None or password is None:
        return False
    request = connection.build_request(pair, nominate=False)
    try:
        await pair.protocol.request(
            request, pair.remote_addr, integrity_key=password.encode(), retransmissions=0
        )
    except TransactionError:
        return False
    return True


def _spread() -> float:
    return random.uniform(0.8, 1.2)  # noqa: S311 - spreads load

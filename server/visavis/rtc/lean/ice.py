"""Consent checks every second: by their answers a caller who sends nothing is known to be alive."""

import asyncio
import random
from functools import partial

import aioice
from aioice.stun import TransactionError

CONSENT_INTERVAL_S = 1.0
"""A caller who is silent and shows nothing is heard of only through consent checks (RFC 7675). At aioice's
five seconds a dead one could not be told from a quiet one within `RtcConfig.dead_peer_s`."""

CONSENT_FAILURES = 20
"As many as make RFC 7675's thirty seconds: who sends media but loses checks is not cut off sooner."


def keep_consent(connection: aioice.Connection) -> None:
    """Have a connection check every second that the other side wants what we send, and close when not."""
    vars(connection)["query_consent"] = partial(_query_consent, connection)


async def _query_consent(connection: aioice.Connection) -> None:
    failures = 0
    while failures < CONSENT_FAILURES:
        await asyncio.sleep(CONSENT_INTERVAL_S * random.uniform(0.8, 1.2))  # noqa: S311 - spreads load
        pair = connection._nominated.get(1)
        password = connection.remote_password
        if pair is None or password is None:
            continue
        request = connection.build_request(pair, nominate=False)
        try:
            await pair.protocol.request(
                request, pair.remote_addr, integrity_key=password.encode(), retransmissions=0
            )
        except TransactionError:
            failures += 1
        else:
            failures = 0
    connection._query_consent_task = None  # this is it, and closing would cancel it
    await connection.close()

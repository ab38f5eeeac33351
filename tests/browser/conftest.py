"""What the tests of the call page share: a browser with invented devices, and the stand-in server."""

from collections.abc import AsyncIterator

import pytest
from cdp import INVENTED_DEVICES, Page, chromium
from standin import Served, StandIn, serving


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    server = StandIn()
    async with serving(server) as port:
        yield Served(server, port)


@pytest.fixture
async def page(served: Served) -> AsyncIterator[Page]:
    """A tab of a browser whose microphone beeps and whose camera shows a clock; it must not meet an error."""
    async with chromium(INVENTED_DEVICES) as page:
        await page.look(1280, 800)
        yield page
        assert page.errors == []

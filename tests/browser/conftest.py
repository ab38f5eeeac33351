"""What the tests of the call page share: a browser with invented devices, and the stand-in server."""

from collections.abc import AsyncIterator, Iterator

import pytest
from cdp import INVENTED_DEVICES, Page, launched, tab
from standin import Served, StandIn, serving


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    server = StandIn()
    async with serving(server) as port:
        yield Served(server, port)


@pytest.fixture(scope="session")
def browser() -> Iterator[int]:
    """A browser whose microphone beeps and whose camera shows a clock; its port."""
    with launched(INVENTED_DEVICES) as port:
        yield port


@pytest.fixture
async def page(served: Served, browser: int) -> AsyncIterator[Page]:
    """A tab with storage of its own, closed before the server is; it must not meet an error."""
    async with tab(browser) as page:
        await page.look(1280, 800)
        yield page
        assert page.errors == []

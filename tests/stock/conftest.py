"""What the tests of stock clients share: a browser, and servers that have a client's page."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from clients import Serve, Server, make_page, serving

from browser.cdp import INVENTED_DEVICES, launched
from visavis.engine import Engine


@pytest.fixture(scope="session")
def browser() -> Iterator[int]:
    """A browser with a camera that shows a clock; its port."""
    with launched((*INVENTED_DEVICES, "--autoplay-policy=no-user-gesture-required")) as port:
        yield port


@pytest.fixture(scope="session")
def page_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Give the folder with the page of a client; it is made once."""
    made: dict[str, Path] = {}

    def page_of(name: str) -> Path:
        if name not in made:
            folder = tmp_path_factory.mktemp(name)
            make_page(name, folder)
            made[name] = folder
        return made[name]

    return page_of


@pytest.fixture
async def serve(page_of: Callable[[str], Path]) -> AsyncIterator[Serve]:
    async with AsyncExitStack() as stack:

        async def start(client: str, engine: Engine) -> Server:
            return await stack.enter_async_context(serving(page_of(client), engine))

        yield start

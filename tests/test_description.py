from collections.abc import Iterator
from pathlib import Path

import pytest
from aiohttp import web
from openapi_spec_validator import validate

from switchboard import KEY, Switchboard, serving
from test_front import front
from visavis.app import build_app
from visavis.config import Config, KioskConfig, ServerConfig
from visavis.description import PARTS, PATH, document, operations_of

_METHODS = {"get", "post", "patch", "put", "delete", "options"}


def described(whole: dict[str, dict[str, dict[str, object]]]) -> Iterator[tuple[str, str]]:
    for path, operations in whole["paths"].items():
        yield from ((method, path) for method in operations if method in _METHODS)


@pytest.fixture
def app(tmp_path: Path) -> web.Application:
    """All that one process may serve."""
    board = Switchboard()
    config = Config(server=ServerConfig(keys=(KEY,)), kiosk=KioskConfig(enabled=True, folder=tmp_path))
    return build_app(config, board.open, board.ready)


def test_every_route_is_described_and_nothing_else(app: web.Application) -> None:
    """Whoever adds a route describes it in `visavis.description`."""
    assert sorted(described(document())) == sorted(operations_of(app))


def test_the_description_is_openapi() -> None:
    validate(document())


def test_no_part_takes_a_name_of_another() -> None:
    paths = [path for part in PARTS for path in part.paths]
    schemas = [name for part in PARTS for name in part.schemas]
    assert len(set(paths)) == len(paths)
    assert len(set(schemas)) == len(schemas)
    ids = [
        operation["operationId"]
        for operations in document()["paths"].values()
        for operation in operations.values()
    ]
    assert len(set(ids)) == len(ids)


async def test_it_is_told_without_a_key_and_of_what_there_is() -> None:
    async with serving(keys=(KEY,)) as client:
        response = await client.get(PATH)
        assert (response.status, response.content_type) == (200, "application/json")
        told = await response.json()
        validate(told)
        assert set(described(told)) == set(operations_of(client.app))
        assert not [path for path in told["paths"] if "kiosk" in path]


async def test_a_front_serves_the_same(tmp_path: Path) -> None:
    async with serving() as alone, front(tmp_path, workers=0) as desk:
        assert operations_of(desk.client.app) == operations_of(alone.app)

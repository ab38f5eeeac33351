"""Without torch nothing here is collected; with it, tiny checkpoints and one server serve all tests."""

import importlib.util
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

_HAVE_TORCH = importlib.util.find_spec("torch") is not None
collect_ignore_glob = [] if _HAVE_TORCH else ["test_*.py"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Third-party libraries warn of their own parts when they are imported; ours still must not."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            for module in ("torch", "transformers", "librosa", "audioread", "qwen_omni_utils", "numba"):
                item.add_marker(pytest.mark.filterwarnings(f"ignore:::{module}"))


@pytest.fixture(scope="session")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """`short` answers one sentence, `endless` the same until max_tokens, `random` as chance has it."""
    import torch

    from omni.tiny import ANSWER, build

    torch.set_num_threads(1)  # such small products are not worth a second thread
    folder = tmp_path_factory.mktemp("checkpoints")
    return {
        "short": build(folder / "short", answers=ANSWER),
        "endless": build(folder / "endless", answers=ANSWER, endless=True),
        "random": build(folder / "random"),
    }


@pytest.fixture(scope="session")
def socket(checkpoints: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A process that serves the checkpoints, under several names that differ in their pace."""
    from omni.chain import serving

    short, endless = str(checkpoints["short"]), str(checkpoints["endless"])
    models = {
        "short": {"folder": short},
        "endless": {"folder": endless},
        "smooth": {"folder": endless, "chunk_frames": [4, 4]},
        "at once": {"folder": endless, "rtf": 0.0},
        "rtf 0.22": {"folder": endless, "rtf": 0.22},
        "rtf 0.47": {"folder": endless, "rtf": 0.47},
    }
    path = tmp_path_factory.mktemp("s") / "s"  # the name of a socket must be short
    with serving(path, models):
        yield path


@pytest.fixture
async def model(socket: Path) -> AsyncIterator[Any]:
    from omni.chain import Model

    model = Model(socket)
    yield model
    await model.aclose()


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session

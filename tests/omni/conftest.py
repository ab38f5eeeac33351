"""Without torch nothing here is collected; with it, tiny checkpoints and one server serve all tests."""

import importlib.util
from pathlib import Path

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

"""The example for OpenAI's voice agents agrees with the types of the package."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "openai-agents-js"

pytestmark = [
    pytest.mark.stock,
    pytest.mark.browser,
    pytest.mark.skipif(shutil.which("tsc") is None, reason="no TypeScript compiler (make test installs one)"),
]


def test_the_example_agrees_with_the_types_of_its_package(tmp_path: Path) -> None:
    for name in ("main.ts", "tsconfig.json"):
        shutil.copy(EXAMPLE / name, tmp_path)
    (tmp_path / "node_modules").symlink_to(Path(os.environ["VISAVIS_STOCK_CLIENTS"]) / "node_modules")
    done = subprocess.run(["tsc", "--project", tmp_path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout

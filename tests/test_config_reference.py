"""README's configuration reference is the one that `config.py` makes."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "tools"))

import config_reference  # noqa: E402  # tools/ is no package

from visavis.config import Config  # noqa: E402
from visavis.settings import leaves  # noqa: E402


def test_the_reference_in_the_readme_is_current() -> None:
    readme = (ROOT / "README.md").read_text()
    assert config_reference.replace_between_markers(readme) == readme, (
        "run: python tools/config_reference.py --write README.md"
    )


def test_every_setting_has_a_row_with_its_default_and_reason() -> None:
    reference = config_reference.render()
    for dotted, _ in leaves(Config):
        assert f"\n| `{dotted.rpartition('.')[2]}` | " in reference
    assert "| `port` | whole number | 8080 |" in reference
    assert "| `name` | `local`, `vllm`, `dashscope`, `scripted` | `local` |" in reference
    assert (
        "| `keys` | list of text | empty | Bearer keys. Without any, only loopback is served. |" in reference
    )
    assert "**`[[rtc.ice_servers]]`**" in reference
    assert "| `urls` | list of text | must be given |" in reference


def test_a_readme_without_the_markers_is_refused() -> None:
    with pytest.raises(ValueError, match="README lacks"):
        config_reference.replace_between_markers("# Visavis\n")

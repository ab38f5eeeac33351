"""The types that the call page's modules declare in their comments hold."""

import shutil
import subprocess

import pytest

from visavis.page import web_root

OPTIONS = (
    *("--allowJs", "--checkJs", "--noEmit", "--strict"),
    *("--target", "es2023", "--lib", "es2024,dom,dom.iterable"),
    *("--module", "esnext", "--moduleResolution", "bundler"),
)


def test_the_types_of_the_call_page_hold() -> None:
    tsc = shutil.which("tsc")
    if tsc is None:
        pytest.skip("no tsc (npm install --global typescript)")
    command = [tsc, *OPTIONS, *map(str, sorted(web_root().glob("*.js")))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout

"""The kiosk's unit, policy and browser: systemd takes the unit, names agree, dead pages are noticed."""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

KIOSK = Path(__file__).parents[1] / "deploy" / "kiosk"
UNIT = KIOSK / "visavis-kiosk.service"
BROWSER = KIOSK / "kiosk-browser"

HANGS = "data:text/html,<script>setTimeout(() => { for (;;); }, 500)</script>"


def environment() -> dict[str, str]:
    return dict(re.findall(r"(?m)^(KIOSK_\w+)=(.*)$", (KIOSK / "visavis-kiosk.env").read_text()))


def test_the_policy_allows_the_page_what_it_needs_and_no_other() -> None:
    policy = json.loads((KIOSK / "policy.json").read_text())
    url = urlsplit(environment()["KIOSK_URL"])
    assert url.path == "/kiosk"
    origin = [f"{url.scheme}://{url.netloc}"]
    for name in ("AudioCaptureAllowedUrls", "VideoCaptureAllowedUrls", "AutoplayAllowlist", "URLAllowlist"):
        assert policy[name] == origin
    assert policy["URLBlocklist"] == ["*"]
    # kiosk-browser could not ask the page for a sign of life.
    assert "DeveloperToolsAvailability" not in policy


def test_the_unit_starts_what_the_readme_installs_and_again_when_it_ends() -> None:
    text, readme = UNIT.read_text(), (KIOSK / "README.md").read_text()
    (start,) = re.findall(r"(?m)^ExecStart=(.*)$", text)
    program = start.split()[-1]
    assert f"install -m 755 {BROWSER.name} {Path(program).parent}/" in readme
    (file,) = re.findall(r"(?m)^EnvironmentFile=(.*)$", text)
    assert file in readme
    assert "Restart=always" in text


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd")
def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text().replace("/usr/bin/cage", sys.executable))
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True)
    said = [line for line in done.stderr.splitlines() if "visavis-kiosk" in line]
    assert (done.returncode, said) == (0, []), done.stderr


@contextlib.contextmanager
def browser(state: Path, url: str) -> Iterator[subprocess.Popen[str]]:
    env = os.environ | {
        "KIOSK_URL": url,
        "KIOSK_FLAGS": "--headless=new --no-sandbox --disable-gpu",
        "KIOSK_ASK_S": "0.2",
        "KIOSK_DEAD_S": "3",
        "STATE_DIRECTORY": str(state),
    }
    with subprocess.Popen([sys.executable, BROWSER], env=env, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.terminate()


def renderers(state: Path) -> list[int]:
    """The processes that show pages for the browser of that state."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            arguments = (folder / "cmdline").read_bytes()
            if b"--type=renderer" in arguments and str(state).encode() in arguments:
                found.append(int(folder.name))
    return found


@pytest.mark.browser
def test_a_page_that_hangs_ends_the_browser(tmp_path: Path) -> None:
    with browser(tmp_path, HANGS) as process:
        _, said = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "no sign of life" in said
    assert renderers(tmp_path) == []


@pytest.mark.browser
def test_a_page_that_has_crashed_ends_the_browser(tmp_path: Path) -> None:
    with browser(tmp_path, "data:text/html,hello") as process:
        give_up = time.monotonic() + 60
        while process.poll() is None and time.monotonic() < give_up:
            for pid in renderers(tmp_path):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.5)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "kiosk: " in said

"""The systemd unit: systemd takes it, it is confined, and its times and settings fit the server's."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from visavis.__main__ import build_parser
from visavis.settings import load

SYSTEMD = Path(__file__).parents[1] / "deploy" / "systemd"
UNIT = SYSTEMD / "visavis.service"
MOST_EXPOSED = 2.5
"Of 10, by systemd's own reckoning; what is left is that the server is on the network."


def directives(name: str) -> list[str]:
    return re.findall(rf"(?m)^{name}=(.*)$", UNIT.read_text())


def environment() -> dict[str, str]:
    return dict(line.split("=", 1) for line in directives("Environment"))


def test_it_starts_the_server_with_settings_that_it_takes() -> None:
    (start,) = directives("ExecStart")
    program, *arguments = start.split()
    parsed = build_parser().parse_args(arguments)
    assert (Path(program).name, parsed.command) == ("visavis", "serve")
    config = load(SYSTEMD / "visavis.toml", environment())
    assert config.server.workers > 1
    (pull,) = directives("ExecStartPre")
    assert build_parser().parse_args(pull.split()[1:]).config == parsed.config
    # Of the lines that wait to be filled in, too, each is a setting.
    given = dict(re.findall(r"(?m)^#(VISAVIS_\w+)=(.*)$", (SYSTEMD / "visavis.env").read_text()))
    assert load(None, {**given, "VISAVIS_SERVER_KEYS": "key"}).server.keys == ("key",)


def test_a_stop_waits_for_the_calls() -> None:
    config = load(SYSTEMD / "visavis.toml", environment())
    assert int(directives("TimeoutStopSec")[0]) >= config.server.drain_s + 20
    assert directives("KillSignal") == ["SIGTERM"]
    assert directives("KillMode") == ["mixed"]
    assert directives("ExecReload") == ["/bin/kill -HUP $MAINPID"]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd")
def test_systemd_takes_it_and_finds_it_confined(tmp_path: Path) -> None:
    unit = tmp_path / "visavis.service"
    unit.write_text(UNIT.read_text().replace("/opt/visavis/bin/visavis", sys.executable))
    verified = subprocess.run(["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True)
    said = [line for line in verified.stderr.splitlines() if "visavis" in line]
    assert (verified.returncode, said) == (0, []), verified.stderr
    judged = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--no-pager", unit], capture_output=True, text=True
    )
    exposed = re.search(r"Overall exposure level for visavis.service: ([\d.]+)", judged.stdout)
    assert exposed is not None, judged.stdout + judged.stderr
    assert float(exposed[1]) <= MOST_EXPOSED, judged.stdout

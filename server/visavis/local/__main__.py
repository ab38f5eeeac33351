"""Run the embedded engine: `python -m visavis.local --socket PATH`."""

import argparse
import asyncio
import json
import logging
import os
import signal
import sys
import threading
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from ..config import LocalConfig
from ..errors import ModelError
from .engine import serve
from .parts import ALL, Parts, from_text, to_text

EXIT_MODEL = 3
"Exit status when a model is missing or broken: starting again would not help."


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m visavis.local", description=__doc__)
    parser.add_argument("--socket", type=Path, required=True, help="Unix socket, in a private folder")
    parser.add_argument("--model", help="language model: a name of `visavis models list` or a GGUF file")
    parser.add_argument("--threads", type=int, help="0: all that the media leaves")
    parser.add_argument(
        "--child",
        action="store_true",
        help="read the settings as one line of JSON from standard input, and end when that is closed",
    )
    parser.add_argument(
        "--parts", type=from_text, default=ALL, help=f"what to load, out of {to_text(ALL)}: all"
    )
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    config = LocalConfig()
    if arguments.child:
        config = config_from_json(sys.stdin.readline())
        threading.Thread(target=_end_with_parent, name="parent-watch", daemon=True).start()
    if arguments.model is not None:
        config = replace(config, model=arguments.model)
    if arguments.threads is not None:
        config = replace(config, threads=arguments.threads)
    os.nice(config.nice)
    # OpenMP's threads spin for milliseconds at the barriers of each layer. On shared cores that burns the
    # very time which the thread waited for needs: under load two threads decoded ten times slower. These
    # spin for some 30 µs, which bridges most barriers on idle cores, and then sleep.
    os.environ.setdefault("GOMP_SPINCOUNT", "2000")
    try:
        asyncio.run(_run(config, arguments.socket, arguments.parts))
    except ModelError as error:
        logging.error("%s", error)
        return EXIT_MODEL
    return 0


async def _run(config: LocalConfig, socket: Path, parts: Parts) -> None:
    """Serve until SIGTERM or SIGINT."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await serve(config, socket, stop, parts)


def config_to_json(config: LocalConfig) -> str:
    """Write settings as one line. Not on a command line, for others could read the key there."""
    values = {field.name: getattr(config, field.name) for field in fields(config)}
    return json.dumps(values, default=str)


def config_from_json(line: str) -> LocalConfig:
    values: dict[str, Any] = json.loads(line)
    if values["cache_dir"] is not None:
        values["cache_dir"] = Path(values["cache_dir"])
    return LocalConfig(**values)


def _end_with_parent() -> None:
    """Wait for the end of standard input: the parent is gone, however it died."""
    while os.read(sys.stdin.fileno(), 4096):
        pass
    os._exit(0)  # at once: a model in the middle of a step must not outlive the parent


if __name__ == "__main__":
    sys.exit(main())

"""Command line: serve, call, doctor, engine, models."""

import argparse
import asyncio
import logging
import os
import sys
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

from . import __version__
from .config import Config
from .errors import VisavisError
from .heap import restart_on_huge_pages
from .local import models_cli
from .logs import set_up_logging
from .settings import load

logger = logging.getLogger(__name__)


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="visavis", description="A self-hosted assistant that one talks to face to face."
    )
    parser.add_argument("--version", action="version", version=f"visavis {__version__}")
    parser.add_argument("--config", type=Path, metavar="FILE", help="settings in TOML (README has the list)")
    parser.add_argument("-v", "--verbose", action="store_true", help="log details")
    commands = parser.add_subparsers(dest="command", required=True)

    serve = commands.add_parser("serve", help="run the server")
    serve.add_argument("--host", help="address to listen on; beyond loopback a key is needed")
    serve.add_argument("--port", type=int)
    serve.add_argument("--workers", type=_count, metavar="N", help="processes that carry calls")
    serve.add_argument("--engine", choices=("local", "vllm", "dashscope", "scripted"))
    serve.add_argument("--engine-url", help="base URL of vLLM-Omni")

    call = commands.add_parser("call", help="call a server and speak recorded questions")
    call.add_argument("--server", default="http://127.0.0.1:8080", metavar="URL")
    call.add_argument("--key", default=os.environ.get("VISAVIS_KEY"), help="bearer key (or VISAVIS_KEY)")
    call.add_argument(
        "--audio",
        type=Path,
        action="append",
        required=True,
        metavar="WAV",
        help="a spoken question; may repeat, one turn each",
    )
    call.add_argument("--video", type=Path, metavar="FILE", help="a clip or a picture for the camera")
    call.add_argument("--turns", type=_count, metavar="N", help="turns in all, the questions in rotation")
    call.add_argument("--save", type=Path, metavar="WAV", help="write what was heard")
    call.add_argument(
        "--no-resume", action="store_true", help="end when the call is lost, instead of going on in another"
    )
    call.add_argument("--json", type=Path, metavar="FILE", help="write what happened")

    doctor = commands.add_parser("doctor", help="check this machine, or an engine, and say what to fix")
    doctor.add_argument(
        "--engine", metavar="URL", dest="examined", help="check the vLLM-Omni server there alone"
    )

    engine = commands.add_parser(
        "engine", help="run vLLM-Omni for Qwen3-Omni, as the settings under [deploy] say"
    )
    engine.add_argument(
        "--print", action="store_true", help="print the command for a shell, and do not run it"
    )
    engine.add_argument("extra", nargs="*", metavar="-- ARGUMENT", help="further arguments of vllm serve")
    models_cli.add_arguments(commands.add_parser("models", help="list, pull or verify the models"))
    return parser


def _count(text: str) -> int:
    if (number := int(text)) < 1:
        raise ValueError
    return number


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. Errors of ours end in one sentence and status 1."""
    arguments = build_parser().parse_args(argv)
    if argv is None and arguments.command == "serve":
        restart_on_huge_pages()
    set_up_logging(logging.DEBUG if arguments.verbose else logging.INFO)
    try:
        return _COMMANDS[arguments.command](arguments)
    except VisavisError as error:
        print(f"visavis: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _settings(arguments: argparse.Namespace) -> Config:
    flags = {
        "server.host": getattr(arguments, "host", None),
        "server.port": getattr(arguments, "port", None),
        "server.workers": getattr(arguments, "workers", None),
        "engine.name": "vllm" if getattr(arguments, "examined", None) else getattr(arguments, "engine", None),
        "engine.url": getattr(arguments, "engine_url", None) or getattr(arguments, "examined", None),
    }
    return load(
        arguments.config, os.environ, {name: value for name, value in flags.items() if value is not None}
    )


def _serve(arguments: argparse.Namespace) -> int:
    config = _settings(arguments)
    if config.server.workers > 1:
        from . import service

        return _run(service.serve(config, lambda: _settings(arguments)))
    from . import wiring

    return _run(wiring.serve(config))


def _call(arguments: argparse.Namespace) -> int:
    from .caller import RECONNECTS, call

    return _run(
        call(
            server=arguments.server,
            key=arguments.key,
            questions=arguments.audio,
            video=arguments.video,
            turns=arguments.turns,
            save=arguments.save,
            report=arguments.json,
            reconnects=0 if arguments.no_resume else RECONNECTS,
        )
    )


def _doctor(arguments: argparse.Namespace) -> int:
    from .doctor import examine, examine_engine

    config = _settings(arguments)
    return _run(examine(config) if arguments.examined is None else examine_engine(config))


def _engine(arguments: argparse.Namespace) -> int:
    from .deploy import with_extra
    from .keeper import keep, print_command

    config = with_extra(_settings(arguments), arguments.extra)
    if arguments.print:
        print_command(config)
        return 0
    return _run(keep(config))


def _models(arguments: argparse.Namespace) -> int:
    return models_cli.run(arguments, _settings(arguments))


def _run(main: Coroutine[Any, Any, int | None]) -> int:
    return asyncio.run(main) or 0


_COMMANDS: dict[str, Callable[[argparse.Namespace], int]] = {
    "serve": _serve,
    "call": _call,
    "doctor": _doctor,
    "engine": _engine,
    "models": _models,
}

if __name__ == "__main__":
    sys.exit(main())

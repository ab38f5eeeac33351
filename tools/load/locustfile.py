"""Locust's users as callers with real media: signalling and calls are timed as its requests are.

    pip install locust -r tools/load/requirements.txt
    PYTHONPATH=tools LOAD_SPEECH=folder locust -f tools/load/locustfile.py --host https://talk.example

LOAD_SPEECH has question-*.wav and interruption-*.wav; LOAD_CAMERA is audio, camera (the default) or
camera_720p30; VISAVIS_KEY is the server's key. Locust patches sockets and threads, which libwebrtc and
asyncio cannot stand: so the calls live in a process of their own (`load.desk`).
"""

import json
import os
import sys
from typing import Any

import gevent
from gevent import subprocess
from locust import User, constant, events, task


class Desk:
    """The process with the calls."""

    def __init__(self) -> None:
        self._process: Any = None  # gevent's Popen has no types
        self._users = 0

    def add(self, environment: Any) -> None:
        """Have one caller more."""
        if self._process is None:
            self._start(environment)
        self._users += 1
        self._tell()

    def take(self) -> None:
        """Have one caller less. Users may outlive the test by a moment: nothing is there for them then."""
        self._users -= 1
        if self._process is not None:
            self._tell()

    def close(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.stdin.close()
            process.wait()

    def _tell(self) -> None:
        self._process.stdin.write(f"{self._users}\n".encode())
        self._process.stdin.flush()

    def _start(self, environment: Any) -> None:
        command = [sys.executable, "-m", "load.desk", environment.host, os.environ["LOAD_SPEECH"]]
        command.append(f"--camera={os.environ.get('LOAD_CAMERA', 'camera')}")
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        gevent.spawn(self._report, environment, self._process.stdout)

    def _report(self, environment: Any, lines: Any) -> None:
        for line in lines:
            told = json.loads(line)
            failure = told.get("failure")
            environment.events.request.fire(
                request_type="call",
                name=told["name"],
                response_time=told["ms"],
                response_length=0,
                exception=RuntimeError(failure) if failure else None,
                context={},
            )


DESK = Desk()


@events.test_stop.add_listener
def end(environment: Any, **_: Any) -> None:
    DESK.close()


class Caller(User):
    """One caller, from the spawning of the user to its end."""

    wait_time = constant(1)

    def on_start(self) -> None:
        DESK.add(self.environment)

    def on_stop(self) -> None:
        DESK.take()

    @task
    def talk(self) -> None:
        """The desk talks."""

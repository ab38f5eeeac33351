"""Two network namespaces with a bad line between them: it delays, loses, breaks off, and the caller moves.

Each end is a thread with a namespace and an event loop of its own, so that nothing of it is left afterwards.
The line is a pair of Ethernet devices with `tc netem` where the kernel has that; where it does not, a thread
carries packets from one TUN device to the other and does the same to them. Linux, as root.
"""

import asyncio
import contextlib
import ctypes
import fcntl
import functools
import heapq
import itertools
import os
import random
import select
import shutil
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Coroutine, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, TypeVar

T = TypeVar("T")

SERVER = "10.203.0.1"
CALLER = "10.203.0.2"
MOVED = "10.203.0.3"
"Where the caller is after it has moved."
_DEVICE = "line"
_TUNSETIFF = 0x400454CA
_IFF_TUN, _IFF_NO_PI = 0x0001, 0x1000
_CLONE_NEWNET = 0x40000000
_SEED = 7


class End:
    """A thread in a namespace of its own, and its event loop."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._loop = asyncio.new_event_loop()
        ready: list[BaseException | int] = []
        started = threading.Event()

        def live() -> None:
            try:
                _leave_namespace()
                ready.append(threading.get_native_id())
            except OSError as error:
                ready.append(error)
                return
            finally:
                started.set()
            asyncio.set_event_loop(self._loop)
            self._loop.run_forever()

        self._thread = threading.Thread(target=live, daemon=True)
        self._thread.start()
        started.wait()
        (result,) = ready
        if isinstance(result, BaseException):
            raise result
        assert isinstance(result, int)
        self.thread_id = result
        self.run(_command("ip", "link", "set", "lo", "up"))

    def begin(self, work: Coroutine[Any, Any, T]) -> "asyncio.Future[T]":
        """Do something here; awaited in the caller's own loop."""
        return asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do something here and wait for it."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class Link:
    """The line between two ends."""

    def __init__(self, server: End, caller: End) -> None:
        self.server = server
        self.caller = caller

    async def set(self, delay_s: float = 0.0, loss: float = 0.0, *, down: bool = False) -> None:
        """Let packets take so long each way, be lost at random, or not pass at all."""
        raise NotImplementedError

    async def move_caller(self) -> None:
        """Give the caller another address in place of its own."""
        for what, address in (("del", CALLER), ("add", MOVED)):
            await self.caller.begin(_command("ip", "address", what, f"{address}/24", "dev", _DEVICE))

    def close(self) -> None: ...


class _NetemLink(Link):
    def __init__(self, server: End, caller: End) -> None:
        super().__init__(server, caller)
        peer = ("peer", "name", _DEVICE, "netns", str(caller.thread_id))
        server.run(_command("ip", "link", "add", _DEVICE, "type", "veth", *peer))

    async def set(self, delay_s: float = 0.0, loss: float = 0.0, *, down: bool = False) -> None:
        what = ("delay", f"{delay_s * 1000:.0f}ms", "loss", "random", f"{100 if down else 100 * loss:.0f}%")
        for end in (self.server, self.caller):
            await end.begin(
                _command("tc", "qdisc", "replace", "dev", _DEVICE, "root", "netem", "limit", "1000", *what)
            )


class _TunLink(Link):
    def __init__(self, server: End, caller: End) -> None:
        super().__init__(server, caller)
        self._ends = [server.run(_open_tun()), caller.run(_open_tun())]
        self._delay_s, self._loss, self._down = 0.0, 0.0, False
        self._random = random.Random(_SEED)
        self._woken, self._wake = os.pipe()
        self._thread = threading.Thread(target=self._carry, daemon=True)
        self._thread.start()

    async def set(self, delay_s: float = 0.0, loss: float = 0.0, *, down: bool = False) -> None:
        self._delay_s, self._loss, self._down = delay_s, loss, down

    def close(self) -> None:
        os.write(self._wake, b"x")
        self._thread.join()
        for each in (*self._ends, self._woken, self._wake):
            os.close(each)

    def _carry(self) -> None:
        one, other = self._ends
        across = {one: other, other: one}
        order = itertools.count()
        travelling: list[tuple[float, int, int, bytes]] = []
        while True:
            wait_s = max(0.0, travelling[0][0] - time.monotonic()) if travelling else None
            ready, _, _ = select.select([one, other, self._woken], [], [], wait_s)
            if self._woken in ready:
                return
            for end in ready:
                packet = os.read(end, 65536)
                if not self._down and self._random.random() >= self._loss:
                    due = time.monotonic() + self._delay_s
                    heapq.heappush(travelling, (due, next(order), across[end], packet))
            while travelling and travelling[0][0] <= time.monotonic():
                _, _, end, packet = heapq.heappop(travelling)
                with contextlib.suppress(OSError):  # a device that is not up yet takes nothing
                    os.write(end, packet)


@contextmanager
def linked() -> Iterator[Link]:
    """Make two ends and a good line between them."""
    with ExitStack() as stack:
        ends = []
        for address in (SERVER, CALLER):
            ends.append(End(address))
            stack.callback(ends[-1].close)
        link = (_NetemLink if has_netem() else _TunLink)(*ends)
        stack.callback(link.close)
        for end in ends:
            end.run(_command("ip", "address", "add", f"{end.address}/24", "dev", _DEVICE))
            end.run(_command("ip", "link", "set", _DEVICE, "up"))
        asyncio.run(link.set())
        yield link


@functools.cache
def has_netem() -> bool:
    """Tell whether this kernel delays and loses packets itself."""
    if shutil.which("tc") is None:
        return False
    end = End("")
    try:
        end.run(_command("tc", "qdisc", "add", "dev", "lo", "root", "netem", "delay", "1ms"))
    except subprocess.CalledProcessError:
        return False
    finally:
        end.close()
    return True


@functools.cache
def missing() -> str | None:
    """Tell why there can be no such line on this machine."""
    if sys.platform != "linux":
        return "network namespaces are Linux's"
    if shutil.which("ip") is None:
        return "no ip (apt-get install iproute2)"
    try:
        with linked():
            return None
    except (OSError, subprocess.CalledProcessError) as error:
        return f"this user may make no network namespace ({error}): root may"


def _leave_namespace() -> None:
    """Move this thread, and what it starts, into a network namespace of its own."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWNET):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


async def _open_tun() -> int:
    tun = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(tun, _TUNSETIFF, struct.pack("16sH22x", _DEVICE.encode(), _IFF_TUN | _IFF_NO_PI))
    return tun


async def _command(*command: str) -> None:
    """Run a command. Raises CalledProcessError."""
    process = await asyncio.create_subprocess_exec(
        *command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    _, said = await process.communicate()
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command, stderr=said)

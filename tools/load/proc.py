"""What a server takes, by what Linux tells of its processes: CPU time, memory, threads, sockets.

The functions that read texts of /proc are sans-I/O; `measure` reads the files.
"""

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Usage:
    """Of one process or of several together."""

    cpu_s: float = 0.0
    waited_s: float = 0.0
    "In which threads that had work were not let run; 0 where Linux does not tell."
    rss_mb: float = 0.0
    threads: int = 0
    sockets: int = 0

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            self.cpu_s + other.cpu_s,
            self.waited_s + other.waited_s,
            self.rss_mb + other.rss_mb,
            self.threads + other.threads,
            self.sockets + other.sockets,
        )


def parse_stat(text: str) -> tuple[int, float]:
    """Give the parent's id and the CPU seconds, those of children that were waited for included."""
    # The name, in brackets, may hold spaces and brackets itself.
    fields = text.rpartition(")")[2].split()
    return int(fields[1]), sum(map(int, fields[11:15])) / TICKS_PER_S


def parse_status(text: str) -> tuple[float, int]:
    """Give the resident memory in MB and the number of threads; zeros of a process that is ending."""
    values = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    rss_kb = values.get("VmRSS", "0").split()[0]
    return int(rss_kb) / 1024, int(values.get("Threads", "0"))


def parse_schedstat(text: str) -> float:
    """Give the seconds for which a thread waited for a core."""
    fields = text.split()
    return int(fields[1]) / 1e9 if len(fields) == 3 else 0.0


def family(parents: dict[int, int], root: int, leave_out: Callable[[int], bool]) -> set[int]:
    """Give a process and its descendants, without those left out and what they started."""
    found = {root}
    while (
        more := {child for child, parent in parents.items() if parent in found and not leave_out(child)}
        - found
    ):
        found |= more
    return found


def children(pid: int, proc: Path = Path("/proc")) -> list[int]:
    """Give the processes that one started itself, engines left out, by their ids."""
    found = []
    for path in proc.glob("[0-9]*/stat"):
        child = int(path.parent.name)
        if (text := _read(path)) and parse_stat(text)[0] == pid and not is_engine(_command(proc, child)):
            found.append(child)
    return sorted(found)


def is_engine(command: str) -> bool:
    """Tell whether a command line is that of the models: no part of what a call costs the server."""
    return "visavis.local" in command


def measure(pid: int, proc: Path = Path("/proc")) -> Usage:
    """Add up a server and what it started, engines left out. A process that is gone counts nothing."""
    parents: dict[int, int] = {}
    for path in proc.glob("[0-9]*/stat"):
        if text := _read(path):
            parents[int(path.parent.name)] = parse_stat(text)[0]

    def engine(child: int) -> bool:
        return is_engine(_command(proc, child))

    return sum((_usage(proc / str(one)) for one in family(parents, pid, engine)), Usage())


def _usage(folder: Path) -> Usage:
    stat, status = _read(folder / "stat"), _read(folder / "status")
    if not stat or not status:
        return Usage()
    rss_mb, threads = parse_status(status)
    waited_s = sum(parse_schedstat(_read(path)) for path in folder.glob("task/*/schedstat"))
    return Usage(parse_stat(stat)[1], waited_s, rss_mb, threads, _sockets(_links(folder / "fd")))


def _command(proc: Path, pid: int) -> str:
    return _read(proc / str(pid) / "cmdline").replace("\0", " ")


def _sockets(links: Iterable[str]) -> int:
    return sum(link.startswith("socket:") for link in links)


def _links(folder: Path) -> list[str]:
    try:
        return [str(path.readlink()) for path in folder.iterdir() if path.is_symlink()]
    except OSError:
        return []  # it ended just now, or is another user's


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""  # it ended just now


@dataclass(frozen=True, slots=True)
class Meter:
    """Of a server and of its engine, where that is a process of its own; without an id nothing is read."""

    server_pid: int | None = None
    engine_pid: int | None = None

    def server(self) -> Usage:
        return Usage() if self.server_pid is None else measure(self.server_pid)

    def front(self) -> Usage:
        """Of the server's first process alone, which with several workers is in front of them."""
        return Usage() if self.server_pid is None else _usage(Path(f"/proc/{self.server_pid}"))

    def engine(self) -> Usage:
        return Usage() if self.engine_pid is None else measure(self.engine_pid)

"""The server's heap: on huge pages, and what was loaded at the start out of the garbage collector's way.

The code of a turn's end runs once in many seconds, and its cost is mostly the looking up of pages, above all
in a virtual machine: `tools/bench/turns.py` shows it with and without.
"""

import gc
import os
import platform
import sys
from collections.abc import Mapping
from pathlib import Path

_TUNABLES = "GLIBC_TUNABLES"
_HUGE = "glibc.malloc.hugetlb=1"
'The heap asks for transparent huge pages (glibc manual, "Memory Allocation Tunables").'

_ALLOCATOR = "PYTHONMALLOC"
"Python's own allocator takes its memory from the kernel in pieces of 1 MiB and never asks; malloc does."


def restart_on_huge_pages() -> None:
    """Replace this process by itself with its heap on huge pages, if that is possible and not done yet.

    Only for a process that has just begun: it starts anew with the same arguments. Whoever has set
    PYTHONMALLOC is left alone.
    """
    supported = platform.libc_ver()[0] == "glibc" and _kernel_allows()
    environment = huge_page_environment(os.environ) if supported else None
    if environment is not None:
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], environment)  # noqa: S606 - ourselves


def settle() -> None:
    """Exempt what there is now from garbage collection: looking through all modules stops calls for 0.1 s."""
    gc.collect()
    gc.freeze()


def huge_page_environment(environment: Mapping[str, str]) -> dict[str, str] | None:
    """Return the environment of a process with huge pages, None if the given one is left as it is."""
    if _ALLOCATOR in environment:
        return None
    tunables = environment.get(_TUNABLES)
    if tunables is not None and "glibc.malloc.hugetlb" in tunables:
        return None
    joined = _HUGE if not tunables else f"{tunables}:{_HUGE}"
    return {**environment, _TUNABLES: joined, _ALLOCATOR: "malloc"}


def _kernel_allows() -> bool:
    try:
        return "[never]" not in Path("/sys/kernel/mm/transparent_hugepage/enabled").read_text("ascii")
    except OSError:
        return False

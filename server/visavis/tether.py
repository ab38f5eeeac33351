"""`python -m visavis.tether COMMAND…`: become a command that the kernel ends when its parent dies.

For programs that do not notice it themselves: a killed `visavis engine` must not leave a server behind that
holds the GPUs. Source: prctl(2), PR_SET_PDEATHSIG; elsewhere than on Linux the command just runs.
"""

import ctypes
import os
import signal
import sys
from collections.abc import Sequence

_PR_SET_PDEATHSIG = 1


def tethered(command: Sequence[str]) -> list[str]:
    """Return the command line that runs `command` on a tether to this process."""
    return [sys.executable, "-m", __spec__.name, str(os.getpid()), *command]


def main(arguments: Sequence[str]) -> int:
    """Tie this process to its parent, whose id comes first, and become the rest of the arguments."""
    parent, *command = arguments
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != int(parent):  # it died before it could be noticed
            return 1
    try:
        os.execvp(command[0], command)  # noqa: S606 - that is what it is for
    except OSError as error:
        print(f"visavis: {command[0]} cannot be started: {error.strerror}.", file=sys.stderr)
        return 127


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

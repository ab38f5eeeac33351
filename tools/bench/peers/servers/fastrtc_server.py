"""FastRTC as its guide has it: ReplyOnPause with the guide's options, interruptible; it is answered at once.

    python fastrtc_server.py FOLDER

Its Silero weights come from a model hub when it runs; here the same generation of them is taken from a
package that carries it, and loaded by its own code. FOLDER/answer.pcm (16 bit, mono, 24 kHz) is what is
answered; what an answer was asked with is written to FOLDER. Prints its address.
"""

import importlib.util
import os
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path

os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np
import uvicorn
from fastapi import FastAPI
from fastrtc import AlgoOptions, ReplyOnPause, SileroVadOptions, Stream
from fastrtc.pause_detection.silero import SileroVADModel
from numpy.typing import NDArray

FOLDER = Path(sys.argv[1])
RATE = 24_000
CHUNK = RATE // 10
"Samples of the answer in one piece."


def weights() -> str:
    spec = importlib.util.find_spec("faster_whisper")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    return str(Path(spec.submodule_search_locations[0]) / "assets" / "silero_vad.onnx")


def answer(audio: tuple[int, NDArray[np.int16]]) -> Iterator[tuple[int, NDArray[np.int16]]]:
    rate, given = audio
    (FOLDER / f"given-{time.monotonic_ns()}-{rate}.pcm").write_bytes(given.astype(np.int16).tobytes())
    sound = np.frombuffer((FOLDER / "answer.pcm").read_bytes(), np.int16)
    for at in range(0, len(sound), CHUNK):
        yield RATE, sound[None, at : at + CHUNK]


def main() -> None:
    SileroVADModel.download_model = staticmethod(weights)
    handler = ReplyOnPause(
        answer,
        algo_options=AlgoOptions(
            audio_chunk_duration=0.6, started_talking_threshold=0.2, speech_threshold=0.1
        ),
        model_options=SileroVadOptions(
            threshold=0.5, min_speech_duration_ms=250, min_silence_duration_ms=100
        ),
        can_interrupt=True,
    )
    stream = Stream(handler=handler, modality="audio", mode="send-receive", concurrency_limit=10)
    app = FastAPI()
    stream.mount(app)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        print(f"http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
        uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listener])


if __name__ == "__main__":
    main()

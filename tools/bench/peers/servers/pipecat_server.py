"""pipecat as its guides recommend it: Silero, smart-turn or a silence, SmallWebRTC; the answer comes at once.

    python pipecat_server.py FOLDER {smart-turn,vad}

Its own defaults throughout (Silero: 200 ms to start and to stop; smart-turn v3; or 600 ms of silence), but
for sound sent in pieces of 20 ms, as its examples for WebRTC do it, and no waiting for a transcript, as it
advises for models that hear. FOLDER/answer.pcm (16 bit, mono, 24 kHz) is what is answered. Prints its
address.
"""

import asyncio
import sys
from pathlib import Path

from aiohttp import web
from loguru import logger
from pipecat.audio.turn.smart_turn.local_smart_turn_v3 import LocalSmartTurnAnalyzerV3
from pipecat.audio.vad.silero import SileroVADAnalyzer
from pipecat.frames.frames import (
    Frame,
    TTSAudioRawFrame,
    TTSStartedFrame,
    TTSStoppedFrame,
    UserStoppedSpeakingFrame,
)
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineParams, PipelineWorker
from pipecat.processors.audio.vad_processor import VADProcessor
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor
from pipecat.transports.base_transport import TransportParams
from pipecat.transports.smallwebrtc.connection import SmallWebRTCConnection
from pipecat.transports.smallwebrtc.transport import SmallWebRTCTransport
from pipecat.turns.user_start import VADUserTurnStartStrategy
from pipecat.turns.user_stop import SpeechTimeoutUserTurnStopStrategy, TurnAnalyzerUserTurnStopStrategy
from pipecat.turns.user_turn_processor import UserTurnProcessor
from pipecat.turns.user_turn_strategies import UserTurnStrategies
from pipecat.workers.runner import WorkerRunner

FOLDER, KIND = Path(sys.argv[1]), sys.argv[2]
IN_RATE, RATE = 16_000, 24_000
CHUNK = RATE // 10 * 2
"Bytes of the answer in one frame, 100 ms."


class Stub(FrameProcessor):
    """Stands for recogniser, model and voice: answers the end of a turn."""

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        await self.push_frame(frame, direction)
        if isinstance(frame, UserStoppedSpeakingFrame) and direction is FrameDirection.DOWNSTREAM:
            answer = (FOLDER / "answer.pcm").read_bytes()
            await self.push_frame(TTSStartedFrame())
            for at in range(0, len(answer), CHUNK):
                await self.push_frame(TTSAudioRawFrame(answer[at : at + CHUNK], RATE, 1))
            await self.push_frame(TTSStoppedFrame())


def end_of_turn() -> SpeechTimeoutUserTurnStopStrategy | TurnAnalyzerUserTurnStopStrategy:
    if KIND == "vad":
        return SpeechTimeoutUserTurnStopStrategy(wait_for_transcript=False)
    return TurnAnalyzerUserTurnStopStrategy(
        turn_analyzer=LocalSmartTurnAnalyzerV3(), wait_for_transcript=False
    )


async def talk(connection: SmallWebRTCConnection) -> None:
    params = TransportParams(audio_in_enabled=True, audio_out_enabled=True, audio_out_10ms_chunks=2)
    transport = SmallWebRTCTransport(connection, params)
    strategies = UserTurnStrategies(start=[VADUserTurnStartStrategy()], stop=[end_of_turn()])
    steps = [
        transport.input(),
        VADProcessor(vad_analyzer=SileroVADAnalyzer()),
        UserTurnProcessor(user_turn_strategies=strategies),
        Stub(),
        transport.output(),
    ]
    rates = PipelineParams(audio_in_sample_rate=IN_RATE, audio_out_sample_rate=RATE)
    worker = PipelineWorker(Pipeline(steps), params=rates)

    @transport.event_handler("on_client_disconnected")
    async def on_client_disconnected(*_: object) -> None:
        await worker.cancel()

    runner = WorkerRunner(handle_sigint=False)
    await runner.add_workers(worker)
    await runner.run()


async def offer(request: web.Request) -> web.Response:
    body = await request.json()
    connection = SmallWebRTCConnection()
    await connection.initialize(sdp=body["sdp"], type=body["type"])
    request.app["calls"].append(asyncio.create_task(talk(connection)))
    return web.json_response(connection.get_answer())


async def main() -> None:
    logger.remove()
    logger.add(sys.stderr, level="WARNING")
    app = web.Application()
    app["calls"] = []
    app.router.add_post("/offer", offer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(f"http://127.0.0.1:{runner.addresses[0][1]}", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())

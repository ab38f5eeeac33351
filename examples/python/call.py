"""Call by WebRTC with aiortc: a camera (or a film), a question from a file, the answer into a file.

pip install aiortc aiohttp
python call.py question.wav answer.wav [--film film.mp4] [--server http://localhost:8080] [--key KEY]
"""

import argparse
import asyncio
import json

import aiohttp
from aiortc import RTCPeerConnection, RTCSessionDescription
from aiortc.contrib.media import MediaPlayer, MediaRecorder


async def call(question: str, answer: str, film: str | None, server: str, key: str | None) -> None:
    """Ask, and hang up once the answer has been heard."""
    heard = asyncio.Event()
    connection = RTCPeerConnection()
    recorder = MediaRecorder(answer)
    connection.addTrack(MediaPlayer(question).audio)
    if film is not None:
        connection.addTrack(MediaPlayer(film, loop=True).video)
    connection.on("track", lambda track: recorder.addTrack(track) if track.kind == "audio" else None)
    channel = connection.createDataChannel("oai-events")

    @channel.on("message")
    def receive(message: str) -> None:
        event = json.loads(message)
        match event["type"]:
            case "conversation.item.input_audio_transcription.completed":
                print("You said:", event["transcript"])
            case "response.output_audio_transcript.done":
                print("Answer:", event["transcript"].strip())
            case "output_audio_buffer.stopped":
                heard.set()
            case "error":
                print("Error:", event["error"]["message"])

    headers = {"Content-Type": "application/sdp"} | ({"Authorization": f"Bearer {key}"} if key else {})
    async with aiohttp.ClientSession() as http:
        await connection.setLocalDescription(await connection.createOffer())
        url, offer = f"{server}/v1/realtime/calls", connection.localDescription.sdp
        async with http.post(url, data=offer, headers=headers) as response:
            if response.status != 201:
                raise SystemExit(await response.text())
            await connection.setRemoteDescription(RTCSessionDescription(await response.text(), "answer"))
        await recorder.start()
        await heard.wait()
        await recorder.stop()
        await connection.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("question")
    parser.add_argument("answer")
    parser.add_argument("--film")
    parser.add_argument("--server", default="http://localhost:8080")
    parser.add_argument("--key")
    options = parser.parse_args()
    asyncio.run(call(options.question, options.answer, options.film, options.server, options.key))


if __name__ == "__main__":
    main()

"""Ask a question by WebSocket with OpenAI's own package, and keep the spoken answer.

    pip install "openai[realtime]"
    python ask.py question.wav answer.wav --server ws://localhost:8080/v1 [--key KEY]

The question is a mono WAV file of 16 bit and 24 kHz.
"""

import argparse
import asyncio
import base64
import wave

from openai import AsyncOpenAI

RATE = 24_000
CHUNK = RATE // 10


async def ask(question: bytes, server: str, key: str) -> bytes:
    """Send the sound of a question, all at once, and return the sound of the answer."""
    client = AsyncOpenAI(api_key=key, websocket_base_url=server)
    async with client.realtime.connect(model="any") as call:
        # Without turn detection the question is what was sent until the commit.
        await call.session.update(session={"type": "realtime", "audio": {"input": {"turn_detection": None}}})
        for at in range(0, len(question), 2 * CHUNK):
            sound = base64.b64encode(question[at : at + 2 * CHUNK]).decode()
            await call.input_audio_buffer.append(audio=sound)
        await call.input_audio_buffer.commit()
        await call.response.create()
        answer = bytearray()
        async for event in call:
            match event.type:
                case "conversation.item.input_audio_transcription.completed":
                    print("You said:", event.transcript)
                case "response.output_audio.delta":
                    answer += base64.b64decode(event.delta)
                case "response.output_audio_transcript.done":
                    print("Answer:", event.transcript.strip())
                case "error":
                    raise SystemExit(event.error.message)
                case "response.done":
                    break
    return bytes(answer)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("question")
    parser.add_argument("answer")
    parser.add_argument("--server", default="ws://localhost:8080/v1")
    parser.add_argument("--key", default="none")
    options = parser.parse_args()
    with wave.open(options.question) as file:
        if (file.getnchannels(), file.getsampwidth(), file.getframerate()) != (1, 2, RATE):
            raise SystemExit(f"{options.question} must be mono, 16 bit, {RATE} Hz.")
        question = file.readframes(file.getnframes())
    answer = asyncio.run(ask(question, options.server, options.key))
    with wave.open(options.answer, "wb") as file:
        file.setparams((1, 2, RATE, 0, "NONE", ""))
        file.writeframes(answer)


if __name__ == "__main__":
    main()

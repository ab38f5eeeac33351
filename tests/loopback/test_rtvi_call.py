"""RTVI over real WebRTC, from a peer that is not ours: late candidates, the channel, the camera."""

import json
import re
from typing import Any

import aiohttp
import pytest
from aiortc import RTCPeerConnection, RTCSessionDescription
from aiortc.mediastreams import AudioStreamTrack
from kit import until
from wires import picture

from conftest import Serve
from visavis.engine.scripted import ScriptedEngine
from visavis.rtc.camera import PictureTrack

pytestmark = pytest.mark.loopback


class Client:
    """As the SDKs do: a microphone, a camera, a channel called chat, and candidates that come later."""

    def __init__(self) -> None:
        self.connection = RTCPeerConnection()
        self.connection.addTrack(AudioStreamTrack())
        self.connection.addTransceiver(PictureTrack(picture, 12.0), "sendrecv")
        self.channel = self.connection.createDataChannel("chat")
        self.channel.on("message", lambda text: self.told.append(json.loads(text)))
        self.told: list[dict[str, Any]] = []
        self.pc_id: str | None = None

    async def connect(self, http: aiohttp.ClientSession, url: str) -> None:
        await self.connection.setLocalDescription(await self.connection.createOffer())
        whole = self.connection.localDescription.sdp
        bare = re.sub(r"a=(candidate:.*|end-of-candidates)\r\n", "", whole)
        async with http.post(url, json={"sdp": bare, "type": "offer", "pc_id": self.pc_id}) as response:
            assert response.status == 200, await response.text()
            answer = await response.json()
        self.pc_id = answer["pc_id"]
        found = [
            {"candidate": text, "sdp_mid": "0", "sdp_mline_index": 0}
            for text in re.findall("a=(candidate:.*)\r", whole)
        ]
        async with http.patch(url, json={"pc_id": self.pc_id, "candidates": found}) as response:
            assert response.status == 200, await response.text()
        hidden = re.sub(r"a=(candidate:.*|end-of-candidates)\r\n", "", answer["sdp"])
        await self.connection.setRemoteDescription(RTCSessionDescription(hidden, "answer"))
        await until(lambda: self.channel.readyState == "open", "the channel")

    def send(self, kind: str, data: Any = None) -> None:
        self.channel.send(json.dumps({"label": "rtvi-ai", "type": kind, "id": "m1", "data": data}))

    def data(self, kind: str) -> list[Any]:
        return [message.get("data") for message in self.told if message["type"] == kind]


async def test_a_peer_of_others_talks_rtvi_and_shows_its_camera(
    nothing_left: None, serve: Serve, http: aiohttp.ClientSession
) -> None:
    server = await serve(ScriptedEngine())
    url = f"{server.url}/api/offer"
    client = Client()
    await client.connect(http, url)
    client.channel.send("ping: 1700000000000")
    client.send("client-ready", {"version": "2.1.0", "about": {"library": "test"}})
    await until(lambda: client.data("bot-ready"), "bot-ready")

    (session,) = server.sessions
    # The first is kept, and has been handed on when the second is taken up.
    await until(lambda: session._peer.stats().frames_decoded > 1, "a picture")
    client.send("send-text", {"content": "What do you see?"})
    await until(lambda: client.data("bot-started-speaking"), "the bot's voice")
    said = " ".join(each["text"] for each in client.data("bot-output"))
    assert "You wrote: What do you see?" in said
    assert "saw 0 pictures" not in said

    client.send("disconnect-bot")
    await until(
        lambda: client.told[-1] == {"type": "signalling", "message": {"type": "peerLeft"}}, "farewell"
    )
    await until(lambda: not len(server.calls), "the end of the call")
    await client.connection.close()

"""Which version of OpenAI's interface a request asks for."""

from aiohttp import hdrs, web

from .protocol.realtime import RealtimeProtocol
from .protocol.realtime_beta import beta_bodies
from .wire import MakeWire

BETA_PROTOCOL = "openai-beta.realtime-v1"
"A WebSocket's subprotocol, by which browsers say what others say in a header."

_BETA_HEADER = "OpenAI-Beta"
_BETA = "realtime=v1"


def subprotocols(request: web.BaseRequest) -> list[str]:
    """Return the names of a WebSocket's subprotocols that the client offers."""
    lines = request.headers.getall(hdrs.SEC_WEBSOCKET_PROTOCOL, ())
    return [name.strip() for line in lines for name in line.split(",")]


def wire_for(
    request: web.BaseRequest, model: str, *, beta: bool = False, tells_audio: bool = False
) -> MakeWire:
    """Return what makes the wire that a client knows: the beta's if it says so, or if the path does (`beta`).

    `model` is the name that it is told; `tells_audio` is of RealtimeProtocol.
    """
    asked = ",".join(request.headers.getall(_BETA_HEADER, ())).replace(" ", "").split(",")
    beta = beta or _BETA in asked or BETA_PROTOCOL in subprotocols(request)

    def make(call_id: str) -> RealtimeProtocol:
        if beta:
            return RealtimeProtocol(call_id, model, tells_audio=tells_audio, dialect=beta_bodies)
        return RealtimeProtocol(call_id, model, tells_audio=tells_audio)

    return make

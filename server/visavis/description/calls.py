"""Calls, their displays and client secrets, described. Sans-I/O."""

from .parts import (
    ANY_OBJECT,
    NUMBER,
    TEXT,
    WHOLE,
    Json,
    Part,
    answer,
    in_header,
    in_path,
    in_query,
    json_answer,
    json_body,
    nullable,
    operation,
    record,
    ref,
    text_header,
)

_SDP = "application/sdp"
_FRAGMENT = "application/trickle-ice-sdpfrag"
_TOKEN = "Visavis-Session-Token"  # noqa: S105 - a header's name
_BUSY = (406, 409, 415, 503)
_CALL = in_path("call_id", "The last part of the call's Location.")
_DISPLAY = in_path("display_id", "The last part of the display's Location.")
_RETURNING = in_header(_TOKEN, "Of a call that was lost: the new one goes on from it.")
_MATCH = in_header("If-Match", "The resource's ETag, or * where an ICE restart is asked for.", required=True)

_OFFER_SCHEMA: Json = {
    "type": "string",
    "description": "A session description (RFC 8866) that begins with v=0.",
}
_EXAMPLE = "\r\n".join(
    (
        "v=0",
        "o=- 1 2 IN IP4 127.0.0.1",
        "s=-",
        "t=0 0",
        "m=audio 9 UDP/TLS/RTP/SAVPF 111",
        "c=IN IP4 0.0.0.0",
        "a=ice-ufrag:EsAw",
        "a=ice-pwd:P2uYro0UCOQ4zxjKXaWCBui1",
        "a=fingerprint:sha-256 " + ":".join(["DA"] * 32),
        "a=setup:actpass",
        "a=mid:0",
        "a=sendrecv",
        "a=rtcp-mux",
        "a=rtpmap:111 opus/48000/2",
        "",
    )
)
_SDP_CONTENT: Json = {"schema": _OFFER_SCHEMA, "example": _EXAMPLE}
_SDP_BODY: Json = {"required": True, "content": {_SDP: _SDP_CONTENT}}
_OFFER: Json = {
    "required": True,
    "content": {
        _SDP: _SDP_CONTENT,
        "multipart/form-data": {
            "schema": record(("sdp",), sdp=_OFFER_SCHEMA, session=ref("Session")),
            "encoding": {"sdp": {"contentType": _SDP}, "session": {"contentType": "application/json"}},
        },
    },
}
_CANDIDATES: Json = {
    "required": True,
    "content": {
        _FRAGMENT: {
            "schema": TEXT,
            "example": "a=ice-ufrag:EsAw\r\nm=audio 9 RTP/AVP 0\r\na=mid:0\r\n"
            "a=candidate:1 1 udp 2122260223 192.0.2.1 61764 typ host\r\na=end-of-candidates\r\n",
        }
    },
}
_RESOURCE_HEADERS: Json = {
    "Location": text_header("Of the resource that was made."),
    "ETag": text_header("Names its ICE session."),
    "Accept-Patch": text_header("What a PATCH of it may bring."),
    "Link": text_header("ICE servers, with credentials (RFC 9725, 4.6).", required=False),
}
_CALL_HEADERS: Json = _RESOURCE_HEADERS | {
    _TOKEN: text_header("By which another call goes on from this one.")
}
_OPENED = {201: answer("The answer.", {_SDP: {"schema": TEXT}}, _CALL_HEADERS)}
_ASKED_COLLECTION = {
    200: answer(
        "What is taken.",
        headers={
            "Allow": text_header("Methods."),
            "Accept-Post": text_header("What a POST may bring."),
            "Link": text_header("ICE servers, for who sends a key.", required=False),
        },
    )
}
_ASKED_RESOURCE = {
    200: answer(
        "What is taken.",
        headers={"Allow": text_header("Methods."), "Accept-Patch": text_header("What a PATCH may bring.")},
    )
}


def _asking(name: str, success: dict[int, Json], *parameters: Json) -> Json:
    described = operation(
        name, "Learn what is taken here", success, refused=(401, 429), parameters=parameters, tag="Calls"
    )
    return described | {"security": [{}, {"key": []}]}


def _trickle(name: str, *parameters: Json) -> Json:
    return operation(
        name,
        "Bring ICE candidates that were found after the offer",
        {204: answer("They were taken; those that are malformed or no use were passed over.")},
        refused=(404, 409, 410, 412, 415, 422, 428, 503),
        body=_CANDIDATES,
        parameters=(*parameters, _MATCH),
        description="ICE is not restarted (422): make a new call with the token of this one.",
        tag="Calls",
    )


_OPEN_CALL = "Open a call: an offer in, an answer out"
_HANG_UP = {200: answer("The call is over.")}

_LIFETIME = record(
    anchor={"type": "string", "enum": ["created_at"]},
    seconds=nullable({"type": "integer", "minimum": 10, "maximum": 7_200}),
)

CALLS = Part(
    {
        "/v1/realtime/calls": {
            "post": operation(
                "openCall",
                _OPEN_CALL,
                _OPENED,
                refused=_BUSY,
                body=_OFFER,
                parameters=(_RETURNING,),
                description="As OpenAI's Realtime API has it, and WHIP (RFC 9725).",
                tag="Calls",
            ),
            "options": _asking("askCalls", _ASKED_COLLECTION),
        },
        "/v1/realtime": {
            "post": operation(
                "openBetaCall",
                _OPEN_CALL,
                _OPENED,
                refused=_BUSY,
                body=_OFFER,
                parameters=(in_query("model", "Any name: the server has its own."), _RETURNING),
                description="Where the beta's clients post their offers.",
                tag="Calls",
            ),
            "get": operation(
                "openSocket",
                "Open a call over a WebSocket",
                {101: answer("Events follow, as JSON in text messages.")},
                refused=(400, 409, 410, 426, 503),
                parameters=(in_query("model", "Any name."), in_query("session_token", f"As {_TOKEN}.")),
                description="Browsers name their key in a subprotocol, openai-insecure-api-key.KEY.",
                tag="Calls",
            ),
            "options": _asking("askBeta", _ASKED_COLLECTION),
        },
        "/v1/realtime/calls/{call_id}": {
            "get": operation(
                "lookAtCall",
                "Learn whether a call lives",
                {200: json_answer("It does.", record(("id",), id=TEXT))},
                refused=(404, 410, 503),
                parameters=(_CALL,),
                tag="Calls",
            ),
            "patch": _trickle("trickleCall", _CALL),
            "delete": operation(
                "endCall", "Hang up", _HANG_UP, refused=(404, 410, 503), parameters=(_CALL,), tag="Calls"
            ),
            "options": _asking("askCall", _ASKED_RESOURCE, _CALL),
        },
        "/v1/realtime/calls/{call_id}/hangup": {
            "post": operation(
                "hangUp", "Hang up", _HANG_UP, refused=(404, 410, 503), parameters=(_CALL,), tag="Calls"
            )
        },
        "/v1/realtime/calls/{call_id}/whep": {
            "post": operation(
                "openDisplay",
                "Hear what the assistant says in a call",
                {201: answer("The answer.", {_SDP: {"schema": TEXT}}, _RESOURCE_HEADERS)},
                refused=(404, 406, 409, 410, 415, 503),
                body=_SDP_BODY,
                parameters=(_CALL,),
                description="As WHEP has it (draft-ietf-wish-whep): the offer receives only.",
                tag="Calls",
            ),
            "options": _asking("askDisplays", _ASKED_COLLECTION, _CALL),
        },
        "/v1/realtime/calls/{call_id}/whep/{display_id}": {
            "patch": _trickle("trickleDisplay", _CALL, _DISPLAY),
            "delete": operation(
                "endDisplay",
                "Take a display away",
                {200: answer("It hears no more.")},
                refused=(404, 410, 503),
                parameters=(_CALL, _DISPLAY),
                tag="Calls",
            ),
            "options": _asking("askDisplay", _ASKED_RESOURCE, _CALL, _DISPLAY),
        },
        "/v1/ice_servers": {
            "get": operation(
                "listIceServers",
                "Get ICE servers, with credentials, as RTCPeerConnection takes them",
                {200: json_answer("The servers.", ref("IceServers"))},
                tag="Calls",
            )
        },
    },
    {
        "Session": record(
            type={"type": "string", "enum": ["realtime"]},
            model=TEXT,
            instructions={"type": "string", "maxLength": 50_000},
            output_modalities={
                "type": "array",
                "items": {"type": "string", "enum": ["audio", "text"]},
                "minItems": 1,
                "maxItems": 2,
            },
            audio=nullable(ANY_OBJECT),
            tools={"type": "array", "items": ANY_OBJECT},
            tool_choice={"anyOf": [TEXT, ANY_OBJECT]},
            max_output_tokens={"anyOf": [WHOLE, {"type": "string", "enum": ["inf"]}, {"type": "null"}]},
            temperature=nullable(NUMBER),
        )
        | {
            "description": "Settings of a session, as OpenAI's API reference has them: they are laid over "
            "what holds without. Other members are let be."
        },
        "IceServers": record(
            ("iceServers", "ttl"),
            iceServers={
                "type": "array",
                "items": record(
                    ("urls",),
                    urls={"type": "array", "items": TEXT},
                    username=TEXT,
                    credential=TEXT,
                ),
            },
            ttl={"type": "integer", "description": "Seconds for which the credentials are good."},
        ),
    },
)

SECRETS = Part(
    {
        "/v1/realtime/client_secrets": {
            "post": operation(
                "createClientSecret",
                "Make a key for a while, for a browser to hold",
                {200: json_answer("The secret.", ref("ClientSecret"))},
                body=json_body(
                    record(expires_after=nullable(_LIFETIME), session=nullable(ref("Session"))),
                    required=False,
                ),
                description="Its settings lie under those of its client. It makes no further secrets (403).",
                tag="Client secrets",
            )
        },
        "/v1/realtime/sessions": {
            "post": operation(
                "createBetaSession",
                "Make a client secret as the beta had it",
                {200: json_answer("The secret, and the session in flat names.", ref("BetaSession"))},
                body=json_body(ANY_OBJECT, required=False),
                tag="Client secrets",
            )
        },
    },
    {
        "ClientSecret": record(
            ("value", "expires_at", "session"),
            value={"type": "string", "pattern": "^ek_"},
            expires_at={"type": "integer", "description": "Unix seconds."},
            session=ref("Session"),
        ),
        "BetaSession": record(
            ("id", "object", "model", "client_secret"),
            id=TEXT,
            object=TEXT,
            model=TEXT,
            modalities={"type": "array", "items": TEXT},
            instructions=TEXT,
            voice=TEXT,
            client_secret=record(("value", "expires_at"), value=TEXT, expires_at=WHOLE),
        ),
    },
)

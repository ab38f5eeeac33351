"""Kiosks: how devices are let in and what they are told, described. Sans-I/O."""

from .parts import (
    ANY_OBJECT,
    NUMBER,
    TEXT,
    WHOLE,
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

_DEVICE = "/v1/kiosk/device"
_DEVICES = "/v1/kiosk/devices"
_ID = in_path("id", "Of the device.")
_TAG = {"ETag": text_header("Of what the device is told.")}
_NAME = {"type": "string", "maxLength": 80}

KIOSK = Part(
    {
        "/v1/kiosk/pairing": {
            "post": operation(
                "beginPairing",
                "A device asks to be let in",
                {
                    201: json_answer(
                        "A token of its own, and a code to show to an operator.",
                        record(
                            ("state", "token", "code", "url", "qr", "expires_in_s", "poll_s"),
                            state=TEXT,
                            token=TEXT,
                            code=TEXT,
                            url=TEXT,
                            qr=TEXT,
                            expires_in_s=NUMBER,
                            poll_s=NUMBER,
                        ),
                    )
                },
                refused=(429, 503),
                open_to_all=True,
                tag="Kiosks",
            )
        },
        _DEVICE: {
            "get": operation(
                "tellDevice",
                "A device learns by its token what it is to go by",
                {
                    200: json_answer("What it is to go by.", ANY_OBJECT, _TAG),
                    202: json_answer(
                        "It was not approved yet.", record(("state",), state=TEXT, poll_s=NUMBER)
                    ),
                    304: answer("What it knows still holds.", headers=_TAG),
                },
                refused=(503,),
                parameters=(
                    in_query("doing", "What the device is doing."),
                    in_header("If-None-Match", "The ETag of what it knows."),
                ),
                tag="Kiosks",
            )
        },
        "/v1/kiosk/session": {
            "post": operation(
                "letCall",
                "A device gets by its token what it calls with",
                {
                    200: json_answer(
                        "A client secret.",
                        record(
                            ("value", "expires_at", "expires_in_s"),
                            value=TEXT,
                            expires_at=WHOLE,
                            expires_in_s=NUMBER,
                        ),
                    )
                },
                refused=(503,),
                tag="Kiosks",
            )
        },
        _DEVICES: {
            "get": operation(
                "listDevices",
                "See the devices, and those that want in",
                {
                    200: json_answer(
                        "All of them.",
                        record(
                            ("wanting", "devices", "defaults"),
                            wanting={"type": "array", "items": ANY_OBJECT},
                            devices={"type": "array", "items": ref("Device")},
                            defaults=ANY_OBJECT,
                        ),
                    )
                },
                refused=(503,),
                tag="Kiosks",
            ),
            "post": operation(
                "approveDevice",
                "Let in the device that shows a code",
                {201: json_answer("The device.", ref("Device"))},
                refused=(404, 503),
                body=json_body(
                    record(("code",), code={"type": "string", "minLength": 1, "maxLength": 40}, name=_NAME)
                ),
                tag="Kiosks",
            ),
        },
        f"{_DEVICES}/{{id}}": {
            "patch": operation(
                "changeDevice",
                "Give a device another name or other settings",
                {200: json_answer("The device.", ref("Device"))},
                refused=(404, 503),
                body=json_body(record(name=_NAME, settings=ANY_OBJECT)),
                parameters=(_ID,),
                tag="Kiosks",
            ),
            "delete": operation(
                "dismissDevice",
                "Revoke a device, or refuse one that wants in",
                {204: answer("It is known no longer.")},
                refused=(404, 503),
                parameters=(_ID,),
                tag="Kiosks",
            ),
        },
    },
    {
        "Device": record(
            ("id", "name", "since", "seen_s", "doing", "settings"),
            id=TEXT,
            name=TEXT,
            since=WHOLE,
            seen_s=nullable(NUMBER),
            doing=TEXT,
            settings=ANY_OBJECT,
        )
    },
)

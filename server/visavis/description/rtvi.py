"""How Pipecat's clients call, described. Sans-I/O."""

from .parts import (
    ANY_OBJECT,
    TEXT,
    TRUTH,
    WHOLE,
    Part,
    json_answer,
    json_body,
    nullable,
    operation,
    record,
    text_header,
)

_REFUSED = (404, 406, 409, 410, 422, 503)

RTVI = Part(
    {
        "/api/offer": {
            "post": operation(
                "offerRtvi",
                "Open a call, or negotiate it anew",
                {
                    200: json_answer(
                        "The answer.",
                        record(("sdp", "type", "pc_id"), sdp=TEXT, type=TEXT, pc_id=TEXT),
                        {"Location": text_header("Of the call, if it is new.", required=False)},
                    )
                },
                refused=_REFUSED,
                body=json_body(
                    record(
                        ("sdp",),
                        sdp=TEXT,
                        type={"type": "string", "enum": ["offer"]},
                        pc_id=nullable(TEXT),
                        restart_pc=nullable(TRUTH),
                        requestData=nullable(ANY_OBJECT),
                    )
                ),
                description="`pc_id` of an answer names its call; by `restart_pc` a new one goes on from it.",
                tag="RTVI",
            ),
            "patch": operation(
                "trickleRtvi",
                "Bring ICE candidates that were found after the offer",
                {200: json_answer("They were taken.", record(("status",), status=TEXT))},
                refused=_REFUSED,
                body=json_body(
                    record(
                        ("pc_id", "candidates"),
                        pc_id=TEXT,
                        candidates={
                            "type": "array",
                            "items": record(
                                ("candidate",),
                                candidate=TEXT,
                                sdp_mid=nullable(TEXT),
                                sdp_mline_index=nullable(WHOLE),
                            ),
                        },
                    )
                ),
                tag="RTVI",
            ),
        }
    }
)

"""Health, readiness, figures and this description itself, described. Sans-I/O."""

from .parts import ANY_OBJECT, TEXT, Part, answer, json_answer, operation, record

_STATUS = record(("status",), status=TEXT)

STATUS = Part(
    {
        "/healthz": {
            "get": operation(
                "isHealthy",
                "Learn whether the server lives",
                {200: json_answer("It does.", _STATUS)},
                open_to_all=True,
                tag="Status",
            )
        },
        "/readyz": {
            "get": operation(
                "isReady",
                "Learn whether a call would be answered now",
                {200: json_answer("It would.", _STATUS)},
                refused=(503,),
                open_to_all=True,
                tag="Status",
            )
        },
        "/metrics": {
            "get": operation(
                "readFigures",
                "Read what Prometheus collects",
                {200: answer("The figures.", {"text/plain": {"schema": TEXT}})},
                tag="Status",
            )
        },
        "/openapi.json": {
            "get": operation(
                "readDescription",
                "Read this description",
                {200: json_answer("OpenAPI 3.1.", ANY_OBJECT)},
                open_to_all=True,
                tag="Status",
            )
        },
    }
)

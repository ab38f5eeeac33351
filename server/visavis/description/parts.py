"""What the parts of the interface's description are made of: OpenAPI 3.1 in plain dictionaries. Sans-I/O."""

from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]

JSON_TYPE = "application/json"


@dataclass(frozen=True, slots=True)
class Part:
    """One subject: its paths with their operations, and the schemas they refer to."""

    paths: dict[str, Json]
    schemas: dict[str, Json] = field(default_factory=dict)


def ref(schema: str) -> Json:
    return {"$ref": f"#/components/schemas/{schema}"}


def operation(
    name: str,
    summary: str,
    success: dict[int, Json],
    *,
    tag: str,
    refused: tuple[int, ...] = (),
    body: Json | None = None,
    parameters: tuple[Json, ...] = (),
    description: str = "",
    open_to_all: bool = False,
) -> Json:
    """Describe an operation; `refused` are statuses besides those of all that need a key or have a body."""
    statuses = {403, 500, *refused}
    if not open_to_all:
        statuses |= {401, 429}
    if body is not None:
        statuses |= {400, 408, 413}
    described: Json = {
        "operationId": name,
        "summary": summary,
        "tags": [tag],
        "responses": {str(status): answer for status, answer in success.items()}
        | {str(status): {"$ref": "#/components/responses/Refusal"} for status in sorted(statuses)},
    }
    if description:
        described["description"] = description
    if parameters:
        described["parameters"] = list(parameters)
    if body is not None:
        described["requestBody"] = body
    if open_to_all:
        described["security"] = []
    return described


def json_body(schema: Json, *, required: bool = True, example: Json | None = None) -> Json:
    content: Json = {"schema": schema} | ({} if example is None else {"example": example})
    return {"required": required, "content": {JSON_TYPE: content}}


def json_answer(description: str, schema: Json, headers: Json | None = None) -> Json:
    return answer(description, {JSON_TYPE: {"schema": schema}}, headers)


def answer(description: str, content: Json | None = None, headers: Json | None = None) -> Json:
    described: Json = {"description": description}
    if content is not None:
        described["content"] = content
    if headers is not None:
        described["headers"] = headers
    return described


def text_header(description: str, *, required: bool = True) -> Json:
    return {"description": description, "required": required, "schema": {"type": "string"}}


def in_path(name: str, description: str) -> Json:
    return {
        "name": name,
        "in": "path",
        "required": True,
        "description": description,
        "schema": {"type": "string"},
    }


def in_header(name: str, description: str, *, required: bool = False) -> Json:
    return {
        "name": name,
        "in": "header",
        "required": required,
        "description": description,
        "schema": {"type": "string"},
    }


def in_query(name: str, description: str) -> Json:
    return {"name": name, "in": "query", "description": description, "schema": {"type": "string"}}


def record(required: tuple[str, ...] = (), **properties: Json) -> Json:
    """Describe an object; it may have members that are not named here."""
    described: Json = {"type": "object", "properties": properties}
    if required:
        described["required"] = list(required)
    return described


def nullable(schema: Json) -> Json:
    if isinstance(schema.get("type"), str):
        return schema | {"type": [schema["type"], "null"]}
    return {"anyOf": [schema, {"type": "null"}]}


TEXT: Json = {"type": "string"}
NUMBER: Json = {"type": "number"}
WHOLE: Json = {"type": "integer"}
TRUTH: Json = {"type": "boolean"}
ANY_OBJECT: Json = {"type": "object"}

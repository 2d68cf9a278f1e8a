"""The lines of OpenAI's batch files: request lines are rows, results are response lines.

Source: platform.openai.com/docs/guides/batch and the reference of chat completions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gencli.batch.samples import samples_of
from gencli.config.jobs import REQUEST_KEYS
from gencli.errors import UsageError
from gencli.server.wire.errors import ApiError
from gencli.server.wire.fields import drop_idle, inline, read_field
from gencli.server.wire.hints import is_hint
from gencli.server.wire.vendors import UNLIMITED
from processors.params import MOST

__all__ = ["URLS", "is_request", "read_request", "response_line"]

URLS = ("/v1/chat/completions", "/v1/completions")
_LINE = {"custom_id", "method", "url", "body"}
_OFF = {"stream": False, "logprobs": False, "echo": False}  # accepted only with their default values
_REASONS = {"length": "length", "error": "error", "interrupted": "interrupted"}


def is_request(columns: Mapping[str, Any]) -> bool:
    """Return whether a record is a request line: it has a custom_id, and a body or a url."""
    return "custom_id" in columns and ("body" in columns or "url" in columns)


def read_request(columns: Mapping[str, Any]) -> tuple[Any, Any, dict[str, Any]]:
    """Return prompt, messages (one of them None) and options of a request line.

    Raises UsageError for an unknown or unsupported field.
    """
    for key in columns:
        if key not in _LINE:
            raise UsageError(f"A request line has no field {key!r}: it has {', '.join(sorted(_LINE))}.")
    url, method, body = columns.get("url", URLS[0]), columns.get("method", "POST"), columns.get("body")
    if url not in URLS or method != "POST":
        raise UsageError(f"The request is {method} {url}, but has to be POST {' or '.join(URLS)}.")
    if not isinstance(body, Mapping):
        raise UsageError("The request's body has to be an object.")
    given = {key: value for key, value in body.items() if value is not None and not is_hint(key)}
    content = {key: given.pop(key) for key in ("prompt", "messages") if key in given}
    wanted = "messages" if url == URLS[0] else "prompt"
    if list(content) != [wanted]:
        raise UsageError(f"The body of a request to {url} has to have {wanted}, and no other prompt.")
    return content.get("prompt"), content.get("messages"), _options(given)


def _options(body: Mapping[str, Any]) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for field, value in body.items():
        if field in _OFF:
            if value != _OFF[field]:
                raise UsageError(f"{field} is {value!r}, which a batch does not support.")
            continue
        for key, item in _read(field, value).items():
            if key in options and options[key] != item:
                raise UsageError(f"{field} says {item!r}, another field says {options[key]!r} for {key}.")
            options[key] = item
    if options.get("max_tokens") == UNLIMITED:
        options["max_tokens"] = MOST  # the model's context ends the text
    try:
        drop_idle(options)
    except ApiError as error:
        raise UsageError(error.message) from None
    return options


def _read(field: str, value: Any) -> dict[str, Any]:
    """Return the options that a field sets."""
    try:
        found = {key: inline(key, item, field) for key, item in read_field(field, value).items()}
    except ApiError as error:
        is_known = error.code not in ("unknown_field", "unsupported_value")
        raise UsageError(error.message if is_known else _not_supported(field)) from None
    if not found.keys() <= REQUEST_KEYS:
        raise UsageError(_not_supported(field))
    return found


def _not_supported(field: str) -> str:
    return f"The field {field} of the body is not supported."


def response_line(name: str, result: Mapping[str, Any]) -> dict[str, Any]:
    """Return the response line of a row; `result`: a record in the form of `gencli run` with `format` = json.

    A row whose samples all failed has an error and no response. `created` is 0, so equal batches give equal
    files.
    """
    samples = samples_of(result)
    errors = [sample["error"] for sample in samples if sample["error"]]
    line = {"id": f"batch_req_{name}", "custom_id": name}
    if len(errors) == len(samples):
        error = errors[0] if errors else {"type": "error", "message": "There is no result."}
        return {**line, "response": None, "error": {"code": error["type"], "message": error["message"]}}
    prompt = result.get("prompt_tokens") or 0
    completion = sum(sample["completion_tokens"] or 0 for sample in samples)
    body = {
        "id": f"chatcmpl-{name}",
        "object": "chat.completion",
        "created": 0,
        "model": result.get("model"),
        "choices": [_choice(index, sample) for index, sample in enumerate(samples)],
        "usage": {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
        },
    }
    return {**line, "response": {"status_code": 200, "request_id": name, "body": body}, "error": None}


def _choice(index: int, sample: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "index": index,
        "message": {"role": "assistant", "content": sample["text"], "refusal": None},
        "logprobs": None,
        "finish_reason": _REASONS.get(sample["finish_reason"], "stop"),
    }

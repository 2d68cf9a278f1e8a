"""Limits of sizes chosen by clients, checked before anything is built from a request."""

from __future__ import annotations

import json
from collections.abc import Sequence, Sized
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gencli.server.wire.call import Call
from gencli.server.wire.errors import ApiError, bad_field
from processors.conversion import whole

if TYPE_CHECKING:
    from gencli.server.engine_thread import Order

__all__ = ["CallLimits", "check_call", "check_text", "check_traced"]
_STRUCTURES = (
    "json_schema",
    "regex",
    "grammar",
    "lark",
    "structural_tag",
    "tools",
    "choice",
    "stages",
    "fields",
)


@dataclass(frozen=True, slots=True)
class CallLimits:
    """Limits of sizes: in bytes (body, structure, template variables), characters (prompt) or numbers.

    `per_token`: characters of a prompt for each token of the model's context. `tokenize`: characters of a
    text that is only tokenized. `texts`: texts of one call, over all prompts and samples. `trace`: ids in a
    list, 0 disables traces. `processed`: whether log-probabilities after the stages are allowed.
    `traced_stages`: stages of an explained chain, which is rerun without each of them. `traced_ids`: ids in
    all records of a call. `grammar_seconds`: time limit for compiling a grammar.
    """

    body: int = 8 << 20
    prompt: int = 4 << 20
    per_token: int = 64
    tokenize: int = 1 << 20
    prompts: int = 256
    samples: int = 128
    texts: int = 1024
    messages: int = 4096
    stops: int = 64
    stop_length: int = 1000
    patterns: int = 8
    entries: int = 4096
    structure: int = 256 << 10
    text: int = 64 << 10
    logprobs: int = 20
    trace: int = 20
    processed: bool = True
    traced_stages: int = 32
    traced_ids: int = 100_000
    presets: int = 8
    variables: int = 1 << 20
    retries: int = 8
    grammar_seconds: float = 30.0


def check_text(field: str, size: int, limits: CallLimits, context: int) -> None:
    """Raise ApiError if a text of `size` characters cannot fit into the context.

    Tokenizing millions of characters takes seconds, during which no other prompt is tokenized.
    """
    if size > limits.per_token * max(context, 1024):
        raise ApiError(
            400,
            f"{field} has {size} characters, but the model takes {context} tokens with the output: "
            "the prompt is too long.",
            param=field,
            code="context_length_exceeded",
        )


def check_call(call: Call, limits: CallLimits, context: int = 1 << 30) -> None:
    """Raise ApiError for the first size of a call over its limit; `context` is in tokens."""
    values = call.options.values
    _most("prompt", call.prompts, limits.prompts, "prompts")
    _most("messages", call.messages, limits.messages, "messages")
    _most("preset", call.presets, limits.presets, "presets")
    for prompt in call.prompts:
        _most("prompt", prompt, limits.prompt, "characters or ids")
        check_text("prompt", len(prompt), limits, context)
    check_text("suffix", len(call.suffix), limits, context)
    if call.variables:
        size = len(json.dumps(call.variables))
        _number("chat_template_kwargs", size, limits.variables, "bytes")
    written = sum(len(str(message)) for message in call.messages)
    _number("messages", written, limits.prompt, "characters")
    check_text("messages", written, limits, context)
    for key, count in (("stop", limits.stops), ("stop_regex", limits.patterns), ("stop_id", limits.stops)):
        _list(call, key, count)
        for text in _texts(values.get(key)):
            _most(call.options.fields[key], text, limits.stop_length, "characters")
    lists = "logit_bias sequence_bias allow_ids suppress_ids ban dry_breaker choice chain stages fields"
    for key in lists.split():
        _list(call, key, limits.entries)
    biased = [token for token, _ in values.get("logit_bias", ()) if isinstance(token, str)]
    _number("logit_bias", sum(map(len, biased)), limits.text, "characters of texts")
    for key in _STRUCTURES:
        if key in values:
            _number(call.options.fields[key], len(str(values[key]).encode()), limits.structure, "bytes")
    for key in ("negative", "system"):
        check_text(call.options.fields.get(key, key), len(str(values.get(key, ""))), limits, context)
    for key, value in values.items():
        if key not in (*_STRUCTURES, "negative", "system"):
            for text in _texts(value):
                _most(call.options.fields[key], text, limits.text, "characters")
    _number("prompt_logprobs", call.prompt_logprobs or 0, limits.logprobs, "")
    _number("top_logprobs" if call.is_chat else "logprobs", call.logprobs or 0, limits.logprobs, "")
    for key, most in (
        ("n", limits.samples),
        ("best_of", limits.samples),
        ("beams", limits.samples),
        ("contrastive_k", limits.samples),
        ("retries", limits.retries),
        ("grammar_timeout", limits.grammar_seconds),
    ):
        value = values.get(key)
        number = value if isinstance(value, int | float) else whole(str(value)) or 0
        _number(call.options.fields.get(key, key), number, most, "")
    _number("n" if "n" in values else "prompt", call.num_samples, limits.texts, "texts")
    _trace(values.get("trace"), limits.trace)
    if call.is_processed and not limits.processed:
        what = "processed_logprobs is refused beside a watermark: it shows what the mark prefers."
        raise bad_field("logprobs_mode", what, code="unsupported_value")


def check_traced(orders: Sequence[Order], limits: CallLimits, context: int) -> None:
    """Raise ApiError for a call whose trace would take too long to compute, or be too large.

    The size is estimated for texts of full length: `trace` ids for the model, for the draw and for each
    stage.
    """
    count = 0
    for request, structure in ((order.request, order.structure) for order in orders):
        if request.trace is None:
            continue
        stages, tokens = len(list(request.chain.active())), request.limits.max_tokens
        if not tokens:
            raise bad_field("trace", "trace explains tokens, but with max_tokens = 0 none is generated.")
        if stages > limits.traced_stages:
            what = f"trace explains at most {limits.traced_stages} stages, but the chain has {stages}."
            raise bad_field("trace", what, code="too_large")
        texts = max(request.n, request.best_of or 1) * (1 + (structure.retries if structure else 0))
        count += request.trace * (2 + stages) * texts * min(tokens, context - len(request.prompt_ids))
    if count > limits.traced_ids:
        raise bad_field(
            "trace",
            f"trace would list up to {count:,} ids, but at most {limits.traced_ids:,} are allowed: lower "
            "trace, max_tokens or n.",
            code="too_large",
        )


def _trace(value: Any, most: int) -> None:
    """Check the number of ids in a list; its type is checked together with other options."""
    if value is not None and not most:
        raise bad_field(
            "trace", "trace is refused: this server explains no tokens.", code="unsupported_value"
        )
    if isinstance(value, int):
        _number("trace", value, most, "")


def _list(call: Call, key: str, most: int) -> None:
    value = call.options.values.get(key)
    if isinstance(value, list | dict):
        _most(call.options.fields[key], value, most, "entries")


def _texts(value: Any) -> list[str]:
    return [text for text in (value if isinstance(value, list) else [value]) if isinstance(text, str)]


def _most(field: str, value: Sized, most: int, what: str) -> None:
    _number(field, len(value), most, what)


def _number(field: str, number: float, most: float, what: str) -> None:
    if number > most:
        shown = f"{number:g} {what}".strip()
        raise ApiError(
            400,
            f"{field} has {shown}, but at most {most:g} are allowed."
            if what
            else f"{field} is {shown}, but has to be at most {most:g}.",
            param=field,
            code="too_large",
        )

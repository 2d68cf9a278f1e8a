"""Replies without generation: model card, tokens, tokenizer, server properties, effective chain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gencli import __version__
from gencli.config.job import Job
from gencli.config.settings import where
from gencli.core.request import Request
from gencli.errors import ModelError
from gencli.models.files.model_card import declared_template
from gencli.server.serving import Serving
from gencli.server.wire.call import Call
from gencli.server.wire.errors import ApiError, bad_field, unknown_field
from gencli.server.wire.fields import Options, given_fields
from processors.params import Params

__all__ = ["chain_view", "detokenize", "model_card", "props", "tokenize", "tokenizer_info"]

_CHAT = (
    "messages", "tools", "chat_template_kwargs", "add_generation_prompt", "continue_final_message",
    "media_io_kwargs", "mm_processor_kwargs",
)  # fmt: skip
_TEXT = ("prompt", "content")
_FLAGS = ("add_special_tokens", "add_special", "return_token_strs", "with_pieces", "parse_special")


def model_card(serving: Serving) -> dict[str, Any]:
    """Return the entry of a model in /v1/models."""
    return {
        "id": serving.name,
        "object": "model",
        "created": int(serving.created),
        "owned_by": "gencli",
        "root": serving.name,
        "parent": None,
        "max_model_len": serving.spec.context,
    }


def tokenize(serving: Serving, body: Any) -> dict[str, Any]:
    """Return the ids of a text (vLLM's `prompt`, llama.cpp's `content`) or of a conversation."""
    body = _object(body, (*_TEXT, *_FLAGS, *_CHAT, "model"))
    flags = {name: body[name] for name in _FLAGS if name in body}
    for name, value in flags.items():
        if not isinstance(value, bool):
            raise bad_field(name, f"{name} has to be true or false.")
    given = [key for key in ("prompt", "content", "messages") if key in body]
    if len(given) != 1:
        raise ApiError(400, "The body needs one of prompt, content and messages.", code="missing_field")
    is_llama = given == ["content"]
    if given == ["messages"]:
        if not flags.get("parse_special", True):
            raise bad_field("parse_special", "parse_special is false, but templates write special tokens.")
        text, special = _rendered(serving, body), flags.get("add_special_tokens", False)
    else:
        text = body[given[0]]
        special = flags.get("add_special", False) if is_llama else flags.get("add_special_tokens", True)
    if not isinstance(text, str):
        raise bad_field(given[0], f"{given[0]} has to be a text.")
    if len(text) > (most := serving.conditions.limits.tokenize):
        raise bad_field(
            given[0], f"{given[0]} has {len(text)} characters, at most {most} are allowed.", code="too_large"
        )
    is_plain = not flags.get("parse_special", True)
    try:
        ids = serving.preparer.encode(text, special=special, is_plain=is_plain)
    except ModelError as error:
        if not is_plain:
            raise
        raise bad_field("parse_special", f"parse_special is false: {error.message}") from None
    if is_llama:
        return {"tokens": _pieces(serving, ids) if flags.get("with_pieces") else list(ids)}
    return {
        "count": len(ids),
        "max_model_len": serving.spec.context,
        "tokens": list(ids),
        "token_strs": [_text(serving, token) for token in ids] if flags.get("return_token_strs") else None,
    }


def _pieces(serving: Serving, ids: Sequence[int]) -> list[dict[str, Any]]:
    return [{"id": token, "piece": _text(serving, token)} for token in ids]


def _text(serving: Serving, token: int) -> str:
    return serving.tokenizer.decode([token], skip_special=False)


def _rendered(serving: Serving, body: Mapping[str, Any]) -> str:
    call = _call(serving, {key: body[key] for key in (*_CHAT, "model") if key in body})
    return serving.preparer.render(call, serving.preparer.job(call))


def _call(serving: Serving, body: Any) -> Call:
    is_chat = isinstance(body, Mapping) and "messages" in body
    return serving.call(body, "chat" if is_chat else "completions")


def detokenize(serving: Serving, body: Any) -> dict[str, Any]:
    """Return the text of ids."""
    ids = _object(body, ("tokens", "model")).get("tokens")
    size = serving.tokenizer.vocab_size
    if not isinstance(ids, list) or not all(type(token) is int and 0 <= token < size for token in ids):
        raise bad_field("tokens", f"tokens has to be a list of token ids, 0 to {size - 1}.")
    text = serving.tokenizer.decode(ids, skip_special=False)
    return {"prompt": text, "content": text}


def tokenizer_info(serving: Serving) -> dict[str, Any]:
    """Return special tokens and chat template, in the form that lm-evaluation-harness requests."""
    tokenizer = serving.tokenizer

    def name(token_id: int | None) -> str | None:
        return None if token_id is None else _text(serving, token_id)

    return {
        "tokenizer_class": type(tokenizer).__name__,
        "bos_token": name(tokenizer.bos_id),
        "eos_token": name(next(iter(tokenizer.eos_ids), None)),
        "pad_token": None,
        "chat_template": _template(serving),
    }


def props(serving: Serving) -> dict[str, Any]:
    """Return the properties of a model, in the form that llama.cpp's clients request."""
    return {
        "default_generation_settings": {"n_ctx": serving.spec.context},
        "total_slots": serving.engine.limit,
        "model_path": serving.name,
        "chat_template": _template(serving) or "",
        "build_info": f"gencli {__version__}",
    }


def chain_view(serving: Serving, body: Any) -> dict[str, Any]:
    """Return the effective chain and limits of a request body, each value of a stage with its origin.

    Nothing is generated.
    """
    body = given_fields(body)
    if "messages" not in body:
        body.setdefault("prompt", "x")
    call = _call(serving, body)
    job = serving.preparer.job(call)
    request = Request("", (), job.assembly.chain, draw=job.draw)
    run = serving.engine.effective(request)
    return {
        "stages": [
            {"name": name, "values": _values(params), "origins": _origins(job, name, params)}
            for name, params in run.chain
        ],
        "sampler": job.method,
        "seed": job.seed if _has_seed(serving, call.options) else None,
        "max_tokens": job.limits.max_tokens,
        "structure": job.structure.kind if job.structure else None,
        "dropped_fields": list(call.options.dropped),
    }


def _values(params: Params) -> dict[str, Any]:
    """Return the values of a stage; the text of a grammar is shortened."""
    values = params.to_mapping()
    return {key: value[:200] if isinstance(value, str) else value for key, value in values.items()}


def _origins(job: Job, stage: str, params: Params) -> dict[str, str]:
    """Return the origin of each value of a stage, by field, without folder names of this machine."""
    entries = job.assembly.of_entry(stage, params)
    return {entry.field: where(entry.origin, entry.said.rpartition("/")[2]) for entry in entries}


def _has_seed(serving: Serving, options: Options) -> bool:
    return "seed" in options.values or serving.settings["seed"] is not None


def _template(serving: Serving) -> str | None:
    return declared_template(serving.settings["model"])[0]


def _object(body: Any, known: tuple[str, ...]) -> dict[str, Any]:
    found = given_fields(body)
    unknown = next((key for key in found if key not in known), None)
    if unknown is not None:
        raise unknown_field(unknown)
    return found

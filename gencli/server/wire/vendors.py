"""Fields that other servers have beside OpenAI's, and the options here that mean the same.

Sources: the request types of vLLM, SGLang, llama.cpp's server, tabbyAPI, text-generation-webui; mikupad.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gencli.server.wire.errors import bad_field
from processors.params import whole

__all__ = ["NEUTRAL", "RENAMED", "SPECIAL", "WITHOUT_EFFECT"]

# Fields that change no text: who asks, and what is stored about it.
WITHOUT_EFFECT = frozenset(
    "model user metadata store service_tier safety_identifier prompt_cache_key prompt_cache_retention "
    "client_metadata request_id cache_prompt".split()
)

_NAMES = {
    "max_tokens": "max_completion_tokens max_new_tokens n_predict max_length",
    "min_tokens": "min_new_tokens",
    "n": "n_cmpl num_return_sequences",
    "repetition_penalty": "repeat_penalty rep_pen",
    "penalty_window": "repeat_last_n penalty_range rep_pen_range repetition_penalty_range",
    "stop": "stop_sequences stop_sequence",
    "stop_id": "stop_token_ids",
    "include_stop": "include_stop_str_in_output no_stop_trim",
    "ignore_eos": "ban_eos_token",
    "allow_ids": "allowed_token_ids",
    "ban": "bad_words banned_strings",
    "json": "guided_json_object json_object",
    "json_schema": "guided_json",
    "regex": "guided_regex regex_pattern",
    "grammar": "guided_grammar grammar_string ebnf",
    "choice": "guided_choice",
    "guidance": "guidance_scale cfg_scale",
    "negative": "negative_prompt",
    "chain": "samplers",
    "draft_tokens": "num_speculative_tokens",
}
RENAMED: dict[str, str] = {other: key for key, names in _NAMES.items() for other in names.split()}

# Values with which a field of another server changes nothing. With another value the field is refused.
NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    **dict.fromkeys("typical_p typical tfs tfs_z top_nsigma_p".split(), (1,)),
    **dict.fromkeys(
        "top_a epsilon_cutoff eta_cutoff xtc_probability mirostat mirostat_mode dynatemp_range skew priority "
        "dry_multiplier smoothing_factor no_repeat_ngram_size encoder_repetition_penalty n_probs n_keep "
        "min_keep".split(),
        (0,),
    ),
    "top_n_sigma": (-1, 0),
    "xtc_threshold": (0.1,),
    "dynatemp_exponent": (1,),
    "skip_special_tokens": (True,),
    "spaces_between_special_tokens": (True,),
    "add_special_tokens": (True,),
    "use_beam_search": (False,),
    "suffix": ("",),
    "modalities": (["text"],),
    "verbosity": ("medium",),
    "include_reasoning": (True,),
}

_Found = dict[str, Any]


def _bias(field: str, value: Any) -> _Found:
    """An object of ids and numbers, or llama.cpp's list of pairs, where `false` as the number bans the id."""
    is_object = isinstance(value, Mapping)
    pairs = [[whole(str(token)), number] for token, number in value.items()] if is_object else value
    if not isinstance(pairs, list) or not all(map(_is_pair, pairs)):
        raise bad_field(field, f"{field} has to be an object of token ids and numbers.")
    bias = [[token, number] for token, number in pairs if number is not False]
    banned = [token for token, number in pairs if number is False]
    return {**({"logit_bias": bias} if bias else {}), **({"suppress_ids": banned} if banned else {})}


def _is_pair(pair: Any) -> bool:
    """Whether this is an id and a number or `false`, or a text and a number."""
    if not isinstance(pair, list) or len(pair) != 2 or isinstance(pair[0], bool):
        return False
    return isinstance(pair[0], int) or (isinstance(pair[0], str) and pair[1] is not False)


def _response_format(field: str, value: Any) -> _Found:
    kind = value.get("type") if isinstance(value, Mapping) else None
    if kind == "text":
        return {}
    if kind == "json_object":
        schema = value.get("schema")  # llama.cpp's
        return {"json": True} if schema is None else {"json_schema": schema}
    if kind == "structural_tag":
        return {"structural_tag": dict(value)}
    schema = value.get("json_schema") if kind == "json_schema" else None
    if not isinstance(schema, Mapping) or "schema" not in schema:
        raise bad_field(
            field,
            f"{field} has to be text, json_object, or json_schema with a schema in it.",
            code="invalid_value",
        )
    return {"json_schema": schema["schema"]}


def _structured_outputs(field: str, value: Any) -> _Found:
    """vLLM's object with one kind of structure."""
    known = {"json": "json_schema", "json_object": "json", "regex": "regex", "choice": "choice",
             "grammar": "grammar", "structural_tag": "structural_tag"}  # fmt: skip
    if not isinstance(value, Mapping) or not value.keys() <= known.keys():
        raise bad_field(field, f"{field} has to be an object with one of: {', '.join(known)}.")
    return {known[key]: item for key, item in value.items() if item is not None}


def _seconds(field: str, value: Any) -> _Found:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise bad_field(field, f"{field} has to be a number of milliseconds.")
    return {"max_time": value / 1000} if value > 0 else {}


def _unlimited(field: str, value: Any) -> _Found:
    return {} if value == -1 else {"max_tokens": value}


def _drawn_seed(field: str, value: Any) -> _Found:
    """A seed of -1 is a new one for each request, as without the field."""
    return {} if value == -1 else {"seed": value}


def _tool_choice(field: str, value: Any) -> _Found:
    if isinstance(value, Mapping):
        inner = value.get("function", value)
        name = inner.get("name") if isinstance(inner, Mapping) else None
        if not isinstance(name, str) or value.get("type") != "function":
            raise bad_field(field, f"{field} has to be auto, none, required, or a function with its name.")
        return {"tool_choice": name}
    if value not in ("auto", "none", "required"):
        raise bad_field(field, f"{field} is {value!r}, but has to be auto, none, required or a function.")
    return {"tool_choice": value}


# Fields whose value takes another form here: each returns options by key.
SPECIAL: Mapping[str, Callable[[str, Any], _Found]] = {
    "logit_bias": _bias,
    "response_format": _response_format,
    "structured_outputs": _structured_outputs,
    "t_max_predict_ms": _seconds,
    "n_predict": _unlimited,
    "seed": _drawn_seed,
    "tool_choice": _tool_choice,
}

"""Fields of other servers beyond OpenAI's: translated to options, or taken as hints without effect.

Sources: the request types of OpenAI's API, vLLM, SGLang, llama.cpp's server, LM Studio, Ollama, tabbyAPI,
text-generation-webui, KoboldCpp; mikupad.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from gencli.config.option_names import inverted
from gencli.server.wire_fields import bad_field
from gencli.structured.grammar_readers import looks_like_lark
from processors.params import whole

UNLIMITED = -1  # as `max_tokens`: no limit of the request, as in llama.cpp and LM Studio

_NAMES = {
    "max_tokens": "max_completion_tokens max_new_tokens max_length n_predict",
    "min_tokens": "min_new_tokens min_length",
    "n": "n_cmpl num_return_sequences",
    "repetition_penalty": "repeat_penalty rep_pen",
    "dynatemp_exponent": "temp_exponent",
    "smoothing": "smoothing_factor",
    "mirostat": "mirostat_mode",
    "typical": "typical_p typ_p",
    "top_n_sigma": "nsigma",
    "tfs": "tfs_z",
    "no_repeat_ngram": "no_repeat_ngram_size",
    "length_decay": "exponential_decay_length_penalty",
    "stop": "stop_sequences stop_sequence stopping_strings",
    "stop_id": "stop_token_ids",
    "include_stop": "include_stop_str_in_output no_stop_trim",
    "ignore_eos": "ban_eos_token",
    "ban": "bad_words",
    "reasoning_message": "reasoning_budget_message",
    "json": "guided_json_object json_object",
    "choice": "guided_choice",
    "guidance": "guidance_scale cfg_scale",
    "chain": "samplers",
    "draft_tokens": "num_speculative_tokens",
}
RENAMED = inverted(_NAMES)

_Values = dict[str, Any]
_FieldReader = Callable[[str, Any], _Values]


def _bias(field: str, value: Any) -> _Values:
    # An object of ids or texts and numbers, or a list of such pairs; `false` as a number bans a token. Texts
    # are left as they are, because their tokens are the model's. A negative id is refused as one.
    pairs = value
    if isinstance(value, Mapping):
        ids = {key: whole(key.removeprefix("-")) for key in value}
        pairs = [[key if ids[key] is None else int(key), number] for key, number in value.items()]
    if not isinstance(pairs, list) or not all(map(_is_pair, pairs)):
        raise bad_field(field, "has to be an object of token ids, or of texts, and numbers.")
    banned = [token for token, number in pairs if number is False and isinstance(token, int)]
    bias = [[token, number] for token, number in pairs if number is not False or isinstance(token, str)]
    return {**({"logit_bias": bias} if bias else {}), **({"suppress_ids": banned} if banned else {})}


def _is_pair(pair: Any) -> bool:
    # Of an id or a text, and a number or `false`; no id has 19 digits.
    if not isinstance(pair, list) or len(pair) != 2 or isinstance(pair[0], bool):
        return False
    is_text = isinstance(pair[0], str) and pair[0] != "" and not (pair[0].isdecimal() and len(pair[0]) > 18)
    is_number = isinstance(pair[1], int | float) and pair[1] is not True
    return is_number and (is_text or isinstance(pair[0], int))


def _banned(field: str, value: Any) -> _Values:
    # As for _ids, or KoboldCpp's list of texts.
    if isinstance(value, list) and value and all(isinstance(item, str) for item in value):
        return {"ban": value}
    ids = _ids(field, value)
    return {"suppress_ids": ids} if ids else {}


def _ids(field: str, value: Any) -> list[int]:
    # A list, or a text of comma-separated ids.
    parts = map(str.strip, value.split(",")) if isinstance(value, str) else ()
    ids = [whole(part) for part in parts if part] if isinstance(value, str) else value
    if not isinstance(ids, list) or not all(type(token) is int for token in ids):
        raise bad_field(field, "has to be a list of token ids; texts go into bad_words.")
    return ids


def _window(field: str, value: Any) -> _Values:
    # -1 means all tokens; so does 0, except in `repeat_last_n`.
    is_all = value == -1 or (value == 0 and field != "repeat_last_n")
    return {} if is_all else {"penalty_window": value}


def _dry_window(field: str, value: Any) -> _Values:
    # -1 means all tokens; 0 is off in llama.cpp, and all tokens as dry_range.
    if value == 0 and field == "dry_penalty_last_n":
        return {"dry_multiplier": 0}
    return {} if value in (-1, 0) else {"dry_window": value}


def _breakers(field: str, value: Any) -> _Values:
    # User interfaces also send the list of texts as JSON, with or without brackets.
    if isinstance(value, str):
        try:
            value = json.loads(value if value.lstrip().startswith("[") else f"[{value}]")
        except (ValueError, RecursionError):
            raise bad_field(field, "has to be a list of texts.") from None
    return {"dry_breaker": value}


def _stage_field(stage: str, name: str, neutral: tuple[float, ...], **others: Any) -> _FieldReader:
    # The field is set with `others`; a `neutral` value has no effect.
    def read(field: str, value: Any) -> _Values:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise bad_field(field, "has to be a number.")
        return {} if value in neutral else {"stages": {stage: {name: value, **others}}}

    return read


def _of_prompt(field: str, value: Any) -> _Values:
    # A penalty on prompt tokens, where values above 1 make them more likely.
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
        raise bad_field(field, "has to be a number above 0.")
    return _stage_field("repetition", "penalty", (0, 1), scope="prompt")(field, 1 / value if value else 0)


def _drawn(field: str, value: Any) -> _Values:
    if not isinstance(value, bool):
        raise bad_field(field, "has to be true or false.")
    return {} if value else {"sampler": "greedy"}


def _unless(key: str, default: Any) -> _FieldReader:
    # The option is left out at a value that stands for the default.
    return lambda field, value: {} if value == default else {key: value}


def _response_format(field: str, value: Any) -> _Values:
    kind = value.get("type") if isinstance(value, Mapping) else None
    if kind == "text":
        return {}
    if kind == "json_object":
        schema = value.get("schema")  # llama.cpp's form
        return {"json": True} if schema is None else {"json_schema": schema}
    if kind == "structural_tag":
        return {"structural_tag": dict(value)}
    # SGLang has the schema beside the type, too.
    schema = value.get("json_schema", value) if kind == "json_schema" else None
    if not isinstance(schema, Mapping) or "schema" not in schema:
        raise bad_field(field, "has to be text, json_object, or json_schema with a schema in it.")
    return {"json_schema": schema["schema"]}


def _structured_outputs(field: str, value: Any) -> _Values:
    kinds = {"json": "json_schema", "json_object": "json", "regex": "regex", "choice": "choice",
             "grammar": "grammar", "structural_tag": "structural_tag"}  # fmt: skip
    if not isinstance(value, Mapping) or not value.keys() <= kinds.keys():
        raise bad_field(field, f"has to be an object with one of: {', '.join(kinds)}.")
    options = {kinds[key]: item for key, item in value.items() if item is not None}
    grammar = options.pop("grammar", "")
    return {**options, **_vllm_grammar(field, grammar)}


def _vllm_grammar(field: str, value: Any) -> _Values:
    # vLLM takes GBNF and Lark in one field.
    is_lark = isinstance(value, str) and looks_like_lark(value)
    return {"lark" if is_lark else "grammar": value} if value != "" else {}


def _seconds(field: str, value: Any) -> _Values:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise bad_field(field, "has to be a number of milliseconds.")
    return {"max_time": value / 1000} if value > 0 else {}


def _tool_choice(field: str, value: Any) -> _Values:
    if isinstance(value, Mapping):
        inner = value.get("function", value)
        name = inner.get("name") if isinstance(inner, Mapping) else None
        if not isinstance(name, str) or value.get("type") != "function":
            raise bad_field(field, "has to be auto, none, required, or a function with its name.")
        return {"tool_choice": name}
    if value not in ("auto", "none", "required"):
        raise bad_field(field, f"is {value!r}, but has to be auto, none, required or a function.")
    return {"tool_choice": value}


def _tool(tool: Any) -> Any:
    # A tool or its function, without the fields that are null or that change no text.
    if not isinstance(tool, Mapping):
        return tool
    return {
        key: _tool(item) if key == "function" else item
        for key, item in tool.items()
        if item is not None and key != "cache_control" and (key != "defer_loading" or item is not False)
    }


# Fields whose value has another form here: each reader returns options by key.
SPECIAL: Mapping[str, _FieldReader] = {
    "logit_bias": _bias,
    "response_format": _response_format,
    "structured_outputs": _structured_outputs,
    "t_max_predict_ms": _seconds,
    **dict.fromkeys("custom_token_bans banned_tokens".split(), _banned),
    # An empty list allows all.
    **dict.fromkeys(
        "allowed_token_ids allowed_tokens".split(),
        lambda field, value: {"allow_ids": ids} if (ids := _ids(field, value)) else {},
    ),
    "do_sample": _drawn,
    **dict.fromkeys("dry_penalty_last_n dry_range".split(), _dry_window),
    **dict.fromkeys("dry_sequence_breakers dry_sequence_breaker".split(), _breakers),
    **dict.fromkeys("encoder_repetition_penalty encoder_rep_pen".split(), _of_prompt),
    "encoder_no_repeat_ngram_size": _stage_field("no_repeat_ngram", "n", (0,), scope="prompt"),
    "rep_pen_slope": _stage_field("repetition", "slope", (1,)),
    **dict.fromkeys(
        "repeat_last_n penalty_range rep_pen_range repetition_range repetition_penalty_range".split(), _window
    ),
    # Texts that clients send even if they are empty.
    **dict.fromkeys("grammar grammar_string ebnf".split(), _unless("grammar", "")),
    "guided_grammar": _vllm_grammar,
    **dict.fromkeys("regex regex_pattern guided_regex".split(), _unless("regex", "")),
    **dict.fromkeys("json_schema guided_json".split(), _unless("json_schema", "")),
    "negative_prompt": _unless("negative", ""),
    "banned_strings": _unless("ban", ""),
    **dict.fromkeys(
        "reasoning_budget thinking_token_budget thinking_budget thinking_budget_tokens "
        "reasoning_budget_tokens".split(),
        _unless("reasoning_budget", -1),  # no limit
    ),
    **dict.fromkeys("seed sampler_seed".split(), _unless("seed", -1)),  # a new seed for each request
    "dry_base": _unless("dry_base", 0),  # tabbyAPI's default
    "tools": lambda field, value: {"tools": [*map(_tool, value)] if isinstance(value, list) else value},
    "tool_choice": _tool_choice,
}


# Fields that change no text, whatever their value: about the user, what is stored, caches, slots, speed.
_HINTS = frozenset(
    "model user metadata store service_tier safety_identifier prompt_cache_key prompt_cache_retention "
    "prompt_cache_options prediction client_metadata request_id rid cache_prompt truncation_side "
    "return_mm_kwargs spaces_between_special_tokens stream_interval routed_dp_rank disagg_prefill_dp_rank "
    "data_parallel_rank ngram_corpus_id custom_labels stream_reasoning id_slot slot_id n_keep n_discard "
    "n_cache_reuse sse_ping_interval timings_per_token return_progress t_max_prompt_ms backend_sampling ttl "
    "draft_model keep_alive speculative_ngram generate_window static_cache genkey quiet".split()
)

# Fields of features that are not here: null, false, 0 and whatever is empty asks for nothing.
_ABSENT = frozenset(
    "functions web_search_options lora images image_data audio adapter input_ids prompt_embeds "
    "previous_input_messages context_management preserved_tokens grammar_triggers kv_transfer_params "
    "ec_transfer_params vllm_xargs media_io_kwargs mm_processor_kwargs session_params custom_params "
    "images_config options background_options access_programs custom_logit_processor lora_path memory "
    "prompt_template instruction_template instruction_template_str character name1 name2 bot_name context "
    "greeting user_name user_bio chat_template_str chat_instruct_command watermarking return_token_offsets "
    "return_prompt_text return_routed_experts return_cached_tokens_details return_prompt_token_ids "
    "return_meta_info use_audio_in_video verbose grammar_lazy reasoning_control penalize_nl "
    "_debug_render_only token_healing render_special bypass_eos use_default_badwordsids "
    "grammar_retain_state replace_instruct_placeholders stream_sse enable_response_messages "
    "routed_experts_prompt_start routed_experts_start_len penalty_alpha".split()
)

# Values with which a field of another server has no effect. With another value the field is rejected.
NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    **dict.fromkeys("top_nsigma_p dynatemp_low dynatemp_high min_temp max_temp num_beams".split(), (1,)),
    **dict.fromkeys(
        "epsilon_cutoff eta_cutoff repetition_decay token_repetition_decay n_probs min_keep n_indent "
        "top_logprobs_num max_tokens_second prompt_lookup_num_tokens".split(),
        (0,),
    ),
    "logprob_start_len": (-1,),
    **dict.fromkeys(
        "use_beam_search echo return_tokens return_logprob return_hidden_states "
        "post_sampling_probs auto_max_new_tokens dynamic_temperature".split(),
        (False,),
    ),
    **dict.fromkeys("skip_special_tokens detokenize parse_tool_calls trim_stop".split(), (True,)),
    **dict.fromkeys("suffix response_prefix guided_whitespace_pattern".split(), ("",)),
    "modalities": (["text"],),
    "verbosity": ("medium",),
    "mode": ("instruct",),
    "function_call": ("none", "auto", ""),
    "response_fields": ([],),
    # The structure is enforced by the grammar backend of this server.
    "guided_decoding_backend": ("", "auto", "guidance", "lm-format-enforcer", "outlines", "xgrammar"),
}

# Rejected fields, with the field that has nearly the same effect.
INSTEAD: Mapping[str, str] = inverted(
    {
        "session": "session_params",
        "logprobs": "n_probs return_logprob",
        "top_logprobs": "top_logprobs_num",
        "prompt_logprobs": "logprob_start_len logprob_token_ids",
        "logprobs_mode": "post_sampling_probs",
        "return_token_ids": "return_tokens response_fields",
        "continue_final_message": "response_prefix",
        "dynatemp_min": "dynatemp_low min_temp",
        "dynatemp_max": "dynatemp_high max_temp",
        "dynatemp_range": "dynamic_temperature",
        "epsilon": "epsilon_cutoff",
        "eta": "eta_cutoff",
        "stages": "repetition_decay token_repetition_decay",
        "max_time": "max_tokens_second",
        "max_tokens, with -1": "auto_max_new_tokens",
        "beams": "num_beams",
        "contrastive_alpha": "penalty_alpha",
        "tools": "functions",
        "tool_choice": "function_call",
        "model": "lora_path",
    }
)


def is_hint(name: str) -> bool:
    """Whether a field changes no text, whatever its value."""
    return name in _HINTS or name.startswith("speculative.")


def asks_for_nothing(name: str, value: Any) -> bool:
    """Whether a field of another server has a value with which it has no effect."""
    is_neutral = any(
        value == neutral and isinstance(value, bool) == isinstance(neutral, bool)
        for neutral in NEUTRAL.get(name, ())
    )
    return is_neutral or (name in _ABSENT and not value)

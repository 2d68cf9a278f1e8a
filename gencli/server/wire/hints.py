"""Fields of other servers that need no translation: hints, and values that ask for nothing.

Clients send many of them always. Sources: the request types of OpenAI's API, vLLM, SGLang, llama.cpp's
server, LM Studio, Ollama, tabbyAPI, text-generation-webui and KoboldCpp.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["INSTEAD", "asks_for_nothing", "is_hint", "is_known"]

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
_NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    **dict.fromkeys("top_nsigma_p dynatemp_low dynatemp_high min_temp max_temp num_beams".split(), (1,)),
    **dict.fromkeys(
        "epsilon_cutoff eta_cutoff repetition_decay token_repetition_decay "
        "n_probs min_keep n_indent top_logprobs_num max_tokens_second "
        "prompt_lookup_num_tokens".split(),
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
INSTEAD: Mapping[str, str] = {
    "session_params": "session",
    "n_probs": "logprobs",
    "top_logprobs_num": "top_logprobs",
    "return_logprob": "logprobs",
    "logprob_start_len": "prompt_logprobs",
    "logprob_token_ids": "prompt_logprobs",
    "post_sampling_probs": "logprobs_mode",
    "return_tokens": "return_token_ids",
    "response_prefix": "continue_final_message",
    "dynatemp_low": "dynatemp_min",
    "dynatemp_high": "dynatemp_max",
    "min_temp": "dynatemp_min",
    "max_temp": "dynatemp_max",
    "dynamic_temperature": "dynatemp_range",
    "epsilon_cutoff": "epsilon",
    "eta_cutoff": "eta",
    "repetition_decay": "stages",
    "token_repetition_decay": "stages",
    "max_tokens_second": "max_time",
    "auto_max_new_tokens": "max_tokens, with -1",
    "num_beams": "beams",
    "penalty_alpha": "contrastive_alpha",
    "functions": "tools",
    "function_call": "tool_choice",
    "lora_path": "model",
    "response_fields": "return_token_ids",
}


def is_hint(name: str) -> bool:
    """Whether a field changes no text, whatever its value."""
    return name in _HINTS or name.startswith("speculative.")


def asks_for_nothing(name: str, value: Any) -> bool:
    """Whether a field of another server has a value with which it has no effect."""
    if name in _ABSENT and not value:
        return True
    return any(
        value == neutral and isinstance(value, bool) == isinstance(neutral, bool)
        for neutral in _NEUTRAL.get(name, ())
    )


def is_known(name: str) -> bool:
    """Whether a field has values with which it has no effect, besides empty ones."""
    return name in _NEUTRAL

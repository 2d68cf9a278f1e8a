"""The systems whose settings can be read: profile, units, and names that are no settings."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gencli.imports.orders import kobold_order, llama_letters, llama_order, webui_order
from gencli.imports.readers import (
    WINDOWS,
    Found,
    NotTaken,
    Reader,
    greedy_below,
    number,
    scaled,
    texts,
    to,
    window,
)

__all__ = ["NO_SETTINGS", "PEERS", "Peer"]

_UNIT = 1e-4  # unit of epsilon and eta in text-generation-webui and Aphrodite


@dataclass(frozen=True, slots=True)
class Peer:
    """A system. `profile`: its compat profile, "" for none. `readers`: readers of its specific fields.

    Readers are keyed by the system's name of a field, or by the equivalent option. `short`: one-letter flags
    of its command line. `dropped`: names without effect on settings, with the reason.
    """

    title: str
    profile: str = ""
    readers: Mapping[str, Reader] = field(default_factory=dict)
    short: Mapping[str, str] = field(default_factory=dict)
    dropped: Mapping[str, str] = field(default_factory=dict)


def _why(reason: str, names: str) -> dict[str, str]:
    return dict.fromkeys(names.split(), reason)


# Names that are not sampling settings in any system.
NO_SETTINGS: Mapping[str, str] = {
    **_why("a prompt is no setting", "prompt messages input text memory file system_prompt sys system "
           "in_prefix in_suffix suffix prefill"),
    **_why("the model is no setting of sampling", "model hf_repo hf_file hf hfr hff mu model_url lora mmproj "
           "ctx_size c n_ctx gpu_layers ngl n_gpu_layers threads batch_size ubatch_size flash_attn fa mlock "
           "no_mmap mmap cache_type_k cache_type_v max_context_length truncation_length model_alias alias "
           "adapter_path trust_remote_code tensor_split split_mode main_gpu numa device"),
    **_why("the model's files say it", "eos_token_id bos_token_id pad_token_id decoder_start_token_id "
           "transformers_version _from_model_config cache_implementation"),
    **_why("it says how to answer, not which tokens to choose", "stream stream_options logprobs top_logprobs "
           "n_probs user metadata echo id_slot cache_prompt timings_per_token return_tokens streaming "
           "streaming_url response_fields port host api_key quiet genkey trim_stop render_special verbose "
           "conversation cnv interactive color preset preset_name name extensions type "
           "add_bos_token skip_special_tokens spaces_between_special_tokens custom_params"),
    **_why("it is about the form of the output; its option stands beside the chain", "tools tool_choice "
           "response_format json_schema grammar grammar_string grammar_file guided_json guided_regex "
           "guided_choice guided_grammar structured_outputs regex ebnf j structural_tag "
           "json_schema_allow_empty grammar_lazy"),
}  # fmt: skip


def _other_order(*names: str) -> dict[str, str]:
    return dict.fromkeys(names, "it is the order of another back end")


def _bias_texts(value: Any) -> Found | None:
    """Read llama.cpp's TOKEN+NUMBER and TOKEN-NUMBER of a command line."""
    if not isinstance(value, tuple):
        return None  # a request's form, which all servers share
    pairs, banned = list[list[float]](), list[int]()
    for text in value:
        parts = re.fullmatch(r"(\d{1,19})([+-].+)", text)
        if parts is None:
            raise NotTaken("it is not of the form ID+NUMBER")
        if parts[2].casefold() in ("-inf", "-infinity"):
            banned.append(int(parts[1]))
        else:
            pairs.append([int(parts[1]), float(number(parts[2]))])
    return {**({"logit_bias": pairs} if pairs else {}), **({"suppress_ids": banned} if banned else {})}


def _min_keep(value: Any) -> Found:
    found = number(value)
    return dict.fromkeys(("typical.keep", "top_p.keep", "min_p.keep"), found) if found > 1 else {}


def _clamped_bias(value: Any) -> Found | None:
    if not isinstance(value, dict):
        return None
    return {"logit_bias": {key: min(100.0, max(-100.0, number(item))) for key, item in value.items()}}


def _length_decay(value: Any) -> Found:
    if not isinstance(value, list) or len(value) != 2:
        raise NotTaken("it is no pair of a start and a factor")
    return {"length_decay.decay": [number(part) for part in value]}


def _bad_words(value: Any) -> Found:
    if not isinstance(value, list) or not all(isinstance(ids, list) for ids in value):
        raise NotTaken("it is no list of lists of token ids")
    if any(len(ids) != 1 for ids in value):
        raise NotTaken("it bans sequences of ids, which `ban` does by their text")
    return {"suppress_ids": [ids[0] for ids in value]}


def _banned_texts(value: Any) -> Found:
    return {"ban": found} if (found := texts(value) if value else []) else {}


def _context(value: Any) -> Found:
    raise NotTaken("it is the size of the context")


def _whole_length(value: Any) -> Found:
    raise NotTaken("it counts the prompt too; set `max_tokens`")


_LLAMA: Mapping[str, Reader] = {
    "samplers": lambda value: {"?order": llama_order(value)},
    "sampler_seq": lambda value: {"?order": llama_letters(value)},
    "sampling_seq": lambda value: {"?order": llama_letters(value)},
    "top_p": lambda value: {"top_p": min(1.0, number(value))},
    "min_p": lambda value: {"min_p": min(1.0, max(0.0, number(value)))},
    "typical": lambda value: {"typical.p": min(1.0, number(value))},
    "penalty_window": window(*WINDOWS, zero_is_all=False),
    "dry_window": window("dry.window", zero_is_all=False),
    "logit_bias": _bias_texts,
    "min_keep": _min_keep,
}
_WEBUI: Mapping[str, Reader] = {
    "sampler_priority": lambda value: {"?order": webui_order(value)},
    "epsilon": scaled("epsilon.cutoff", _UNIT),
    "eta": scaled("eta.cutoff", _UNIT),
    "penalty_window": window(*WINDOWS, "dry.window"),
}
# A penalty that is full for a range and then fades; without fading the range is a window.
_FADING: Mapping[str, Reader] = {
    **dict.fromkeys(
        ("penalty_window", "penalty_range", "token_repetition_range"),
        lambda value: {"?sustain": number(value)} if number(value) > 0 else {"repetition.window": None},
    ),
    **dict.fromkeys(("repetition_decay", "token_repetition_decay"), to("repetition.decay")),
}
_OF_WEBUI = _other_order("samplers", "sampler_order", "samplers_priorities")

PEERS: Mapping[str, Peer] = {
    "llama-cpp": Peer(
        "llama.cpp", "llama-cpp", _LLAMA,
        short={"n": "n_predict", "s": "seed", "l": "logit_bias", "p": "prompt", "m": "model", "c": "ctx_size",
               "t": "threads", "j": "json_schema", "f": "file", "r": "stop", "i": "interactive",
               "b": "batch_size", "e": "escape"},
        dropped={**_other_order("sampler_priority", "sampler_order", "samplers_priorities"),
                 "escape": "texts are read with their escapes"},
    ),
    "tgw": Peer("text-generation-webui", "tgw", _WEBUI, dropped=_OF_WEBUI),
    "sillytavern": Peer(
        "SillyTavern", "tgw",
        {**_WEBUI, "max_length": _context},
        dropped={**_OF_WEBUI, "dry_penalty_last_n": "text-generation-webui counts as rep_pen_range says"},
    ),
    "koboldcpp": Peer(
        "koboldcpp", "koboldcpp",
        {"sampler_order": lambda value: {"?order": kobold_order(value)},
         "penalty_window": window("repetition.window", "presence.window"),
         "ban": _banned_texts, "banned_tokens": _banned_texts, "sampler_seed": to("seed")},
        dropped=_other_order("sampler_priority", "samplers", "samplers_priorities"),
    ),
    "openai": Peer("the OpenAI API"),
    "vllm": Peer("vLLM", "vllm", {"temperature": greedy_below(1e-5, 0.01), "logit_bias": _clamped_bias}),
    "sglang": Peer("SGLang", "sglang", {"temperature": greedy_below(1e-6)}),
    "hf": Peer(
        "transformers", "hf",
        {"exponential_decay_length_penalty": _length_decay, "bad_words_ids": _bad_words,
         "max_length": _whole_length},
        dropped={"watermarking_config": "a watermark has options of its own, and its key is a file"},
    ),
    "mlx": Peer(
        "mlx-lm", "mlx",
        {"top_p": lambda value: {"top_p": number(value) or 1.0}},
        short={"m": "model", "p": "prompt"},
    ),
    "exl2": Peer(
        "ExLlamaV2 and TabbyAPI", "exl2",
        {**_FADING, "temperature": greedy_below(0.01), "ban": _banned_texts},
        dropped={"token_healing": "prompts are read as they are", "generate_window": "it is about memory"},
    ),
    "exl3": Peer("ExLlamaV3 and TabbyAPI", "exl3", {**_FADING, "ban": _banned_texts}),
    "aphrodite": Peer(
        "Aphrodite", "aphrodite",
        {"epsilon": scaled("epsilon.cutoff", _UNIT), "eta": scaled("eta.cutoff", _UNIT)},
        dropped=_other_order("sampler_priority", "samplers", "sampler_order", "samplers_priorities"),
    ),
}  # fmt: skip

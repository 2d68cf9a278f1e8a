"""The systems whose settings can be read: their fields with units and off values, their lists of samplers
as orders of stages, and names that are no settings. Sources: each system's own code: llama.cpp
src/llama-sampler.cpp and common/sampling.cpp, text-generation-webui modules/sampler_hijack.py,
koboldcpp gpttype_adapter.cpp. A reader of a field returns values by key: an option (`max_tokens`),
`stage.field`, or a hint that begins with `?`, which only has a meaning together with other fields.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from gencli.errors import UsageError
from gencli.text.escapes import unescape

Values = dict[str, Any]
Reader = Callable[[Any], Values | None]  # None: the value has the common form
WINDOWS = ("repetition.window", "frequency.window", "presence.window")
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")
_MAX_DIGITS = 400


class NotTaken(Exception):
    """A field is not taken over; the message is the reason, as the end of a sentence."""


def number(value: Any) -> int | float:
    """Return a number; a command line gives it as text. Raises NotTaken."""
    if isinstance(value, str) and len(value) <= _MAX_DIGITS and _NUMBER.fullmatch(value.strip()):
        value = float(value) if set(value) & set(".eE") else int(value)
    # Neither NaN nor an integer that no float holds.
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= sys.float_info.max:
        raise NotTaken("it is no number")
    return value


def switch(value: Any) -> bool:
    """Return a boolean, also from a number or a text. Raises NotTaken."""
    words = {"true": True, "1": True, "on": True, "false": False, "0": False, "off": False}
    text = str(value).casefold()
    if text not in words:
        raise NotTaken("it is neither true nor false")
    return words[text]


def to(*keys: str, off: float | None = None) -> Reader:
    """Return a reader of a number for keys; numbers <= 0 mean `off`, if `off` is given."""

    def read(value: Any) -> Values:
        parsed = number(value)
        return dict.fromkeys(keys, off if off is not None and parsed <= 0 else parsed)

    return read


def scaled(key: str, unit: float) -> Reader:
    """Return a reader of a number in multiples of `unit`."""
    return lambda value: {key: float(f"{number(value) * unit:.12g}")}


def greedy_below(limit: float, raised: float = 0.0) -> Reader:
    """Return a reader of a temperature: greedy below `limit`, otherwise at least `raised`."""

    def read(value: Any) -> Values:
        parsed = number(value)
        return {"temperature": 0.0 if parsed < limit or parsed <= 0 else max(float(parsed), raised)}

    return read


def window(*keys: str, zero_is_all: bool = True) -> Reader:
    """Return a reader of a number of tokens; -1, and mostly 0, means all tokens."""

    def read(value: Any) -> Values:
        count = number(value)
        if count < 0 or (count == 0 and zero_is_all):
            return dict.fromkeys(keys)
        if count == 0:
            return {f"?off.{key.partition('.')[0]}": True for key in keys}
        return dict.fromkeys(keys, count)

    return read


def texts(value: Any) -> list[str]:
    """Return a list of texts, also from a JSON list in a text. Raises NotTaken."""
    if isinstance(value, str):
        stripped = value.strip()
        try:
            value = json.loads(stripped if stripped.startswith("[") else f"[{stripped}]")
        except (ValueError, RecursionError):
            value = [value]
    if not isinstance(value, list) or not all(isinstance(item, str) and item for item in value):
        raise NotTaken("it is no list of texts")
    return value


def breakers(value: Any) -> Values:
    """Read the breakers of DRY; on a command line they have escapes, and `none` removes them."""
    if isinstance(value, tuple):  # from a command line
        try:
            return {"dry.breakers": [unescape(item) for item in value if item != "none"]}
        except UsageError as error:
            raise NotTaken(error.message) from None
    return {"dry.breakers": texts(value)}


def _neutral(plain: Any, why: str) -> Reader:
    """Return a reader of a feature that gencli lacks; the value `plain` means that it is off."""

    def read(value: Any) -> Values:
        if value in (plain, None, "", []):
            return {}
        raise NotTaken(why)

    return read


_FORCED = "the stage force does it, at a position of your choice"
_LACKING = "gencli has nothing like it"
COMMON: Mapping[str, Reader] = {
    "temperature": to("temperature", off=0.0),
    "top_k": to("top_k", off=0),
    "top_n_sigma": to("top_n_sigma.n", off=0.0),
    "adaptive_target": to("adaptive_p.target", off=0.0),
    "dynatemp_range": lambda value: {"?range": number(value)},
    **dict.fromkeys("dynatemp_exponent dynatemp_exp temp_exponent".split(), to("?exponent")),
    **dict.fromkeys("dynatemp_min dynatemp_low min_temp".split(), to("?low")),
    **dict.fromkeys("dynatemp_max dynatemp_high max_temp".split(), to("?high")),
    **dict.fromkeys("dynamic_temperature dynatemp".split(), lambda value: {"?dynamic": switch(value)}),
    **dict.fromkeys("mirostat mirostat_mode".split(), to("mirostat.version")),
    **dict.fromkeys("dry_window dry_penalty_last_n dry_range".split(), window("dry.window")),
    **dict.fromkeys("dry_breaker dry_sequence_breaker dry_sequence_breakers".split(), breakers),
    "penalty_window": window(*WINDOWS),
    **dict.fromkeys(
        "encoder_repetition_penalty encoder_rep_pen".split(),
        lambda value: {"?encoder": number(value)} if number(value) != 1 else {},
    ),
    "rep_pen_slope": to("repetition.slope"),
    "rep_pen_decay": to("repetition.decay"),
    "do_sample": lambda value: {"?greedy": not switch(value)},
    "seed": lambda value: {"seed": number(value)} if number(value) >= 0 else {},
    "ignore_eos": lambda value: {"ignore_eos": True} if switch(value) else {},
    "temperature_last": lambda value: {"temperature_last": True} if switch(value) else {},
    "max_tokens": lambda value: {"max_tokens": number(value)} if number(value) >= 0 else {},
    "penalty_alpha": lambda value: {"?contrastive": number(value)} if value else {},
    "num_beams": _neutral(1, "a search is not part of the chain; its option is `beams`"),
    "length_penalty": _neutral(1, "it belongs to a search"),
    "early_stopping": _neutral(False, "it belongs to a search"),
    "diversity_penalty": _neutral(0, _LACKING),
    "min_length": _neutral(0, "it counts the prompt too; set `min_tokens`"),
    "encoder_no_repeat_ngram_size": _neutral(0, "no_repeat_ngram with the scope prompt does it"),
    "forced_bos_token_id": _neutral(None, _FORCED),
    "forced_eos_token_id": _neutral(None, _FORCED),
    "rep_pen_size": _neutral(0, _LACKING),
    "speculative_ngram": _neutral(False, "drafts change no text; their option is `draft`"),
}


_STAGES: dict[str, tuple[str, ...]] = {
    "penalties": ("repetition", "frequency", "presence"),
    "repetition_penalty": ("repetition",),
    "frequency_penalty": ("frequency",),
    "presence_penalty": ("presence",),
    "temperature": ("temperature",),
    "temp": ("temperature",),
    "typ_p": ("typical",),
    "typical_p": ("typical",),
    "typical": ("typical",),
    "typ": ("typical",),
    "nucleus": ("top_p",),
    "epsilon_cutoff": ("epsilon",),
    "eta_cutoff": ("eta",),
    "quadratic_sampling": ("smoothing",),
    "top_nsigma": ("top_n_sigma",),
    "tfs_z": ("tfs",),
    **{
        name: (name,)
        for name in "dry top_n_sigma top_k top_p min_p top_a tfs xtc adaptive_p mirostat "
        "dynamic_temperature".split()
    },
}
_PLAIN = {name.replace("_", ""): stages for name, stages in _STAGES.items()}
_LETTERS = {"e": "penalties", "d": "dry", "s": "top_n_sigma", "k": "top_k", "y": "typ_p", "p": "top_p",
            "m": "min_p", "x": "xtc", "t": "temperature", "a": "adaptive_p", "i": "infill"}  # fmt: skip
_NUMBERS = {
    0: ("top_k",),
    1: ("top_a",),
    2: ("top_p", "min_p"),
    3: ("tfs",),
    4: ("typical",),
    5: ("temperature", "dynamic_temperature", "smoothing", "top_n_sigma"),
    6: ("repetition", "presence"),
}
# Stages that always mask first in gencli, wherever a list has them.
_FIRST = ("no_repeat_ngram", "encoder_repetition_penalty")
_MAX_NAMES = 100  # limit of names in a list


@dataclass(frozen=True, slots=True)
class Order:
    """Stages in order, and names that no stage has. `is_open`: unnamed stages run first."""

    stages: tuple[str, ...]
    unknown: tuple[str, ...] = ()
    is_open: bool = False


def llama_order(value: Any) -> Order:
    """Read llama.cpp's samplers: a list, or names separated by semicolons. Unnamed samplers do not run."""
    order = _named(_words(value, ";"))
    # The temperature and the dynamic temperature are one sampler there.
    both = {"temperature": ("temperature", "dynamic_temperature")}
    stages = (name for stage in order.stages for name in both.get(stage, (stage,)))
    return Order(("bias", *stages), order.unknown)


def llama_letters(value: Any) -> Order:
    """Read llama.cpp's samplers as letters."""
    if not isinstance(value, str):
        raise NotTaken("it is no text of letters")
    return llama_order([_LETTERS.get(letter, letter) for letter in value[:_MAX_NAMES]])


def webui_order(value: Any) -> Order:
    """Read text-generation-webui's priorities: a list, or lines. Unnamed samplers run first."""
    separator = "\n" if isinstance(value, str) and "\n" in value else ","
    order = _named(word for word in _words(value, separator) if word not in _FIRST)
    last = [stage for stage in ("adaptive_p", "mirostat") if stage in order.stages]  # they choose the token
    stages = (*(stage for stage in order.stages if stage not in last), *last)
    return Order(stages, order.unknown, is_open=True)


def kobold_order(value: Any) -> Order:
    """Read koboldcpp's numbers; DRY runs first, XTC and adaptive_p last. Without a 6, 6 comes first."""
    if not isinstance(value, list) or not all(type(item) is int and item in _NUMBERS for item in value):
        raise NotTaken("it is no list of numbers from 0 to 6")
    numbers = value if 6 in value else [6, *value]
    stages = [stage for item in dict.fromkeys(numbers) for stage in _NUMBERS[item]]
    return Order(("bias", "dry", *stages, "xtc", "adaptive_p"))


def _words(value: Any, separator: str) -> list[str]:
    parts = value.split(separator) if isinstance(value, str) else value
    if not isinstance(parts, list) or not all(isinstance(part, str) for part in parts):
        raise NotTaken("it is no list of samplers")
    if len(parts) > _MAX_NAMES:
        raise NotTaken(f"it has more than {_MAX_NAMES} samplers")
    return [part.strip() for part in parts if part.strip()]


def _named(words: Iterable[str]) -> Order:
    stages: dict[str, None] = {}
    unknown = []
    for word in words:
        stages_of_word = _PLAIN.get(word.casefold().replace("-", "").replace("_", ""))
        if stages_of_word is None:
            unknown.append(word)
        stages.update(dict.fromkeys(stages_of_word or ()))
    return Order(tuple(stages), tuple(unknown))


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
    **_why("it is about the form of the output, which has options of its own", "tools tool_choice "
           "response_format json_schema grammar grammar_string grammar_file guided_json guided_regex "
           "guided_choice guided_grammar structured_outputs regex ebnf j structural_tag "
           "json_schema_allow_empty grammar_lazy"),
}  # fmt: skip


def _other_order(names: str) -> dict[str, str]:
    return _why("it is the order of another back end", names)


def _bias_texts(value: Any) -> Values | None:
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


def _clamped_bias(value: Any) -> Values | None:
    if not isinstance(value, dict):
        return None
    return {"logit_bias": {key: min(100.0, max(-100.0, number(item))) for key, item in value.items()}}


def _length_decay(value: Any) -> Values:
    if not isinstance(value, list) or len(value) != 2:
        raise NotTaken("it is no pair of a start and a factor")
    return {"length_decay.decay": [number(part) for part in value]}


def _bad_words(value: Any) -> Values:
    if not isinstance(value, list) or not all(isinstance(ids, list) for ids in value):
        raise NotTaken("it is no list of lists of token ids")
    if any(len(ids) != 1 for ids in value):
        raise NotTaken("it bans sequences of ids, which `ban` does by their text")
    return {"suppress_ids": [ids[0] for ids in value]}


def _banned_texts(value: Any) -> Values:
    return {"ban": banned} if (banned := texts(value) if value else []) else {}


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
    "min_keep": lambda value: (
        dict.fromkeys(("typical.keep", "top_p.keep", "min_p.keep"), number(value))
        if number(value) > 1
        else {}
    ),
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
_OF_WEBUI = _other_order("samplers sampler_order samplers_priorities")

PEERS: Mapping[str, Peer] = {
    "llama-cpp": Peer(
        "llama.cpp", "llama-cpp", _LLAMA,
        short={"n": "n_predict", "s": "seed", "l": "logit_bias", "p": "prompt", "m": "model", "c": "ctx_size",
               "t": "threads", "j": "json_schema", "f": "file", "r": "stop", "i": "interactive",
               "b": "batch_size", "e": "escape"},
        dropped={**_other_order("sampler_priority sampler_order samplers_priorities"),
                 "escape": "texts are read with their escapes"},
    ),
    "tgw": Peer("text-generation-webui", "tgw", _WEBUI, dropped=_OF_WEBUI),
    "sillytavern": Peer(
        "SillyTavern", "tgw",
        {**_WEBUI, "max_length": _neutral(None, "it is the size of the context")},
        dropped={**_OF_WEBUI, "dry_penalty_last_n": "text-generation-webui counts as rep_pen_range says"},
    ),
    "koboldcpp": Peer(
        "koboldcpp", "koboldcpp",
        {"sampler_order": lambda value: {"?order": kobold_order(value)},
         "penalty_window": window("repetition.window", "presence.window"),
         "ban": _banned_texts, "banned_tokens": _banned_texts, "sampler_seed": to("seed")},
        dropped=_other_order("sampler_priority samplers samplers_priorities"),
    ),
    "openai": Peer("the OpenAI API"),
    "vllm": Peer("vLLM", "vllm", {"temperature": greedy_below(1e-5, 0.01), "logit_bias": _clamped_bias}),
    "sglang": Peer("SGLang", "sglang", {"temperature": greedy_below(1e-6)}),
    "hf": Peer(
        "transformers", "hf",
        {"exponential_decay_length_penalty": _length_decay, "bad_words_ids": _bad_words,
         "max_length": _neutral(None, "it counts the prompt too; set `max_tokens`")},
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
        dropped=_other_order("sampler_priority samplers sampler_order samplers_priorities"),
    ),
}  # fmt: skip

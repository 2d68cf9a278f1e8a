"""Reads the text of another system's settings as fields: JSON, YAML or a command line; detects the system."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from gencli.errors import ConfigError, GencliError, UsageError
from gencli.imports.peers import PEERS
from gencli.json_reader import JsonLimits, parse_json
from gencli.yaml_tree import PRESET_BOUNDS, Fault, parse

__all__ = ["MAX_BYTES", "Source", "read_arguments", "read_text"]

MAX_BYTES = PRESET_BOUNDS.max_bytes
_JSON = JsonLimits(max_depth=PRESET_BOUNDS.max_depth, max_digits=400, has_decimals=False)
_NUMBER = re.compile(r"-\.?\d")
_LISTS = ("dry_sequence_breaker", "logit_bias", "reverse_prompt", "stop")  # repeatable flags
# Fields that only one system has; the first match decides.
_MARKS: tuple[tuple[str, frozenset[str]], ...] = tuple(
    (peer, frozenset(names.split()))
    for peer, names in (
        ("sillytavern", "temp samplers_priorities rep_pen_size genamt"),
        ("koboldcpp", "sampler_order rep_pen rep_pen_range max_context_length sampler_seed genkey"),
        ("hf", "transformers_version _from_model_config pad_token_id decoder_start_token_id "
         "top_h exponential_decay_length_penalty encoder_no_repeat_ngram_size"),
        ("llama-cpp", "n_predict repeat_penalty repeat_last_n samplers cache_prompt id_slot "
         "t_max_predict_ms"),
        ("tgw", "repetition_penalty_range sampler_priority truncation_length dynatemp_low "
         "dynamic_temperature mirostat_mode epsilon_cutoff eta_cutoff custom_token_bans"),
        ("exl2", "token_repetition_penalty penalty_range repetition_decay token_healing"),
        ("vllm", "structured_outputs guided_json guided_choice guided_regex allowed_token_ids bad_words "
         "include_stop_str_in_output"),
        ("sglang", "sampling_params sampling_seed custom_params"),
        ("openai", "messages prompt model input"),
    )
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Source:
    """Fields of a system's settings. `what`: the form of the text."""

    peer: str
    what: str
    fields: tuple[tuple[str, Any], ...]


def read_text(text: str, peer: str = "") -> Source:
    """Return the fields of a file: a JSON object, a YAML mapping, or a command line.

    Raises UsageError if the system cannot be detected, ConfigError for any other text.
    """
    stripped = text.strip()
    if stripped.startswith(("{", "[")):
        found = _json(stripped)
    elif _is_command(stripped):
        return read_arguments(_split(stripped), peer)
    else:
        found = _yaml(text)
    if not isinstance(found, Mapping):
        raise ConfigError("The settings are no mapping of names to values.")
    fields = dict(found)
    name = peer or _guess(fields, is_yaml=not stripped.startswith("{"))
    return Source(name, "settings", tuple(_flat(fields).items()))


def read_arguments(words: Sequence[str], peer: str = "") -> Source:
    """Return the flags of a command line; the words before the first name the program. Raises UsageError."""
    words = list(words)
    module = next((place for place, word in enumerate(words[:4]) if word.startswith("mlx_lm")), None)
    first = next((place for place, word in enumerate(words) if _is_flag(word)), len(words))
    first = first if module is None else module + 1
    name = peer or _program(words[:first])
    return Source(name, "a command line", tuple(_flags(words[first:], PEERS[name].short).items()))


def _program(words: Sequence[str]) -> str:
    names = [PurePath(word).name.casefold() for word in words]
    if any("mlx" in name for name in names):
        return "mlx"
    if any("llama" in name or name in ("main", "server") for name in names):
        return "llama-cpp"
    raise _untold("the command line names no program that is known")


def _flags(words: Sequence[str], short: Mapping[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    place = 0
    while place < len(words):
        word, place = words[place], place + 1
        if not _is_flag(word):
            found.setdefault(word, True)
            continue
        name, equals, value = word.lstrip("-").partition("=")
        name = name if len(name) == 1 else name.casefold().replace("-", "_")
        name = short.get(name, name)
        given: Any = value if equals else True
        if not equals and place < len(words) and not _is_flag(words[place]):
            given, place = words[place], place + 1
        found[name] = (*found.get(name, ()), given) if name in _LISTS else given
    return found


def _is_flag(word: str) -> bool:
    return len(word) > 1 and word.startswith("-") and not _NUMBER.match(word)


def _is_command(text: str) -> bool:
    line = text.partition("\n")[0]
    first = line.split()[0] if line.split() else ""
    return bool(re.search(r"(^|\s)--?[a-zA-Z]", line)) and not first.endswith(":")


def _split(text: str) -> list[str]:
    try:
        return shlex.split(text.replace("\\\n", " "), comments=True)
    except ValueError as error:
        raise ConfigError(f"The command line cannot be read: {error}.") from None


def _json(text: str) -> Any:
    try:
        return parse_json(text, _JSON)
    except GencliError as error:
        raise ConfigError(f"The settings are not valid JSON: {error.message}") from None


def _yaml(text: str) -> Any:
    faults: list[Fault] = []
    root = parse(text.encode(), faults)
    if faults:
        first = faults[0]
        raise ConfigError(f"The settings are not valid YAML: line {first.line}: {first.text}")
    return {} if root is None else root.plain()


def _flat(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields, merged with those in sampling_params (SGLang), overrides (TabbyAPI), extra_body."""
    flat: dict[str, Any] = {}
    for name, value in fields.items():
        if name in ("sampling_params", "extra_body", "parameters") and isinstance(value, Mapping):
            flat.update(value)
        elif isinstance(value, Mapping) and "override" in value:
            flat[str(name)] = value["override"]
        else:
            flat[str(name)] = value
    return {str(name): value for name, value in flat.items() if value is not None}


def _guess(fields: Mapping[str, Any], *, is_yaml: bool) -> str:
    values = list(fields.values())
    if values and all(isinstance(value, Mapping) and "override" in value for value in values):
        return "exl2"
    for peer, marks in _MARKS:
        if marks & fields.keys():
            return peer
    if is_yaml and fields:
        return "tgw"  # the only system with YAML presets, often of few fields
    raise _untold("no field of it belongs to one system alone")


def _untold(why: str) -> UsageError:
    return UsageError(
        f"Whose settings these are cannot be told: {why}.", hint=f"Name it, as one of {', '.join(PEERS)}."
    )

"""The values of a model's generation_config.json: the weakest layer above gencli's own defaults.

Only values in the file count. `do_sample: false` is temperature 0; the other sampling values are then
ignored, as in transformers.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gencli.config.settings import Assigned, Layer
from gencli.errors import ModelError
from gencli.models.files.local_models import find_local
from gencli.models.files.model_files import read_object
from processors.errors import ParamError

__all__ = ["GENERATION_CONFIG", "model_layer"]

GENERATION_CONFIG = "generation_config"
_FILE = "generation_config.json"
_DRAW = {
    "temperature": "temperature",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "epsilon_cutoff": "epsilon",
    "eta_cutoff": "eta",
    "typical_p": "typical",
    "top_h": "top_h",
}
_REST = {
    "repetition_penalty": "repetition_penalty",
    "no_repeat_ngram_size": "no_repeat_ngram",
    "exponential_decay_length_penalty": "length_decay",
    "sequence_bias": "sequence_bias",
    "max_new_tokens": "max_tokens",
    "min_new_tokens": "min_tokens",
    "suppress_tokens": "suppress_ids",
    "begin_suppress_tokens": "begin_suppress_ids",
    "min_eos_p": "eos_above",
    "stop_strings": "stop",
}
# Settings about the prompt: a stage, its field, and the setting that excludes the stage.
_PROMPT = {
    "encoder_repetition_penalty": ("repetition", "penalty", "repetition_penalty"),
    "encoder_no_repeat_ngram_size": ("no_repeat_ngram", "n", "no_repeat_ngram_size"),
}
_OFF = {"penalty": 1, "n": 0}
# Settings of transformers that gencli lacks or does not take over, with the value that disables each.
_LACKING: dict[str, Any] = {
    "num_beams": 1,
    "penalty_alpha": None,
    "diversity_penalty": 0.0,
    "bad_words_ids": None,
    "forced_bos_token_id": None,
    "forced_eos_token_id": None,
    "guidance_scale": None,
}


def model_layer(name: str) -> Layer | None:
    """Return the layer of a model by name or folder; None without the file."""
    path = _config_file(name)
    if path is None:
        return None
    found = read_object(path)
    is_greedy = found.get("do_sample") is False
    names = _REST if is_greedy else {**_DRAW, **_REST}
    given = {key: found[said] for said, key in names.items() if found.get(said) is not None}
    places = {key: said for said, key in names.items()}
    if is_greedy:
        given["temperature"], places["temperature"] = 0.0, "do_sample=false"
    stages, twice = _of_prompt(path, found)
    lacking = [k for k, neutral in _LACKING.items() if found.get(k) not in (None, neutral)]
    notices = tuple(f"{path} asks for {key}={found[key]}, {_not_taken(key)}." for key in lacking)
    return Layer(GENERATION_CONFIG, _checked(path, given), places, stages, (*notices, *twice))


def _of_prompt(path: Path, found: dict[str, Any]) -> tuple[tuple[Assigned, ...], list[str]]:
    """Return fields of stages that concern the prompt, and notices about stages that are excluded."""
    fields, notices = list[Assigned](), list[str]()
    for key, (stage, field, beside) in _PROMPT.items():
        value = found.get(key)
        if value is None or value == _OFF[field]:
            continue
        if found.get(beside) not in (None, _OFF[field]):
            notices.append(f"{path} asks for {key}={value} beside {beside}, and gencli takes one of them.")
            continue
        if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
            raise ModelError(f"{path}: {key} is {value!r}, but has to be a number above 0.")
        pairs = ((field, 1 / value if field == "penalty" else value), ("scope", "prompt"))
        fields += [Assigned(stage, name, item, GENERATION_CONFIG, key) for name, item in pairs]
    return tuple(fields), notices


def _not_taken(key: str) -> str:
    option = {"num_beams": "beams", "penalty_alpha": "contrastive_alpha"}.get(key)
    return f"for which there is `{option}`" if option else "which gencli does not have"


def _config_file(name: str) -> Path | None:
    folder = find_local(name)
    return folder / _FILE if folder is not None and (folder / _FILE).is_file() else None


def _checked(path: Path, given: dict[str, Any]) -> dict[str, Any]:
    from gencli.config.presets.keys import checked  # YAML and JSON values have the same types

    values = {}
    for key, value in given.items():
        try:
            values[key] = checked(key, value)
        except ParamError as error:
            raise ModelError(f"{path}: {error}") from None
    return values

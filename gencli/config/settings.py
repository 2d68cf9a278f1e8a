"""Settings: the values of all options from layers, later ones stronger, with their origins; and the layers
of environment variables (GENCLI_ and the key in capitals) and of a model's files
(generation_config.json, the thinking tags of its template).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from gencli.config.option import Option
from gencli.config.option_names import meant_option
from gencli.config.run_options import OPTIONS, option
from gencli.core.tree_shapes import read_shape_text
from gencli.errors import ModelError, UsageError
from gencli.models.files.local_models import find_local
from gencli.models.files.model_card import declared_template
from gencli.models.files.model_files import read_object
from gencli.structured.output_spec import KINDS
from processors.errors import ParamError
from processors.params import convert, describe
from processors.registry import Registry, builtin_registry
from processors.request_values import When
from processors.stages.forcing import ReasoningBudgetParams

DEFAULT = "default"
CHAT_DEFAULT = "default of chat"
COMPAT = "compat"
USER = "user defaults"
PRESET = "preset"
ENVIRONMENT = "environment"
FLAG = "flag"

# A key set by a layer resets these keys of weaker layers; within one layer, setting both is an error.
_REPLACES = {
    "raw": ("chat", "system"),
    "chat": ("raw",),
    "quiet": ("stats",),
    "stats": ("quiet",),
    "offline": ("download",),
    "download": ("offline",),
    "chain": ("temperature_last",),
    "temperature_last": ("chain",),
    "beams": ("best_of", "retries", "contrastive_alpha"),
    "best_of": ("beams", "retries", "contrastive_alpha"),
    "contrastive_alpha": ("beams", "best_of", "retries"),
    "template": ("vars",),  # the variables belong to the template
    "parsed": ("select",),
    "select": ("parsed",),
    **{kind: tuple(other for other in KINDS if other != kind) for kind in KINDS},
}


@dataclass(frozen=True, slots=True)
class Assigned:
    """A value of a stage's field: its layer, its name in messages, and the rank of the layer.

    `when`: the condition of the stage's entry; each entry has its own values.
    """

    stage: str
    field: str
    value: Any
    origin: str
    said: str
    rank: int = -1
    when: When | None = None

    @property
    def where(self) -> str:
        """The origin and its source, as in `Settings.where`."""
        return where(self.origin, self.said)


def where(origin: str, source: str) -> str:
    """Return an origin and the source in it, which a default of chat does not have."""
    return origin if origin == CHAT_DEFAULT else f"{origin} {source}".strip()


@dataclass(frozen=True, slots=True)
class PresetInfo:
    """The description of a preset, the presets that it extends, and whether it is extended itself."""

    description: str = ""
    extends: tuple[str, ...] = ()
    is_inherited: bool = False


@dataclass(frozen=True, slots=True)
class SettingsLayer:
    """Checked values by option key, and fields of stages, from one source.

    `places` maps keys to their sources, a variable or the line of a file; a key without one was a flag or a
    keyword. `preset` is set for the values of a preset.
    """

    origin: str
    values: Mapping[str, Any]
    places: Mapping[str, str] = field(default_factory=dict)
    stages: tuple[Assigned, ...] = ()
    notices: tuple[str, ...] = ()
    preset: PresetInfo | None = None

    @classmethod
    def of(
        cls, origin: str, values: Mapping[str, Any], places: Mapping[str, str] | None = None
    ) -> SettingsLayer:
        """Return the layer of values that are not checked yet. Raises UsageError for a wrong one."""
        places = places or {}
        checked_values = {key: option(key).value(value, places.get(key, "")) for key, value in values.items()}
        return cls(origin, checked_values, places)

    def said(self, key: str) -> str:
        """Return the source of a key's value in messages: its place, or the key in backticks."""
        return self.places.get(key) or f"`{key}`"


@dataclass(frozen=True, slots=True)
class Setting:
    """A value, the origin and rank of its layer, and its source in messages."""

    value: Any
    origin: str
    said: str = ""
    rank: int = -1


class Settings(Mapping[str, Any]):
    """The values of all options by key, with their origins."""

    def __init__(
        self, entries: Mapping[str, Setting], layers: tuple[SettingsLayer, ...], registry: Registry | None
    ) -> None:
        self._entries, self.layers, self.registry = entries, layers, registry

    def __getitem__(self, key: str) -> Any:
        return self._entries[key].value

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def origin(self, key: str) -> str:
        return self._entries[key].origin

    def rank(self, key: str) -> int:
        """Return the index of the value's layer; -1 for a default."""
        return self._entries[key].rank

    def said(self, key: str) -> str:
        """Return the source of the value in messages; "" for a default."""
        return self._entries[key].said

    def where(self, key: str) -> str:
        """Return origin and source, as in "flag `top_p`" or "preset configs/story.yaml:4"."""
        return where(self.origin(key), self.said(key))

    def name(self, key: str) -> str:
        """Return the option's name in messages: its key in backticks, its variable, or key and line."""
        entry = self._entries[key]
        if entry.origin in (DEFAULT, CHAT_DEFAULT, FLAG, ENVIRONMENT):
            return entry.said or f"`{key}`"
        return key if entry.said == key else f"{key} ({entry.said})"

    def with_value(self, key: str) -> str:
        """Return the option's name and value, as in "`top_k` = 5" or "top_k (story.yaml:4) 5"."""
        return with_value(self.name(key), self[key])

    def notices(self) -> Iterator[str]:
        return (text for layer in self.layers for text in layer.notices)

    def is_given(self, key: str) -> bool:
        return self.origin(key) != DEFAULT


def with_value(name: str, value: object) -> str:
    """Return an option's name in messages and a value: "`top_k` = 5", or "GENCLI_TOP_K 5"."""
    return f"{name} = {value}" if name.startswith("`") else f"{name} {value}"


_DEFAULTS = {entry.key: Setting(entry.default, DEFAULT) for entry in OPTIONS}


def resolve(
    *layers: SettingsLayer | tuple[str, Mapping[str, Any]], registry: Registry | None = None
) -> Settings:
    """Return the settings: each option from the last layer that has it, otherwise its default.

    `registry` is the registry that the stages of the layers were read with.
    """
    stack = tuple(layer if isinstance(layer, SettingsLayer) else SettingsLayer.of(*layer) for layer in layers)
    entries = dict(_DEFAULTS)
    for rank, layer in enumerate(stack):
        for key, value in layer.values.items():
            for other in _REPLACES.get(key, ()) if value else ():
                if (other, entries[other].origin) != ("chain", COMPAT):  # `chain` moves the temperature
                    entries[other] = _DEFAULTS[other]
        for key, value in layer.values.items():
            if key == "vars":  # pairs: a layer replaces only those with its own names
                value = tuple({**dict(entries[key].value), **dict(value)}.items())
            entries[key] = Setting(value, layer.origin, layer.said(key), rank)
    return Settings(entries, stack, registry)


OTHER_VARIABLES = ("GENCLI_NO_PLUGINS", "GENCLI_API_KEY")  # variables that other modules read
_SWITCH = {
    **dict.fromkeys(("1", "true", "yes", "on"), True),
    **dict.fromkeys(("0", "false", "no", "off"), False),
}


def environment_layer(environ: Mapping[str, str]) -> SettingsLayer:
    """Return the layer of options that variables set. Raises UsageError with the name of the variable."""
    by_variable = {entry.variable: entry for entry in OPTIONS}
    values: dict[str, Any] = {}
    for name, text in environ.items():
        if not name.startswith("GENCLI_") or name in OTHER_VARIABLES or not text:
            continue
        if name not in by_variable:
            spelled = {entry.key: entry.variable for entry in OPTIONS}
            hint = meant_option(name.removeprefix("GENCLI_"), spelled) or "gencli run -h lists the options."
            raise UsageError(f"The environment variable {name} is not that of an option.", hint=hint)
        values[by_variable[name].key] = _typed(by_variable[name], text)
    return SettingsLayer.of(ENVIRONMENT, values, {key: f"GENCLI_{key.upper()}" for key in values})


def untraced(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables without those of traces, for a command that writes no trace."""
    return {name: text for name, text in environ.items() if name not in ("GENCLI_TRACE", "GENCLI_TRACE_TOP")}


AUTO_BATCH = ("GENCLI_MAX_BATCH", "auto")  # a variable's value that batches and servers alone accept


def run_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables without a value that a single run does not accept."""
    return dict(item for item in environ.items() if item != AUTO_BATCH)


def _typed(entry: Option, text: str) -> Any:
    # The value in the form that the command line gives.
    if entry.type is bool:
        if text.lower() not in _SWITCH:
            raise UsageError(f"{entry.variable} is {text!r}, but has to be true or false.")
        return _SWITCH[text.lower()]
    if not entry.many or not text.startswith("["):
        return [text] if entry.many else text
    hint = 'A value that begins with [ is a JSON list, as in ["one", "two"].'
    try:
        items = json.loads(text)
    except ValueError as error:
        raise UsageError(f"{entry.variable} is not a JSON list: {error}.", hint=hint) from None
    if not all(isinstance(item, str | int | float) for item in items):
        raise UsageError(f"{entry.variable} is a list with other values than texts and numbers.", hint=hint)
    return [item if isinstance(item, str) else json.dumps(item) for item in items]


GENERATION_CONFIG = "generation_config"
_DRAW = {
    **{key: key for key in ("temperature", "top_k", "top_p", "min_p")},
    "epsilon_cutoff": "epsilon",
    "eta_cutoff": "eta",
    "typical_p": "typical",
    "top_h": "top_h",
}
_OTHERS = {
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


def model_layer(name: str) -> SettingsLayer | None:
    """Return the layer of a model by name or folder; None without the file."""
    folder = find_local(name)
    if folder is None or not (path := folder / "generation_config.json").is_file():
        return None
    config = read_object(path)
    is_greedy = config.get("do_sample") is False
    names = _OTHERS if is_greedy else {**_DRAW, **_OTHERS}
    stages, twice = _of_prompt(path, config)
    places, values = {key: setting for setting, key in names.items()}, dict[str, Any]()
    for setting, key in names.items():
        if config.get(setting) is not None:
            try:
                values[key] = checked(key, config[setting])
            except ParamError as error:
                raise ModelError(f"{path}: {error}") from None
    if is_greedy:
        values["temperature"], places["temperature"] = 0.0, "do_sample=false"
    notices = list[str]()
    for setting, neutral in _LACKING.items():
        if (value := config.get(setting)) not in (None, neutral):
            option = {"num_beams": "beams", "penalty_alpha": "contrastive_alpha"}.get(setting)
            why = f"for which there is `{option}`" if option else "which gencli does not have"
            notices.append(f"{path} asks for {setting}={value}, {why}.")
    return SettingsLayer(GENERATION_CONFIG, values, places, stages, (*notices, *twice))


def _of_prompt(path: Path, config: dict[str, Any]) -> tuple[tuple[Assigned, ...], list[str]]:
    # Fields of stages that concern the prompt, and notices about stages that are excluded.
    fields, notices = list[Assigned](), list[str]()
    for key, (stage, key_of_stage, beside) in _PROMPT.items():
        value = config.get(key)
        if value is None or value == _OFF[key_of_stage]:
            continue
        if config.get(beside) not in (None, _OFF[key_of_stage]):
            notices.append(f"{path} asks for {key}={value} beside {beside}, and gencli takes one of them.")
            continue
        if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
            raise ModelError(f"{path}: {key} is {value!r}, but has to be a number above 0.")
        pairs = ((key_of_stage, 1 / value if key_of_stage == "penalty" else value), ("scope", "prompt"))
        fields += [Assigned(stage, name, item, GENERATION_CONFIG, key) for name, item in pairs]
    return tuple(fields), notices


_STAGE = "reasoning_budget"
_USUAL = (str(ReasoningBudgetParams.default("start")), str(ReasoningBudgetParams.default("end")))
# Tags of model families: Qwen, DeepSeek and most others first.
TAGS: tuple[tuple[str, str], ...] = (
    _USUAL,
    ("[THINK]", "[/THINK]"),
    ("<seed:think>", "</seed:think>"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("<thinking>", "</thinking>"),
    ("<thought>", "</thought>"),
    ("<reasoning>", "</reasoning>"),
)


def thinking_tags(settings: Settings, values: tuple[Assigned, ...]) -> Iterator[Assigned]:
    """Yield the tags that the chain's values leave unset, if they set a reasoning budget.

    The end tag is `constrain_after`, if given, up to which the output is thinking from its beginning on;
    otherwise both tags are the first known pair in the chat template. Raises UsageError for a message
    without a budget, and for an end tag whose start tag is unknown.
    """
    fields = {entry.field: entry for entry in values if entry.stage == _STAGE}
    marker, budget = settings["constrain_after"], fields.get("tokens")
    if budget is None or budget.value is None:
        if fields:
            source = next(iter(fields.values())).said
            raise UsageError(f"{source} is given, but there is no budget.", hint="Add `reasoning_budget`.")
        return
    if marker and "open" not in fields and ("end" not in fields or fields["end"].value == marker):
        yield Assigned(_STAGE, "open", True, budget.origin, settings.said("constrain_after"), budget.rank)
    if {"start", "end"} <= fields.keys():
        return
    if "start" in fields or "end" in fields:
        start, end = (fields[field].value if field in fields else "" for field in ("start", "end"))
        pair = next((pair for pair in TAGS if start in ("", pair[0]) and end in ("", pair[1])), None)
        source = fields["start" if start else "end"].said
    elif marker:
        pair = next((pair for pair in TAGS if pair[1] == marker), None)
        source = settings.said("constrain_after")
    else:
        pair, source = _of_template(settings["model"]), "the chat template"
    if pair is None:
        raise UsageError(
            f"{source} is a tag of thinking whose other half is not known.",
            hint='Give both, as in `stage` = \'reasoning_budget:tokens=512,start="<think>",end="</think>"\'.',
        )
    for half, value in zip(("start", "end"), pair, strict=True):
        if half not in fields and value != ReasoningBudgetParams.default(half):
            yield Assigned(_STAGE, half, value, budget.origin, source, budget.rank)


@lru_cache(maxsize=64)
def _of_template(model: str) -> tuple[str, str]:
    template = declared_template(model)[0] or ""
    return next((pair for pair in TAGS if pair[1] in template), _USUAL)


def checked(key: str, value: Any) -> Any:
    """Return the checked value of an option from YAML or JSON. Raises ParamError with the position."""
    entry = option(key)
    is_single = entry.many and not isinstance(value, list | tuple | Mapping)
    value = [value] if is_single and value is not None else value
    try:
        if entry.stage:
            params = builtin_registry().spec(entry.stage).params.from_mapping({entry.field: value})
            return getattr(params, entry.field)
        value = convert(value, hint_of(entry), entry.bounds)
        return read_shape_text(value) if key == "draft_tree" else value
    except UsageError as error:
        raise ParamError(f"{key}: {error.message} {error.hint}".rstrip()) from None
    except ParamError as error:
        text = f"{key} {str(error).removeprefix(f'{entry.field} ')}"
        tail = f" {entry.hint}" if entry.hint and entry.hint not in text else ""
        raise ParamError(text + tail, error.path) from None


def hint_of(entry: Option) -> Any:
    """Return the type of an option's value as an annotation."""
    if entry.stage:
        return describe(builtin_registry().spec(entry.stage).params)[entry.field]["type"]
    return tuple[entry.type, ...] if entry.many else entry.type  # type: ignore[name-defined]

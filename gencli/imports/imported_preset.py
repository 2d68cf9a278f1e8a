"""Settings of another system (a file, stdin or a command line; JSON, YAML or flags) as the text of a
preset, with a report of the fields that were not taken over.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any, BinaryIO

from gencli.config.job import make_job
from gencli.config.layers import scalar
from gencli.config.option_names import key_of, meant_option
from gencli.config.preset_files import profile_file
from gencli.config.presets import KEYS, load_presets, read_text
from gencli.config.run_options import OPTIONS, PENALTY_OPTIONS, PENALTY_STAGES, option
from gencli.config.settings import COMPAT, SettingsLayer, checked, resolve
from gencli.errors import ConfigError, GencliError, UsageError
from gencli.files import read_file, read_stream
from gencli.helpers import shortened
from gencli.imports.other_systems import COMMON, NO_SETTINGS, PEERS, NotTaken, Order, Peer
from gencli.json_text import JsonLimits, parse_json
from gencli.server.wire_calls import read_field
from gencli.server.wire_fields import ApiError
from gencli.server.wire_vendors import RENAMED, is_hint
from gencli.yaml_text import PRESET_BOUNDS, YamlFault, parse
from processors.catalog import Phase
from processors.errors import ParamError, UnknownStage, close_names, did_you_mean
from processors.registry import Registry, builtin_registry


def import_from(words: Sequence[str], peer: str, stdin: BinaryIO) -> Imported:
    """Return the preset of one file, of stdin (`-`), or of a command line of several words.

    `peer`: name of the system; "" detects it from the fields. Raises UsageError and ConfigError.
    """
    if peer and peer not in PEERS:
        near = did_you_mean([repr(name) for name in close_names(peer, PEERS)])
        hint = near or f"Known are {', '.join(PEERS)}."
        raise UsageError(f"Settings of {peer[:60]!r} cannot be read.", hint=hint)
    return import_settings(_source(list(words), peer, stdin), builtin_registry())


def _source(words: list[str], peer: str, stdin: BinaryIO) -> ImportedSettings:
    if sum(map(len, words)) > MAX_BYTES:
        raise UsageError(f"The command line has more than {MAX_BYTES} characters.")
    if len(words) > 1 or (words[0].startswith("-") and words != ["-"]):
        return read_arguments(words, peer)
    name = words[0]
    if " " in name.strip() and not Path(name).is_file():
        return read_settings(name, peer)
    try:
        content = (
            read_stream(stdin, MAX_BYTES) if name == "-" else read_file(Path(name), MAX_BYTES, pipes=True)
        )
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"The settings {name[:200]} cannot be read: {reason}.") from None
    try:
        return read_settings(content.decode("utf-8-sig"), peer)
    except UnicodeDecodeError:
        raise ConfigError(f"The settings {name[:200]} are not UTF-8 text.") from None


_KEYS: Mapping[StageField, str] = {
    (entry.stage, entry.field): entry.key for entry in OPTIONS if entry.stage and entry.when is None
}
_WITH_MIROSTAT = ("llama-cpp", "koboldcpp")  # systems in which mirostat replaces all truncation


@dataclass(frozen=True, slots=True)
class Imported:
    """The text of a preset, and sentences about fields that are not in it."""

    text: str
    notes: tuple[str, ...]


@dataclass(slots=True)
class _Base:
    """Settings before any field is applied: the values and the stage order of the profile, if any."""

    profile: str
    layers: list[SettingsLayer]
    stages: dict[StageField, Any]
    order: tuple[str, ...]

    @classmethod
    def of(cls, profile: str, registry: Registry) -> _Base:
        layers = load_presets([str(profile_file(profile))], registry, origin=COMPAT) if profile else []
        stages = {(entry.stage, entry.field): entry.value for layer in layers for entry in layer.stages}
        orders = [layer.values["chain"] for layer in layers if "chain" in layer.values]
        return cls(profile, layers, stages, tuple(orders[-1]) if orders else ())


def import_settings(source: ImportedSettings, registry: Registry) -> Imported:
    """Return a preset with the settings of a source, above the profile of its system.

    Values without effect are omitted. Raises ConfigError for settings that contradict each other.
    """
    peer = PEERS[source.peer]
    collected = collect(peer, source.fields, registry)
    _resolve_hints(collected)
    profile = peer.profile
    if profile in _WITH_MIROSTAT and collected.stages.get(("mirostat", "version"), 0):
        profile += "-mirostat"
    base = _Base.of(profile, registry)
    order = _resolve_order(collected, base, registry)
    _leave_out_idle(collected, base, registry)
    head = f"# From {source.form} of {peer.title}, by gencli config import."
    text = "\n".join([head, *_lines(collected, base, order)]) + "\n"
    preset = read_text(text.encode(), Path("imported.yaml"), registry)
    for message in preset.messages():
        raise ConfigError(f"The settings make no preset: {message}")
    # Raises ConfigError for settings that are valid one by one, but contradict each other.
    make_job(resolve(*base.layers, preset.layer(), registry=registry))
    return Imported(text, tuple(collected.notes))


def _resolve_hints(collected: Collected) -> None:
    """Turn hints into values: a dynamic temperature, a greedy draw, penalties that are off."""
    hints = collected.hints
    is_dynamic = hints.get("dynamic", hints.get("high", 0) > hints.get("low", 0))
    if hints.get("range"):
        collected.stages["dynamic_temperature", "range"] = float(hints["range"])
    elif is_dynamic and {"low", "high"} <= hints.keys():
        collected.stages["dynamic_temperature", "min"] = float(hints["low"])
        collected.stages["dynamic_temperature", "max"] = float(hints["high"])
        if collected.stages.get(("temperature", "temperature"), 1.0) != 1.0:
            name = collected.sources["temperature", "temperature"]
            collected.note(name, "the dynamic temperature replaces it")
        collected.stages["temperature", "temperature"] = 1.0
    if (is_dynamic and hints.get("exponent", 1) != 1) or (hints.get("range") and "exponent" in hints):
        collected.stages["dynamic_temperature", "exponent"] = float(hints["exponent"])
    if hints.get("contrastive"):
        _resolve_contrastive(collected, hints["contrastive"])
    if hints.get("greedy"):
        collected.stages["temperature", "temperature"] = 0.0
    for stage in (*PENALTY_STAGES, "dry"):
        if f"off.{stage}" in hints:
            main = "multiplier" if stage == "dry" else "penalty"
            collected.stages[stage, main] = 1.0 if stage == "repetition" else 0.0
    if "sustain" in hints:
        fades = bool(collected.stages.get(("repetition", "decay")))
        collected.stages["repetition", "sustain" if fades else "window"] = int(hints["sustain"])
    if "encoder" not in hints:
        return
    if collected.stages.get(("repetition", "penalty"), 1.0) != 1.0 or hints["encoder"] <= 0:
        collected.note("encoder_repetition_penalty", "one repetition penalty runs, and another one is set")
        return
    # A reward of prompt tokens is a repetition with the inverse penalty, over the prompt.
    collected.stages["repetition", "penalty"] = 1.0 / hints["encoder"]
    collected.stages["repetition", "scope"] = "prompt"
    collected.stages["repetition", "window"] = None


def _resolve_contrastive(collected: Collected, alpha: float) -> None:
    """Set contrastive search among the top_k most likely tokens; elsewhere it runs only without sampling."""
    top_k, why = ("top_k", "k"), ""
    count = collected.stages.get(top_k, 0)
    if not collected.hints.get("greedy"):
        why = "it acts with `do_sample: false` only"
    elif count < 2:
        why = "it chooses among `top_k` tokens, and that is below 2"
    else:
        try:
            values = {"contrastive_alpha": alpha, "contrastive_k": count}
            collected.options |= {key: checked(key, value) for key, value in values.items()}
            del collected.stages[top_k]
            collected.sources.pop(top_k, None)
        except ParamError as error:
            why = str(error).rstrip(".")
    if why:
        collected.note("penalty_alpha", why)


def _resolve_order(collected: Collected, base: _Base, registry: Registry) -> tuple[str, ...]:
    """Return the order if it differs from the profile's; stages that do not run there are dropped or off."""
    order = collected.hints.get("order")
    if base.profile.endswith("-mirostat"):
        order = Order(base.order)
    if not isinstance(order, Order):
        return ()
    for name in order.unknown:
        collected.note(name, "gencli has no such sampler")
    unnamed = [name for name in base.order if name not in order.stages]
    named = [name for name in order.stages if name in registry]
    if order.is_open:
        return _new_order([*unnamed, *named], collected, base, registry)
    for stage, inner in list(collected.stages):
        is_kept = stage in (*order.stages, "bias") or registry.phase(stage) == Phase.CONSTRAIN
        if not is_kept and (stage, inner) in collected.sources:
            collected.drop((stage, inner), "the samplers that run do not include it")
    for stage in unnamed:
        params = registry.spec(stage).params
        main, off = params.main(), params.default(params.main())
        if base.stages.get((stage, main), off) != off:
            collected.stages[stage, main] = off
    return _new_order(named, collected, base, registry)


def _new_order(stages: list[str], collected: Collected, base: _Base, registry: Registry) -> tuple[str, ...]:
    """Return the order, () if it equals the profile's; `temperature_last` moves SCALE stages within it."""
    if [name for name in base.order if name in stages] == stages:
        return ()
    if collected.options.pop("temperature_last", False):
        draws = [name for name in stages if name in ("adaptive_p", "mirostat")]
        scales = [name for name in stages if registry.phase(name) == Phase.SCALE]
        stages = [*(name for name in stages if name not in (*draws, *scales)), *scales, *draws]
    return tuple(stages)


def _leave_out_idle(collected: Collected, base: _Base, registry: Registry) -> None:
    """Drop values that equal those without the field, and fields of stages that are off."""

    def is_off(stage: str) -> bool:
        values = {**base.stages, **collected.stages}.items()
        fields = {inner: value for (name, inner), value in values if name == stage}
        return registry.spec(stage).params.from_mapping(fields, stage=stage).is_off()

    for stage_field, value in list(collected.stages.items()):
        stage, inner = stage_field
        params = registry.spec(stage).params
        default, main = params.default(inner), params.main()
        if value == base.stages.get(stage_field, default) and value == default:
            del collected.stages[stage_field]
        elif inner != main and is_off(stage):
            is_idle = value == base.stages.get(stage_field, default) or stage_field not in collected.sources
            if is_idle or stage in PENALTY_STAGES or inner in ("window", "keep"):
                del collected.stages[stage_field]  # also a field of all penalties, one of which is off
            else:
                collected.drop(stage_field, f"{stage} is off")


def _lines(collected: Collected, base: _Base, order: tuple[str, ...]) -> Iterator[str]:
    if base.profile:
        yield f"compat: {base.profile}"
    for stage_field, value in collected.stages.items():
        if stage_field in _KEYS:
            yield f"{_KEYS[stage_field]}: {scalar(value)}"
    for key, value in collected.options.items():
        yield f"{key}: {scalar(value)}"
    if order:
        yield f"chain: [{', '.join(order)}]"
    others: dict[str, list[str]] = {}
    for (stage, inner), value in collected.stages.items():
        if (stage, inner) not in _KEYS:
            others.setdefault(stage, []).append(f"{inner}: {scalar(value)}")
    if others:
        yield "stages:"
        yield from (f"  {stage}: {{{', '.join(values)}}}" for stage, values in others.items())


_SECTIONS = ("Chain", "Guidance", "Draw", "Limits and stops")
_SETTINGS = {key for key, entry in KEYS.items() if entry.section in _SECTIONS}
_SETTINGS -= {"logprobs", "prompt_logprobs"}
# Values of fields of others, in small letters, that change nothing there.
_UNSET = {
    "best_of": "1",
    "max_length": "20",
    "num_beam_groups": "1",
    "skip_special_tokens": "true",
    "spaces_between_special_tokens": "true",
    "use_cache": "true",
}
_MAX_NOTES = 100
_MAX_NAME = 60  # characters of a name in a note

StageField = tuple[str, str]  # a stage and its field


@dataclass(slots=True)
class Collected:
    """Values of collected fields: of stages, of options, and hints that only mean something together.

    `sources`: for each value of a stage the name of the field that gave it. `notes`: fields not taken over.
    """

    stages: dict[StageField, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    hints: dict[str, Any] = field(default_factory=dict)
    sources: dict[StageField, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def note(self, name: str, reason: str) -> None:
        """Record that a field was not taken over, and why; the number of notes is bounded."""
        if len(self.notes) < _MAX_NOTES:
            self.notes.append(f"{shortened(name, _MAX_NAME)} is not taken over: {reason}.")
        elif len(self.notes) == _MAX_NOTES:
            self.notes.append("More fields are not taken over.")

    def drop(self, stage_field: StageField, reason: str) -> None:
        """Remove a value, with a note that names its field unless other values of the field remain."""
        del self.stages[stage_field]
        name = self.sources.pop(stage_field)
        if name not in self.sources.values():
            self.note(name, reason)


def collect(peer: Peer, fields: Iterable[tuple[str, Any]], registry: Registry) -> Collected:
    """Return the values of all fields, and a note for each that is not taken over."""
    collected = Collected()
    for name, value in fields:
        try:
            for key, item in _read(peer, name, value).items():
                _put(collected, key, item, name, registry)
        except NotTaken as error:
            is_unset = value in (None, False, "", (), [], {}) or str(value).casefold() == _UNSET.get(name)
            if not is_unset:
                collected.note(name, str(error))
    return collected


def _read(peer: Peer, name: str, value: Any) -> dict[str, Any]:
    key = RENAMED.get(name) or key_of(name) or name
    for readers, by in ((peer.readers, name), (peer.readers, key), (COMMON, name), (COMMON, key)):
        if by is name and name not in readers:
            if reason := peer.dropped.get(name) or NO_SETTINGS.get(name):
                raise NotTaken(reason)
            if is_hint(name) and name not in KEYS and not key_of(name):
                raise NotTaken("it changes no text")
        values = readers[by](value) if by in readers else None
        if values is not None:
            return values
    if key in _SETTINGS and name not in KEYS:
        return {key: _plain(value)}
    try:
        return {name: _plain(value) for name, value in read_field(name, value).items()}
    except ApiError as error:
        if error.code == "unknown_field":
            hint = meant_option(name, {key: f"`{key}`" for key in _SETTINGS})
            raise NotTaken(hint.rstrip(".") or "gencli has no such setting") from None
        raise NotTaken(error.message.rstrip(".")) from None


def _plain(value: Any) -> Any:
    """Return a command line's value in plain form: numbers come as text, repeatable flags as tuples."""
    if isinstance(value, tuple):
        return list(value)
    for kind in (int, float) if isinstance(value, str) and len(value) <= 40 else ():
        try:
            return kind(value)
        except ValueError:
            continue
    return value


def _put(collected: Collected, key: str, value: Any, name: str, registry: Registry) -> None:
    if key.startswith("?"):
        collected.hints[key.removeprefix("?")] = value
        return
    stage, dot, inner = key.partition(".")
    if dot:
        stage_fields: list[StageField] = [(stage, inner)]
    elif key not in _SETTINGS:
        raise NotTaken("it does not set how tokens are chosen")
    elif option(key) in PENALTY_OPTIONS:
        stage_fields = [(name, option(key).field) for name in PENALTY_STAGES]
    else:
        stage_fields = [(option(key).stage, option(key).field)] if option(key).stage else []
    try:
        if not stage_fields:
            is_text = key in ("stop", "ban") and isinstance(value, int | float)
            collected.options[key] = checked(key, str(value) if is_text else value)
        for stage, inner in stage_fields:
            params = registry.spec(stage).params
            is_whole = isinstance(value, float) and value.is_integer()
            if is_whole and isinstance(params.default(inner), int):
                value = int(value)  # JavaScript writes 40.0 for 40
            field_value = getattr(params.from_mapping({inner: value}, stage=stage), inner)
            collected.stages[stage, inner], collected.sources[stage, inner] = field_value, name
    except UnknownStage:
        raise NotTaken(f"there is no stage {stage}") from None
    except ParamError as error:
        raise NotTaken(str(error).rstrip(".")) from None


MAX_BYTES = PRESET_BOUNDS.max_bytes
_JSON = JsonLimits(max_depth=PRESET_BOUNDS.max_depth, max_digits=400, has_decimals=False)
_NUMBER = re.compile(r"-\.?\d")
_LISTS = ("dry_sequence_breaker", "logit_bias", "reverse_prompt", "stop")  # repeatable flags
# Fields that only one system has; the first match decides.
_MARKS = {
    "sillytavern": "temp samplers_priorities rep_pen_size genamt",
    "koboldcpp": "sampler_order rep_pen rep_pen_range max_context_length sampler_seed genkey",
    "hf": "transformers_version _from_model_config pad_token_id decoder_start_token_id top_h "
          "exponential_decay_length_penalty encoder_no_repeat_ngram_size",
    "llama-cpp": "n_predict repeat_penalty repeat_last_n samplers cache_prompt id_slot t_max_predict_ms",
    "tgw": "repetition_penalty_range sampler_priority truncation_length dynatemp_low dynamic_temperature "
           "mirostat_mode epsilon_cutoff eta_cutoff custom_token_bans",
    "exl2": "token_repetition_penalty penalty_range repetition_decay token_healing",
    "vllm": "structured_outputs guided_json guided_choice guided_regex allowed_token_ids bad_words "
            "include_stop_str_in_output",
    "sglang": "sampling_params sampling_seed custom_params",
    "openai": "messages prompt model input",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class ImportedSettings:
    """Fields of a system's settings. `form`: that of the text."""

    peer: str
    form: str
    fields: tuple[tuple[str, Any], ...]


def read_settings(text: str, peer: str = "") -> ImportedSettings:
    """Return the fields of a file: a JSON object, a YAML mapping, or a command line.

    Raises UsageError if the system cannot be detected, ConfigError for any other text.
    """
    stripped = text.strip()
    line = stripped.partition("\n")[0]
    if stripped.startswith(("{", "[")):
        try:
            content = parse_json(stripped, _JSON)
        except GencliError as error:
            raise ConfigError(f"The settings are not valid JSON: {error.message}") from None
    elif re.search(r"(^|\s)--?[a-zA-Z]", line) and not line.split()[0].endswith(":"):
        try:
            words = shlex.split(stripped.replace("\\\n", " "), comments=True)
        except ValueError as error:
            raise ConfigError(f"The command line cannot be read: {error}.") from None
        return read_arguments(words, peer)
    else:
        faults: list[YamlFault] = []
        root = parse(text.encode(), faults)
        if faults:
            first = faults[0]
            raise ConfigError(f"The settings are not valid YAML: line {first.line}: {first.text}")
        content = {} if root is None else root.plain()
    if not isinstance(content, Mapping):
        raise ConfigError("The settings are not a mapping of names to values.")
    fields = dict(content)
    name = peer or _guess(fields, is_yaml=not stripped.startswith("{"))
    return ImportedSettings(name, "settings", tuple(_flat(fields).items()))


def read_arguments(words: Sequence[str], peer: str = "") -> ImportedSettings:
    """Return the flags of a command line; the words before the first name the program. Raises UsageError."""
    words = list(words)
    module = next((index for index, word in enumerate(words[:4]) if word.startswith("mlx_lm")), None)
    first = next((index for index, word in enumerate(words) if _is_flag(word)), len(words))
    first = first if module is None else module + 1
    programs = [PurePath(word).name.casefold() for word in words[:first]]
    if peer:
        name = peer
    elif any("mlx" in program for program in programs):
        name = "mlx"
    elif any("llama" in program or program in ("main", "server") for program in programs):
        name = "llama-cpp"
    else:
        raise _untold("the command line names no known program")
    return ImportedSettings(name, "a command line", tuple(_flags(words[first:], PEERS[name].short).items()))


def _flags(words: Sequence[str], short: Mapping[str, str]) -> dict[str, Any]:
    flags: dict[str, Any] = {}
    position = 0
    while position < len(words):
        word, position = words[position], position + 1
        if not _is_flag(word):
            flags.setdefault(word, True)
            continue
        name, equals, value = word.lstrip("-").partition("=")
        name = name if len(name) == 1 else name.casefold().replace("-", "_")
        name = short.get(name, name)
        argument: Any = value if equals else True
        if not equals and position < len(words) and not _is_flag(words[position]):
            argument, position = words[position], position + 1
        flags[name] = (*flags.get(name, ()), argument) if name in _LISTS else argument
    return flags


def _is_flag(word: str) -> bool:
    return len(word) > 1 and word.startswith("-") and not _NUMBER.match(word)


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
    for peer, marks in _MARKS.items():
        if not fields.keys().isdisjoint(marks.split()):
            return peer
    if is_yaml and fields:
        return "tgw"  # the only system with YAML presets, often of few fields
    raise _untold("no field of it belongs to one system alone")


def _untold(why: str) -> UsageError:
    return UsageError(
        f"It is not clear whose settings these are: {why}.", hint=f"Name one of {', '.join(PEERS)}."
    )

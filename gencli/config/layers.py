"""The layers of a run, weakest first: model, compat profile, user defaults, presets, environment, flags;
the sides of a comparison; and back from a job to a preset or a recipe that reproduces it.
"""

from __future__ import annotations

import math
import os
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, Self, cast

import yaml

from gencli.config.chain_assembly import MARKS
from gencli.config.job import Job, make_job, params_layer
from gencli.config.preset_files import defaults_file, placed, profile_file
from gencli.config.presets import KEYS, load_presets, read_text
from gencli.config.run_options import OPTIONS, PENALTY_OPTIONS, READS_MODEL, STAGES, profiles
from gencli.config.settings import (
    CHAT_DEFAULT,
    COMPAT,
    DEFAULT,
    FLAG,
    PRESET,
    USER,
    Settings,
    SettingsLayer,
    environment_layer,
    model_layer,
    resolve,
)
from gencli.core.request import NO_DRAFTER, Drafting
from gencli.errors import ConfigError, UsageError
from gencli.files import MAX_PROMPT, read_file
from gencli.models.files.local_models import find_local, is_bundled
from gencli.models.files.model_card import has_template
from gencli.plugins.plugin_registry import make_registry
from gencli.structured.schema_inputs import named_file
from gencli.watermark_keys import file_fingerprint
from gencli.yaml_text import FileLimits
from processors.errors import close_names, did_you_mean
from processors.params import Phase
from processors.registry import Registry, builtin_registry
from processors.stages.masks import BanParams


def gather(
    options: Mapping[str, Any],
    environ: Mapping[str, str],
    registry: Registry | None = None,
    *,
    applies_template: bool = False,
    is_neutral: bool = False,
) -> Settings:
    """Return the settings of a command line; `options`: its options by key.

    `registry`: registry with the plug-ins, if the caller has one already. `applies_template`: the model's
    chat template applies unless an option says otherwise. `is_neutral`: a conversation is drawn as any text.
    """
    environment, flags = environment_layer(environ), SettingsLayer.of(FLAG, options)
    names, plugins = (flags.values.get(key, environment.values.get(key, ())) for key in ("preset", "plugin"))
    registry = make_registry(plugins) if registry is None else registry
    defaults = (str(defaults_file()),) if os.path.lexists(defaults_file()) else ()
    user = load_presets(defaults, registry, origin=USER)
    layers = (*user, *load_presets(names, registry), environment, flags)
    settings = _with_base(layers, registry)
    if applies_template and has_idle_template(settings):
        settings = resolve(
            SettingsLayer(CHAT_DEFAULT, {"chat": True}), *settings.layers, registry=settings.registry
        )
    return with_chat_draw(settings, registry) if settings["chat"] and not is_neutral else settings


def gather_presets(*names: str, registry: Registry | None = None) -> Settings:
    """Return the settings of presets, without the environment."""
    registry = registry or make_registry()
    return _with_base(tuple(load_presets(names, registry)), registry)


def gather_layer(layer: SettingsLayer, *, registry: Registry) -> Settings:
    """Return the settings of a layer above the model's own values, without the environment."""
    return _with_base((layer,), registry)


def plugin_texts(texts: Iterable[str] | None, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the plug-ins for a command other than a run: those given, or else of GENCLI_PLUGIN."""
    return tuple(texts or environment_layer(environ).values.get("plugin", ()))


def profile_layers(name: str | None, registry: Registry) -> list[SettingsLayer]:
    """Return the layers of a compat profile; [] without a name."""
    return load_presets((str(profile_file(name)),), registry, origin=COMPAT) if name else []


def _with_base(layers: tuple[SettingsLayer, ...], registry: Registry) -> Settings:
    # Above the model's own values and the compat profile.
    settings = resolve(*layers)
    model, profile = model_layer(settings["model"]), profile_layers(settings["compat"], registry)
    of_model = [model] if model else []
    base = [*profile, *of_model] if settings["compat"] in READS_MODEL else [*of_model, *profile]
    return resolve(*base, *layers, registry=registry)


_CHAT_DRAW = ("temperature", "top_k", "top_p", "min_p")
_OTHER_DRAWS = ("sampler", "chain", "compat", "beams", "contrastive_alpha")


def has_idle_template(settings: Settings) -> bool:
    """Return whether the model brings a chat template and no option says whether to apply it."""
    model = settings["model"]
    if is_bundled(model) or any(settings.is_given(key) for key in ("chat", "raw", "template")):
        return False
    folder = find_local(model)
    return folder is not None and has_template(folder)


def with_chat_draw(settings: Settings, registry: Registry) -> Settings:
    """Return the settings with the draw of the preset `chat` below all layers.

    A preset with values of its own for the draw, a compat profile and another kind of draw stay as they are.
    """
    if any(settings.is_given(key) for key in _OTHER_DRAWS):
        return settings
    for layer in (layer for layer in settings.layers if layer.origin == PRESET):
        names = {entry.stage for entry in layer.stages}
        names |= {entry.stage for entry in STAGES if entry.stage and entry.key in layer.values}
        if any(registry.phase(name) >= Phase.SCALE for name in names):
            return settings
    merged = resolve(*load_presets(("chat",), registry))
    below = SettingsLayer(CHAT_DEFAULT, {key: merged[key] for key in _CHAT_DRAW if merged.is_given(key)})
    return resolve(below, *settings.layers, registry=settings.registry)


_PRESET, _COMPAT = "preset:", "compat:"
_CHAIN = frozenset(entry.key for entry in OPTIONS if entry.section == "Chain") - {"plugin"}
_OF_BOTH = tuple(entry.key for entry in OPTIONS if entry.section in ("Prompt", "Model", "Guidance"))
_NO_PART = frozenset(("partial", "retries", "finish_open", "parsed", "select", "tp"))
# The options of a run that a comparison uses; chain options come from the side.
COMPARED = tuple(
    entry
    for entry in OPTIONS
    if entry.section in ("Prompt", "Model", "Guidance", "Limits and stops", "Structure")
    or entry.key in ("plugin", "sampler", "seed", "output", "quiet", "debug")
    if entry.key not in _NO_PART
)
_USED = frozenset(entry.key for entry in COMPARED) | _CHAIN | {"preset", "compat"}


@dataclass(frozen=True, slots=True)
class ComparedSide:
    """One side: its text, its settings and its job, and notices about ignored values."""

    text: str
    settings: Settings
    job: Job
    notices: tuple[str, ...]


def gather_side(
    text: str, options: Mapping[str, Any], environ: Mapping[str, str], registry: Registry | None = None
) -> ComparedSide:
    """Return the side of a text; `options`: command-line options for both sides.

    `compat:NAME` is a profile; `preset:NAME`, a bare name or a file is a preset. All their values apply, as
    in a run. Any other text is the whole chain, without stages of other layers. Raises UsageError for options
    that cannot be compared, and the errors of `gather` and `make_job`.
    """
    settings, notices = _gathered(text.strip(), options, environ, registry)
    idle = [settings.name(key) for key in settings if key not in _USED and _is_set(settings, key)]
    if idle:
        notices += (f"A comparison does not use {', '.join(idle)}.",)
    no_drafts = SettingsLayer(FLAG, {"draft": NO_DRAFTER})  # drafts change no text
    settings = resolve(*settings.layers, no_drafts, registry=settings.registry)
    job = make_job(settings)
    _refuse(settings, job)
    job = replace(job, n=1, logprobs=None, prompt_logprobs=None, drafting=Drafting(NO_DRAFTER))
    return ComparedSide(text, settings, job, (*settings.notices(), *notices))


def _is_set(settings: Settings, key: str) -> bool:
    return settings.origin(key) not in (DEFAULT, FLAG)


def _gathered(
    text: str, options: Mapping[str, Any], environ: Mapping[str, str], registry: Registry | None
) -> tuple[Settings, tuple[str, ...]]:
    # With a notice about stages that the text leaves out.
    if text.startswith(_COMPAT):
        name = text.removeprefix(_COMPAT)
        if name not in profiles():
            hint = did_you_mean([*map(repr, close_names(name, profiles()))])
            hint = hint or f"It is {', '.join(profiles())}."
            raise UsageError(f"There is no profile {name[:60]!r}.", hint=hint)
        return gather({**options, "compat": name}, environ, registry, is_neutral=True), ()
    # A text without a prefix may be a preset's file or name rather than a chain.
    is_name = text.endswith((".yaml", ".yml")) or (bool(text) and not re.search(r"[=|:]", text))
    if text.startswith(_PRESET) or is_name:
        name = text.removeprefix(_PRESET)
        try:
            return gather({**options, "preset": (name,)}, environ, registry, is_neutral=True), ()
        except ConfigError as error:
            if name not in builtin_registry().names():
                raise
            hint = f"Write the stage with a value, as in {name}=..."
            raise ConfigError(error.message, hint=hint) from None
    settings = gather(options, environ, registry, is_neutral=True)
    assert settings.registry is not None
    layers = []
    for layer in settings.layers:
        values = {key: value for key, value in layer.values.items() if key not in _CHAIN}
        layers.append(replace(layer, values=values, stages=()))
    if text:
        layers.append(params_layer({"chain": text}, settings.registry, FLAG))
    left_out = [f"{entry.stage} ({entry.said})" for layer in settings.layers for entry in layer.stages]
    left_out += [settings.name(key) for key in settings if key in _CHAIN and _is_set(settings, key)]
    notice = f"{text!r} is the whole chain, without {', '.join(dict.fromkeys(left_out))}."
    return resolve(*layers, registry=settings.registry), (notice,) if left_out else ()


def _refuse(settings: Settings, job: Job) -> None:
    # Texts that cannot be compared position by position.
    ban = cast(BanParams | None, job.chain.get("ban"))
    rewinds = ban is not None and ban.rewind and not ban.is_off()
    reasons = {
        "beams": (job.beams is not None, "searches texts and draws none"),
        "best_of": (job.best_of is not None, "chooses among several texts"),
        "finish_open": (settings["finish_open"], "adds tokens that the chain does not choose"),
        "ban_rewind": (rewinds, "takes tokens back that were chosen"),
    }
    for key, (is_on, reason) in reasons.items():
        if is_on:
            raise UsageError(f"{settings.name(key)} {reason}: such texts cannot be compared.")


def refuse_differences(a: Settings, b: Settings, *, models: bool = False) -> None:
    """Raise UsageError for differences in values that both sides must share: model, prompt, seed.

    `models`: each side has its own model.
    """
    for key in _OF_BOTH:
        if a[key] != b[key] and not (models and key == "model"):
            differ = f"{_shown(a, key)} for A and {_shown(b, key)} for B"
            message = f"{differ}, but both sides have one prompt, model and guidance."
            raise UsageError(message, hint=f"Give `{key}` for both, or leave it out.")
    if None not in (a["seed"], b["seed"]) and a["seed"] != b["seed"]:
        differ = f"{_shown(a, 'seed')} for A and {_shown(b, 'seed')} for B"
        raise UsageError(f"{differ}, but both sides draw with one noise.", hint="Give `seed`.")


def _shown(settings: Settings, key: str) -> str:
    value = f"{key} is {str(settings[key])[:60]!r}"
    return f"{value} ({settings.said(key)})" if settings.is_given(key) else value


CODE = ("plugin", "pydantic", "trust_remote_code")  # options that name code, which is not recorded
_FILES = ("json_schema", "grammar", "lark", "structural_tag", "tools", "watermark_key", "draft_tree")
_BOUNDS = FileLimits("recorded run", max_bytes=MAX_PROMPT, max_nodes=1_000_000, max_depth=20)


@dataclass(frozen=True, slots=True)
class Recipe:
    """`preset` extends no other and has the seed; `code`: flags that name code and have to be given again.

    `files` maps option keys to path and SHA-256 (None for a pipe).
    """

    preset: str
    code: Mapping[str, Any]
    files: Mapping[str, Any]

    @classmethod
    def of(cls, settings: Settings, job: Job, files: Mapping[str, Any] | None = None) -> Self:
        """Return the recipe of a run. `files`: path and hash of each file at the run's start, if known."""
        layers = (replace(layer, preset=None) for layer in settings.layers)
        flat = resolve(*layers, ("run", {"seed": job.seed}), registry=settings.registry)
        return cls(preset_text(flat, job), code_of(settings), files_of(settings) if files is None else files)

    def settings(self, flags: Mapping[str, Any], origin: str, **fixed: Any) -> Settings:
        """Return the run's own settings, independent of current defaults, variables and model files.

        `flags`: those that name code. `origin`: where the run is recorded. `fixed`: further values. Raises
        UsageError if the flags differ from the run's, ConfigError for an invalid preset, a file that is not
        recorded, or one that has changed.
        """
        for key in CODE:
            if key in self.code and not flags.get(key):
                value = self.code[key]
                names = [value] if isinstance(value, str) else value
                values = "" if value is True else f" = {', '.join(names)}"
                message = f"The run had `{key}`{values}, but the {origin} does not record code."
                raise UsageError(message, hint=f"Give `{key}` again.")
            if flags.get(key) and key not in self.code:
                raise UsageError(f"The run had no `{key}`.", hint="Leave it out.")
        registry = make_registry(flags.get("plugin") or ())
        preset = read_text(self.preset.encode(), Path("recorded run"), registry, _BOUNDS)
        if messages := preset.messages():
            raise ConfigError(messages[0])
        options = {**{key: value for key, value in flags.items() if value}, **fixed}
        layers = (*profile_layers(preset.values.get("compat"), registry), preset.layer(origin))
        settings = resolve(*layers, SettingsLayer.of(FLAG, options), registry=registry)
        for key, path in _named(settings):
            if self.files.get(key, {}).get("path") != os.path.abspath(path):
                message = f"The {origin} has no hash of {path} ({key}), so the run cannot be repeated."
                raise ConfigError(message)
        for key, file in self.files.items():
            name = f"{file['path']} ({key})"
            if file["sha256"] is None:
                raise ConfigError(f"The run read {name} from a pipe, whose content is not recorded.")
            if (digest := _digest(Path(file["path"]), key)) != file["sha256"]:
                state = "cannot be read" if digest is None else "has changed since"
                raise ConfigError(f"The run read {name}, which {state}.")
        return settings


def code_of(settings: Settings) -> dict[str, Any]:
    """Return the options of the run that name code."""
    return {key: settings[key] for key in CODE if settings[key]}


def files_of(settings: Settings) -> dict[str, Any]:
    """Return path and current SHA-256 of each file in the settings, by option key."""
    return {
        key: {"path": os.path.abspath(path), "sha256": _digest(path, key)} for key, path in _named(settings)
    }


def _named(settings: Settings) -> Iterator[tuple[str, Path]]:
    for key in _FILES:
        path = named_file(key, settings[key]) if settings[key] else None
        if path is not None:
            yield key, path


def _digest(path: Path, key: str) -> str | None:
    if key == "watermark_key":  # a plain hash would allow short keys to be guessed
        return file_fingerprint(path)
    try:
        return sha256(read_file(path, MAX_PROMPT)).hexdigest()
    except OSError:
        return None


_IN_STAGES = {entry.key for entry in PENALTY_OPTIONS}  # written with each active penalty


def preset_text(settings: Settings, job: Job, *, is_complete: bool = False) -> str:
    """Return the settings as a preset; `is_complete` adds defaults, and origins as comments.

    If not complete, the description and `extends` of the named presets are kept, and values of extended
    presets are omitted.
    """
    inherited = set[int]()  # ranks of presets that another preset extends, and of a compat profile
    for rank, layer in enumerate(() if is_complete else settings.layers):
        if layer.origin == COMPAT or (layer.preset and layer.preset.is_inherited):
            inherited.add(rank)
    head = () if is_complete else _head(settings)  # `extends` may itself contain the sentences of needs()
    lines = list(dict.fromkeys([*head, *(f"# {text}" for text in needs(settings, job))]))
    for key, entry in KEYS.items():
        if entry.stage or key in _IN_STAGES or settings.rank(key) in inherited:
            continue
        if settings[key] is None:
            lines += [f"# {key} is not set"] if is_complete else []
        elif is_complete or settings.is_given(key):
            note = f"  # {settings.where(key)}" if is_complete else ""
            lines.append(f"{key}: {scalar(placed(key, settings[key], Path()))}{note}")
    if settings["chain"] and settings.rank("chain") not in inherited:
        note = f"  # {settings.where('chain')}" if is_complete else ""
        lines.append(f"chain: {scalar(settings['chain'])}{note}")
    stages = list(_stages(job, inherited, is_complete))
    return "\n".join([*lines, *(["stages:"] if stages else []), *stages]) + "\n"


def _head(settings: Settings) -> Iterator[str]:
    # The description of the last named preset, and `extends` of all named ones.
    named = [layer.preset for layer in settings.layers if layer.preset and not layer.preset.is_inherited]
    if named and named[-1].description:
        yield f"# {named[-1].description}"
    if extends := tuple(dict.fromkeys(name for preset in named for name in preset.extends)):
        yield f"extends: {scalar(extends if extends[1:] else extends[0])}"


def needs(settings: Settings, job: Job) -> Iterator[str]:
    """Yield a sentence for each setting of the run that a preset cannot express."""
    if settings["trust_remote_code"]:
        yield "The run had `trust_remote_code`, which only a flag can give."
    for name, _ in job.assembly.chain:
        spec = job.registry.spec(name)
        if spec.source in settings["plugin"]:
            yield f"The stage {name} needs `plugin` = {shlex.quote(spec.source)}, which only a flag can give."
        elif not job.registry.is_builtin(name):
            yield f"The stage {name} needs the package {spec.source}."


def _stages(job: Job, inherited: Set[int], is_complete: bool) -> Iterator[str]:
    entries: dict[str, list[list[str]]] = {}  # by stage: the lines of each of its entries
    for name, params in job.assembly.chain:
        # Set by the structure, and by `watermark` and its key file.
        if (name == "grammar" and job.structure is not None) or name in MARKS:
            continue
        assigned = job.assembly.of_entry(name, params)
        values = [(item.field, item.value, item.where) for item in assigned if item.rank not in inherited]
        if not assigned:  # named alone; an adapted stage is then on
            for field in params.own_fields():
                if (value := getattr(params, field.name)) != field.default:
                    values.append((field.name, value, f"flag `stage` = {name}"))
        if values:
            lines = []
            for key, value, source in values:
                lines.append(f"{key}: {scalar(value)}" + (f"  # {source}" if is_complete else ""))
            if params.when is not None:
                when = [f"{key}: {scalar(value)}" for key, value in params.when.to_mapping().items()]
                lines.append(f"when: {{{', '.join(when)}}}")
            entries.setdefault(name, []).append(lines)
    for name, several in entries.items():
        yield f"  {name}:"
        for lines in several:
            heads = ["  - ", *["    "] * len(lines)] if several[1:] else ["    "] * len(lines)
            yield from (head + line for head, line in zip(heads, lines, strict=False))


def scalar(value: Any) -> str:
    """Return a value as one line of YAML."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(scalar, value))}]"
    if isinstance(value, float):
        return ("-.inf" if value < 0 else ".inf") if math.isinf(value) else repr(value)
    if isinstance(value, str):
        text = yaml.safe_dump(value, default_style='"', allow_unicode=True, width=math.inf)
        return str(text).rstrip("\n")
    return "null" if value is None else str(value)

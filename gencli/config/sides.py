"""The sides of a comparison: a chain, a preset or a profile, and the values that both must share."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

from gencli.config.job import Job, make_job
from gencli.config.layers import gather
from gencli.config.options.compat import profiles
from gencli.config.options.drafts import NO_DRAFTER
from gencli.config.options.run import OPTIONS
from gencli.config.sampling_params import params_layer
from gencli.config.settings import DEFAULT, FLAG, Layer, Settings, resolve
from gencli.core.request import Drafting
from gencli.errors import ConfigError, UsageError
from processors.catalog import BanParams
from processors.names import close_names, did_you_mean
from processors.registry import Registry, builtin_registry

__all__ = ["COMPARED", "Side", "gather_side", "refuse_differences"]

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
class Side:
    """One side: its text, its settings and its job, and notices about ignored values."""

    text: str
    settings: Settings
    job: Job
    notices: tuple[str, ...]


def gather_side(
    text: str, given: Mapping[str, Any], environ: Mapping[str, str], registry: Registry | None = None
) -> Side:
    """Return the side of a text; `given`: command-line options for both sides.

    `compat:NAME` is a profile; `preset:NAME`, a bare name or a file is a preset. All their values apply, as
    in a run. Any other text is the whole chain, without stages of other layers. Raises UsageError for options
    that cannot be compared, and the errors of `gather` and `make_job`.
    """
    settings, notices = _gathered(text.strip(), given, environ, registry)
    idle = [settings.name(key) for key in settings if key not in _USED and _is_set(settings, key)]
    if idle:
        notices += (f"A comparison does not use {', '.join(idle)}.",)
    no_drafts = Layer(FLAG, {"draft": NO_DRAFTER})  # drafts change no text
    settings = resolve(*settings.layers, no_drafts, registry=settings.registry)
    job = make_job(settings)
    _refuse(settings, job)
    job = replace(job, n=1, logprobs=None, prompt_logprobs=None, drafting=Drafting(NO_DRAFTER))
    return Side(text, settings, job, (*settings.notices(), *notices))


def _is_set(settings: Settings, key: str) -> bool:
    return settings.origin(key) not in (DEFAULT, FLAG)


def _gathered(
    text: str, given: Mapping[str, Any], environ: Mapping[str, str], registry: Registry | None
) -> tuple[Settings, tuple[str, ...]]:
    """Return the settings of a side, and a notice about stages that the text leaves out."""
    if text.startswith(_COMPAT):
        given = {**given, "compat": _profile(text.removeprefix(_COMPAT))}
        return gather(given, environ, registry, is_neutral=True), ()
    if text.startswith(_PRESET) or _is_preset(text):
        return _preset(text.removeprefix(_PRESET), given, environ, registry), ()
    settings = gather(given, environ, registry, is_neutral=True)
    assert settings.registry is not None
    layers = [_without_chain(layer) for layer in settings.layers]
    if text:
        layers.append(params_layer({"chain": text}, settings.registry, FLAG))
    left_out = [f"{entry.stage} ({entry.said})" for layer in settings.layers for entry in layer.stages]
    left_out += [settings.name(key) for key in settings if key in _CHAIN and _is_set(settings, key)]
    notice = f"{text!r} is the whole chain, without {', '.join(dict.fromkeys(left_out))}."
    return resolve(*layers, registry=settings.registry), (notice,) if left_out else ()


def _preset(
    name: str, given: Mapping[str, Any], environ: Mapping[str, str], registry: Registry | None
) -> Settings:
    try:
        return gather({**given, "preset": (name,)}, environ, registry, is_neutral=True)
    except ConfigError as error:
        if name not in builtin_registry().names():
            raise
        raise ConfigError(
            error.message, hint=f"The stage is written with a value, as in {name}=..."
        ) from None


def _is_preset(text: str) -> bool:
    """Whether a text without a prefix is a preset's file or name rather than a chain."""
    return text.endswith((".yaml", ".yml")) or (bool(text) and not re.search(r"[=|:]", text))


def _profile(name: str) -> str:
    if name not in profiles():
        hint = did_you_mean([repr(one) for one in close_names(name, profiles())])
        raise UsageError(
            f"There is no profile {name[:60]!r}.", hint=hint or f"It is {', '.join(profiles())}."
        )
    return name


def _without_chain(layer: Layer) -> Layer:
    values = {key: value for key, value in layer.values.items() if key not in _CHAIN}
    return replace(layer, values=values, stages=())


def _refuse(settings: Settings, job: Job) -> None:
    """Raise UsageError for options whose texts cannot be compared position by position."""
    why = {
        "beams": (job.beams is not None, "searches texts and draws none"),
        "best_of": (job.best_of is not None, "chooses among several texts"),
        "finish_open": (settings["finish_open"], "adds tokens that the chain does not choose"),
        "ban_rewind": (_rewinds(job), "takes tokens back that were chosen"),
    }
    for key, (is_on, reason) in why.items():
        if is_on:
            raise UsageError(f"{settings.name(key)} {reason}: such texts cannot be compared.")


def _rewinds(job: Job) -> bool:
    ban = cast(BanParams | None, job.chain.get("ban"))
    return ban is not None and ban.rewind and not ban.is_off()


def refuse_differences(a: Settings, b: Settings, *, models: bool = False) -> None:
    """Raise UsageError for differences in values that both sides must share: model, prompt, seed.

    `models`: each side has its own model.
    """
    for key in _OF_BOTH:
        if a[key] != b[key] and not (models and key == "model"):
            raise UsageError(
                f"{_said(a, key)} for A and {_said(b, key)} for B, but both sides have one prompt, model and "
                "guidance.",
                hint=f"Give `{key}` for both, or leave it out.",
            )
    if None not in (a["seed"], b["seed"]) and a["seed"] != b["seed"]:
        raise UsageError(
            f"{_said(a, 'seed')} for A and {_said(b, 'seed')} for B, but both sides draw with one noise.",
            hint="Give `seed`.",
        )


def _said(settings: Settings, key: str) -> str:
    value = f"{key} is {str(settings[key])[:60]!r}"
    return f"{value} ({settings.said(key)})" if settings.is_given(key) else value

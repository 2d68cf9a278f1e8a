"""Writes settings of another system as the text of a preset, and reports fields that were not taken over."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gencli.config.job import make_job
from gencli.config.options.run import OPTIONS
from gencli.config.options.stages import PENALTY_STAGES
from gencli.config.presets.find import profile_file
from gencli.config.presets.keys import checked
from gencli.config.presets.read import read_text
from gencli.config.presets.stack import load_presets
from gencli.config.presets.write import scalar
from gencli.config.settings import COMPAT, resolve
from gencli.errors import ConfigError
from gencli.imports.collect import Collected, Place, collect
from gencli.imports.orders import Order
from gencli.imports.peers import PEERS
from gencli.imports.source import Source
from processors.catalog import Phase
from processors.errors import ParamError
from processors.registry import Registry

__all__ = ["Imported", "import_settings"]

_KEYS: Mapping[Place, str] = {
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
    stages: dict[Place, Any]
    options: dict[str, Any]

    @classmethod
    def of(cls, profile: str, registry: Registry) -> _Base:
        layers = load_presets([str(profile_file(profile))], registry, origin=COMPAT) if profile else []
        stages = {(entry.stage, entry.field): entry.value for layer in layers for entry in layer.stages}
        options = {key: value for layer in layers for key, value in layer.values.items()}
        return cls(profile, stages, options)

    @property
    def order(self) -> tuple[str, ...]:
        return tuple(self.options.get("chain", ()))


def import_settings(source: Source, registry: Registry) -> Imported:
    """Return a preset with the settings of a source, above the profile of its system.

    Values without effect are omitted. Raises ConfigError for settings that contradict each other.
    """
    peer = PEERS[source.peer]
    found = collect(peer, source.fields, registry)
    _resolve_hints(found)
    base = _Base.of(_profile(peer.profile, found), registry)
    order = _resolve_order(found, base, registry)
    _leave_out_idle(found, base, registry)
    head = f"# From {source.what} of {peer.title}, by gencli config import."
    text = "\n".join([head, *_lines(found, base, order)]) + "\n"
    _check(text, registry)
    return Imported(text, tuple(found.notes))


def _resolve_hints(found: Collected) -> None:
    """Turn hints into values: a dynamic temperature, a greedy draw, penalties that are off."""
    hints = found.hints
    is_dynamic = hints.get("dynamic", hints.get("high", 0) > hints.get("low", 0))
    if hints.get("range"):
        found.stages["dynamic_temperature", "range"] = float(hints["range"])
    elif is_dynamic and {"low", "high"} <= hints.keys():
        found.stages["dynamic_temperature", "min"] = float(hints["low"])
        found.stages["dynamic_temperature", "max"] = float(hints["high"])
        if found.stages.get(("temperature", "temperature"), 1.0) != 1.0:
            found.note(found.said["temperature", "temperature"], "the dynamic temperature replaces it")
        found.stages["temperature", "temperature"] = 1.0
    if (is_dynamic and hints.get("exponent", 1) != 1) or (hints.get("range") and "exponent" in hints):
        found.stages["dynamic_temperature", "exponent"] = float(hints["exponent"])
    if hints.get("contrastive"):
        _resolve_contrastive(found, hints["contrastive"])
    if hints.get("greedy"):
        found.stages["temperature", "temperature"] = 0.0
    for stage in (*PENALTY_STAGES, "dry"):
        if f"off.{stage}" in hints:
            found.stages[stage, "multiplier" if stage == "dry" else "penalty"] = 0.0 + (stage == "repetition")
    if "sustain" in hints:
        fades = bool(found.stages.get(("repetition", "decay")))
        found.stages["repetition", "sustain" if fades else "window"] = int(hints["sustain"])
    if "encoder" in hints:
        _resolve_encoder(found, hints["encoder"])


def _resolve_contrastive(found: Collected, alpha: float) -> None:
    """Set contrastive search among the top_k most likely tokens; elsewhere it runs only without sampling."""
    top_k, why = ("top_k", "k"), ""
    count = found.stages.get(top_k, 0)
    if not found.hints.get("greedy"):
        why = "it acts with `do_sample: false` only"
    elif count < 2:
        why = "it chooses among `top_k` tokens, and there are not several"
    else:
        try:
            values = {"contrastive_alpha": alpha, "contrastive_k": count}
            found.options |= {key: checked(key, value) for key, value in values.items()}
            del found.stages[top_k]
            found.said.pop(top_k, None)
        except ParamError as error:
            why = str(error).rstrip(".")
    if why:
        found.note("penalty_alpha", why)


def _resolve_encoder(found: Collected, strength: float) -> None:
    """Set a reward of prompt tokens: repetition with the inverse penalty, over the prompt."""
    if found.stages.get(("repetition", "penalty"), 1.0) != 1.0 or strength <= 0:
        found.note("encoder_repetition_penalty", "one repetition penalty runs, and another one is set")
        return
    found.stages["repetition", "penalty"] = 1.0 / strength
    found.stages["repetition", "scope"] = "prompt"
    found.stages["repetition", "window"] = None


def _profile(name: str, found: Collected) -> str:
    version = found.stages.get(("mirostat", "version"), 0)
    return f"{name}-mirostat" if version and name in _WITH_MIROSTAT else name


def _resolve_order(found: Collected, base: _Base, registry: Registry) -> tuple[str, ...]:
    """Return the order if it differs from the profile's; stages that do not run there are dropped or off."""
    order = found.hints.get("order")
    if base.profile.endswith("-mirostat"):
        order = Order(base.order)
    if not isinstance(order, Order):
        return ()
    for name in order.unknown:
        found.note(name, "no stage is this sampler")
    rest = [name for name in base.order if name not in order.stages]
    known = [name for name in order.stages if name in registry]
    if order.is_open:
        return _new_order([*rest, *known], found, base, registry)
    for place in [place for place in found.stages if place[0] in rest or place[0] not in order.stages]:
        if registry.phase(place[0]) != Phase.CONSTRAIN and place[0] != "bias":
            found.drop(place, "the samplers that run do not include it") if place in found.said else None
    for stage in rest:
        _switch_off(stage, found, base, registry)
    return _new_order(known, found, base, registry)


def _new_order(stages: list[str], found: Collected, base: _Base, registry: Registry) -> tuple[str, ...]:
    """Return the order, () if it equals the profile's; `temperature_last` moves SCALE stages within it."""
    if [name for name in base.order if name in stages] == stages:
        return ()
    if found.options.pop("temperature_last", False):
        draws = [name for name in stages if name in ("adaptive_p", "mirostat")]
        scales = [name for name in stages if registry.phase(name) == Phase.SCALE]
        stages = [*(name for name in stages if name not in (*draws, *scales)), *scales, *draws]
    return tuple(stages)


def _switch_off(stage: str, found: Collected, base: _Base, registry: Registry) -> None:
    """Set the main value of a stage to "off" if the profile has the stage on."""
    params = registry.spec(stage).params
    main = params.main()
    if base.stages.get((stage, main), params.default(main)) != params.default(main):
        found.stages[stage, main] = params.default(main)


def _leave_out_idle(found: Collected, base: _Base, registry: Registry) -> None:
    """Drop values that equal those without the field, and fields of stages that are off."""
    for place, value in list(found.stages.items()):
        stage, inner = place
        params = registry.spec(stage).params
        default, main = params.default(inner), params.main()
        if value == base.stages.get(place, default) and value == default:
            del found.stages[place]
        elif inner != main and _is_off(stage, found, base, registry):
            if value == base.stages.get(place, default) or place not in found.said:
                del found.stages[place]
            elif stage in PENALTY_STAGES or inner in ("window", "keep"):
                del found.stages[place]  # a field of all penalties, one of which is off
            else:
                found.drop(place, f"{stage} is off")


def _is_off(stage: str, found: Collected, base: _Base, registry: Registry) -> bool:
    params = registry.spec(stage).params
    values = {
        inner: value for (name, inner), value in {**base.stages, **found.stages}.items() if name == stage
    }
    return params.from_mapping(values, stage=stage).is_off()


def _lines(found: Collected, base: _Base, order: tuple[str, ...]) -> Iterator[str]:
    if base.profile:
        yield f"compat: {base.profile}"
    for place, value in found.stages.items():
        if place in _KEYS:
            yield f"{_KEYS[place]}: {scalar(value)}"
    for key, value in found.options.items():
        yield f"{key}: {scalar(value)}"
    if order:
        yield f"chain: [{', '.join(order)}]"
    rest: dict[str, list[str]] = {}
    for (stage, inner), value in found.stages.items():
        if (stage, inner) not in _KEYS:
            rest.setdefault(stage, []).append(f"{inner}: {scalar(value)}")
    if rest:
        yield "stages:"
        yield from (f"  {stage}: {{{', '.join(values)}}}" for stage, values in rest.items())


def _check(text: str, registry: Registry) -> None:
    """Raise ConfigError for settings that are valid one by one, but contradict each other."""
    preset = read_text(text.encode(), Path("imported.yaml"), registry)
    for message in preset.messages():
        raise ConfigError(f"The settings make no preset: {message}")
    profile = preset.values.get("compat")
    below = load_presets([str(profile_file(profile))], registry, origin=COMPAT) if profile else []
    make_job(resolve(*below, preset.layer(), registry=registry))

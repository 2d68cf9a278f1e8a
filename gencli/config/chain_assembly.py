"""The chain of a run, with the origin of each value; the watermark of a run is its last stages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from gencli.config.run_options import OPTIONS, PENALTY_OPTIONS, PENALTY_STAGES, option
from gencli.config.settings import (
    CHAT_DEFAULT,
    COMPAT,
    Assigned,
    Settings,
    SettingsLayer,
    thinking_tags,
    with_value,
)
from gencli.errors import UsageError
from gencli.structured.output_spec import KINDS
from gencli.watermark_keys import STAGES, read_key_file
from processors.catalog import Draw
from processors.chain import (
    Chain,
    Stage,
    check_conditions,
    check_order,
    check_together,
    parse_fields,
    reorder,
    temperature_last,
)
from processors.errors import ChainError, Contradiction, ParamError
from processors.params import WHEN, Params
from processors.registry import Registry, builtin_registry
from processors.request_values import THINKING, When
from processors.stages.watermarks import GumbelMarkParams, KgwParams

_Entry = tuple[str, When | None]  # a stage and a condition
_Chosen = dict[tuple[_Entry, str], Assigned]  # by entry and field


@dataclass(frozen=True, slots=True)
class Assembly:
    """The chain, the origins of its values, and notices about stages that were dropped for others."""

    chain: Chain
    values: tuple[Assigned, ...] = ()
    notices: tuple[str, ...] = ()

    def of_stage(self, name: str) -> tuple[Assigned, ...]:
        """Return the assigned values of a stage, under any condition."""
        return tuple(entry for entry in self.values if entry.stage == name)

    def of_entry(self, name: str, params: Params) -> tuple[Assigned, ...]:
        """Return the assigned values of one entry of a stage, identified by its condition."""
        return tuple(entry for entry in self.of_stage(name) if entry.when == params.when)


def greedy_cause(settings: Settings, assembly: Assembly) -> str:
    """Return the option or stage that makes the draw greedy, as messages name it; "" if tokens are drawn."""
    if settings["sampler"] == "greedy":
        return settings.with_value("sampler")
    if not assembly.chain.is_greedy:
        return ""
    plain = (entry.said for entry in assembly.of_stage("temperature") if entry.when is None)
    temperature = next(plain, "`temperature`")
    return f"a temperature of 0 ({temperature})"


def assemble(
    settings: Settings,
    registry: Registry | None = None,
    *,
    grammar: Mapping[str, Any] | None = None,
    mark: WatermarkUse | None = None,
) -> Assembly:
    """Return the chain of the settings; `grammar`: fields of the stage grammar, if an option sets it.

    The strongest layer decides a field. Raises UsageError for a field that one layer sets twice.
    """
    registry = registry or builtin_registry()
    chosen: _Chosen = {}
    after = settings["constrain_after"] or ""
    for rank, layer in enumerate(settings.layers):
        for entry in (*_from_options(layer, registry), *_from_stages(layer, registry), *layer.stages):
            _choose(chosen, replace(entry, rank=rank, when=_placed(entry.when, after)), registry)
    for entry in list(_from_penalty_options(settings, chosen)):
        _choose(chosen, entry, registry)
    for entry in thinking_tags(settings, tuple(chosen.values())):
        _choose(chosen, entry, registry)
    values = tuple(chosen.values())
    # A bare name, as in `stage` = top_k, adds a stage with its defaults.
    named = [text for layer in settings.layers for text in layer.values.get("stage", ())]
    fields: dict[_Entry, dict[str, Any]] = {}
    for text in named:
        name, values_of_stage = parse_fields(text, registry)
        fields[name, _placed(_condition(values_of_stage), after)] = {}
    for entry in values:
        fields.setdefault((entry.stage, entry.when), {})[entry.field] = entry.value
    if grammar is not None:
        if ("grammar", None) in fields:
            kind = next(kind for kind in KINDS if settings[kind])
            of_stage = (entry.said for entry in values if entry.stage == "grammar")
            fault = f"{settings.name(kind)} and {next(of_stage, settings.name('stage'))} both set a grammar."
            raise UsageError(fault, hint="Leave one of them out.")
        fields["grammar", None] = dict(grammar)
    stages = list[Stage]()
    for (name, when), by_field in fields.items():
        by_field = by_field if when is None else {**by_field, WHEN: when}
        stages.append((name, registry.spec(name).params.from_mapping(by_field, stage=name)))
    chain = _arranged(Chain.ordered(stages, registry), settings, values, registry)
    try:
        check_conditions(chain, registry)
    except ChainError as error:
        conditional = dict.fromkeys(e.said for e in values if e.stage in error.stages and e.when)
        raise UsageError(f"{' and '.join(conditional)}: {error}" if conditional else str(error)) from None
    draw: Draw = "greedy" if settings["beams"] else settings["sampler"]
    if mark is not None:  # kgw after the ADJUST stages, other watermarks last of all
        stage, values = (mark.stage, mark.params), (*values, *mark.values)
        is_kgw = mark.stage == "kgw"
        chain = chain.inserted(stage, registry) if is_kgw else Chain((*chain.stages, stage))
    return _settled(Assembly(chain, values), draw, registry)


def _settled(assembly: Assembly, draw: Draw, registry: Registry) -> Assembly:
    # Without stages that contradict a stage of a stronger layer; those of the chat's draw share one notice.
    # UsageError for stages of one layer that contradict each other.
    of_chat, why_of_chat = list[str](), ""
    while True:
        with _naming(assembly.values):
            try:
                check_together(assembly.chain.resolved(draw, registry)[0], registry)
                break
            except Contradiction as error:
                entries = [assembly.of_stage(name) for name in error.stages]
                if not all(entries):  # a bare name has no layer
                    raise
                strongest = (max(of_stage, key=lambda entry: entry.rank) for of_stage in entries)
                weak, strong = sorted(strongest, key=lambda entry: entry.rank)
                if weak.rank == strong.rank:
                    raise
                why = f"left out beside {strong.said}: {error.why}."
        chain = Chain(tuple(stage for stage in assembly.chain if stage[0] != weak.stage))
        if weak.origin == CHAT_DEFAULT:
            of_chat.append(weak.stage)
            why_of_chat = why_of_chat or why
            assembly = replace(assembly, chain=chain)
        else:
            notices = (*assembly.notices, f"{weak.origin} {weak.said} is {why}")
            assembly = replace(assembly, chain=chain, notices=notices)
    if not of_chat:
        return assembly
    notice = f"Of the preset chat {', '.join(of_chat)} {'is' if len(of_chat) == 1 else 'are'} {why_of_chat}"
    return replace(assembly, notices=(*assembly.notices, notice))


@contextmanager
def _naming(values: tuple[Assigned, ...], *options: str) -> Iterator[None]:
    # A ChainError becomes a UsageError that names these options and the sources of the stages.
    try:
        yield
    except ChainError as error:
        sources = dict.fromkeys(entry.said for entry in values if entry.stage in error.stages)
        raise UsageError(": ".join(filter(None, [" and ".join([*options, *sources]), str(error)]))) from None


def _placed(when: When | None, after: str) -> When | None:
    # Thinking ends, and documents begin, at the marker `after`.
    if when is None or not after:
        return when
    marked = ("", after)
    return replace(
        when,
        inside=marked if when.inside == THINKING else when.inside,
        outside=marked if when.outside == THINKING else when.outside,
        after=when.after or (after if when.path is not None else ""),
    )


def _choose(chosen: _Chosen, entry: Assigned, registry: Registry) -> None:
    key = (entry.stage, entry.when), entry.field
    before = chosen.get(key)
    if before and before.rank == entry.rank:
        params = registry.spec(entry.stage).params
        is_list = entry.field == params.main() and params.is_list()
        message = f"{before.said} and {entry.said} both set {entry.field} of the stage {entry.stage}."
        raise UsageError(message, hint="Put them into one list." if is_list else "Leave one of them out.")
    if not before or before.rank < entry.rank:
        chosen[key] = entry


def _arranged(chain: Chain, settings: Settings, values: tuple[Assigned, ...], registry: Registry) -> Chain:
    # The order of a compat profile need not name all stages, and its temperature may be moved.
    is_profile = settings.origin("chain") == COMPAT
    if settings["chain"] and settings["temperature_last"] and not is_profile:
        both = f"{settings.name('chain')} and {settings.name('temperature_last')}"
        raise UsageError(f"{both} both set the place of the temperature.", hint="Leave one of them out.")
    if settings["chain"]:
        with _naming(values, settings.name("chain")):
            chain = reorder(chain, settings["chain"], registry, is_open=is_profile)
            check_order(chain, registry)
    return temperature_last(chain, registry) if settings["temperature_last"] else chain


def _check(stage: str, fields: Mapping[str, Any], source: str, registry: Registry) -> None:
    try:
        registry.spec(stage).params.from_mapping(fields, stage=stage)
    except ParamError as error:
        raise UsageError(f"{source}: {str(error).removeprefix(f'{stage}: ')}") from None


def _from_options(layer: SettingsLayer, registry: Registry) -> Iterator[Assigned]:
    for entry in OPTIONS:
        if entry.stage and entry.key in layer.values:
            value, source = layer.values[entry.key], layer.said(entry.key)
            _check(entry.stage, {entry.field: value}, source, registry)
            yield Assigned(entry.stage, entry.field, value, layer.origin, source, when=entry.when)


def _from_stages(layer: SettingsLayer, registry: Registry) -> Iterator[Assigned]:
    for text in layer.values.get("stage", ()):
        name = text.partition(":")[0].partition("=")[0].strip()
        if name in MARKS:  # checked before the text is shown, which may contain a key
            raise UsageError(f"{layer.said('stage')}: the stage {name} is set by `watermark`.")
        name, values = parse_fields(text, registry)
        source = with_value(layer.said("stage"), repr(text))
        if name == "tail":
            raise UsageError(f"{source}: the stage tail is set from the model's tokenizer.")
        _check(name, values, source, registry)
        when = _condition(values)
        if when is not None and values.keys() == {WHEN} and registry.is_builtin(name):
            raise UsageError(f"{source} is given a condition, but no value.", hint="Give both.")
        for field, value in values.items():
            if field != WHEN:
                yield Assigned(name, field, value, layer.origin, source, when=when)


def _condition(values: Mapping[str, Any]) -> When | None:
    when = values.get(WHEN)
    return None if when is None else When.of(when)


def _from_penalty_options(settings: Settings, chosen: _Chosen) -> Iterator[Assigned]:
    # Scope and window of all penalties, once for each entry of a penalty that is on.
    keys = [entry.key for entry in PENALTY_OPTIONS if settings.is_given(entry.key)]
    defaults = {name: builtin_registry().spec(name).params.default("penalty") for name in PENALTY_STAGES}
    active = [
        entry
        for name, default in defaults.items()
        for (entry, field), assigned in chosen.items()
        if entry[0] == name and field == "penalty" and assigned.value != default
    ]
    if keys and not active:
        hint = "Add `repetition_penalty`, `frequency_penalty` or `presence_penalty`, or leave it out."
        raise UsageError(f"{settings.name(keys[0])} is given, but no penalty is on.", hint=hint)
    for key in keys:
        origin, source, rank = settings.origin(key), settings.said(key), settings.rank(key)
        for stage, when in active:
            yield Assigned(stage, option(key).field, settings[key], origin, source, rank, when)


MARKS = frozenset(stage for stage, _ in STAGES.values())  # stages that only the watermark options set


@dataclass(frozen=True, slots=True)
class WatermarkUse:
    """The stage of a watermark, and the origins of its values, with the key as a fingerprint."""

    stage: str
    params: Params
    values: tuple[Assigned, ...]


def wanted_mark(settings: Settings) -> WatermarkUse | None:
    """Return the watermark of the settings, if any. Raises UsageError, or ConfigError for the key file."""
    kind, file, name = settings["watermark"], settings["watermark_key"], settings.name
    named = [stage for stage in settings["chain"] if stage in MARKS]
    if named:
        message = f"{name('chain')} has {named[0]}, but the place of a watermark is fixed."
        raise UsageError(message, hint="Leave it out.")
    if kind == "none":
        if file is not None and settings.rank("watermark_key") >= settings.rank("watermark"):
            message = f"{name('watermark_key')} is given, but there is no watermark."
            raise UsageError(message, hint="Add `watermark` = kgw, synthid or gumbel.")
        return None
    if file is None:
        raise UsageError(f"{settings.with_value('watermark')} needs a key.", hint="Add `watermark_key`.")
    params = read_key_file(kind, file)
    if isinstance(params, KgwParams) and params.bias == 0:
        message = f"The key file of {settings.with_value('watermark')} has the bias 0, which marks nothing."
        raise UsageError(message, hint="Write another bias into it, or leave it out.")
    stage, origin = STAGES[kind][0], settings.origin("watermark")
    source, rank = settings.said("watermark"), settings.rank("watermark")
    values = (Assigned(stage, key, value, origin, source, rank) for key, value in params.to_mapping().items())
    return WatermarkUse(stage, params, tuple(values))


def refuse_watermark(settings: Settings, mark: WatermarkUse | None, *, greedy: str) -> None:
    """Raise UsageError for options under which the watermark has no random draw to act on.

    `greedy`: the option or stage that makes the draw greedy, as messages name it; "" if tokens are drawn.
    """
    if mark is None or mark.stage == "kgw":
        return
    watermark, hint = settings.with_value("watermark"), "`watermark` = kgw marks such texts too."
    for key in ("beams", "contrastive_alpha"):
        if settings[key]:
            message = f"{watermark} marks drawn tokens, but {settings.name(key)} draws none."
            raise UsageError(message, hint=hint)
    if greedy:
        raise UsageError(f"{watermark} marks drawn tokens, but with {greedy} none is drawn.", hint=hint)
    if not _is_seedless(mark.params):
        return
    for key in ("n", "best_of", "retries"):
        if settings[key] and settings[key] > (key == "n"):
            why = f"with {watermark} the key decides the draw: the texts would begin alike."
            hint = "Leave one of them out, or write alpha or deduplicate: all into the key file."
            raise UsageError(f"{settings.with_value(key)} draws again, but {why}", hint=hint)


def watermark_notices(chain: Chain) -> Iterator[str]:
    """Yield notices for the user about the watermark in a chain."""
    params = chain.get("gumbel_mark")
    if params is not None and _is_seedless(params):
        yield "The watermark gumbel draws by its key, not by the seed: texts of one prompt begin alike."


def _is_seedless(params: Params) -> bool:
    # The first tokens of a text depend on the key and not on the seed.
    return isinstance(params, GumbelMarkParams) and params.alpha is None and params.deduplicate != "all"

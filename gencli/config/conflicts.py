"""Rules for conflicting or idle options, searches, conditions: an error names both, none is ignored."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from gencli.config.chain_assembly import Assembly, greedy_cause
from gencli.config.job_parts import refuse_guidance
from gencli.config.result_formats import RECORDS_LISTED, format_of
from gencli.config.run_options import CONTRASTS, GUIDES, STAGES
from gencli.config.settings import DEFAULT, FLAG, Assigned, Settings
from gencli.core.request import NO_DRAFTER
from gencli.core.tree_shapes import NO_TREE
from gencli.errors import UsageError
from gencli.structured.output_spec import DOCUMENTS, KINDS, OutputSpec
from processors.catalog import Phase
from processors.registry import Registry, builtin_registry
from processors.request_values import MATCH, Verification


def refuse_conflicts(settings: Settings, assembly: Assembly) -> None:
    """Raise UsageError for the first conflict of options."""
    _refuse_pairs(settings)
    refuse_search(settings, assembly)
    if not settings["beams"]:
        _refuse_greedy(settings, assembly)
    _refuse_idle(settings, assembly)
    if settings["max_tokens"] == 0:
        _refuse_beside_nothing(settings)
    for entry in assembly.of_stage("min_tokens"):
        if entry.value > settings["max_tokens"]:
            limit = f"{settings.name('max_tokens')} allows {settings['max_tokens']}"
            raise UsageError(f"{entry.said} asks for {entry.value} tokens, but {limit}.")
    ban = assembly.chain.get("ban")
    if settings["ban_rewind"] and (ban is None or ban.is_off()):
        raise UsageError(f"{settings.name('ban_rewind')} is given, but no text is banned.", hint="Add `ban`.")
    _refuse_drafts(settings)
    refuse_guidance(settings)
    _refuse_output(settings)


def _conflict(text: str) -> UsageError:
    return UsageError(text, hint="Leave one of them out.")


def _refuse_pairs(settings: Settings) -> None:
    name = settings.name
    pairs = "chat raw, system raw, quiet stats, offline download, show_chain show_prompt"
    for a, b in (pair.split() for pair in pairs.split(",")):
        if settings[a] and settings[b]:
            raise _conflict(f"{name(a)} and {name(b)} contradict each other.")
    if settings["system"] is not None and not settings["chat"]:
        message = f"{name('system')} needs `chat`: a raw prompt has no system message."
        raise UsageError(message, hint="Add `chat`.")
    if settings["vars"] and settings["template"] is None:
        hint = "Add `template`, as in `template` = 'Say {{ word }}' `vars` = word=hi."
        raise UsageError(f"{name('vars')} is given, but there is no template with variables.", hint=hint)
    if settings["include_stop"] and not any(settings[key] for key in ("stop", "stop_id", "stop_regex")):
        hint = "Add `stop`, `stop_id` or `stop_regex`."
        raise UsageError(f"{name('include_stop')} is given, but there is nothing to stop at.", hint=hint)
    if "" in settings["stop"]:
        raise UsageError(f"{name('stop')} is an empty text, which would end every output at once.")
    if settings["loop"] == 1:
        hint = "Give 2 or more; 0 is off."
        raise UsageError(f"{name('loop')} is 1, but every text occurs once.", hint=hint)


def _refuse_greedy(settings: Settings, assembly: Assembly) -> None:
    name, temperatures = settings.name, assembly.of_stage("temperature")
    asked = any(entry.rank >= settings.rank("sampler") for entry in temperatures)
    if settings["sampler"] == "greedy" and not assembly.chain.is_greedy and asked:
        fault = f"takes the most likely token, so {temperatures[0].said} would have no effect."
        raise _conflict(f"{settings.with_value('sampler')} {fault}")
    greedy, or_draw = greedy_cause(settings, assembly), "or draw with a temperature above 0."
    if greedy and settings["retries"]:
        fault = f"{name('retries')} draws again, but with {greedy} the text would be the same."
        raise UsageError(fault, hint=f"Leave {name('retries')} out, {or_draw}")
    if greedy and settings["n"] > 1:
        fault = f"{settings.with_value('n')} with {greedy} would give {settings['n']} equal texts."
        raise UsageError(fault, hint=f"Leave out `n`, {or_draw}")


def _refuse_idle(settings: Settings, assembly: Assembly) -> None:
    # A command-line option of a stage that its main value switches off.
    for entry in STAGES:
        params = assembly.chain.get(entry.stage) if entry.stage else None
        if params is None or not params.is_off() or entry.field == params.main():
            continue
        if settings[entry.key] and settings.origin(entry.key) == FLAG:
            mains = (main.key for main in STAGES if (main.stage, main.field) == (entry.stage, params.main()))
            message = f"{settings.name(entry.key)} is given, but the stage {entry.stage} is off."
            raise UsageError(message, hint=f"Add `{next(mains, 'stage')}`, or leave it out.")


def _refuse_beside_nothing(settings: Settings) -> None:
    limit = settings.with_value("max_tokens")
    if settings["prompt_logprobs"] is None:
        message = f"{limit} generates nothing, and the run has nothing else to do."
        raise UsageError(message, hint="Give 1 or more, or add `prompt_logprobs`.")
    keys = ("logprobs", "color", "beams", "best_of", "contrastive_alpha", *KINDS)
    idle = [key for key in keys if settings.is_given(key) and settings[key] not in (None, False, (), "off")]
    idle += ["n"] if settings["n"] > 1 else []
    if idle:
        raise UsageError(f"{limit} generates nothing: {settings.name(idle[0])} would have no effect.")


def _refuse_drafts(settings: Settings) -> None:
    name = settings.name
    details = [key for key in _DRAFTS[1:] if settings.is_given(key)]
    if settings["draft"] == NO_DRAFTER and details and settings.origin("draft") == DEFAULT:
        raise UsageError(f"{name(details[0])} is given, but there is no drafter.", hint="Add `draft` = NAME.")
    if not settings["draft"]:
        hint = "Leave it out, or give the name of a drafter."
        raise UsageError(f"{name('draft')} is empty.", hint=hint)
    if settings["draft_tree"] != NO_TREE and settings["verify"] != MATCH.policy:
        others = [name("verify"), *[name(key) for key in ("verify_threshold",) if settings.is_given(key)]]
        rule = f"{name('draft_tree')} does not go together with {_listed(others)}: match verifies trees."
        raise UsageError(rule, hint="Leave one of them out.")
    is_asked = settings.is_given("verify_threshold")
    is_newer = settings.rank("verify_threshold") >= settings.rank("verify")
    if is_asked and is_newer and not Verification(settings["verify"]).has_threshold:
        verify = f"{name('verify')} is {settings['verify']}"
        message = f"{name('verify_threshold')} is for lossy-threshold, but {verify}."
        raise UsageError(message, hint="Add `verify` = lossy-threshold.")


def _refuse_output(settings: Settings) -> None:
    name = settings.name
    for key in ("logprobs", "trace"):
        if settings[key] is not None:
            _refuse_finish_open(settings, name(key))
    for key in ("trace_top", "keep_logits") if settings["trace"] is None else ():
        if settings.origin(key) == FLAG:
            raise UsageError(f"{name(key)} is given, but no trace.", hint="Add `trace`.")
    if settings["color"] != "off":
        _refuse_beside_color(settings, settings.with_value("color"))
    form = format_of(settings)
    if settings["stream"] and not form.is_text:
        fault = f"shows text while it is generated, which {settings.with_value('format')} cannot."
        by_record = f"{form.name} writes each prompt's record as it finishes."
        hint = by_record if form.by_record else "Leave out `stream`, or use `format` = jsonl."
        raise UsageError(f"{name('stream')} {fault}", hint=hint)
    taken = {Path(path).resolve(): "file" for path in settings["file"]}
    for key in ("output", "trace"):
        if not isinstance(settings[key], str):  # the trace of a request to the server is a number
            continue
        path = Path(settings[key]).resolve()
        other = taken.setdefault(path, key)
        if other == "file" or (other != key and (path.is_file() or not path.exists())):  # not a device
            lost = "the prompt would be lost" if other == "file" else "each needs a file of its own"
            raise UsageError(f"`{key}` and `{other}` are both {settings[key]!r}; {lost}.")


def _refuse_finish_open(settings: Settings, name: str) -> None:
    if settings["finish_open"]:
        fault = "do not go together: the model does not choose the tokens that complete a document."
        raise _conflict(f"{name} and {settings.name('finish_open')} {fault}")


def _refuse_beside_color(settings: Settings, color: str) -> None:
    _refuse_finish_open(settings, color)
    for key in ("parsed", "select"):
        if settings[key] not in (None, False):
            message = f"{color} colours the tokens of the text, but {settings.name(key)} writes another text."
            raise _conflict(message)
    for key in ("beams", "best_of", "contrastive_alpha"):
        if settings[key] and settings["color"] in ("entropy", "decided"):
            message = f"{color} and {settings.name(key)} do not go together: a search is not explained."
            raise UsageError(message, hint="Use `color` = probability or rank.")


def refuse_quiet_scores(settings: Settings) -> None:
    """Raise UsageError for log-probabilities on a terminal if no output shows them."""
    for key in ("logprobs", "prompt_logprobs"):
        if settings[key] is not None and settings["quiet"] and format_of(settings).is_text:
            name, hint = settings.name, "Use `format` = json, or leave `quiet` out."
            message = f"{name('quiet')} writes no {name(key)}: with text as output they go to stderr."
            raise UsageError(message, hint=hint)


def refuse_unwritten_ids(settings: Settings) -> None:
    """Raise UsageError for token ids of a result that is text alone."""
    if not settings["token_ids"]:
        return
    ids = f"{settings.name('token_ids')} adds ids to records"
    for key in ("parsed", "select"):
        if settings[key] not in (None, False):
            raise _conflict(f"{ids}, but {settings.name(key)} writes a document.")
    if format_of(settings).is_text:
        raise UsageError(f"{ids}, but the result is text.", hint=f"Use `format` = {RECORDS_LISTED}.")


_DETAILS = ("length_penalty", "early_stopping")
_DRAFTS = ("draft", "draft_tokens", "draft_tree", "draft_min_p", "verify", "verify_threshold")


def refuse_search(settings: Settings, assembly: Assembly) -> None:
    """Raise UsageError that names the conflicting options."""
    name = settings.name
    if settings["beams"]:
        _refuse_beside_beams(settings, assembly)
    elif not settings.is_given("beams"):
        for key in filter(settings.is_given, _DETAILS):
            raise UsageError(f"{name(key)} is given, but there is no beam search.", hint="Add `beams`.")
    if settings["best_of"]:
        _refuse_beside_best_of(settings, assembly)
    if settings["contrastive_alpha"]:
        _refuse_beside_contrastive(settings)
    elif settings.is_given("contrastive_k") and not settings.is_given("contrastive_alpha"):
        hint = "Add `contrastive_alpha`, as in `contrastive_alpha` = 0.6."
        raise UsageError(f"{name('contrastive_k')} is given, but there is no contrastive search.", hint=hint)


def search_notices(settings: Settings) -> Iterator[str]:
    """Yield the notices before a run."""
    for key in ("beams", "best_of"):
        if settings[key] and settings["stream"]:
            yield f"With {settings.name(key)} text cannot be streamed: it is shown at the end."


def _refuse_beside_beams(settings: Settings, assembly: Assembly) -> None:
    name, width, search = settings.name, settings["beams"], _search(settings, "beams", _DETAILS)
    if drawing := [*_drawing(settings, assembly)]:
        fault = f"searches for the most likely text and draws none: {_listed(drawing)} would have no effect."
        raise _conflict(f"{search} {fault}")
    if settings["trace"] is not None:
        raise _conflict(f"{name('trace')} and {search} do not go together: a search draws no token.")
    _refuse_draft(settings, f"continues one text, but with {search} there are {width} at once")
    if companions := [name(key) for key in (*GUIDES, *CONTRASTS) if settings.is_given(key)]:
        raise _conflict(f"{_listed(companions)} and {search} do not go together: beams are not guided.")
    if settings["best_of"]:
        raise _conflict(f"{name('best_of')} draws texts, but {search} searches for them.")
    count = f"but with {search} there are {width} texts at"
    if settings["n"] > width:
        raise UsageError(f"{name('n')} is {settings['n']}, {count} most.")
    if settings.is_given("max_batch") and width > settings["max_batch"]:
        hint = f"Raise {name('max_batch')} to {width}, or take fewer beams."
        raise UsageError(f"{name('max_batch')} is {settings['max_batch']}, {count} once.", hint=hint)


def _refuse_draft(settings: Settings, why: str) -> None:
    if settings["draft"] != NO_DRAFTER:
        drafting = _listed([settings.name(key) for key in _DRAFTS if settings.is_given(key)])
        hint = f"Leave one of them out; `draft` = {NO_DRAFTER} turns drafts off."
        raise UsageError(f"A draft ({drafting}) {why}.", hint=hint)


def _drawing(settings: Settings, assembly: Assembly) -> Iterator[str]:
    # Sampling options and stages whose layer is at least as strong as that of `beams`. The search overrides
    # those of weaker layers, as a greedy draw does.
    registry, rank = settings.registry or builtin_registry(), settings.rank("beams")
    for name in dict.fromkeys(name for name, _ in assembly.chain.active()):
        if registry.phase(name) >= Phase.SCALE:
            entries = assembly.of_stage(name)
            yield from (entry.said for entry in entries if entry.rank >= rank)
            if not entries:
                yield f"the stage {name}"
    keys = [key for key in ("sampler", "retries", "temperature_last") if settings[key]]
    if any(_is_drawing(name, registry) for name in settings["chain"]):
        keys.append("chain")
    for key in keys:
        if settings.is_given(key) and settings.rank(key) >= rank:
            yield settings.name(key)


def _is_drawing(name: str, registry: Registry) -> bool:
    if name in registry.names():
        return registry.phase(name) >= Phase.SCALE
    return name.upper() in Phase.__members__ and Phase[name.upper()] >= Phase.SCALE


def _refuse_beside_best_of(settings: Settings, assembly: Assembly) -> None:
    name, wanted = settings.name, settings.with_value("best_of")
    if greedy := greedy_cause(settings, assembly):
        hint = "Leave one of them out, or draw with a temperature above 0."
        raise UsageError(f"{wanted} with {greedy} would choose among equal texts.", hint=hint)
    if settings["retries"]:
        raise _conflict(f"{name('retries')} samples again, but {wanted} draws all samples at once.")
    if settings["n"] > settings["best_of"]:
        raise UsageError(f"{name('n')} is {settings['n']}, more texts than {wanted} draws.")


def _refuse_beside_contrastive(settings: Settings) -> None:
    name, wanted = settings.name, _search(settings, "contrastive_alpha", ("contrastive_k",))
    for key, details in (("beams", _DETAILS), ("best_of", ())):
        if settings[key]:
            other = _search(settings, key, details)
            raise _conflict(f"{other}, and {wanted}, choose texts in different ways.")
    for key in ("n", "retries"):
        if settings[key] > (key == "n"):
            why = f"asks for more than one text, but with {wanted} nothing is drawn: they would be the same."
            raise _conflict(f"{settings.with_value(key)} {why}")
    is_asked = settings.is_given("sampler") and settings.rank("sampler") >= settings.rank("contrastive_alpha")
    if is_asked and settings["sampler"] != "greedy":
        raise _conflict(f"With {wanted} nothing is drawn: {name('sampler')} would have no effect.")
    why = f"proposes the next tokens, but with {wanted} the model compares several for each"
    _refuse_draft(settings, why)
    keys = [key for key in (*GUIDES, *CONTRASTS, "dola", "trace") if settings.is_given(key)]
    if beside := [name(key) for key in keys if settings[key] is not None]:
        raise _conflict(f"{_listed(beside)}, and {wanted}, do not go together.")
    count, batch = settings["contrastive_k"], settings.with_value("max_batch")
    if settings.is_given("max_batch") and count > settings["max_batch"]:
        hint = f"Raise {name('max_batch')} to {count}, or take fewer with `contrastive_k`."
        raise UsageError(f"{batch} is too few: {count} tokens run side by side with {wanted}.", hint=hint)


def _search(settings: Settings, key: str, details: tuple[str, ...]) -> str:
    # The option with its value, followed by those of its detail options that are set.
    names = [settings.name(detail) for detail in details if settings.is_given(detail)]
    return _listed([settings.with_value(key), *names])


def _listed(names: list[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def refuse_idle_conditions(settings: Settings, assembly: Assembly, structure: OutputSpec | None) -> None:
    """Raise UsageError for a condition that can hold nowhere in an output of the run."""
    limit = settings["max_tokens"]
    for entry in assembly.values:
        if entry.when is None:
            continue
        if entry.when.begin >= max(limit, 1):
            allowed = f"{settings.name('max_tokens')} allows {limit}"
            fault = f"the condition begins at {entry.when.begin} output tokens, but {allowed}."
            raise UsageError(f"{entry.said}: {fault}")
        if entry.when.path is not None:
            _refuse_path(entry, entry.when.path, settings, structure)


def _refuse_path(entry: Assigned, path: str, settings: Settings, structure: OutputSpec | None) -> None:
    condition = f"{entry.said}: the condition has the path {path!r}"
    if structure is None or structure.kind not in DOCUMENTS:
        why = "the output has no structure" if structure is None else f"`{structure.kind}` makes no document"
        hint = "Add `json_schema`, `pydantic` or `json`, or leave the stage out."
        raise UsageError(f"{condition} of a JSON document, but {why}.", hint=hint)
    from gencli.structured.schema_check import unreached

    is_open = settings["extra_properties"] or structure.kind == "json"
    if (end := unreached(structure.plan.schema, path, is_open=is_open)) is not None:
        pointer, names = end
        below = f"it has {', '.join(names)}." if names else "nothing is below."
        kind = settings.name(structure.kind)
        raise UsageError(f"{condition}, which {kind} can never reach. At {pointer} {below}")

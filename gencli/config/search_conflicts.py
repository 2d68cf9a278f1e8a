"""Conflicts of other options with beam search, best-of and contrastive search."""

from __future__ import annotations

from collections.abc import Iterator

from gencli.config.chain import Assembly, greedy_cause
from gencli.config.options.drafts import NO_DRAFTER
from gencli.config.options.guidance import CONTRASTS, GUIDES
from gencli.config.settings import Settings
from gencli.errors import UsageError
from processors.catalog import Phase
from processors.registry import Registry, builtin_registry

__all__ = ["refuse_search", "search_notices"]

_DETAILS = ("length_penalty", "early_stopping")
_DRAFTS = ("draft", "draft_tokens", "draft_min_p", "verify", "verify_threshold")
_LEAVE_OUT = "Leave one of them out."


def refuse_search(settings: Settings, assembly: Assembly) -> None:
    """Raise UsageError that names the conflicting options."""
    if settings["beams"]:
        _refuse_beside_beams(settings, assembly)
    elif not settings.is_given("beams"):
        _refuse_idle(settings)
    if settings["best_of"]:
        _refuse_beside_best_of(settings, assembly)
    if settings["contrastive_alpha"]:
        _refuse_beside_contrastive(settings)
    elif settings.is_given("contrastive_k") and not settings.is_given("contrastive_alpha"):
        raise UsageError(
            f"{settings.name('contrastive_k')} is given, but there is no contrastive search.",
            hint="Add `contrastive_alpha`, as in `contrastive_alpha` = 0.6.",
        )


def search_notices(settings: Settings) -> Iterator[str]:
    """Yield the notices before a run."""
    for key in ("beams", "best_of"):
        if settings[key] and settings["stream"]:
            yield f"With {settings.name(key)} text cannot be streamed: it is shown at the end."


def _refuse_idle(settings: Settings) -> None:
    for key in _DETAILS:
        if settings.is_given(key):
            raise UsageError(
                f"{settings.name(key)} is given, but there is no beam search.", hint="Add `beams`."
            )


def _refuse_beside_beams(settings: Settings, assembly: Assembly) -> None:
    said, width, search = settings.name, settings["beams"], _search(settings, "beams", _DETAILS)
    if drawing := [*_drawing(settings, assembly)]:
        raise UsageError(
            f"With {search} the most likely text is searched and none is drawn: {_listed(drawing)} would "
            "have no effect.",
            hint=_LEAVE_OUT,
        )
    if settings["trace"] is not None:
        raise UsageError(
            f"{said('trace')} and {search} do not go together: a search draws no token.", hint=_LEAVE_OUT
        )
    if settings["draft"] != NO_DRAFTER:
        drafting = _listed([said(key) for key in _DRAFTS if settings.is_given(key)])
        raise UsageError(
            f"A draft ({drafting}) guesses at one text, with {search} there are {width} at once.",
            hint=f"Leave one of them out; `draft` = {NO_DRAFTER} turns drafts off.",
        )
    if companions := [said(key) for key in (*GUIDES, *CONTRASTS) if settings.is_given(key)]:
        raise UsageError(
            f"{_listed(companions)} and {search} do not go together: beams are not guided.", hint=_LEAVE_OUT
        )
    if settings["best_of"]:
        raise UsageError(f"{said('best_of')} draws texts, with {search} one is searched.", hint=_LEAVE_OUT)
    if settings["n"] > width:
        raise UsageError(
            f"{said('n')} is {settings['n']}, but with {search} there are {width} texts at the most."
        )
    if settings.is_given("max_batch") and width > settings["max_batch"]:
        raise UsageError(
            f"{said('max_batch')} is {settings['max_batch']}, with {search} there are {width} texts at once.",
            hint=f"Raise {said('max_batch')} to {width}, or take fewer beams.",
        )


def _drawing(settings: Settings, assembly: Assembly) -> Iterator[str]:
    """Yield the names of sampling options and stages whose layer is at least as strong as that of `beams`.

    The search overrides those of weaker layers, as a greedy draw does.
    """
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
    """Return whether a stage or phase has no effect without sampling."""
    if name in registry.names():
        return registry.phase(name) >= Phase.SCALE
    return name.upper() in Phase.__members__ and Phase[name.upper()] >= Phase.SCALE


def _refuse_beside_best_of(settings: Settings, assembly: Assembly) -> None:
    said, wanted = settings.name, settings.with_value("best_of")
    if greedy := greedy_cause(settings, assembly):
        raise UsageError(
            f"{wanted} with {greedy} would choose among equal texts.",
            hint="Leave one of them out, or draw with a temperature above 0.",
        )
    if settings["retries"]:
        raise UsageError(
            f"{said('retries')} samples again, {wanted} draws all samples at once.", hint=_LEAVE_OUT
        )
    if settings["n"] > settings["best_of"]:
        raise UsageError(f"{said('n')} is {settings['n']}, more texts than {wanted} draws.")


def _refuse_beside_contrastive(settings: Settings) -> None:
    said, wanted = settings.name, _search(settings, "contrastive_alpha", ("contrastive_k",))
    for key, details in (("beams", _DETAILS), ("best_of", ())):
        if settings[key]:
            other = _search(settings, key, details)
            raise UsageError(f"{other}, and {wanted}, choose texts in two ways.", hint=_LEAVE_OUT)
    for key in ("n", "retries"):
        if settings[key] > (key == "n"):
            raise UsageError(
                f"{settings.with_value(key)} asks for more than one text, but with {wanted} nothing is "
                "drawn: they would be the same.",
                hint=_LEAVE_OUT,
            )
    is_asked = settings.is_given("sampler") and settings.rank("sampler") >= settings.rank("contrastive_alpha")
    if is_asked and settings["sampler"] != "greedy":
        raise UsageError(
            f"With {wanted} nothing is drawn: {said('sampler')} would have no effect.", hint=_LEAVE_OUT
        )
    if settings["draft"] != NO_DRAFTER:
        drafting = _listed([said(key) for key in _DRAFTS if settings.is_given(key)])
        raise UsageError(
            f"A draft ({drafting}) guesses at the next tokens, but with {wanted} the model compares several "
            "for each.",
            hint=f"Leave one of them out; `draft` = {NO_DRAFTER} turns drafts off.",
        )
    keys = [key for key in (*GUIDES, *CONTRASTS, "dola", "trace") if settings.is_given(key)]
    if beside := [said(key) for key in keys if settings[key] is not None]:
        raise UsageError(f"{_listed(beside)}, and {wanted}, do not go together.", hint=_LEAVE_OUT)
    count = settings["contrastive_k"]
    if settings.is_given("max_batch") and count > settings["max_batch"]:
        raise UsageError(
            f"{settings.with_value('max_batch')} is too few: {count} tokens run side by side with {wanted}.",
            hint=f"Raise {said('max_batch')} to {count}, or take fewer with `contrastive_k`.",
        )


def _search(settings: Settings, key: str, details: tuple[str, ...]) -> str:
    """Return a search option with its value, followed by the given ones of its detail options."""
    given = [settings.name(detail) for detail in details if settings.is_given(detail)]
    return _listed([settings.with_value(key), *given])


def _listed(names: list[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))

"""The reasoning tags of the stage `reasoning_budget`, from the options and the chat template."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from gencli.config.settings import Assigned, Settings
from gencli.errors import UsageError
from gencli.models.files.model_card import declared_template
from processors.catalog.forcing import ReasoningBudgetParams

__all__ = ["TAGS", "thinking_tags"]

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
    given = {entry.field: entry for entry in values if entry.stage == _STAGE}
    if "tokens" not in given or given["tokens"].value is None:
        if given:
            said = next(iter(given.values())).said
            raise UsageError(f"{said} is given, but there is no budget.", hint="Add `reasoning_budget`.")
        return
    marker = settings["constrain_after"]
    budget = given["tokens"]
    if marker and "open" not in given and ("end" not in given or given["end"].value == marker):
        yield Assigned(_STAGE, "open", True, budget.origin, settings.said("constrain_after"), budget.rank)
    if {"start", "end"} <= given.keys():
        return
    if "start" in given or "end" in given:
        start, end = (given[field].value if field in given else "" for field in ("start", "end"))
        pair = next((pair for pair in TAGS if start in ("", pair[0]) and end in ("", pair[1])), None)
        said = given["start" if start else "end"].said
    elif marker:
        pair, said = (
            next((pair for pair in TAGS if pair[1] == marker), None),
            settings.said("constrain_after"),
        )
    else:
        pair, said = _of_template(settings["model"]), "the chat template"
    if pair is None:
        raise UsageError(
            f"{said} is a tag of thinking whose other half is not known.",
            hint='Give both, as in `stage` = \'reasoning_budget:tokens=512,start="<think>",end="</think>"\'.',
        )
    for field, value in zip(("start", "end"), pair, strict=True):
        if field not in given and value != ReasoningBudgetParams.default(field):
            yield Assigned(_STAGE, field, value, budget.origin, said, budget.rank)


@lru_cache(maxsize=64)
def _of_template(model: str) -> tuple[str, str]:
    """Return the first known pair of tags in the model's chat template, or the default pair."""
    template = declared_template(model)[0] or ""
    return next((pair for pair in TAGS if pair[1] in template), _USUAL)

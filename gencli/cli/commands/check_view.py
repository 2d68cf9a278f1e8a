"""`gencli stages check`: each promise of the contract, kept or not, and the smallest case where not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from gencli.cli.terminal.tables import table
from gencli.errors import PluginError, UsageError
from gencli.plugins.discovery import parse_plugin
from gencli.plugins.loading import load_stage
from gencli.plugins.registry import PluginRegistry
from processors.base import Processor
from processors.chain import Chain, parse_stage
from processors.errors import ParamError
from processors.params import Params
from processors.registry import Registry
from processors.testing import CHECKS, Check, Subject, run_check, shrink
from processors.testing.checks import returns_logits

__all__ = ["checked"]


def checked(registry: PluginRegistry, target: str, values: Iterable[str]) -> tuple[str, bool]:
    """The table, and whether every check passed. `values` are stages to try, instead of guessed ones."""
    stage = _stage(registry, target)
    subject = _subject(stage, _given(stage, values))
    outcomes = list(_outcomes(subject))
    rows = [("result", "promise", "what it says")]
    rows += [(word, check.__name__, (check.__doc__ or "").partition("\n")[0]) for check, word, _ in outcomes]
    failures = [text for _, _, text in outcomes if text]
    counts = [sum(word == kind for _, word, _ in outcomes) for kind in ("passed", "failed")]
    total = f"{counts[0]} passed, {counts[1]} failed\n"
    return "\n".join([f"{stage.name} ({target})\n", table(rows), *failures, total]), not counts[1]


def _stage(registry: PluginRegistry, target: str) -> type[Processor[Any]]:
    if target in registry:
        return registry.load(target)
    try:
        return load_stage(parse_plugin(target))
    except UsageError:
        known = ", ".join(registry.names())
        raise UsageError(
            f"{target!r} is neither path.py[:Class], nor module:Class, nor the name of a stage.",
            hint=f"Stages: {known}.",
        ) from None


def _given(stage: type[Processor[Any]], values: Iterable[str]) -> tuple[Params, ...]:
    alone = Registry()
    alone.register(stage)
    return tuple(parse_stage(text, alone)[1] for text in values)


def _subject(stage: type[Processor[Any]], params: tuple[Params, ...]) -> Subject:
    try:
        return Subject.of(stage, params)
    except ParamError:
        raise PluginError(
            f"No values that switch the stage {stage.name} on could be guessed.",
            hint=f"Give some: --stage {stage.name}:key=value",
        ) from None


def _outcomes(subject: Subject) -> Iterator[tuple[Check, str, str]]:
    """Each check with a word and what there is to say; what returns no logits is looked at no further."""
    is_sound = True
    for check in CHECKS:
        word, text = _outcome(check, subject) if is_sound else ("-", "")
        is_sound = is_sound and (check is not returns_logits or not text)
        yield check, word, text


def _outcome(check: Check, subject: Subject) -> tuple[str, str]:
    """A word, and what there is to say of a failure."""
    does_not_apply = {
        "equals_twin": subject.twin is None,
        "drafts_equal_steps": subject.stage.sequential,
    }
    if does_not_apply.get(check.__name__):
        return "-", ""
    if run_check(check, subject).passed:
        return "passed", ""
    small = shrink(check, subject)
    detail = run_check(check, small).detail.removeprefix("AssertionError: ")
    return "failed", "\n".join([f"{check.__name__}: {detail}", *_case(small)]) + "\n"


def _case(subject: Subject) -> Iterator[str]:
    name = subject.stage.name
    for params, text in subject.cases():
        ids = {"prompt": text.prompt, "output": text.output, "drafts": text.drafts}
        shown = ", ".join(f"{what} {list(tokens)}" for what, tokens in ids.items())
        yield f"  with {Chain(((name, params),))}: {shown}"

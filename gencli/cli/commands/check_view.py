"""`gencli stages check`: the result of each contract check, and the smallest failing case."""

from __future__ import annotations

import traceback
from collections.abc import Iterable
from typing import Any

from gencli.cli.render import table
from gencli.errors import PluginError, UsageError
from gencli.plugins.discovery import parse_plugin
from gencli.plugins.plugin_loading import load_stage
from gencli.plugins.plugin_registry import PluginRegistry
from processors.base import Processor
from processors.chain import Chain, parse_stage
from processors.errors import ParamError
from processors.registry import Registry
from processors.testing import CHECKS, Check, Subject, run_check, shrink
from processors.testing.checks import returns_logits


def check_report(
    registry: PluginRegistry, target: str, values: Iterable[str], *, is_debugged: bool = False
) -> tuple[str, bool]:
    """Return the report of a stage's checks, and whether all passed.

    `target` is a plug-in or a stage's name. `values` are stages as in "name:key=value" to check instead of
    guessed values. `is_debugged`: failures come with their tracebacks.

    Raises UsageError for an unknown target, PluginError if no values can be guessed.
    """
    stage = _stage(registry, target)
    registry_of_stage = Registry()
    registry_of_stage.register(stage)
    try:
        subject = Subject.of(stage, tuple(parse_stage(text, registry_of_stage)[1] for text in values))
    except ParamError:
        raise PluginError(
            f"No values that switch the stage {stage.name} on could be guessed.",
            hint=f"Give some: --stage {stage.name}:key=value",
        ) from None
    rows, failures, results = [("result", "promise", "what it says")], list[str](), list[str]()
    has_logits = True  # a stage that returns none is not checked further
    for check in CHECKS:
        result, text = _outcome(check, subject, is_debugged=is_debugged) if has_logits else ("-", "")
        has_logits = has_logits and (check is not returns_logits or not text)
        rows.append((result, check.__name__, (check.__doc__ or "").partition("\n")[0]))
        results.append(result)
        failures += [text] if text else []
    total = f"{results.count('passed')} passed, {results.count('failed')} failed\n"
    return "\n".join([f"{stage.name} ({target})\n", table(rows), *failures, total]), not failures


def _stage(registry: PluginRegistry, target: str) -> type[Processor[Any]]:
    if target in registry:
        return registry.load(target)
    try:
        return load_stage(parse_plugin(target))
    except UsageError:
        names = ", ".join(registry.names())
        raise UsageError(
            f"{target!r} is neither path.py[:Class], nor module:Class, nor the name of a stage.",
            hint=f"Stages: {names}.",
        ) from None


def _outcome(check: Check, subject: Subject, *, is_debugged: bool) -> tuple[str, str]:
    """Return the result (passed, failed, or "-" if it does not apply) and the report of a failure."""
    does_not_apply = {"equals_twin": subject.twin is None, "drafts_equal_steps": subject.stage.sequential}
    if does_not_apply.get(check.__name__):
        return "-", ""
    if run_check(check, subject).passed:
        return "passed", ""
    smallest = shrink(check, subject)
    failed = run_check(check, smallest)
    detail = failed.detail.removeprefix("AssertionError: ")
    trace = traceback.format_exception(failed.error) if failed.error and is_debugged else ()
    lines = [f"{check.__name__}: {detail}"]
    for params, text in smallest.cases():
        ids = {"prompt": text.prompt, "output": text.output, "drafts": text.drafts}
        shown = ", ".join(f"{part} {list(tokens)}" for part, tokens in ids.items())
        lines.append(f"  with {Chain(((smallest.stage.name, params),))}: {shown}")
    return "failed", "\n".join([*lines, "".join(trace)])

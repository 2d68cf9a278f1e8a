"""The specification of an output: its kind of structure, the plan that enforces it, notices of what the
mask leaves open, and the check of finished texts. A plan has the variants of a constraint, best first,
and the keywords that each enforces. A finished text is checked independently of the mask.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

from gencli.core.events import Finish, ValidationResult
from gencli.core.request import Jump
from gencli.errors import ConfigError, GencliError
from gencli.structured.schema_errors import NEVER, Deadline, compact, select
from processors.request_values import WHITESPACE, Constraint

KINDS = ("json", "json_schema", "pydantic", "regex", "grammar", "lark", "choice", "structural_tag", "tools")
DOCUMENTS = ("json", "json_schema", "pydantic")  # kinds whose whole output is one JSON document


@dataclass(frozen=True, slots=True)
class OutputSpec:
    """The structure of every output of a run, the plan that enforces it, and how the text is used.

    `kind` is one of KINDS; `source`: short form of the option's value. `origin`: the layer that set it.
    `read` returns the value of a text; None for kinds without a value. `tools`: passed to the chat template.
    `notice`: for the user. `after`: the structure begins after this text. `has_answer`: an output of
    tools is calls or a document. `is_document`: no part of the output is free text. `has_formats`: the final
    check includes `format`. `retries`: number of further attempts for an invalid output. `is_partial`:
    invalid outputs are written too. `is_parsed`: a valid value is written as compact JSON; `select`: only its
    part at this JSON pointer. For the prompt: `schema` and `choices` as given, and
    `call_form`, how a call of the tools is written.
    """

    kind: str
    plan: Plan
    source: str = ""
    origin: str = ""
    read: Callable[[str], Any] | None = None
    notice: str = ""
    tools: tuple[Any, ...] = ()
    has_answer: bool = False
    after: str = ""
    is_document: bool = False
    has_formats: bool = False
    retries: int = 0
    is_partial: bool = False
    finish_open: bool = False
    jump: Jump = "auto"
    is_parsed: bool = False
    select: str | None = None
    schema: Any = None
    choices: tuple[str, ...] = ()
    call_form: str = ""

    @property
    def is_data(self) -> bool:
        """Whether results are for programs: written one after another, without labels."""
        return self.is_parsed or self.select is not None


Enforcement = Literal["mask", "check", "unknown"]
UNIQUE_NAMES = "unique names"  # required by JSON, not by a keyword


@dataclass(frozen=True, slots=True)
class KeywordFinding:
    """One keyword of a schema: enforced by the mask, enforced by the final check, or unknown.

    `pointer`: JSON pointer of the keyword in the given schema. `reason`: why the mask does not enforce the
    keyword, or how it was rewritten so that it does.
    """

    pointer: str
    keyword: str
    verdict: Enforcement
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Audit:
    """The findings for one back end, keyword by keyword."""

    backend: str
    findings: tuple[KeywordFinding, ...] = ()

    @property
    def is_exact(self) -> bool:
        """Whether the mask enforces every keyword."""
        return all(finding.verdict == "mask" for finding in self.findings)

    @property
    def open(self) -> tuple[KeywordFinding, ...]:
        """The keywords that the mask does not enforce."""
        return tuple(finding for finding in self.findings if finding.verdict != "mask")


@dataclass(frozen=True, slots=True)
class Variant:
    """A constraint in the form for one back end, and the keywords that the back end enforces."""

    constraint: Constraint
    audit: Audit

    def changed(self, change: Callable[[KeywordFinding], KeywordFinding]) -> Variant:
        """Return the variant with each finding as `change` returns it."""
        return replace(self, audit=replace(self.audit, findings=tuple(map(change, self.audit.findings))))


class TextCheck(Protocol):
    """Interface of a check whether a finished text has the requested structure."""

    def faults(self, text: str) -> tuple[str, ...]:
        """Return the faults of the text, one sentence each; () if it is valid."""
        ...


@dataclass(frozen=True, slots=True)
class Plan:
    """The variants, best first, and the reason for their order.

    `schema`: schema that validates finished documents; None if the output is not a JSON document. `check`:
    validates the finished text; None if the mask or `schema` suffices. `seconds`: time left for compiling.
    """

    variants: tuple[Variant, ...]
    reason: str = ""
    schema: Any = None
    check: TextCheck | None = None
    seconds: float = math.inf


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """The options of a plan, besides the structure itself.

    `extra`: objects may have properties that the schema does not name. `any_order`: properties may come in
    any order. `whitespace`: limit of consecutive white-space characters. `rewrite`: schemas are rewritten for
    a back end; otherwise, and if one becomes too large, it gets the schema without the keywords that it
    rejects. `model`: the model whose format of tool calls is used. `tool_choice`: auto, required or a tool's
    name. `answer`: the schema of an output without calls, as `json_schema` has it. `has_formats`: the final
    check includes formats. `pipes`: a file may be a pipe, because a user named it. Planning ends by
    `deadline`.
    """

    backend: str = "auto"
    whitespace: int = WHITESPACE
    extra: bool = False
    any_order: bool = False
    rewrite: bool = True
    model: str = "tiny"
    tool_choice: str = "auto"
    answer: str | None = None
    has_formats: bool = False
    pipes: bool = False
    deadline: Deadline = NEVER


_MEANINGS: dict[Enforcement, str] = {"mask": "mask", "check": "final check", "unknown": "not understood"}
_NUM_SHOWN = 12
_NAMED = "name all properties and give additionalProperties: false, "


@dataclass(frozen=True, slots=True)
class Compiled:
    """The chosen variant, the seconds of compiling, and why better variants were not chosen.

    `warnings`: warnings of the back end.
    """

    variant: Variant
    seconds: float
    passed_over: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def notices(self) -> tuple[str, ...]:
        """Why better variants do not run, and what this one leaves to the final check; () for the best."""
        backend = self.variant.constraint.backend
        if not self.passed_over:
            return ()
        less = plan_notices(Plan((self.variant,), f"{backend} does not enforce all of this schema."))
        return (*(f"{reason} {backend} is used instead." for reason in self.passed_over), *less)


def plan_notices(plan: Plan) -> Iterator[str]:
    """Yield a notice that lists the keywords that the mask does not enforce, with reasons; else nothing.

    Repeated free property names are omitted, because no keyword requires unique names.
    """
    first = plan.variants[0]
    if first.constraint.kind != "json_schema":
        return
    lines = [line(finding) for finding in first.audit.open if finding.keyword != UNIQUE_NAMES]
    if not lines:
        return
    more = len(lines) - _NUM_SHOWN
    remainder = [f"and {more} more; gencli schema audit lists all"] if more > 0 else []
    yield "\n  ".join([plan.reason, *lines[:_NUM_SHOWN], *remainder])


def refuse_open(plan: Plan, *, name: str) -> None:
    """Raise ConfigError if the mask leaves any keyword of the schema to the final check."""
    if findings := plan.variants[0].audit.open:
        lines = "\n".join(f"  {line(finding)}" for finding in findings)
        names = any(finding.keyword == UNIQUE_NAMES for finding in findings)
        raise ConfigError(
            f"{name}: {plan.variants[0].constraint.backend} does not enforce all of the schema:\n{lines}",
            hint=f"Take these out of the schema (a remark may be called x-NAME), {_NAMED * names}"
            f"or leave {name} out: the final check runs anyway.",
        )


def line(finding: KeywordFinding) -> str:
    """Return a finding as one line."""
    pointer = finding.pointer or "/"
    reason = f" ({finding.reason})" if finding.reason else ""
    return f"{finding.keyword} at {pointer}: {meaning(finding.verdict)}{reason}"


def meaning(verdict: Enforcement) -> str:
    """Return a verdict in words."""
    return _MEANINGS[verdict]


class OutputValidator:
    """Validates the texts of a run; without a specification it only reports an unfinished grammar."""

    def __init__(self, spec: OutputSpec | None) -> None:
        self._spec = spec
        self._faults: Callable[[Any], tuple[str, ...]] = lambda value: ()
        if spec is not None and spec.kind in DOCUMENTS:
            from gencli.structured.schema_validator import Validator

            self._faults = Validator(spec.plan.schema, spec.has_formats).faults

    def __call__(self, finish: Finish, marker: str = "") -> Finish:
        """Return the event with its verdict; unchanged if there is nothing to validate.

        The text up to `marker` is reasoning.
        """
        if finish.document is None and self._spec is None:
            return finish
        pieces = split_thinking(finish.text, marker) if marker else None
        text = pieces.result if pieces else finish.text
        fault = _cut(finish, self._spec)
        verdict = ValidationResult((fault,), written=text) if fault else self.validate(text)
        verdict = replace(verdict, thinking=pieces.thinking if pieces else None)
        return replace(finish, text=text, verdict=verdict)

    def validate(self, text: str) -> ValidationResult:
        """Validate a complete text from the end of the marker `after` on."""
        spec = self._spec
        if spec is None:
            return ValidationResult(written=text)
        try:
            value = spec.read(text) if spec.read else None
            faults = self._faults(value)
            if not faults and spec.plan.check is not None:
                faults = spec.plan.check.faults(text)
            if not faults and spec.select is not None:
                text = select(value, spec.select)
            elif not faults and spec.is_parsed:
                text = compact(value)
            return ValidationResult(faults, value, text)
        except GencliError as error:
            return ValidationResult((error.message,), written=text)


def _cut(finish: Finish, spec: OutputSpec | None) -> str:
    """Return why the text ends before its grammar does; "" if it does not."""
    if finish.document not in (None, "open", "free"):
        return ""
    moment = "before it was complete"
    if spec and spec.after and finish.document != "open":
        moment = f"before {spec.after!r}, after which the result begins"
    if finish.reason != "length":
        return f"it ended {moment} ({finish.reason})"
    if finish.matched in ("max_tokens", "max_time"):
        return f"`{finish.matched}` cut it {moment}; raise it"
    return f"the context ended {moment}; shorten the prompt"


@dataclass(frozen=True, slots=True)
class ThinkingSplit:
    """A text in two parts: thinking, with the marker, and the result."""

    thinking: str = ""
    result: str = ""


def split_thinking(text: str, marker: str) -> ThinkingSplit:
    """Split a finished text at the marker. Without the marker all of it is reasoning."""
    _check(marker)
    before, separator, result = text.partition(marker)
    return ThinkingSplit(before + separator, result)


class ThinkingSplitter:
    """Splits a stream at the first marker; holds back only a possible beginning of the marker."""

    def __init__(self, marker: str) -> None:
        _check(marker)
        self._marker, self._held, self._is_over = marker, "", False

    @property
    def is_over(self) -> bool:
        """Whether the marker was found."""
        return self._is_over

    def feed(self, text: str) -> ThinkingSplit:
        """Add a piece of text; return the text that it makes certain."""
        if self._is_over:
            return ThinkingSplit(result=text)
        text = self._held + text
        if self._marker in text:
            self._held, self._is_over = "", True
            return split_thinking(text, self._marker)
        held = _overlap(text, self._marker)
        self._held = text[len(text) - held :]
        return ThinkingSplit(thinking=text[: len(text) - held])

    def finish(self) -> ThinkingSplit:
        """Return the held text when the stream ends."""
        held, self._held = self._held, ""
        return ThinkingSplit(thinking=held)


def _overlap(text: str, marker: str) -> int:
    """Return the length of the longest suffix of the text that is a proper prefix of the marker."""
    longest = min(len(text), len(marker) - 1)
    return next((length for length in range(longest, 0, -1) if text.endswith(marker[:length])), 0)


def _check(marker: str) -> None:
    if not marker:
        hint = "Give the text that ends the thinking, such as </think>."
        raise ConfigError("The marker to constrain after is empty.", hint=hint)

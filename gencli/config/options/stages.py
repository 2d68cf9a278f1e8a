"""Options that set a field of a stage, with the help, bounds and default of the field's declaration."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Literal

from gencli.config.options.option import Option
from gencli.errors import UsageError
from gencli.text.escapes import unescape
from processors.conditions.when import THINKING, When
from processors.conversion import whole
from processors.params import describe
from processors.registry import builtin_registry

__all__ = ["PENALTY_STAGES", "STAGES", "read_ids", "read_texts"]

PENALTY_STAGES = ("repetition", "frequency", "presence")


def read_ids(given: Sequence[str]) -> tuple[int, ...]:
    """Return the ids of texts such as "1,2,3". Raises UsageError."""
    found = []
    for part in (part.strip() for text in given for part in text.split(",")):
        if (number := whole(part)) is None:
            raise UsageError(f"{part[:60]!r} is not a token id.", hint="Ids are written 3,14,15.")
        found.append(number)
    return tuple(found)


def read_texts(given: Sequence[str]) -> tuple[str, ...]:
    return tuple(unescape(text) for text in given)


def _read_bias(given: Sequence[str]) -> tuple[tuple[int | str, float], ...]:
    """Return pairs from "42=1.5" and " word=-2"; digits are a token id. Raises UsageError."""
    pairs: list[tuple[int | str, float]] = []
    for text in given:
        token, equals, number = text.rpartition("=")
        try:
            value = float(number)
        except ValueError:
            equals = ""
        if not equals or not token:
            raise UsageError(f"{text!r} is not of the form ID=NUMBER or TEXT=NUMBER.")
        token_id = whole(token)
        pairs.append((unescape(token) if token_id is None else token_id, value))
    return tuple(pairs)


def _dry_breakers(given: Sequence[str]) -> tuple[str, ...]:
    """Return the texts; "none" alone means no breaker, as in llama.cpp."""
    return () if list(given) == ["none"] else read_texts(given)


def _read_decay(given: str) -> tuple[int, float]:
    """Return start and factor from "30:1.05". Raises UsageError."""
    start, colon, factor = given.partition(":")
    number = whole(start)
    try:
        value = float(factor)
    except ValueError:
        colon = ""
    if not colon or number is None:
        raise UsageError(
            f"{given!r} is not of the form START:FACTOR.", hint="30:1.05 starts after 30 tokens."
        )
    return number, value


def _for_stage(*names: str, stage: str, field: str = "", **changes: Any) -> Option:
    """Return the option of a stage's field, from the field's declaration. `kind` replaces its type."""
    params = builtin_registry().spec(stage).params
    field = field or params.main()
    about = describe(params)[field]
    kind = about["type"] if about["type"] in (int, float, bool) else str
    hint = params.__dataclass_fields__[field].metadata["hint"]
    declared = Option(
        names, kind, about["doc"], "Chain", about["default"], about["bounds"],
        stage=stage, field=field, hint=hint,
    )  # fmt: skip
    changes |= {"type": changes.pop("kind")} if "kind" in changes else {}
    return dataclasses.replace(declared, **changes)


def _for_penalties(*names: str, field: str, kind: Any, **changes: Any) -> Option:
    """Return the option of a field of all active penalties; without it each penalty keeps its own default."""
    about = describe(builtin_registry().spec("frequency").params)[field]
    about["doc"] = about["doc"].replace("; null is all", "")  # an option without a value is not given
    text = f"For all penalties that are on: {about['doc'][0].lower()}{about['doc'][1:]}"
    return Option(names, kind, text, "Chain", bounds=about["bounds"], field=field, **changes)


STAGES: tuple[Option, ...] = (
    _for_stage("--temperature", "-t", stage="temperature"),
    _for_stage(
        "--thinking-temperature",
        stage="temperature",
        when=When(inside=THINKING),
        help="Temperature inside thinking: from <think> to </think>, or up to the text of `constrain_after`.",
    ),
    _for_stage("--top-k", stage="top_k"),
    _for_stage("--top-p", stage="top_p"),
    _for_stage("--min-p", stage="min_p"),
    _for_stage("--top-n-sigma", stage="top_n_sigma"),
    _for_stage("--epsilon", stage="epsilon"),
    _for_stage("--eta", stage="eta"),
    _for_stage("--top-a", stage="top_a"),
    _for_stage("--p-less", stage="p_less"),
    _for_stage("--typical", stage="typical"),
    _for_stage("--tfs", stage="tfs"),
    _for_stage("--top-h", stage="top_h"),
    _for_stage("--min-k", stage="min_k", type=float),
    _for_stage("--xtc-probability", stage="xtc"),
    _for_stage("--xtc-threshold", stage="xtc", field="threshold"),
    _for_stage("--dynatemp-min", stage="dynamic_temperature", field="min", type=float),
    _for_stage("--dynatemp-max", stage="dynamic_temperature", field="max", type=float),
    _for_stage("--dynatemp-range", stage="dynamic_temperature", field="range", type=float),
    _for_stage("--dynatemp-exponent", stage="dynamic_temperature", field="exponent"),
    _for_stage("--edt", stage="edt"),
    _for_stage("--smoothing", stage="smoothing"),
    _for_stage("--smoothing-curve", stage="smoothing", field="curve"),
    _for_stage("--mirostat", stage="mirostat"),
    _for_stage("--mirostat-tau", stage="mirostat", field="tau"),
    _for_stage("--mirostat-eta", stage="mirostat", field="eta"),
    _for_stage("--skew", stage="skew"),
    _for_stage("--adaptive-target", stage="adaptive_p"),
    _for_stage("--adaptive-decay", stage="adaptive_p", field="decay"),
    _for_stage("--repetition-penalty", stage="repetition"),
    _for_stage("--frequency-penalty", stage="frequency"),
    _for_stage("--presence-penalty", stage="presence"),
    _for_stage("--no-repeat-ngram", stage="no_repeat_ngram"),
    _for_stage("--dry-multiplier", stage="dry"),
    _for_stage("--dry-base", stage="dry", field="base"),
    _for_stage("--dry-allowed-length", stage="dry", field="allowed"),
    _for_stage("--dry-window", stage="dry", field="window", type=int),
    _for_stage("--dry-breaker", stage="dry", field="breakers", many=True, read=_dry_breakers, metavar="TEXT"),
    _for_stage("--lz", stage="lz"),
    _for_stage("--length-boost", stage="length_boost"),
    _for_stage("--length-decay", stage="length_decay", read=_read_decay, metavar="START:FACTOR"),
    _for_stage("--sequence-bias", stage="sequence_bias", many=True, read=_read_bias, metavar="TEXT=NUMBER"),
    _for_penalties("--penalty-scope", field="scope", kind=Literal["prompt", "output", "both"]),
    _for_penalties("--penalty-window", field="window", kind=int),
    _for_stage("--logit-bias", stage="bias", many=True, read=_read_bias, metavar="TOKEN=NUMBER"),
    _for_stage("--allow-ids", stage="allowed", many=True, read=read_ids, metavar="IDS"),
    _for_stage("--suppress-ids", stage="suppress", many=True, read=read_ids, metavar="IDS"),
    _for_stage("--ban", stage="ban", many=True, read=read_texts, metavar="TEXT"),
    _for_stage("--min-tokens", stage="min_tokens"),
    _for_stage("--ignore-eos", stage="ignore_eos"),
    _for_stage("--begin-suppress-ids", stage="begin_suppress", many=True, read=read_ids, metavar="IDS"),
    _for_stage("--eos-above", stage="eos_above"),
    _for_stage("--ban-rewind", stage="ban", field="rewind"),
    _for_stage("--force-text", stage="force", read=unescape, metavar="TEXT"),
    _for_stage("--reasoning-budget", stage="reasoning_budget", kind=int),
    _for_stage("--reasoning-message", stage="reasoning_budget", field="message", read=unescape,
               metavar="TEXT"),
)  # fmt: skip

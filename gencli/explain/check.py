"""Checks whether a line of a trace is a token record (docs/trace.schema.json), as far as readers need.

Written by hand, because validating a record by the schema takes a hundred times as long.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, get_args

from processors.catalog import Draw

__all__ = ["check_record", "typed"]

_MOST = 1e39  # above any float32
_MOST_COUNT = 1 << 53  # the largest integer that every JSON reader represents exactly


def check_record(line: Mapping[str, Any]) -> None:
    """Raise KeyError, TypeError or ValueError if a field that readers use is missing or invalid."""
    typed(line, text=str, bytes=str, raw=dict, final=dict, stages=list, draw=dict)
    _counts(line, "pos", "id")
    for key in ("raw", "final"):
        _check_place(line[key])
        _counts(line[key], "alive")
    _number_or_none(line, "surprise", least=0)
    for stage in line["stages"]:
        _check_stage(stage)
    names = {stage["name"] for stage in line["stages"]}
    _check_names(line["decided_by"], names, "decided_by")
    if "instead" in line:
        _check_instead(line["instead"], len(line["decided_by"]))
    _check_draw(line["draw"])
    if line["forgone"] is not None:
        typed(line["forgone"], text=str)
        _counts(line["forgone"], "id")
        _probabilities(line["forgone"], "p")
        _check_names([line["forgone"]["removed_by"]], names, "removed_by")
    if "logits" in line:
        typed(line, logits=dict)
    if "mask" in line:
        _check_names(line["mask"]["constrained_by"], names, "constrained_by")
        _counts(line["mask"], "n_masked")


def _check_place(place: Mapping[str, Any]) -> None:
    _probabilities(place, "p", "others")
    _number(place["entropy"], "entropy", least=0)
    _number_or_none(place, "logit")
    if place["rank"] is not None:
        _counts(place, "rank")
    _check_weighed(place["top"])


def _check_weighed(entries: Any) -> None:
    for token, text, p in _listed(entries):
        found = {"id": token, "text": text, "p": p}
        _counts(found, "id")
        typed(found, text=str)
        _probabilities(found, "p")


def _check_stage(stage: Mapping[str, Any]) -> None:
    _check_place(stage)
    typed(stage, name=str, params=str, acted=bool, note=str)
    if "why_not" in stage:
        typed(stage, why_not=str)
    _probabilities(stage, "mass_kept")
    before, after = _listed(stage["alive"])
    _counts({"before": before, "after": after}, "before", "after")
    _check_weighed(stage["removed"])
    for token, text, old, new in _listed(stage["changed"]):
        _counts({"id": token}, "id")
        typed({"text": text}, text=str)
        _number(old, "changed")
        _number(new, "changed")


def _check_draw(draw: Mapping[str, Any]) -> None:
    if draw["kind"] not in get_args(Draw):
        raise ValueError(f"kind is {_shown(draw['kind'])}")
    _number_or_none(draw, "margin")
    for key in ("greedy", "forced"):
        if key in draw:
            typed(draw, **{key: bool})
    if draw["runner_up"] is not None:
        token, text = _listed(draw["runner_up"])
        _counts({"id": token}, "id")
        typed({"text": text}, text=str)


def _check_instead(found: Any, count: int) -> None:
    if len(_listed(found)) != count:
        raise ValueError(f"instead has {len(found)} tokens for {count} stages")
    for entry in found:
        if entry is not None:
            token, text = _listed(entry)
            _counts({"id": token}, "id")
            typed({"text": text}, text=str)


def _check_names(found: Any, known: Iterable[str], what: str) -> None:
    for name in _listed(found):
        if not isinstance(name, str) or name not in known:
            raise ValueError(f"{what} names {_shown(name)}, which is no stage of it")


def _listed(found: Any) -> list[Any]:
    if not isinstance(found, list):
        raise TypeError(f"{_shown(found)} is no list")
    return found


def typed(found: Mapping[str, Any], **types: type) -> None:
    """Raise KeyError for a missing field, TypeError for one of another type."""
    for name, kind in types.items():
        if not isinstance(found[name], kind):
            raise TypeError(f"{name} is {_shown(found[name])}")


def _counts(found: Mapping[str, Any], *names: str) -> None:
    for name in names:
        value = found[name]
        if type(value) is not int or not 0 <= value <= _MOST_COUNT:
            raise ValueError(f"{name} is {_shown(value)}")


def _probabilities(found: Mapping[str, Any], *names: str) -> None:
    for name in names:
        _number(found[name], name, least=0, most=1)


def _number_or_none(found: Mapping[str, Any], name: str, least: float = -_MOST) -> None:
    if found[name] is not None:
        _number(found[name], name, least=least)


def _number(value: Any, name: str, *, least: float = -_MOST, most: float = _MOST) -> None:
    """Raise ValueError unless the value is a number within these bounds; booleans are not numbers."""
    if type(value) not in (int, float) or not least <= value <= most:
        raise ValueError(f"{name} is {_shown(value)}")


def _shown(value: Any) -> str:
    return repr(str(value)[:40])

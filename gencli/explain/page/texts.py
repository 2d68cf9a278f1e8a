"""Traced texts in the short form that the page's scripts read.

    text     {title, run, sample, facts, command, prompt, reason, stages: [[name, params] ...], tokens}
    token    [id, surprise, place, stages, [draw, margin, runner-up], deciding stages, forgone, mask,
              tokens drawn without each of the deciding stages, null for none]
    place    [p, rank, entropy, alive, others, [id, p, id, p ...], logit]
    stage    [index in the stages, acted, mass kept, place or 0 for the place before, removed [id, p ...],
              changed [id, before, after ...], note, why not], without empty fields at the end
    forgone  0, or [id, p, stage that removed it]
    mask     0, or [number of masked ids, name of a masking stage ...]

Texts of ids are kept once, beside the texts; so are the bytes of tokens that are parts of characters.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gencli.errors import GenerationError
from gencli.explain.page.assemble import named, short
from gencli.explain.page.command import command
from gencli.explain.record import Record
from gencli.explain.trace_file import TracedText, text_label

__all__ = ["texts_data"]

_Stages = dict[tuple[str, str], int]
_NO_MASK: Record = {"n_masked": 0, "constrained_by": []}  # for a trace without masks


def texts_data(texts: Sequence[TracedText]) -> dict[str, Any]:
    """Return the page data of these texts. Raises GenerationError for an invalid record."""
    names: dict[int, str] = {}
    spellings: dict[int, str] = {}
    written = []
    for text in texts:
        try:
            _spell(text, spellings)
            written.append({**_text(text, names), "command": command(text, texts)})
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            raise GenerationError(f"A record of the text {text.key[0]!r} is no record: {error}.") from None
    return {"texts": written, "names": names, "bytes": spellings}


def _spell(text: TracedText, spellings: dict[int, str]) -> None:
    """Add the bytes of tokens whose text does not show them: parts of characters."""
    for record in text.records:
        if "\ufffd" in record["text"]:
            spellings[record["id"]] = str(record["bytes"])


def _text(text: TracedText, names: dict[int, str]) -> dict[str, Any]:
    stages: _Stages = {}
    for record in text.records:
        for stage in record["stages"]:
            stages.setdefault((stage["name"], stage["params"]), len(stages))
    request, sample = text.key
    return {
        "title": f"prompt {text_label(text.key)}",
        "run": request,
        "sample": sample,
        "facts": {name: text.head.get(name) for name in ("model", "seed")},
        "prompt": str(text.head.get("prompt", "")),
        "reason": text.reason,
        "stages": [list(key) for key in stages],
        "tokens": [_token(record, stages, names) for record in text.records],
    }


def _token(record: Record, stages: _Stages, names: dict[int, str]) -> list[Any]:
    names[record["id"]] = record["text"]
    known = [stage["name"] for stage in record["stages"]]
    draw, forgone, runner_up = record["draw"], record["forgone"], None
    mask = record.get("mask", _NO_MASK)
    if draw["runner_up"] is not None:
        runner_up, names[draw["runner_up"][0]] = draw["runner_up"]
    if forgone is not None:
        names[forgone["id"]] = forgone["text"]
    before, rows = _place(record["raw"], record["raw"]["alive"], names), []
    for stage in record["stages"]:
        place = _place(stage, stage["alive"][1], names)
        rows.append(_stage(stage, stages, 0 if place == before else place, names))
        before = place
    return [
        record["id"],
        short(record["surprise"]),
        _place(record["raw"], record["raw"]["alive"], names),
        rows,
        [draw["kind"], short(draw["margin"]), runner_up],
        [known.index(name) for name in record["decided_by"] if name in known],
        0 if forgone is None else [forgone["id"], short(forgone["p"]), forgone["removed_by"]],
        [mask["n_masked"], *mask["constrained_by"]] if mask["n_masked"] else 0,
        _instead(record, names),
    ]


def _instead(record: Record, names: dict[int, str]) -> list[int | None]:
    found: list[int | None] = []
    for other in record.get("instead", ()):
        if other is not None:
            names[other[0]] = other[1]
        found.append(None if other is None else other[0])
    return found


def _stage(stage: Record, stages: _Stages, place: list[Any] | int, names: dict[int, str]) -> list[Any]:
    number = stages[stage["name"], stage["params"]]
    removed, changed = named(stage["removed"], names), named(stage["changed"], names)
    said = stage["note"], stage.get("why_not", "")
    row = [number, int(stage["acted"]), short(stage["mass_kept"]), place, removed, changed, *said]
    while row[-1] in (0, "", []):  # missing fields count as empty
        row.pop()
    return row


def _place(place: Record, alive: int, names: dict[int, str]) -> list[Any]:
    numbers = [place["p"], place["rank"], place["entropy"], alive, place["others"]]
    return [*map(short, numbers), named(place["top"], names), short(place["logit"])]

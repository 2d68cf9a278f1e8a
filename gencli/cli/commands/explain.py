"""`gencli explain`: the effect of each stage of a chain on the tokens of a text."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import repeat
from os.path import exists
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gencli.cli.navigation_pages import walk
from gencli.cli.render import Sink
from gencli.cli.token_views import one_token, whole_text, why_page, why_table
from gencli.cli.trace_views import EXPLAIN_OPTIONS, OWN, RUN_KEYS, matching, open_trace, show_live
from gencli.cli.usage import Page, values_of
from gencli.config.result_formats import format_of
from gencli.errors import UsageError
from gencli.explain.token_record import Record
from gencli.explain.trace_file import TracedText, follow, text_label
from gencli.helpers import counted
from processors.errors import nearest

if TYPE_CHECKING:
    from gencli.explain.replay import Seeker

PAGE = Page(
    """\
Usage: gencli explain [OPTIONS] TRACE
       gencli explain [OPTIONS] PROMPT...

Show what each stage of the chain did to the tokens of a text: which stage
decided which token, and what would have come without it. A trace is a file that
gencli run --trace FILE wrote; it needs no model. Other words are prompts, which
are run with the given options.
""",
    EXPLAIN_OPTIONS,
    "TRACE|PROMPT",
    examples=(
        'gencli explain "Once upon a time" --top-p 0.9 --seed 7',
        'gencli explain "Once upon a time" --why " king" --at 3',
        "gencli run --trace t.jsonl Once; gencli explain t.jsonl --html page.html",
    ),
)
_SELECTED = "Leave one of them out."


def run(arguments: Sequence[str], flags: Mapping[str, Any]) -> int:
    """Print the explanations and return the exit code. Raises UsageError for data that the text lacks."""
    values = values_of(OWN, flags)
    _check(arguments, flags, values)
    if values["teach"]:
        from gencli.cli.explained_sources import lesson

        Sink().write(lesson(flags))
        return 0
    if values["live"]:
        if not show_live(follow(arguments[0]), Sink(), values["request"], values["sample"]):
            raise UsageError("The trace has no such text.")
        return 0
    texts, seeker = _source(arguments, flags, values)
    chosen = _chosen(texts, values)
    if values["keys"]:
        _records(chosen[0], chosen[0].records, values)  # raises for a missing token
        return walk(chosen, values["at"])
    if values["html"] is not None:
        from gencli.explain.page import page

        for key in ("at", "decided_by"):
            if values[key] is not None:
                raise UsageError(f"--html has all tokens, so {_flag(key)} has no effect.", hint=_SELECTED)
        with Sink(values["html"]) as sink:
            sink.write(page(chosen))
        return 0
    for index, text in enumerate(chosen):
        if len(chosen) > 1 and format_of(values).is_text:
            Sink().write(("\n" if index else "") + f"== {text_label(text.key)}\n")
        _show(text, seeker, values)
    return 0


# Options without effect on a view.
_BESIDE = {
    "keys": ("decided_by", "html", "live", "why", "teach"),
    "live": ("at", "decided_by", "html", "why", "replay", "teach", "logits_file"),
}
_PAIRS = (("at", "decided_by"), ("why", "decided_by"), ("why", "html"), ("teach", "logits_file"))


def _check(arguments: Sequence[str], flags: Mapping[str, Any], values: Mapping[str, Any]) -> None:
    """Raise UsageError for options that exclude each other."""
    is_given = {key: value is not None and value is not False for key, value in values.items()}
    is_given["format"] = not format_of(values).is_text
    for view, others in _BESIDE.items():
        for key in (*others, "format"):
            if is_given[view] and is_given[key]:
                raise UsageError(f"--{view} and {_flag(key)} cannot be combined.", hint=_SELECTED)
    if values["live"] and len(arguments) != 1:
        raise UsageError("--live follows one trace.", hint="Write one with gencli run --trace FILE.")
    for key, beside in _PAIRS:
        if is_given[key] and is_given[beside]:
            raise UsageError(f"{_flag(key)} and {_flag(beside)} do not go together.", hint=_SELECTED)
    for key in ("tensor", "tokens"):
        if is_given[key] and not is_given["logits_file"]:
            raise UsageError(f"{_flag(key)} is given, but no --logits-file.", hint="Add it.")
    if (values["teach"] or is_given["logits_file"]) and (arguments or values["replay"]):
        raise UsageError("--teach and --logits-file take neither a prompt nor a trace.", hint=_SELECTED)
    idle = [_flag(key) for key in flags if key in values and key not in ("teach", "debug")]
    if values["teach"] and idle:
        raise UsageError(f"--teach shows its own text, so {idle[0]} has no effect.", hint=_SELECTED)


def _flag(key: str) -> str:
    return f"--{key.replace('_', '-')}"


def _source(
    arguments: Sequence[str], flags: Mapping[str, Any], values: Mapping[str, Any]
) -> tuple[list[TracedText], Seeker | None]:
    """Return the texts, and the Seeker of a named token if one is given."""
    word = arguments[0] if len(arguments) == 1 else None
    # A word in the form of a path is a file too, which may be missing.
    is_path = word is not None and len(word.split()) == 1 and ("/" in word or "." in word[1:-1])
    is_trace = is_path or (word is not None and (word == "-" or exists(Path(word))))
    if not is_trace or values["logits_file"] is not None:
        from gencli.cli.explained_sources import of_logits, of_prompts

        if values["replay"]:
            raise UsageError("--replay needs a trace with logits.", hint="Write one with --keep-logits.")
        if values["logits_file"] is not None:
            return of_logits(values["logits_file"], flags, values)
        return of_prompts(arguments, flags, values["why"])
    idle = [key for key in flags if key in RUN_KEYS and key not in ("debug", "trace_top", "plugin")]
    if idle and not values["replay"]:
        raise UsageError(
            f"The trace has its own chain, so {_flag(idle[0])} has no effect.",
            hint="--decided-by NAME shows the tokens that a stage decided."
            if idle[0] == "stage"
            else "Leave it out, or add --replay.",
        )
    texts = open_trace(arguments[0], hint="A prompt that looks like a path goes through --file.")
    if values["why"] is None and not values["replay"]:
        return texts, None
    from gencli.cli.explained_sources import of_trace

    return of_trace(_chosen(texts, values), flags, values["why"], is_replay=values["replay"])


def _show(text: TracedText, seeker: Seeker | None, values: Mapping[str, Any]) -> None:
    """Write the page of one text, or its records."""
    why = seeker.records.get(text.key) if seeker is not None else None
    records, count = _records(text, why or text.records, values), len(text.records)
    befores = ("".join(earlier["text"] for earlier in text.records[: shown["pos"]]) for shown in records)
    if not format_of(values).is_text:
        page = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
    elif seeker is not None and values["at"] is None:
        page = why_table(records)
    elif seeker is not None:
        page = "\n".join(map(why_page, records, befores, repeat(count)))
    elif values["at"] is None and values["decided_by"] is None:
        page = whole_text(records)
    elif not records:
        page = f"{values['decided_by']} decided none of {counted(count, 'token')}.\n"
    else:
        page = "\n".join(map(one_token, records, befores, repeat(count)))
    Sink().write(page)


def _chosen(texts: Sequence[TracedText], values: Mapping[str, Any]) -> list[TracedText]:
    if matches := matching(texts, values):
        return matches
    names = ", ".join(text_label(text.key) for text in texts[:5]) or "no text"
    raise UsageError("The trace has no such text.", hint=f"It has {names}.")


def _records(text: TracedText, records: Sequence[Record], values: Mapping[str, Any]) -> Sequence[Record]:
    """Return the records to show. Raises UsageError for a missing position or stage."""
    if (at := values["at"]) is not None:
        if at >= len(records):
            tokens = counted(len(records), "token", "tokens, from 0 on")
            raise UsageError(f"--at is {at}, but the text has {tokens}.")
        return records[at : at + 1]
    if (stage := values["decided_by"]) is not None:
        stages = list(dict.fromkeys(ran["name"] for record in text.records for ran in record["stages"]))
        if stage not in stages:
            raise UsageError(f"The chain of the text has no stage {stage!r}.", hint=nearest(stage, stages))
        return [record for record in records if stage in record["decided_by"]]
    return records

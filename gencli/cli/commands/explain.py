"""`gencli explain`: what each stage did to the tokens of a trace that `gencli run --trace` wrote."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from gencli.cli.explain.one_token import one_token
from gencli.cli.explain.trace_source import open_trace
from gencli.cli.explain.whole_text import whole_text
from gencli.cli.parser.command import make_command
from gencli.cli.parser.page import Page, values_of
from gencli.cli.terminal.render import Sink
from gencli.config.options.option import Option
from gencli.errors import UsageError
from gencli.explain.record import Record
from gencli.explain.trace_file import TracedText
from processors.conversion import Bounds
from processors.errors import nearest
from processors.params import MOST

__all__ = ["PAGE", "command", "run"]

PAGE = Page(
    """\
Usage: gencli explain [OPTIONS] TRACE

Show what each stage of the chain did to the tokens of a trace, a file that
gencli run --trace FILE wrote: which stage decided which token, and what would
have come without it. No model is needed.
""",
    (
        Option(("--at",), int, "Show the way of this token through the chain; the first one is 0.", "Output",
               bounds=Bounds(ge=0, le=MOST)),
        Option(("--stage",), str, "Show the tokens that this stage decided, one after the other.", "Output",
               metavar="NAME"),
        Option(("--run",), str, "Only the text of this request: the number of the prompt, or the row's id.",
               "Output", metavar="ID", key_name="request"),
        Option(("--sample",), int, "Only this sample of each prompt.", "Output",
               bounds=Bounds(ge=0, le=MOST)),
        Option(("--format",), str, "text, or jsonl: the records that would be shown.", "Output", "text",
               metavar="text|jsonl"),
        Option(("--html",), str, "Write a page to click through: one file that needs no network.", "Output",
               metavar="FILE"),
        Option(("--debug",), bool, "Show the traceback of an error.", "Output", False),
    ),
    "TRACE",
)  # fmt: skip


def command() -> Callable[..., int]:
    """Return the function that typer calls."""
    return make_command(run, PAGE)


def run(arguments: Sequence[str], given: Mapping[str, Any]) -> int:
    """Print the explanations and return the exit code. Raises UsageError for what the trace does not have."""
    values = values_of(PAGE, given)
    if len(arguments) != 1:
        raise UsageError("explain takes one trace.", hint="Write one with gencli run --trace FILE.")
    if values["format"] not in ("text", "jsonl"):
        raise UsageError(f"--format is {values['format']!r}.", hint="It is text or jsonl.")
    if values["at"] is not None and values["stage"] is not None:
        raise UsageError("--at and --stage both choose tokens.", hint="Leave one of them out.")
    texts = [*_chosen(open_trace(arguments[0]), values)]
    if values["html"] is not None:
        return _write_page(texts, values)
    for index, text in enumerate(texts):
        records = _records(text, values)
        if values["format"] == "jsonl":
            Sink().write("".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records))
        else:
            if len(texts) > 1:
                Sink().write(("\n" if index else "") + f"{_name(text)}\n")
            Sink().write(_page(text, records, values))
    return 0


def _write_page(texts: Sequence[TracedText], values: Mapping[str, Any]) -> int:
    from gencli.explain.page import page

    for key in ("at", "stage"):
        if values[key] is not None:
            raise UsageError(
                f"--html has all tokens, so --{key} has no effect.", hint="Leave one of them out."
            )
    with Sink(values["html"]) as sink:
        sink.write(page(texts))
    return 0


def _name(text: TracedText) -> str:
    request, sample = text.key
    return f"== {request}, sample {sample}"


def _chosen(texts: Sequence[TracedText], values: Mapping[str, Any]) -> Iterator[TracedText]:
    """Yield the texts that the options choose. Raises UsageError if there is none."""
    found = [
        text
        for text in texts
        if values["request"] in (None, text.key[0]) and values["sample"] in (None, text.key[1])
    ]
    if not found:
        known = ", ".join(_name(text).removeprefix("== ") for text in texts[:5]) or "no text"
        raise UsageError("The trace has no such text.", hint=f"It has {known}.")
    yield from found


def _records(text: TracedText, values: Mapping[str, Any]) -> Sequence[Record]:
    """Return the records to show. Raises UsageError for a position or a stage that the text lacks."""
    if (at := values["at"]) is not None:
        if at >= len(text.records):
            raise UsageError(f"--at is {at}, but the text has {len(text.records)} tokens, from 0 on.")
        return text.records[at : at + 1]
    if (stage := values["stage"]) is not None:
        known = list(dict.fromkeys(one["name"] for record in text.records for one in record["stages"]))
        if stage not in known:
            raise UsageError(f"The chain of the trace has no stage {stage!r}.", hint=nearest(stage, known))
        return [record for record in text.records if stage in record["decided_by"]]
    return text.records


def _page(text: TracedText, records: Sequence[Record], values: Mapping[str, Any]) -> str:
    if values["at"] is None and values["stage"] is None:
        return whole_text(records)
    if not records:
        return f"{values['stage']} decided none of {len(text.records)} tokens.\n"
    before = ["".join(one["text"] for one in text.records[: record["pos"]]) for record in records]
    pages = zip(records, before, strict=True)
    return "\n".join(one_token(record, before=so_far, of=len(text.records)) for record, so_far in pages)

"""`gencli score`: log-probabilities and perplexities of texts, pairs, choices and answers in files."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gencli.cli.fetching import fetch_models
from gencli.cli.parser.command import make_command
from gencli.cli.parser.page import Page, values_of
from gencli.cli.terminal.interrupts import interrupts
from gencli.cli.terminal.records import record_text
from gencli.cli.terminal.render import Sink, say_error
from gencli.cli.terminal.stderr import Stderr
from gencli.cli.terminal.tables import table
from gencli.config.layers import gather
from gencli.config.settings import Settings
from gencli.errors import GencliError, UsageError
from gencli.runtime.quiet import importing, quiet_libraries
from gencli.runtime.waiting import set_wait
from gencli.scoring.options import SCORE_OPTIONS, SHARED

if TYPE_CHECKING:
    from gencli.scoring.rows import ScoreRow
    from gencli.scoring.scorer import Scorer
    from gencli.scoring.scores import Score
    from gencli.scoring.totals import Totals

__all__ = ["PAGE", "command", "run"]

PAGE = Page(
    """\
Usage: gencli score [OPTIONS] [INPUT]...

Score texts under a model: log-probability, perplexity, bits per byte. Rows of
JSON Lines, JSON, CSV, TSV, Parquet or text, as of gencli batch, have `text`; or
`context` with `continuation` or `choices`; or `messages`, whose last one is
scored. Without a file it reads stdin:
    gencli score --model tiny texts.jsonl
""",
    SCORE_OPTIONS,
    "INPUT",
)
_HEAD = ("id", "tokens", "logprob", "perplexity", "bits/byte", "best or greedy")


def command() -> Callable[..., int]:
    """Return the function that typer calls."""
    return make_command(run, PAGE)


def run(arguments: Sequence[str], given: Mapping[str, Any]) -> int:
    """Score the rows; return 0, 7 if some rows failed, 6 if all did."""
    own, shared = values_of(PAGE, given), {entry.key for entry in SHARED}
    if own["tokens"] is not None and own["format"] == "text":
        raise UsageError("`tokens` has no place in a table.", hint="Use `format` = jsonl.")
    settings = gather({key: value for key, value in given.items() if key in shared}, os.environ)
    voice = Stderr(is_quiet=settings["quiet"])
    fetch_models(settings, None, voice)
    set_wait(settings["wait"], os.environ)  # before torch is imported
    with (
        Sink(own["output"]) as sink,
        interrupts() as handler,
        quiet_libraries(is_on=not settings["debug"]),
    ):
        with voice.starting(), importing():
            from gencli.batch.sources import open_input
            from gencli.scoring.rows import read_rows

        source = open_input(arguments or ("-",), format=own["input_format"], delimiter=own["delimiter"])
        for text in source.notices:
            voice.notice(text)
        scorer = _scorer(settings, own, voice)
        handler.on_first = scorer.interrupt
        return _write(scorer, read_rows(source), own, sink, voice)


def _scorer(settings: Settings, own: Mapping[str, Any], voice: Stderr) -> Scorer:
    """Load the model."""
    from gencli.runtime.wiring import bare_engine, load_model
    from gencli.scoring.scorer import Scorer, make_convention

    loaded, _ = load_model(settings, voice, companions=False, rows=settings["max_batch"])
    spec, tokenizer = loaded.runner.spec, loaded.tokenizer
    convention = make_convention(
        own["convention"], spec, tokenizer, window=own["window"], stride=own["stride"]
    )
    engine = bare_engine(loaded.runner, tokenizer, max_batch=settings["max_batch"])
    return Scorer(engine, spec, tokenizer, convention, top=own["tokens"] or 0)


def _write(
    scorer: Scorer, rows: Iterator[ScoreRow], own: Mapping[str, Any], sink: Sink, voice: Stderr
) -> int:
    """Write the scores and what they add up to; return the exit code."""
    from gencli.scoring.scores import TextScore
    from gencli.scoring.totals import Totals

    total, num_rows, num_failed = Totals(), 0, 0
    lines: list[tuple[str, ...]] = [_HEAD]
    for row, found in scorer.rows(rows):
        num_rows += 1
        if isinstance(found, GencliError):
            num_failed += 1
            if own["format"] == "text":
                say_error(f"Row {row.id}: {found.message}", found.hint)
        elif isinstance(found, TextScore):
            total += found.totals
        if own["format"] == "jsonl":
            sink.write(record_text(_record(row, found, scorer, own), "jsonl"))
        elif not isinstance(found, GencliError):
            lines.append(_line(row, found))
    if own["format"] == "text" and len(lines) > 1:
        sink.write(table(lines))
    for text in _summary(total, scorer):
        if own["format"] == "text":
            sink.write(text + "\n")
        else:
            voice.say(text)
    return 0 if not num_failed else 7 if num_failed < num_rows else 6


def _record(
    row: ScoreRow, found: Score | GencliError, scorer: Scorer, own: Mapping[str, Any]
) -> dict[str, Any]:
    from gencli.scoring.scores import score_record

    head = {"index": row.index, "id": row.id}
    if isinstance(found, GencliError):
        return {**head, "error": {"type": type(found).__name__, "message": f"{found} {found.hint}".strip()}}
    return {**head, **score_record(found, scorer.tokenizer if own["tokens"] is not None else None)}


def _line(row: ScoreRow, found: Score) -> tuple[str, ...]:
    from gencli.scoring.scores import ChoiceScore, PairScore

    if isinstance(found, ChoiceScore):
        best = ", ".join(f"{name} {index}" for name, index in found.best.items())
        return (row.id, "", "", "", "", best)
    last = "" if not isinstance(found, PairScore) else "greedy" if found.is_greedy else "not greedy"
    totals = found.totals
    return (
        row.id,
        str(totals.tokens),
        f"{totals.logprob:.4f}",
        _shown(totals.perplexity),
        _shown(totals.bits_per_byte),
        last,
    )


def _summary(total: Totals, scorer: Scorer) -> Iterator[str]:
    """Yield what the texts add up to, with the convention."""
    if total.tokens:
        words = f", per word {_shown(total.word_perplexity)}" if total.words else ""
        yield (
            f"perplexity per token {_shown(total.perplexity)} +/- {_shown(total.perplexity_error)}{words}, "
            f"per byte {_shown(total.byte_perplexity)}; bits per byte {_shown(total.bits_per_byte)}; "
            f"{total.tokens} tokens"
        )
    yield f"convention {scorer.convention}, raw log-probabilities"


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"

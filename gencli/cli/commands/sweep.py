"""`gencli sweep`: a grid of settings, the texts of each cell, and measures of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from gencli.cli.commands.run import begin
from gencli.cli.explain.heat import (
    cell_table,
    cell_texts,
    csv_lines,
    grid_page,
    heat_table,
    sweep_record,
    write_png,
)
from gencli.cli.explain.options import options_of_run
from gencli.cli.parser.command import make_command
from gencli.cli.parser.page import Page, values_of, with_format
from gencli.cli.parser.prompts import read_prompts
from gencli.cli.terminal.interrupts import interrupts
from gencli.cli.terminal.records import record_text
from gencli.cli.terminal.render import Sink, say_error
from gencli.cli.terminal.stderr import Stderr
from gencli.config.job import make_job
from gencli.config.jobs import Jobs
from gencli.config.layers import gather
from gencli.config.options.option import Option
from gencli.config.settings import Layer
from gencli.errors import UsageError
from gencli.explain.grid import VARIED, Axis, cells, read_axis
from gencli.explain.text_measures import MEASURES
from gencli.runtime.machine import importing, quiet_libraries, set_wait
from gencli.templates.prompt_templates import wanted_template
from processors.registry import Registry

__all__ = ["PAGE", "command", "run"]

_MOST_TEXTS = 100_000
_MOST_TITLE = 120  # characters of a title
_OWN: tuple[Option, ...] = (
    Option(("--vary",), str, "An option and its values: temperature=0.2:1.4:0.2 (from, to, step) or "
           "min_p=0,0.05,0.1.", "Draw", many=True, metavar="KEY=VALUES"),
    Option(("--first",), bool, "Only the first token of each text: the model reads each prompt once, and "
           "every chain runs on its logits.", "Draw", False),
    Option(("--show",), Literal[tuple(MEASURES)], "Show this measure as a grid instead of a table of all.",
           "Output", metavar="MEASURE"),
    Option(("--format",), Literal["text", "csv", "json", "jsonl", "yaml"], "Form of the result; csv has a "
           "line for each text, jsonl one for each cell. By default that of the suffix of `output`.",
           "Output", "text"),
    Option(("--html",), str, "Write the grid as a page: one file that needs no network.", "Output",
           metavar="FILE"),
    Option(("--png",), str, "Draw the measure of `show` as a picture; needs matplotlib.", "Output",
           metavar="FILE"),
)  # fmt: skip
_OF_RUN = options_of_run(_OWN, "trace_top")
_RUN_KEYS = frozenset(entry.key for entry in _OF_RUN)
PAGE = Page(
    """\
Usage: gencli sweep --vary KEY=VALUES [OPTIONS] [PROMPT]...

Generate the texts of a grid of settings, and measure each: entropy, tokens left,
repetition, length, validity, likelihood. The draw is the same in all cells, so
what differs comes from the settings:
    gencli sweep --vary temperature=0.2:1.4:0.2 --vary min_p=0,0.05,0.1 "Once"
""",
    (*_OWN, *_OF_RUN),
    "PROMPT",
    everyday=tuple("vary first show model preset n seed max_tokens format html png json_schema".split()),
    examples=(
        'gencli sweep --vary temperature=0.2:1.4:0.2 "Once upon a time"',
        'gencli sweep --vary temperature=0.6,1 --vary min_p=0,0.05,0.1 -n 8 "Once"',
        'gencli sweep --vary top_p=0.5:1:0.1 --html page.html "Once"',
    ),
)


def command() -> Callable[..., int]:
    """Return the function that typer calls."""
    return make_command(run, PAGE)


def run(arguments: Sequence[str], given: Mapping[str, Any]) -> int:
    """Run the cells, write the results and return the exit code."""
    given = with_format(given, ("csv", "json", "jsonl", "yaml"))
    values = values_of(Page("", _OWN), {key: value for key, value in given.items() if key not in _RUN_KEYS})
    axes = [read_axis(text) for text in values["vary"] or ()]
    _check(axes, values)
    grid = cells(axes)
    # With a trace, the settings are checked as those of a traced run.
    run_given = {key: value for key, value in given.items() if key in _RUN_KEYS} | {"trace": os.devnull}
    settings = gather(run_given, os.environ)
    job = make_job(settings)
    source = read_prompts(arguments, settings["file"], wanted_template(settings))
    voice = Stderr(is_quiet=settings["quiet"])
    if (count := len(grid) * len(source.texts) * job.n) > _MOST_TEXTS:
        raise UsageError(f"These are {count} texts, at most {_MOST_TEXTS} are drawn.", hint="Vary less.")
    job, settings = begin(job, settings, source, run_given, voice)
    jobs = Jobs(settings, _layer)
    made = [jobs.job(one) for one in grid]  # faults are reported before anything is loaded
    for text in dict.fromkeys(text for one in made for text in one.assembly.notices):
        voice.notice(text)
    set_wait(settings["wait"], os.environ)  # before torch is imported
    found, total = [], len(grid)
    with (
        Sink(settings["output"]) as sink,
        interrupts() as handler,
        quiet_libraries(is_on=not settings["debug"]),
    ):
        with voice.starting(), importing():
            from gencli.cli.explain.sweep_run import run_cells

        def take(engine: Any) -> None:
            handler.on_first = engine.interrupt

        for cell in run_cells(
            grid, made, source.texts, jobs, settings, voice, first=values["first"], on_engine=take
        ):
            found.append(cell)
        sink.write(_shown(axes, found, source.texts, values, settings["model"], job.seed))
    if values["png"] is not None:
        write_png(axes, found, values["show"], values["png"])
    if values["html"] is not None:
        with Sink(values["html"]) as page:
            page.write(grid_page(axes, found, " ".join(source.texts)[:_MOST_TITLE]))
    samples = [sample for cell in found for sample in cell.samples]
    voice.say(f"{len(found)} of {total} cells, seed {job.seed}")
    if any(sample.reason == "interrupted" for sample in samples):
        return 130
    failed = [sample.error for sample in samples if sample.error]
    for message in dict.fromkeys(failed):
        say_error(message)
    return 0 if not failed else 6 if len(failed) == len(samples) else 7


def _check(axes: Sequence[Axis], values: Mapping[str, Any]) -> None:
    """Raise UsageError for measures that the cells cannot have."""
    if not axes:
        raise UsageError("A sweep varies something.", hint="Add --vary temperature=0.2:1.4:0.2.")
    if values["first"]:
        for axis in axes:
            if VARIED[axis.key].section not in ("Chain", "Draw") or axis.key in ("n", "max_tokens"):
                raise UsageError(
                    f"--first draws from the same logits in all cells, so {axis.key} has no effect.",
                    hint="Leave --first out.",
                )
    if values["png"] is not None and values["show"] is None:
        raise UsageError("--png draws one measure.", hint=f"Add --show, one of {', '.join(MEASURES)}.")
    if values["png"] is not None and len(axes) > 2:
        raise UsageError(f"--png draws at most two options, but {len(axes)} vary.", hint="Vary less.")


def _layer(values: Mapping[str, Any], registry: Registry) -> Layer:
    return Layer.of("--vary", values, {key: f"--vary {key}" for key in values})


def _shown(
    axes: Sequence[Axis],
    found: Sequence[Any],
    prompts: Sequence[str],
    values: Mapping[str, Any],
    model: str,
    seed: int,
) -> str:
    if values["format"] == "csv":
        return csv_lines(axes, found)
    if values["format"] == "text":
        if values["show"]:
            return heat_table(axes, found, values["show"])
        return cell_table(axes, found) + cell_texts(found)
    record = sweep_record(axes, found, prompts, {"model": model, "seed": seed, "first": values["first"]})
    if values["format"] == "jsonl":
        return "".join(record_text(cell, "jsonl") for cell in record["cells"])
    return record_text(record, values["format"])

"""`gencli compare`: two chains on the same texts with the same noise, and where they diverge.

`gencli sweep`: a grid of settings, the texts of each cell, and measures of them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from gencli.batch.batch_sources import open_input
from gencli.cli import experiment_tables as tables
from gencli.cli.commands.run import begin
from gencli.cli.fetching import fetch_models
from gencli.cli.inputs import read_prompts
from gencli.cli.render import Sink, say_error
from gencli.cli.stderr import Stderr, running
from gencli.cli.trace_views import options_of_run
from gencli.cli.usage import Page, values_of, with_format
from gencli.config.job import Jobs, make_job, notices
from gencli.config.job_parts import wanted_template
from gencli.config.layers import COMPARED, ComparedSide, gather, gather_side, refuse_differences
from gencli.config.option import Option
from gencli.config.result_formats import FORMATS, RECORDS, format_of
from gencli.config.settings import DEFAULT, FLAG, SettingsLayer
from gencli.errors import GencliError, UsageError
from gencli.explain.text_sets import MEASURES, VARIED, SweepAxis, cells, read_axis
from gencli.helpers import counted
from gencli.runtime.machine import importing, quiet_libraries
from processors.errors import ProcessorsError
from processors.params import Bounds
from processors.registry import Registry

if TYPE_CHECKING:
    from gencli.cli.experiment_runs import CellResult

_MAX_PROMPTS = 10_000

_OWN: tuple[Option, ...] = (
    Option(("--a",), str, "The chain that makes the text: a whole chain, as in 'temperature=0.8 | top_k=40'; "
           "a preset's name or file; or compat:NAME for another system.", "Chain", metavar="SIDE"),
    Option(("--b",), str, "The chain that is run beside it, in the same forms.", "Chain", metavar="SIDE"),
    Option(("--prompts",), str, "Read the prompts from this file: a line each, or rows with a column prompt, "
           "as of gencli batch.", "Prompt", metavar="FILE"),
    Option(("--trace",), str, "Run B on the logits that gencli run --trace FILE --keep-logits N kept, beside "
           "the chain that made them; no model is loaded, and --model only names a tokenizer.", "Prompt",
           metavar="FILE"),
    Option(("--model-b",), str, "Run B on this model, which has the same vocabulary; both models "
           "read A's text.", "Model", metavar="NAME"),
    Option(("--format",), Literal[tuple(FORMATS)], "Form of the result; by default that of the suffix of "
           "`output`.", "Output", "text"),
    Option(("--html",), str, "Write a page with both texts of one prompt beside each other: one file that "
           "needs no network.", "Output", metavar="FILE"),
    Option(("--assert-equal",), bool, "Exit with code 6 unless all texts are equal.", "Output", False),
    Option(("--max-tv",), float, "Exit with code 6 if the total variation is larger at any place.", "Output",
           bounds=Bounds(ge=0, le=1)),
)  # fmt: skip
_ON_TRACE = frozenset(
    "trace b model trust_remote_code plugin sampler max_tokens stop_id format output html assert_equal "
    "max_tv quiet debug".split()
)

PAGE = Page(
    """\
Usage: gencli compare --a SIDE --b SIDE [OPTIONS] [PROMPT]...

Generate texts with chain A, and run chain B along them on the same logits with
the same noise: where it would choose another token, which stage decides that,
and how far the two distributions are apart. B's own texts are made as well.
    gencli compare --a creative --b 'temperature=0.8 | top_k=40' "Once upon"
""",
    (*_OWN, *COMPARED),
    "PROMPT",
    everyday=tuple("a b prompts model model_b seed max_tokens html assert_equal max_tv trace format".split()),
    examples=(
        'gencli compare --a creative --b top_k=40 "Once upon a time"',
        'gencli compare --a top_p=1 --b top_p=0.9 --html page.html "Once"',
        'gencli compare --a precise --b precise --model-b tiny-draft "Once"',
    ),
)


def run(arguments: Sequence[str], flags: Mapping[str, Any]) -> int:
    """Compare, print the result, and return the exit code: 6 or 7 if an assertion does not hold."""
    flags = with_format(flags)
    values = values_of(_OWN, flags)
    shared = {key: value for key, value in flags.items() if key not in values}
    missing = [f"--{key}" for key in "ab" if values[key] is None and not (key == "a" and values["trace"])]
    if missing:
        hint = "Give a chain, a preset or a profile."
        raise UsageError(f"compare needs {' and '.join(missing)}.", hint=hint)
    if values["trace"] is not None:
        return _on_trace(arguments, values, flags, shared)
    a, b = _sides(values, shared)
    prompts = _prompts(arguments, values["prompts"], a)
    if values["html"] is not None and len(prompts) > 1:
        raise UsageError(f"--html shows one prompt, and there are {len(prompts)}.", hint="Give one.")
    stderr = Stderr(is_quiet=a.settings["quiet"])
    fetched = [fetch_models(side.settings, side.job.registry, stderr) for side in (a, b)]
    if any(fetched):
        a, b = _sides(values, shared)  # again, because the model's files set defaults
    _say(stderr, ("A", (*a.notices, *notices(a.job, prompts))), ("B", (*b.notices, *notices(b.job, prompts))))
    with Sink(a.settings["output"]) as sink, running(a.settings) as handler:
        with stderr.starting(), importing():
            from gencli.cli.experiment_runs import compare_live

        return compare_live(a, b, prompts, values, sink=sink, stderr=stderr, handler=handler)


def _sides(values: Mapping[str, Any], shared: Mapping[str, Any]) -> tuple[ComparedSide, ComparedSide]:
    """Return both sides, with one seed. Raises the error of a side, with its flag."""
    a = _side("a", values["a"], shared)
    of_b = {**shared, **({} if values["model_b"] is None else {"model": values["model_b"]})}
    b = _side("b", values["b"], of_b, a.settings.registry)
    refuse_differences(a.settings, b.settings, models=values["model_b"] is not None)
    seed = b.job.seed if a.settings["seed"] is None else a.job.seed
    return replace(a, job=replace(a.job, seed=seed)), replace(b, job=replace(b.job, seed=seed))


def _side(key: str, text: str, shared: Mapping[str, Any], registry: Registry | None = None) -> ComparedSide:
    try:
        return gather_side(text, shared, os.environ, registry)
    except GencliError as error:
        raise type(error)(f"--{key}: {error.message}", hint=error.hint) from None
    except ProcessorsError as error:
        raise UsageError(f"--{key}: {error}") from None


def _prompts(arguments: Sequence[str], path: str | None, side: ComparedSide) -> tuple[str, ...]:
    if path is None:
        template = wanted_template(side.settings)
        return read_prompts(arguments, side.settings["file"], template, command="compare").texts
    if arguments or side.settings["file"] or side.settings["template"]:
        hint = "Leave out other prompts, --file and --template."
        raise UsageError("--prompts gives all prompts.", hint=hint)
    prompts = list[str]()
    for record in open_input([path]):
        text = record.columns.get("prompt") if record.failure is None else None
        if not isinstance(text, str) or not text:
            why = record.failure.message if record.failure else "It has no text in the column prompt."
            raise UsageError(f"{record.place}: {why}")
        prompts.append(str(text))
        if len(prompts) > _MAX_PROMPTS:
            raise UsageError(f"{path} has more than {_MAX_PROMPTS} prompts.", hint="Take a part of them.")
    if not prompts:
        raise UsageError(f"{path} has no prompt.")
    return tuple(prompts)


def _say(stderr: Stderr, *named: tuple[str, Iterable[str]]) -> None:
    """Write the notices of the sides; common notices once, others with the side's name."""
    texts = {name: list(dict.fromkeys(sentences)) for name, sentences in named}
    for name, sentences in texts.items():
        for text in sentences:
            count = sum(text in other for other in texts.values())
            if count == 1 or name == next(iter(texts)):
                stderr.notice(text if count > 1 else f"{name}: {text}")


def _on_trace(
    arguments: Sequence[str], values: Mapping[str, Any], flags: Mapping[str, Any], shared: Mapping[str, Any]
) -> int:
    """Compare on a trace. Raises UsageError for options that need a model."""
    idle = [f"--{key.replace('_', '-')}" for key in flags if key not in _ON_TRACE]
    if idle or arguments:
        raise UsageError(
            f"{', '.join(idle) or 'A prompt'} has no effect in a comparison on a trace.",
            hint="The trace has its text, and the chain that made it.",
        )
    b = _side("b", values["b"], shared)
    if not (has_model := b.settings.is_given("model")):
        b = _side("b", values["b"], {**shared, "model": "fake"})  # without the defaults of a model's files
    stderr = Stderr(is_quiet=b.settings["quiet"])
    # Values of a preset that only a model can use.
    sections = ("Prompt", "Guidance", "Draw", "Limits and stops")
    keys = [entry.key for entry in COMPARED if entry.section in sections and entry.key not in _ON_TRACE]
    idle = [b.settings.name(key) for key in keys if b.settings.origin(key) not in (DEFAULT, FLAG)]
    _say(stderr, ("B", (*b.notices, *([f"On a trace {', '.join(idle)} has no effect."] if idle else []))))
    with Sink(b.settings["output"]) as sink, quiet_libraries(is_on=not b.settings["debug"]):
        with stderr.starting(), importing():
            from gencli.cli.experiment_runs import compare_on_trace

        return compare_on_trace(values["trace"], b, values, sink=sink, stderr=stderr, has_model=has_model)


_MAX_TEXTS = 100_000
_MAX_TITLE = 120  # characters of a title
_SWEEP_OPTIONS: tuple[Option, ...] = (
    Option(("--vary",), str, "An option and its values: temperature=0.2:1.4:0.2 (from, to, step) or "
           "min_p=0,0.05,0.1.", "Draw", many=True, metavar="KEY=VALUES"),
    Option(("--first",), bool, "Only the first token of each text: the model reads each prompt once, and "
           "every chain runs on its logits.", "Draw", False),
    Option(("--show",), Literal[tuple(MEASURES)], "Show this measure as a grid instead of a table of all.",
           "Output", metavar="MEASURE"),
    Option(("--format",), Literal[("text", "csv", *RECORDS)], "Form of the result; csv has a "
           "line for each text, jsonl one for each cell. By default that of the suffix of `output`.",
           "Output", "text"),
    Option(("--html",), str, "Write the grid as a page: one file that needs no network.", "Output",
           metavar="FILE"),
    Option(("--png",), str, "Draw the measure of `show` as a picture; needs matplotlib.", "Output",
           metavar="FILE"),
)  # fmt: skip
_OF_RUN = options_of_run(_SWEEP_OPTIONS, "trace_top")
_RUN_KEYS = frozenset(entry.key for entry in _OF_RUN)
SWEEP_PAGE = Page(
    """\
Usage: gencli sweep --vary KEY=VALUES [OPTIONS] [PROMPT]...

Generate the texts of a grid of settings, and measure each: entropy, tokens left,
repetition, length, validity, likelihood. The draw is the same in all cells, so
what differs comes from the settings:
    gencli sweep --vary temperature=0.2:1.4:0.2 --vary min_p=0,0.05,0.1 "Once"
""",
    (*_SWEEP_OPTIONS, *_OF_RUN),
    "PROMPT",
    everyday=tuple("vary first show model preset n seed max_tokens format html png json_schema".split()),
    examples=(
        'gencli sweep --vary temperature=0.2:1.4:0.2 "Once upon a time"',
        'gencli sweep --vary temperature=0.6,1 --vary min_p=0,0.05,0.1 -n 8 "Once"',
        'gencli sweep --vary top_p=0.5:1:0.1 --html page.html "Once"',
    ),
)


def run_sweep(arguments: Sequence[str], flags: Mapping[str, Any]) -> int:
    """Run the cells, write the results and return the exit code."""
    flags = with_format(flags, "csv")
    values = values_of(_SWEEP_OPTIONS, flags)
    axes = [read_axis(text) for text in values["vary"] or ()]
    _check(axes, values)
    grid = cells(axes)
    # With a trace, the settings are checked as those of a traced run.
    run_given = {key: value for key, value in flags.items() if key in _RUN_KEYS} | {"trace": os.devnull}
    settings = gather(run_given, os.environ)
    job = make_job(settings)
    source = read_prompts(arguments, settings["file"], wanted_template(settings), command="sweep")
    stderr = Stderr(is_quiet=settings["quiet"])
    if (count := len(grid) * len(source.texts) * job.n) > _MAX_TEXTS:
        fault = f"The sweep has {count} texts, but at most {_MAX_TEXTS} are possible."
        raise UsageError(fault, hint="Vary less.")
    job, settings = begin(job, settings, source, run_given, stderr)
    jobs = Jobs(
        settings, lambda axis, _: SettingsLayer.of("--vary", axis, {key: f"--vary {key}" for key in axis})
    )
    cell_jobs = [*map(jobs.job, grid)]  # faults are reported before anything is loaded
    stderr.notice(*dict.fromkeys(text for cell_job in cell_jobs for text in cell_job.assembly.notices))
    results: list[CellResult] = []
    with Sink(settings["output"]) as sink, running(settings) as handler:
        with stderr.starting(), importing():
            from gencli.cli.experiment_runs import run_cells

        results += run_cells(
            grid, cell_jobs, source.texts, jobs, settings, stderr, handler, first=values["first"]
        )
        if values["format"] == "csv":  # of sweeps alone
            shown = tables.csv_lines(axes, results)
        elif (form := format_of(values)).is_text and values["show"]:
            shown = tables.heat_table(axes, results, values["show"])
        elif form.is_text:
            shown = tables.cell_table(axes, results) + tables.cell_texts(results)
        else:
            head = {"model": settings["model"], "seed": job.seed, "first": values["first"]}
            record = tables.sweep_record(axes, results, source.texts, head)
            shown = "".join(map(form.encode, record["cells"] if form.is_lines else [record]))
        sink.write(shown)
    if values["png"] is not None:
        tables.write_png(axes, results, values["show"], values["png"])
    if values["html"] is not None:
        with Sink(values["html"]) as page:
            page.write(tables.grid_page(axes, results, " ".join(source.texts)[:_MAX_TITLE]))
    samples = [sample for cell in results for sample in cell.samples]
    stderr.say(f"{len(results)} of {counted(len(grid), 'cell')}, seed {job.seed}")
    if any(sample.reason == "interrupted" for sample in samples):
        return 130
    failed = [sample.error for sample in samples if sample.error]
    for message in dict.fromkeys(failed):
        say_error(message)
    return 0 if not failed else 6 if len(failed) == len(samples) else 7


def _check(axes: Sequence[SweepAxis], values: Mapping[str, Any]) -> None:
    """Raise UsageError for measures that the cells cannot have."""
    if not axes:
        raise UsageError("A sweep needs an option to vary.", hint="Add --vary temperature=0.2:1.4:0.2.")
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

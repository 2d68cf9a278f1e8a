"""What a run is made of, before a model is loaded: the chain with values and origins (`--show-chain`),
settings and presets, stages; the colours that a run needs; the followers of --tp.
"""

from __future__ import annotations

import json
import os
import signal
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin

from gencli.cli.render import Sink, silence, table
from gencli.config.job import Job, make_job
from gencli.config.layers import gather
from gencli.config.option import Option
from gencli.config.option_names import with_flags
from gencli.config.preset_files import find_preset
from gencli.config.presets import expand_preset, shown
from gencli.config.result_formats import format_of
from gencli.config.run_options import OPTIONS
from gencli.config.settings import Settings, resolve, run_variables
from gencli.errors import GencliError
from gencli.json_text import to_json
from gencli.models.backend import rank
from gencli.plugins.plugin_registry import make_registry, sentence
from gencli.runtime.machine import quiet_libraries
from gencli.watermark_keys import STAGES
from processors.errors import ProcessorsError
from processors.params import WHEN, WHEN_DOC, Secret
from processors.params import describe as describe_fields
from processors.registry import Registry
from processors.request_values import NO_CONDITION
from processors.stages.scale import VaryingParams

if TYPE_CHECKING:
    from gencli.explain.token_record import Scale

_WIDTH = 200  # characters of a value
_COLUMNS = ("phase", "stage", "value", "origin")


def chain_table(job: Job) -> str:
    """Return a table of phase, stage, value and origin, in the order in which the stages run."""
    return table([_COLUMNS, *_rows(job)])


def chain_rows(job: Job) -> list[dict[str, str]]:
    """Return each row of the table as a mapping of its columns."""
    return [dict(zip(_COLUMNS, row, strict=True)) for row in _rows(job)]


def _rows(job: Job) -> Iterator[tuple[str, str, str, str]]:
    active = {name for name, _ in job.chain}
    varying = next((name for name, params in job.chain if isinstance(params, VaryingParams)), "")
    idle = "  (not run: greedy)" if job.is_greedy else f"  (a value of {varying})"
    yield "constrain", "tail", "ids that the tokenizer lacks", "model"
    for name, params in job.assembly.chain:
        phase = job.registry.phase(name).name.lower()
        state = "" if name in active else "  (off)" if params.is_off() else idle
        entries = job.assembly.of_entry(name, params)
        if params.when is not None:
            state = f" when {to_json(params.when.to_mapping())}{state}"
        for entry in entries:
            value = to_json(entry.value)
            value = value if len(value) <= _WIDTH else value[: _WIDTH - 4] + '..."'  # of a grammar's text
            yield phase, name, f"{entry.field}={value}{state}", with_flags(entry.where)
        if name == "grammar" and (output := job.structure) is not None:
            backend = output.plan.variants[0].constraint.backend
            after = f", after {to_json(output.after)}" if output.after else ""
            kind = f"{output.kind} {output.source}".strip()
            yield phase, name, f"{kind}, {backend}{after}", with_flags(output.origin)
        elif not entries:
            yield phase, name, f"defaults{state}", "flag --stage"
    if job.is_greedy and job.draw != "greedy":
        yield "draw", "greedy", "", "temperature 0"
    else:
        yield "draw", job.method, "", with_flags(job.draw_origin)


def config_text(settings: Settings, job: Job, form: str) -> str:
    """Return every option and the chain with values and origins: tables (`text`), or a `json` object."""
    origins = {entry.key: with_flags(settings.where(entry.key)) for entry in _plain(settings)}
    if form == "text":
        rows = [(key, to_json(settings[key]), origin) for key, origin in origins.items()]
        return table([("key", "value", "origin"), *rows]) + "\n" + chain_table(job)
    values = {key: {"value": settings[key], "origin": origin} for key, origin in origins.items()}
    return to_json({"settings": values, "chain": chain_rows(job)}, indent=2) + "\n"


def differences(first: Settings, second: Settings, *, names: tuple[str, str]) -> str:
    """Return a table with a row for every value that differs between two runs."""
    tables = _all_values(first), _all_values(second)
    keys = [key for key in {**tables[0], **tables[1]} if tables[0].get(key) != tables[1].get(key)]
    rows = [(key, *(to_json(values[key]) if key in values else "-" for values in tables)) for key in keys]
    return table([("value", *names), *rows]) if rows else f"{names[0]} and {names[1]} give the same run.\n"


def _plain(settings: Settings) -> Iterator[Option]:
    # The options that set no field of a stage; those without a preset key only if they are given.
    for entry in OPTIONS:
        if not entry.field and (not entry.flag_only or settings.is_given(entry.key)):
            yield entry


def _all_values(settings: Settings) -> dict[str, object]:
    """Return values of options by key and of stages by "name.field"; "order" is the order of the chain."""
    job = make_job(settings)
    values: dict[str, object] = {entry.key: settings[entry.key] for entry in _plain(settings)}
    del values["chain"], values["temperature_last"]
    values["order"] = list(dict.fromkeys(name for name, _ in job.chain))
    for name, params in job.assembly.chain:
        fields = params.to_mapping()
        where = f" {to_json(fields.pop(WHEN))}" if WHEN in fields else ""
        values.update({f"{name}.{key}{where}": value for key, value in fields.items()})
    return {key: list(value) if isinstance(value, tuple) else value for key, value in values.items()}


def lint_report(files: Sequence[str], registry: Registry | None = None) -> list[str]:
    """Return a line for each fault of the preset files and of the presets they extend, each once."""
    registry = registry or make_registry()
    lines: list[str] = []
    for name in files:
        where = name
        try:
            path = Path(name).resolve() if Path(name).is_file() else find_preset(name)
            presets = expand_preset(path, registry)
            faults = [message for preset in presets for message in preset.messages()]
            lines += faults
            if not faults:  # each key is valid by itself; their combination may not be
                where = shown(presets[-1].path)
                make_job(resolve(*(preset.layer() for preset in presets), registry=registry))
        except (GencliError, ProcessorsError) as error:
            lines.append(f"{where}: {error}")
    return [*dict.fromkeys(lines)]


def page(registry: Registry, name: str) -> str:
    """Return a stage's fields, formula, reference and example. Raises UnknownStage."""
    spec = registry.spec(name)
    head = f"{name} ({spec.phase.name.lower()}, {spec.source})\n{sentence(registry, name)}\n"
    return "\n".join([head, table(_fields(registry, name)), table(_facts(registry, name))])


def _fields(registry: Registry, name: str) -> Iterator[tuple[str, ...]]:
    yield "field", "type", "default", "range", "flag", "meaning"
    flags = {entry.field: entry.flag for entry in OPTIONS if entry.stage == name and not entry.when}
    for field, about in describe_fields(registry.spec(name).params).items():
        yield (
            field,
            _type(about["type"]),
            json.dumps(about["default"], ensure_ascii=False),
            str(about["bounds"]) or "-",
            flags.get(field, "-"),
            about["doc"],
        )
    if name not in NO_CONDITION:
        yield WHEN, "condition", "null", "-", "-", f"{WHEN_DOC} See docs/presets.md."


def _facts(registry: Registry, name: str) -> Iterator[tuple[str, str]]:
    note = registry.spec(name).note
    if note is None:  # the values of a plug-in's example are derived from its fields
        from processors.chain import Chain
        from processors.errors import ParamError
        from processors.testing import examples

        try:
            example = _quoted(str(Chain(((name, examples(registry.spec(name).params)[0]),))))
        except ParamError:
            example = f"{name}:KEY=VALUE"
        yield "Example", f"--stage {example}"
        return
    yield "Formula", note.formula
    yield "Reference", note.reference
    kind = next((kind for kind, (stage, _) in STAGES.items() if stage == name), "")
    marking = f"--watermark {kind} --watermark-key FILE"
    yield "Example", marking if kind else f"--stage {_quoted(note.example)}"
    yield "Elsewhere", note.elsewhere


def _quoted(text: str) -> str:
    # In single quotes if a shell would split or expand it.
    return f"'{text}'" if set(text) & set('"[]{} ') else text


def _type(hint: Any) -> str:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Literal:
        return "|".join(arguments)
    if origin in (Union, types.UnionType):
        return " or ".join(_type(argument) for argument in arguments)
    if origin is tuple:
        inner = [_type(argument) for argument in arguments if argument is not Ellipsis]
        return "list of " + inner[0] if len(inner) == 1 else "(" + ", ".join(inner) + ")"
    names = {int: "whole number", float: "number", bool: "true|false", str: "text", type(None): "null"}
    names[Secret] = "secret numbers"
    return names.get(hint, getattr(hint, "__name__", str(hint)))


def wanted_scale(settings: Settings, sink: Sink, notice: Callable[[str], None]) -> Scale | None:
    """Return the measure that colours show, None without colours; report why colours have no effect."""
    scale: Scale | Literal["off"] = settings["color"]
    if scale == "off":
        return None
    reason = "the result goes to a file" if settings["output"] else "stdout is no terminal"
    if not format_of(settings).is_text:
        reason = f"{settings.with_value('format')} writes records"
    elif sink.is_terminal:
        return scale
    notice(f"{settings.name('color')} has no effect: {reason}.")
    return None


def asking(job: Job, scale: Scale) -> Job:
    """Return the job whose events have the data for the colours, at the least cost.

    Log-probabilities give probability and rank, but before guidance; so guided texts are explained instead,
    as are all texts for entropy and deciding stages. Searches have no explanations.
    """
    is_search = job.beams is not None or job.best_of is not None
    is_guided = (job.guidance.is_on or job.dola is not None) and not is_search
    if scale in ("entropy", "decided") or is_guided:
        return job if job.trace is not None else replace(job, trace=1)
    return job if job.trace is not None or job.logprobs is not None else replace(job, logprobs=0)


def follow_leader(flags: Mapping[str, Any]) -> int | None:
    """Run as a follower of --tp until the leader ends and return the exit code 0.

    Return None immediately in the process of rank 0, and without --tp. The leader (rank 0) reads the input,
    writes the result and reports errors.
    """
    if rank() == 0:
        return None
    keys = {entry.key for entry in OPTIONS if entry.section in ("Model", "Presets")} | {"plugin"}
    shared_flags = {
        key: value for key, value in flags.items() if key in keys and (key, value) != ("max_batch", "auto")
    }
    settings = gather(shared_flags, run_variables(os.environ))
    if settings["tp"] is None:  # torchrun also starts independent runs
        return None
    silence()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes; the leader ends the run
    with quiet_libraries():
        from gencli.models.other_runners import follow
        from gencli.runtime.model_loading import load
        from gencli.runtime.wiring import model_choice

        # The leader may use guidance. Companion lanes that are not used take no memory.
        follow(load(replace(model_choice(settings), companions=True)).runner)
    return 0

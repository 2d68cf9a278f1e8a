"""Commands beside generation: `gencli doctor`, `gencli quantize`, `gencli schema audit` and `gencli
detect`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from gencli.cli.inputs import read_prompts
from gencli.cli.render import Sink, table
from gencli.cli.stderr import Stderr
from gencli.cli.usage import DEBUG, FORMAT, FORMAT_AND_DEBUG, Page, in_format, unknown_word, values_of
from gencli.config.job_parts import is_draft_model
from gencli.config.option import Option
from gencli.config.option_names import with_flags
from gencli.config.run_options import option
from gencli.core.request import MTP
from gencli.errors import UsageError
from gencli.files import MAX_PROMPT, read_file
from gencli.helpers import size
from gencli.runtime.machine import quiet_libraries
from gencli.structured.output_spec import KeywordFinding, Plan, meaning
from gencli.structured.schema_inputs import exists
from processors.params import MOST, Bounds

if TYPE_CHECKING:
    from gencli.text.tokenizer import Tokenizer
    from gencli.watermark_detector import Detection


_LOADING = tuple(map(option, ("model", "dtype", "device", "backend", "quantize", "trust_remote_code")))
DOCTOR_PAGE = Page(
    """\
Usage: gencli doctor [OPTIONS]
       gencli doctor --model NAME --draft HEAD [OPTIONS]

Look at versions, devices, caches, plug-ins and the terminal, with a line of
advice for each finding. The exit code is 0 whatever is found.

With --draft, measure how often a trained draft head agrees with its model, as
it is configured and with each neighbouring choice: states one layer off, a norm
before or after, the other order of fusion. A wrong one slows runs down and is
seen nowhere else.
""",
    (
        Option(("--draft",), str, "The draft head: a folder, or mtp for layers of the model.", "Drafts",
               metavar="NAME"),
        *_LOADING,
        *FORMAT_AND_DEBUG,
    ),
)  # fmt: skip


def run_doctor(arguments: Sequence[str], flags: Mapping[str, Any]) -> int:
    """Print the findings and return 0."""
    from gencli.runtime.machine import examine

    values = values_of(DOCTOR_PAGE.options, flags, os.environ)
    if values["draft"] is not None:
        return _check_head(values)
    if given := [entry.flag for entry in _LOADING if entry.key in flags]:
        raise UsageError(f"{given[0]} is for a draft head.", hint="Add --draft NAME, or leave it out.")
    with quiet_libraries(is_on=not values["debug"]):
        findings = list(examine())
    keys = ("area", "name", "value", "is_good", "advice")
    records = [{key: getattr(finding, key) for key in keys} for finding in findings]
    rows = ((finding.area, finding.name, finding.value, with_flags(finding.advice)) for finding in findings)
    marks = ("ok" if finding.is_good else "!" for finding in findings)
    text = table((mark, *row) for mark, row in zip(marks, rows, strict=True))
    Sink().write(in_format(text, records, values))
    return 0


_CHOICE = ("dtype", "device", "backend", "quantize", "trust_remote_code")


def _check_head(values: Mapping[str, Any]) -> int:
    """Print how often a draft head and its neighbours agree with their target."""
    with quiet_libraries(is_on=not values["debug"]):
        from gencli.runtime.model_loading import ModelChoice, load
        from gencli.runtime.wiring import read_draft_head
        from gencli.speculative.head_check import TEXT, agreements, better
        from gencli.speculative.head_files import is_head

        name = values["draft"]
        if name != MTP and not (is_draft_model(name, None) and is_head(name)):
            raise UsageError(f"--draft {name} is no trained draft head, which doctor checks.")
        choice = ModelChoice(**{key: value for key, value in values.items() if key in _CHOICE}, max_batch=1)
        choice = replace(choice, name=values["model"])
        loaded = load(choice)
        head, runner, notices = read_draft_head(name, loaded, choice)
        found = agreements(head, runner, loaded.tokenizer.encode(TEXT))
    stderr, best = Stderr(is_quiet=False), better(found)
    for notice in notices:
        stderr.notice(notice)
    if best is not found[0]:
        stderr.notice(f"The head agrees more often with the model if it {best.change}: see its settings.")
    rows = [("", "variant", *(f"draft {number}" for number in range(1, len(best.shares) + 1)))]
    records = list[dict[str, Any]]()
    for each in found:
        name, is_best = each.change or "as configured", each is best
        records.append({"variant": name, "agreement": [*each.shares], "is_best": is_best})
        rows.append(("*" if is_best else "", name, *(f"{share:.0%}" for share in each.shares)))
    Sink().write(in_format(table(rows), records, values))
    return 0


QUANTIZE_PAGE = Page(
    """\
Usage: gencli quantize MODEL OUT [OPTIONS]

Write a copy of a model with weights of 8 or 4 bits to the new folder OUT, which
runs on a CPU in gencli's own decoder. It gives the same texts as --quantize and
loads faster.
""",
    (
        Option(("--bits",), Literal["8", "4"], "Bits of a weight.", "Model", "8"),
        FORMAT,
        Option(("--quiet", "-q"), bool, "Show no progress.", "Output", False),
        DEBUG,
    ),
    "MODEL OUT",
)  # fmt: skip


def run_quantize(arguments: Sequence[str], flags: Mapping[str, Any]) -> int:
    """Write the model, print its old and new size, and return the exit code."""
    values = values_of(QUANTIZE_PAGE.options, flags)
    if len(arguments) != 2:
        raise UsageError("quantize takes a model and a new folder.", hint="gencli quantize MODEL OUT")
    name, target = arguments[0], Path(arguments[1]).expanduser()
    if name == "fake":
        raise UsageError("The fake model is a table that is made when it is used; it has no files.")
    with quiet_libraries(is_on=not values["debug"]):
        from gencli.models.files.model_files import Quantize
        from gencli.models.quantized_copy import quantize_model

        with Stderr(is_quiet=values["quiet"]).loading(name, "Quantizing") as on_bytes:
            quantize = cast(Quantize, f"int{values['bits']}")
            written = quantize_model(name, target, quantize, on_bytes=on_bytes)
    record = {"model": name, "folder": str(written.folder), "bits": int(values["bits"])}
    record |= {"bytes_before": written.before, "bytes": written.after}
    text = f"{written.folder}: {size(written.before)} of weights became {size(written.after)}.\n"
    Sink().write(in_format(text, record, values))
    return 0


SCHEMA_PAGE = Page(
    """\
Usage: gencli schema audit SCHEMA [OPTIONS]

Check a JSON schema (a file, the text itself, or names as in 'name, age int') and
say which back end would run it, why, and for each keyword whether the mask
enforces it or the check at the end does. Loads no model.
""",
    (
        option("grammar_backend"),
        option("extra_properties"),
        option("property_order"),
        option("formats"),
        option("grammar_timeout"),
        *FORMAT_AND_DEBUG,
    ),
    "audit SCHEMA",
    ("audit",),
)


def run_schema(arguments: Sequence[str], flags: Mapping[str, Any]) -> int:
    """Print the audit of a schema and return the exit code. Raises SchemaError for an unusable schema."""
    values = values_of(SCHEMA_PAGE.options, flags)
    word, *schemas = arguments or [""]
    if word != "audit":
        raise unknown_word("gencli schema", word, ("audit",))
    if len(schemas) != 1:
        raise UsageError("schema audit takes one schema.", hint="Put quotes around it.")
    from gencli.structured.audit import audit_json, without_formats
    from gencli.structured.backend_choice import choose
    from gencli.structured.output_spec import PlanRequest
    from gencli.structured.schema_check import check_schema
    from gencli.structured.schema_errors import Deadline
    from gencli.structured.schema_source import read_schema

    deadline = Deadline.after(values["grammar_timeout"])
    schema = read_schema(schemas[0])
    remarks = check_schema(schema, deadline)
    request = PlanRequest(
        values["grammar_backend"],
        extra=values["extra_properties"],
        any_order=values["property_order"] == "any",
        deadline=deadline,
    )
    plan = choose(schema, request)
    plan = plan if values["formats"] else without_formats(plan)
    # The reason for the choice, and a table: a row for each keyword, a column for each back end.
    text, rows = f"{with_flags(plan.reason)}\n", list(_rows(plan))
    if rows:
        names = (variant.audit.backend for variant in plan.variants)
        text += "\n" + table([("pointer", "keyword", *names, "why"), *rows])
    text += "".join(f"\n{with_flags(remark)}\n" for remark in remarks)
    Sink().write(in_format(text, {**audit_json(plan), "remarks": remarks}, values))
    return 0


def _rows(plan: Plan) -> Iterator[tuple[str, ...]]:
    by_keyword: dict[tuple[str, str], dict[str, KeywordFinding]] = {}
    for variant in plan.variants:
        for finding in variant.audit.findings:
            by_keyword.setdefault((finding.pointer, finding.keyword), {})[variant.audit.backend] = finding
    for (pointer, keyword), by_backend in by_keyword.items():
        cells = [by_backend.get(variant.audit.backend) for variant in plan.variants]
        reasons: dict[str, list[str]] = {}
        for variant, cell in zip(plan.variants, cells, strict=True):
            if cell and cell.reason:
                reasons.setdefault(cell.reason, []).append(variant.audit.backend)
        # A reason that concerns one of several back ends has its name.
        of_one = {reason: f"{names[0]}: " for reason, names in reasons.items() if len(names) == 1}
        of_one = of_one if len(plan.variants) > 1 else {}
        why = "; ".join(f"{of_one.get(reason, '')}{reason}" for reason in reasons)
        yield (
            pointer,
            keyword,
            *(meaning(cell.verdict) if cell else "-" for cell in cells),
            with_flags(why),
        )


_LEVEL, _LEAST = 0.001, 16  # the same as in gencli.watermark_detector, which needs torch
_CODES = {"marked": 0, "not marked": 6, "not enough tokens": 7}
_SHOWN = 60  # characters of both ends of a window

DETECT_PAGE = Page(
    """\
Usage: gencli detect [OPTIONS] [TEXT|FILE|-]

Tell whether a text has the watermark of a key: `gencli run --watermark` puts it
there. Give the text without its prompt, and the model that may have made it, of
which only the tokenizer is loaded. Exit code 0: marked, 6: not marked, 7: not
enough tokens to tell.
""",
    (
        option("model"),
        option("trust_remote_code"),
        replace(option("watermark"), help="The watermark to look for: kgw, synthid or gumbel."),
        option("watermark_key"),
        Option(("--level",), float, "Rate of false alarms: a text is marked if its p value is at most this.",
               "Draw", _LEVEL, Bounds(gt=0, lt=1)),
        Option(("--window",), int, "Look for a marked passage: the p value is that of the most suspicious "
               "window of so many tokens, corrected for the number of windows.", "Draw",
               bounds=Bounds(ge=_LEAST, le=MOST)),
        *FORMAT_AND_DEBUG,
    ),
    "TEXT|FILE|-",
)  # fmt: skip


def run_detect(arguments: Sequence[str], flags: Mapping[str, Any]) -> int:
    """Print the result and return the exit code. Raises UsageError, or ConfigError for the key file."""
    values = values_of(DETECT_PAGE.options, flags, os.environ)
    kind, name = values["watermark"], values["watermark_key"]
    if kind == "none" or name is None:
        missing = "--watermark" if kind == "none" else "--watermark-key"
        raise UsageError(f"detect needs {missing}.", hint="Add --watermark KIND and --watermark-key FILE.")
    from gencli.watermark_keys import read_key_file

    params, text = read_key_file(kind, name), _read_text(arguments)
    with quiet_libraries(is_on=not values["debug"]):
        from gencli.models.files.local_models import find_local
        from gencli.runtime.model_loading import load_tokenizer
        from gencli.text.tokenizer import declared_vocabulary
        from gencli.watermark_detector import detect, scorer_of

        tokenizer = load_tokenizer(values["model"], trust_remote_code=values["trust_remote_code"])
        folder = find_local(values["model"]) if values["model"] != "fake" else None
        declared = declared_vocabulary(folder, tokenizer) if folder else (tokenizer.vocab_size, ())
        ids = tuple(tokenizer.encode(text, special=False))
        scorer = scorer_of(params, vocab=declared[0], eos_ids=declared[1])
        detection = detect(scorer, ids, level=values["level"], window=values["window"])
    record = _record(detection, ids, tokenizer, values)
    Sink().write(in_format(_lines(record), record, values))
    return _CODES[detection.verdict]


def _read_text(arguments: Sequence[str]) -> str:
    # The argument, the content of the file that it names, or stdin.
    if len(arguments) > 1:
        raise UsageError("detect takes one text.", hint="Put it between quotes.")
    if not arguments or arguments[0] == "-":
        return read_prompts(arguments, None, command="detect").texts[0]
    if not exists(Path(arguments[0])):
        return arguments[0]
    try:
        return read_file(Path(arguments[0]), MAX_PROMPT).decode("utf-8-sig").removesuffix("\n")
    except OSError as error:
        raise UsageError(f"{arguments[0]} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise UsageError(f"{arguments[0]} is not UTF-8 text.", hint="Convert it first.") from None


def _record(
    detection: Detection, ids: Sequence[int], tokenizer: Tokenizer, values: Mapping[str, Any]
) -> dict[str, Any]:
    import math

    record: dict[str, Any] = {
        "watermark": values["watermark"],
        "verdict": detection.verdict,
        "level": values["level"],
        "tokens": detection.tokens,
        "scored": detection.scored,
        **detection.facts,
        "p_value": detection.p_value,
        "log10_p_value": detection.ln_p / math.log(10),
    }
    if detection.window is not None:
        window = detection.window
        record["window"] = {
            "size": window.size,
            "windows": window.count,
            "start": window.start,
            "end": window.end,
            "text": tokenizer.decode(ids[window.start : window.end]),
            "p_value": math.exp(window.ln_p),
            "log10_p_value": window.ln_p / math.log(10),
        }
    return record


def _lines(record: Mapping[str, Any]) -> str:
    facts = {key: value for key, value in record.items() if key not in ("verdict", "log10_p_value", "window")}
    rows = [(key.replace("_", " "), _shown(value)) for key, value in facts.items()]
    if window := record.get("window"):
        text = window["text"]
        cut = text if len(text) <= 2 * _SHOWN else f"{text[:_SHOWN]} ... {text[-_SHOWN:]}"
        rows += [
            ("window", f"tokens {window['start']} to {window['end']}, the best of {window['windows']}"),
            ("window p value", _shown(window["p_value"])),
            ("window text", " ".join(cut.split())),
        ]
    verdict = str(record["verdict"])
    why = f": {record['scored']} can be scored, at least {_LEAST} are needed" if "enough" in verdict else ""
    return f"{verdict}{why}\n{table(rows)}"


def _shown(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)

"""`gencli detect`: tests whether a text has a watermark. Loads a tokenizer and no weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gencli.cli.parser.command import make_command
from gencli.cli.parser.page import Page, values_of
from gencli.cli.parser.prompts import read_prompts
from gencli.cli.terminal.records import FORMAT, record_text
from gencli.cli.terminal.render import Sink
from gencli.cli.terminal.tables import table
from gencli.config.options.option import Option
from gencli.config.options.run import option
from gencli.errors import UsageError
from gencli.files import MAX_PROMPT, read_file
from gencli.runtime.machine import quiet_libraries
from gencli.structured.schema_inputs import exists
from processors.conversion import Bounds
from processors.params import MOST

if TYPE_CHECKING:
    from gencli.text.tokenizer import Tokenizer
    from gencli.watermark_detector import Detection

__all__ = ["PAGE", "command", "run"]

_LEVEL, _LEAST = 0.001, 16  # the same as in gencli.watermark_detector, which needs torch
_CODES = {"marked": 0, "not marked": 6, "not enough tokens": 7}
_SHOWN = 60  # characters of both ends of a window

PAGE = Page(
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
        FORMAT,
        Option(("--debug",), bool, "Show the traceback of an error.", "Output", False),
    ),
    "TEXT|FILE|-",
)  # fmt: skip


def command() -> Callable[..., int]:
    """Return the function that typer calls."""
    return make_command(run, PAGE)


def run(arguments: Sequence[str], given: Mapping[str, Any]) -> int:
    """Print the result and return the exit code. Raises UsageError, or ConfigError for the key file."""
    values = values_of(PAGE, given)
    kind, name = values["watermark"], values["watermark_key"]
    if kind == "none" or name is None:
        missing = "--watermark" if kind == "none" else "--watermark-key"
        raise UsageError(f"detect needs {missing}.", hint="Add --watermark KIND and --watermark-key FILE.")
    from gencli.watermark_keys import read_key_file

    params, text = read_key_file(kind, name), _text(arguments)
    with quiet_libraries(is_on=not values["debug"]):
        from gencli.models.files.local_models import find_local
        from gencli.models.files.model_card import declared_vocabulary
        from gencli.runtime.model_loading import load_tokenizer
        from gencli.watermark_detector import detect, scorer_of

        tokenizer = load_tokenizer(values["model"], trust_remote_code=values["trust_remote_code"])
        folder = find_local(values["model"]) if values["model"] != "fake" else None
        declared = declared_vocabulary(folder, tokenizer) if folder else (tokenizer.vocab_size, ())
        ids = tuple(tokenizer.encode(text, special=False))
        scorer = scorer_of(params, vocab=declared[0], eos_ids=declared[1])
        found = detect(scorer, ids, level=values["level"], window=values["window"])
    record = _record(found, ids, tokenizer, values)
    Sink().write(_lines(record) if values["format"] == "text" else record_text(record, values["format"]))
    return _CODES[found.verdict]


def _text(arguments: Sequence[str]) -> str:
    """Return the text: the argument, the content of the file that it names, or stdin."""
    if len(arguments) > 1:
        raise UsageError("detect takes one text.", hint="Put it between quotes.")
    if not arguments or arguments[0] == "-":
        return read_prompts(arguments, ()).texts[0]
    if not exists(Path(arguments[0])):
        return arguments[0]
    try:
        return read_file(Path(arguments[0]), MAX_PROMPT).decode("utf-8-sig").removesuffix("\n")
    except OSError as error:
        raise UsageError(f"{arguments[0]} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise UsageError(f"{arguments[0]} is not UTF-8 text.", hint="Convert it first.") from None


def _record(
    found: Detection, ids: Sequence[int], tokenizer: Tokenizer, values: Mapping[str, Any]
) -> dict[str, Any]:
    import math

    record: dict[str, Any] = {
        "watermark": values["watermark"],
        "verdict": found.verdict,
        "level": values["level"],
        "tokens": found.tokens,
        "scored": found.scored,
        **found.facts,
        "p_value": found.p_value,
        "log10_p_value": found.ln_p / math.log(10),
    }
    if found.window is not None:
        window = found.window
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

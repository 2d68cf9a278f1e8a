"""`gencli log`: list, search, show, rerun and remove logged runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from gencli.cli.parser.command import make_command
from gencli.cli.parser.page import Page, read_subcommand, values_of
from gencli.cli.terminal.records import FORMAT, array_parts, record_text
from gencli.cli.terminal.render import Sink, confirm, say, say_notice
from gencli.cli.terminal.stderr import Stderr
from gencli.config.options.option import MAX_ROWS, Option
from gencli.config.options.run import option
from gencli.config.recipe import CODE
from gencli.errors import UsageError
from gencli.log import Entry, clear_log, list_runs, log_file, read_run
from processors.conversion import Bounds

__all__ = ["PAGE", "command", "run"]

# Keys of the options of each subcommand, besides --debug.
_OF_WORD: dict[str, tuple[str, ...]] = {
    "list": ("limit", "format"),
    "search": ("limit", "format"),
    "show": ("format",),
    "rerun": CODE,
    "clear": ("yes",),
}
PAGE = Page(
    """\
Usage: gencli log list [OPTIONS]
       gencli log search TEXT [OPTIONS]
       gencli log show N|last [OPTIONS]
       gencli log rerun N|last [OPTIONS]
       gencli log clear [N]... [OPTIONS]

The runs that gencli run --log stored: list them, the last one first; search
their prompts and texts; show one; rerun one with its own settings and seed, which
gives the same text; remove some, or all.
""",
    (
        Option(("--limit",), int, "At most this many runs.", "Output", 20, Bounds(ge=1, le=MAX_ROWS)),
        *(option(key) for key in CODE),
        Option(("--yes", "-y"), bool, "Remove without a question.", "Output", False),
        FORMAT,
        Option(("--debug",), bool, "Show the traceback of an error.", "Output", False),
    ),
    "list|search|show|rerun|clear [N|TEXT]",
    tuple(_OF_WORD),
)
_MOST_SHOWN = 2000  # characters of a text shown on a terminal


def command() -> Callable[..., int]:
    """Return the function that typer calls."""
    return make_command(run, PAGE)


def run(arguments: Sequence[str], given: Mapping[str, Any]) -> int:
    """Run the subcommand that the first argument names and return the exit code.

    Raises UsageError for an unknown subcommand, and for arguments and options that it does not accept.
    """
    values = values_of(PAGE, given)
    word, names = read_subcommand("gencli log", _OF_WORD, arguments, given)
    if word == "clear":
        return _clear(names, values)
    if len(names) != (0 if word == "list" else 1):
        argument = {"list": "nothing more", "search": "one text"}.get(word, "the number of one run, or last")
        raise UsageError(f"log {word} takes {argument}.", hint="Put a text of several words between quotes.")
    if word in ("list", "search"):
        return _list("".join(names), values)
    number, entry = read_run(names[0])
    if word == "rerun":
        return _rerun(number, entry, values)
    form = values["format"]
    sink = Sink()
    if form == "text":
        sink.write(_text(number, entry, sink.is_terminal))
    else:
        sink.write(record_text(_record(number, entry), form))
    return 0


def _list(text: str, values: Mapping[str, Any]) -> int:
    sink, limit, form = Sink(), values["limit"], values["format"]
    count = 0

    def rows() -> Iterator[dict[str, Any]]:
        nonlocal count
        for row in list_runs(text, limit + 1):
            count += 1
            if count <= limit:
                yield row

    for part in map(_line, rows()) if form == "text" else array_parts(rows(), form):
        sink.write(part)
    if count > limit:
        say_notice(f"There are more runs than {limit}; --limit shows more.")
    elif not count:
        empty = "The log is empty; gencli run --log keeps a run."
        say_notice("No run holds that text." if text else empty)
    return 0


def _line(row: Mapping[str, Any]) -> str:
    prompt, text = (_short(row[key] or "") for key in ("prompt", "text"))
    more = f" (+{row['prompts'] - 1})" if row["prompts"] > 1 else ""
    failed = f"  exit {row['exit_code']}" if row["exit_code"] else ""
    return f"{row['number']:>5}  {row['time'][:19]}  {row['model']}{failed}  {prompt}{more} -> {text}\n"


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 40 else line[:37] + "..."


def _record(number: int, entry: Entry) -> dict[str, Any]:
    keys = ("time", "version", "model", "seed", "exit_code", "folder", "code", "models", "files", "settings")
    return {
        "number": number,
        **{key: getattr(entry, key) for key in keys},
        "chain": entry.chain,
        "preset": entry.preset,
        "prompts": [{"prompt": one.prompt, "texts": one.texts, **one.record} for one in entry.prompts],
    }


def _text(number: int, entry: Entry, is_terminal: bool) -> str:
    lines = [
        f"run      {number}, exit code {entry.exit_code}",
        f"time     {entry.time}",
        f"gencli   {entry.version}",
        f"folder   {entry.folder}",
        f"seed     {entry.seed}",
    ]
    for key, model in entry.models.items():
        revision = f" at {model['revision']}" if model["revision"] else ""
        digest = f", weights {model['sha256']}" if model["sha256"] else ""
        lines.append(f"{key:<8} {model['name']}{revision}{digest}")
    lines += [f"file     {file['path']} ({key})" for key, file in entry.files.items()]
    lines += [f"code     {option(key).flag} {value}" for key, value in entry.code.items()]
    lines += [f"set      {key}: {one['value']}  ({one['origin']})" for key, one in entry.settings.items()]
    for place, one in enumerate(entry.prompts, start=1):
        lines += ["", f"==> prompt {place} <==", _cut(one.prompt, is_terminal)]
        for sample, text in enumerate(one.texts, start=1):
            reasons = one.record["finish_reason"]
            reason = reasons[sample - 1] if isinstance(reasons, list) else reasons
            lines += ["", f"==> text {place}.{sample}: {reason} <==", _cut(text or "", is_terminal)]
    return "\n".join(lines) + "\n"


def _cut(text: str, is_terminal: bool) -> str:
    """Return the text; on a terminal a long text is shortened to its beginning."""
    rest = len(text) - _MOST_SHOWN
    if rest <= 0 or not is_terminal:
        return text
    return f"{text[:_MOST_SHOWN]}\n[{rest:,} more characters; --format json has all]"


def _rerun(number: int, entry: Entry, values: Mapping[str, Any]) -> int:
    """Run an entry again with its settings and seed; notices report changed versions and weights."""
    settings = entry.recipe.settings({key: values[key] for key in CODE}, "log", log=False)
    from gencli.cli.commands.run import carry_out
    from gencli.cli.logged import compare, differences, model_records
    from gencli.config.job import make_job

    job = make_job(settings)
    voice = Stderr(is_quiet=settings["quiet"])
    for text in differences(entry, model_records(settings, job.registry, voice)):
        say_notice(text)
    return carry_out(job, [one.prompt for one in entry.prompts], settings, voice, [compare(entry)])


def _clear(names: Sequence[str], values: Mapping[str, Any]) -> int:
    numbers = [read_run(name)[0] for name in names]
    what = f"{len(set(numbers))} runs" if names else "all runs"
    if not values["yes"] and not (answer := confirm(f"Remove {what} from {log_file()}?")):
        if answer is None:
            raise UsageError("Removing runs asks first, and stdin is no terminal.", hint="Add --yes.")
        return 0
    count = clear_log(numbers)
    say(f"{count} {'run is' if count == 1 else 'runs are'} removed.")
    return 0

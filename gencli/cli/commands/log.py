"""`gencli log`: list, search, show, rerun and remove logged runs.

`gencli fork`: other continuations of a traced text, as a tree in a file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

from gencli.cli.render import Sink, confirm, say, say_notice
from gencli.cli.stderr import Stderr
from gencli.cli.usage import DEBUG, FORMAT_AND_DEBUG, Page, in_format, read_subcommand, values_of
from gencli.config.layers import CODE
from gencli.config.option import MAX_ROWS, Option
from gencli.config.result_formats import array_parts, format_of
from gencli.config.run_options import option
from gencli.errors import UsageError
from gencli.helpers import counted, shortened
from gencli.run_log import Entry, clear_log, list_runs, log_file, read_run
from processors.params import MOST, Bounds

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
        *FORMAT_AND_DEBUG,
    ),
    "list|search|show|rerun|clear [N|TEXT]",
    tuple(_OF_WORD),
)
_MOST_SHOWN = 2000  # characters of a text shown on a terminal


def run(arguments: Sequence[str], flags: Mapping[str, Any]) -> int:
    """Run the subcommand that the first argument names and return the exit code.

    Raises UsageError for an unknown subcommand, and for arguments and options that it does not accept.
    """
    values = values_of(PAGE.options, flags)
    word, names = read_subcommand("gencli log", _OF_WORD, arguments, flags)
    if word == "clear":
        numbers = [read_run(name)[0] for name in names]
        selection = counted(len(set(numbers)), "run") if names else "all runs"
        if not values["yes"] and not (answer := confirm(f"Remove {selection} from {log_file()}?")):
            if answer is None:
                raise UsageError("Removing runs asks first, and stdin is no terminal.", hint="Add --yes.")
            return 0
        count = clear_log(numbers)
        say(f"{counted(count, 'run is', 'runs are')} removed.")
        return 0
    if len(names) != (0 if word == "list" else 1):
        argument = {"list": "nothing more", "search": "one text"}.get(word, "the number of one run, or last")
        raise UsageError(f"log {word} takes {argument}.", hint="Put a text of several words between quotes.")
    if word in ("list", "search"):
        return _list("".join(names), values)
    number, entry = read_run(names[0])
    if word == "rerun":
        settings = entry.recipe.settings({key: values[key] for key in CODE}, "log", log=False)
        from gencli.cli.commands.generate import TextComparison, differences, model_records
        from gencli.cli.commands.run import carry_out
        from gencli.config.job import make_job

        job, stderr = make_job(settings), Stderr(is_quiet=settings["quiet"])
        say_notice(*differences(entry, model_records(settings, job.registry, stderr)))
        prompts, writer = [prompt.prompt for prompt in entry.prompts], partial(TextComparison, entry)
        return carry_out(job, prompts, settings, stderr, [writer])
    sink = Sink()
    sink.write(in_format(_text(number, entry, sink.is_terminal), _record(number, entry), values))
    return 0


def _list(text: str, values: Mapping[str, Any]) -> int:
    sink, limit, form = Sink(), values["limit"], format_of(values)
    count = 0

    def rows() -> Iterator[dict[str, Any]]:
        nonlocal count
        for row in list_runs(text, limit + 1):
            count += 1
            if count <= limit:
                yield row

    for part in map(_line, rows()) if form.is_text else array_parts(rows(), form):
        sink.write(part)
    if count > limit:
        say_notice(f"There are more runs than {limit}; --limit shows more.")
    elif not count:
        empty = "The log is empty; gencli run --log stores a run."
        say_notice("No run contains that text." if text else empty)
    return 0


def _line(row: Mapping[str, Any]) -> str:
    prompt, text = (shortened(" ".join((row[key] or "").split()), 40) for key in ("prompt", "text"))
    more = f" (+{row['prompts'] - 1})" if row["prompts"] > 1 else ""
    failed = f"  exit {row['exit_code']}" if row["exit_code"] else ""
    return f"{row['number']:>5}  {row['time'][:19]}  {row['model']}{failed}  {prompt}{more} -> {text}\n"


def _record(number: int, entry: Entry) -> dict[str, Any]:
    keys = ("time", "version", "model", "seed", "exit_code", "folder", "code", "models", "files", "settings")
    return {
        "number": number,
        **{key: getattr(entry, key) for key in keys},
        "chain": entry.chain,
        "preset": entry.preset,
        "prompts": [
            {"prompt": prompt.prompt, "texts": prompt.texts, **prompt.record} for prompt in entry.prompts
        ],
    }


def _text(run_number: int, entry: Entry, is_terminal: bool) -> str:
    lines = [
        f"run      {run_number}, exit code {entry.exit_code}",
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
    lines += [
        f"set      {key}: {prompt['value']}  ({prompt['origin']})" for key, prompt in entry.settings.items()
    ]
    for number, prompt in enumerate(entry.prompts, start=1):
        lines += ["", f"==> prompt {number} <==", _cut(prompt.prompt, is_terminal)]
        for sample, text in enumerate(prompt.texts, start=1):
            reasons = prompt.record["finish_reason"]
            reason = reasons[sample - 1] if isinstance(reasons, list) else reasons
            lines += ["", f"==> text {number}.{sample}: {reason} <==", _cut(text or "", is_terminal)]
    return "\n".join(lines) + "\n"


def _cut(text: str, is_terminal: bool) -> str:
    hidden = len(text) - _MOST_SHOWN
    if hidden <= 0 or not is_terminal:
        return text
    return f"{text[:_MOST_SHOWN]}\n[{hidden:,} more characters; --format json has all]"


_CHILDREN = 64  # limit of children grown at once
_SHOWN = ("format", "html")
_WALKED = ("n", "seed", "output", "quiet", *CODE)
_FROM = ("at", "token", "rank", "node", "request", "sample", "tree", "n", "seed", "format", "quiet", *CODE)
FORK_PAGE = Page(
    """\
Usage: gencli fork RUN --at N [OPTIONS]
       gencli fork show TREE [OPTIONS]
       gencli fork walk TREE [OPTIONS]

Continue a text in other ways from one of its tokens on. RUN is a trace that
gencli run --trace FILE wrote, or a tree that this command wrote with --tree. The
tokens before --at stay as they are; there, --token or --rank choose another
token, or each child draws its own. Model, stages and limits are those of the run.
show draws a tree; walk moves in it by keys and lets it grow.
""",
    (
        Option(("--at",), int, "Where the texts part: the first token that may differ; the first one is 0.",
               "Draw", bounds=Bounds(ge=0, le=MOST)),
        Option(("--token",), str, "The token that comes there, as text with the escapes of --stop. "
               "Otherwise each child draws its own.", "Draw", metavar="TEXT"),
        Option(("--rank",), int, "The token that comes there, by its rank under the model; 1 is the most "
               "likely one.", "Draw", bounds=Bounds(ge=1, le=MOST)),
        Option(("--n", "-n"), int, "Number of children.", "Draw", 1, Bounds(ge=1, le=_CHILDREN)),
        Option(("--seed",), int, "Seed of the children in place of the run's.", "Draw",
               bounds=Bounds(ge=0, le=2**64 - 1)),
        Option(("--node",), int, "The text of a tree that is continued; 0 is the one that it began with.",
               "Draw", 0, Bounds(ge=0, le=MOST)),
        Option(("--run",), str, "The text of this request of a trace: the number of the prompt.", "Draw",
               metavar="ID", key_name="request"),
        Option(("--sample",), int, "This sample of the request; the first one is 1.", "Draw",
               bounds=Bounds(ge=1, le=MOST)),
        Option(("--tree",), str, "Write the children to this tree; it begins with the traced text if there "
               "is no such file. A tree that is RUN gets them anyway.", "Output", metavar="FILE"),
        Option(("--output", "-o"), str, "walk: where e writes the text; otherwise it ends on stdout.",
               "Output", metavar="FILE"),
        Option(("--format",), Literal["text", "jsonl"], "text, or jsonl: the nodes, a line each.", "Output",
               "text"),
        Option(("--html",), str, "show: write a page to click through, one file that needs no network.",
               "Output", metavar="FILE"),
        *(option(key) for key in CODE),
        option("quiet"),
        DEBUG,
    ),
    "RUN|show TREE|walk TREE",
)  # fmt: skip


def run_fork(arguments: Sequence[str], flags: Mapping[str, Any]) -> int:
    """Grow, show or walk a tree and return the exit code. Raises UsageError for wrong arguments."""
    values = values_of(FORK_PAGE.options, flags)
    word = arguments[0] if arguments and arguments[0] in ("show", "walk") else ""
    names = arguments[1:] if word else arguments
    if len(names) != 1:
        if word:
            hint = "gencli fork RUN --tree FILE writes one."
            raise UsageError(f"fork {word} takes one tree.", hint=hint)
        raise UsageError("fork takes one trace or tree.", hint="Write one with gencli run --trace FILE.")
    takes = {"show": _SHOWN, "walk": _WALKED, "": _FROM}[word]
    for key in flags:
        if key not in (*takes, "debug"):
            flag = next(entry.flag for entry in FORK_PAGE.options if entry.key == key)
            raise UsageError(f"gencli fork{word and ' ' + word} does not take {flag}.", hint="Leave it out.")
    path = Path(names[0])
    if word == "show":
        return _show(path, values)
    if word == "walk":
        from gencli.cli.fork_walk import walk

        return walk(path, values)
    from gencli.cli.forking import fork

    return fork(path, values, flags)


def _show(path: Path, values: Mapping[str, Any]) -> int:
    from gencli.cli.trace_views import tree_text
    from gencli.explain.tree_file import node_line, read_tree

    tree = read_tree(path)
    if values["html"] is not None:
        from gencli.explain.page import branches_page

        with Sink(values["html"]) as sink:
            sink.write(branches_page(tree))
        return 0
    lines = (node_line(node) for _, node in tree.walk())
    Sink().write(tree_text(tree) if format_of(values).is_text else "".join(lines))
    return 0

"""`gencli fork`: other continuations of a traced text, as a tree in a file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from gencli.cli.parser.command import make_command
from gencli.cli.parser.page import Page, values_of
from gencli.cli.terminal.render import Sink
from gencli.config.options.option import Option
from gencli.config.options.run import option
from gencli.config.recipe import CODE
from gencli.errors import UsageError
from processors.conversion import Bounds
from processors.params import MOST

__all__ = ["PAGE", "command", "run"]

_CHILDREN = 64  # limit of children grown at once
_SHOWN = ("format", "html")
_WALKED = ("n", "seed", "output", "quiet", *CODE)
_FROM = ("at", "token", "rank", "node", "request", "sample", "tree", "n", "seed", "format", "quiet", *CODE)
PAGE = Page(
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
        Option(("--debug",), bool, "Show the traceback of an error.", "Output", False),
    ),
    "RUN|show TREE|walk TREE",
)  # fmt: skip


def command() -> Callable[..., int]:
    """Return the function that typer calls."""
    return make_command(run, PAGE)


def run(arguments: Sequence[str], given: Mapping[str, Any]) -> int:
    """Grow, show or walk a tree and return the exit code. Raises UsageError for wrong arguments."""
    values = values_of(PAGE, given)
    word = arguments[0] if arguments and arguments[0] in ("show", "walk") else ""
    names = arguments[1:] if word else arguments
    if len(names) != 1:
        what = f"fork {word}".strip()
        raise UsageError(f"{what} takes one {'tree' if word else 'trace or tree'}.", hint=_hint(word))
    takes = {"show": _SHOWN, "walk": _WALKED, "": _FROM}[word]
    for key in given:
        if key not in (*takes, "debug"):
            flag = next(entry.flag for entry in PAGE.options if entry.key == key)
            raise UsageError(f"{flag} is not for gencli fork{word and ' ' + word}.", hint="Leave it out.")
    path = Path(names[0])
    if word == "show":
        return _show(path, values)
    if word == "walk":
        from gencli.cli.explain.walking import walk

        return walk(path, values)
    from gencli.cli.explain.forking import fork

    return fork(path, values, given)


def _hint(word: str) -> str:
    return "gencli fork RUN --tree FILE writes one." if word else "Write one with gencli run --trace FILE."


def _show(path: Path, values: Mapping[str, Any]) -> int:
    from gencli.cli.explain.tree_view import tree_text
    from gencli.explain.tree_file import node_line, read_tree

    tree = read_tree(path)
    if values["html"] is not None:
        from gencli.explain.page.branches import branches_page

        with Sink(values["html"]) as sink:
            sink.write(branches_page(tree))
        return 0
    lines = (node_line(node) for _, node in tree.walk())
    Sink().write("".join(lines) if values["format"] == "jsonl" else tree_text(tree))
    return 0

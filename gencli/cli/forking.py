"""`gencli fork RUN`: reads a trace or a tree, grows children of a text, and writes them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gencli.cli.fetching import fetch_models
from gencli.cli.render import Sink, say_error
from gencli.cli.stderr import Stderr, running
from gencli.cli.trace_views import block, matching, trace_lines
from gencli.config.job import encode_prompt, make_job
from gencli.config.layers import CODE
from gencli.config.result_formats import format_of
from gencli.errors import UsageError
from gencli.explain.text_sets import ROOT, Tree
from gencli.explain.trace_file import TracedText, objects, read_trace
from gencli.explain.tree_file import TreeFile, checked_head, node_line, recipe_of
from gencli.files import locked
from gencli.helpers import counted
from gencli.runtime.machine import importing
from gencli.text.escapes import unescape

if TYPE_CHECKING:
    from gencli.cli.commands.generate import Grower


@dataclass(frozen=True, slots=True)
class _ForkSource:
    """Source of a fork: a traced text, which may have no tree file yet, or the tree of a file."""

    head: Mapping[str, Any]
    text: TracedText | None = None
    path: Path | None = None
    file: TreeFile | None = None


def fork(path: Path, values: Mapping[str, Any], flags: Mapping[str, Any]) -> int:
    """Grow children, write them to stdout and to their tree, and return the exit code."""
    if values["at"] is None:
        raise UsageError("fork needs --at.", hint="gencli explain shows the tokens; the first one is 0.")
    if values["token"] is not None and values["rank"] is not None:
        raise UsageError("--token and --rank both choose the token.", hint="Leave one of them out.")
    stderr = Stderr(is_quiet=values["quiet"])
    with ExitStack() as stack:
        source = _source(path, values, flags, stack)
        grower = stack.enter_context(grower_of(source.head, values, values["n"], stderr))
        return _grow(source, grower, values, stderr)


def _grow(source: _ForkSource, grower: Grower, values: Mapping[str, Any], stderr: Stderr) -> int:
    from gencli.cli.progress_bars import RunBar
    from gencli.explain.forks import Cut, token_of

    if source.file is not None:
        tree = source.file.tree
        grower.check(tree)  # raises for a text of another model
    else:
        assert source.text is not None  # without a tree file there is a traced text
        tree = Tree(source.head).grown([grower.root(source.text)])
    if values["node"] not in tree.nodes:
        raise UsageError(f"The tree has no node {values['node']}.", hint="gencli fork show lists them.")
    cut = Cut(values["node"], values["at"])
    if values["token"] is not None:
        cut = replace(cut, token=token_of(unescape(values["token"]), grower.tokenizer))
    grower.requests(tree, cut, 1)  # raises for a cut after the text
    if values["rank"] is not None:
        cut = replace(cut, token=grower.ranked(tree, cut, values["rank"]))
    sink, count, limits = Sink(), values["n"], grower.job.limits
    with ExitStack() as stack:
        bar = RunBar(sink, count, limits.max_tokens, stack) if stderr.has_drawing else None
        nodes, results = grower.grow(tree, cut, count, seed=values["seed"], on_event=bar.add if bar else None)
    if source.path is not None and nodes:
        (source.file or TreeFile.create(source.path, tree)).add(nodes)
    grown, is_text = tree.grown(nodes), format_of(values).is_text
    shown = [block(grown, node) if is_text else node_line(node) for node in nodes]
    sink.write(("\n" if is_text else "").join(shown))
    for message in dict.fromkeys(failed.message for failed in results.failures):
        say_error(message)
    if nodes:
        where, tokens = f" in {source.path}" if source.path else "", sum(len(node.ids) for node in nodes)
        children = counted(len(nodes), "child", "children")
        stderr.say(f"{children}{where}, {counted(tokens, 'token')}")
    return results.exit_code


def _source(path: Path, values: Mapping[str, Any], flags: Mapping[str, Any], stack: ExitStack) -> _ForkSource:
    """Read a trace or a tree. `stack` holds the lock of a tree's file."""
    with trace_lines(str(path)) as lines:
        first = next(lines, "")
        kind = next(objects([first]), (0, {}))[1].get("kind")
        texts = [] if kind == "tree" else read_trace(chain([first], lines))
    if kind == "tree":
        for key in ("tree", "request", "sample"):
            if key in flags:
                flag = "run" if key == "request" else key
                raise UsageError(f"{path} is a tree, so --{flag} has no effect.", hint="Leave it out.")
        stack.enter_context(locked(path))
        file = TreeFile(path)
        return _ForkSource(file.tree.head, path=path, file=file)
    matches = matching(texts, values)
    if len(matches) != 1:
        keys = [text.key for text in texts[:5]]
        choices = ", ".join(f"--run {run} --sample {sample + 1}" for run, sample in keys)
        count = "several texts" if matches else "no such text"
        raise UsageError(
            f"The trace has {count}.", hint=f"Choose one: {choices}." if keys else "It is empty."
        )
    text = matches[0]
    if "preset" not in text.head:
        raise UsageError(f"The trace {path} lacks the settings of its run.", hint="Write it again.")
    head = checked_head(text.head)
    if values["tree"] is None:
        if values["node"] != ROOT:
            raise UsageError("--node names a text of a tree.", hint="Give the tree in place of the trace.")
        return _ForkSource(head, text)
    tree_path = Path(values["tree"])
    stack.enter_context(locked(tree_path))
    if not os.path.lexists(tree_path):
        return _ForkSource(head, text, tree_path)
    file = TreeFile(tree_path)
    if file.tree.head != head or file.tree.ids(ROOT) != tuple(record["id"] for record in text.records):
        raise UsageError(f"The tree {tree_path} began with another text.", hint="Give another --tree.")
    return _ForkSource(head, text, tree_path, file)


@contextmanager
def grower_of(
    head: Mapping[str, Any], values: Mapping[str, Any], count: int, stderr: Stderr
) -> Iterator[Grower]:
    """Load the model of a run, described by its head, for `count` children at once. Nothing is fetched."""
    recipe = recipe_of(head)
    code = {key: values[key] for key in CODE}
    settings = recipe.settings(code, "file", log=False, offline=True, stats=False, debug=values["debug"])
    job = replace(make_job(settings), n=1, best_of=None, trace=None)
    fetch_models(settings, job.registry, stderr)
    with running(settings) as handler:
        with stderr.starting(), importing():
            from gencli.cli.commands.generate import Grower, prepare
        with ExitStack() as stack:
            ready = prepare(job, count, settings, stderr, stack)
            tokenizer = ready.loaded.tokenizer
            ids = encode_prompt(ready.job, head["prompt"], tokenizer)
            yield Grower(ready.job, ids, tokenizer, ready.engine, handler, stderr)

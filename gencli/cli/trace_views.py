"""Traces and trees given on a command line: the options of `gencli explain`, the live view of a trace that
is being written, navigation by keys in a trace and in a tree (no terminal, no model), and the tree as text.
"""

from __future__ import annotations

import base64
import binascii
import codecs
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

from gencli.cli.render import Sink, table
from gencli.cli.token_colors import Brush, legend, level_of
from gencli.cli.token_views import TraceTotals, escaped, probability, quoted
from gencli.config.option import Option
from gencli.config.run_options import OPTIONS
from gencli.errors import GencliError, GenerationError
from gencli.explain import trace_file
from gencli.explain.text_sets import ROOT, Node, Tree
from gencli.explain.token_record import Record, Scale
from gencli.explain.trace_file import TracedText
from gencli.helpers import counted, shortened
from gencli.text.escapes import escape_controls
from processors.params import MOST, Bounds

_FOREIGN = "stream stats log show_chain show_prompt trace keep_logits token_ids parsed color".split()
OWN: tuple[Option, ...] = (
    Option(("--at",), int, "Show the path of this token through the chain; the first one is 0.", "Output",
           bounds=Bounds(ge=0, le=MOST)),
    Option(("--decided-by",), str, "Show the tokens that this stage decided, one after the other.", "Output",
           metavar="STAGE"),
    Option(("--why",), str, "Show why the token with this text was not chosen, at each place or with `at` at "
           "one; #12 is the token with id 12.", "Output", metavar="TEXT"),
    Option(("--replay",), bool, "Run the chain of the given options on the logits that the trace keeps.",
           "Output", False),
    Option(("--run",), str, "Only the text of this request: the number of the prompt, or the row's id.",
           "Output", metavar="ID", key_name="request"),
    Option(("--sample",), int, "Only this sample of each prompt; the first one is 1.", "Output",
           bounds=Bounds(ge=1, le=MOST)),
    Option(("--format",), Literal["text", "jsonl"], "text, or jsonl: the records that would be shown.",
           "Output", "text"),
    Option(("--html",), str, "Write a page to click through: one file that needs no network.", "Output",
           metavar="FILE"),
    Option(("--keys",), bool, "Walk through the tokens and stages by keys, on a terminal; --at is where it "
           "begins.", "Output", False),
    Option(("--live",), bool, "Follow a trace that a run is still writing: its text as it grows, and the "
           "page in the end.", "Output", False),
    Option(("--teach",), bool, "Show what the chain of the given options does to twelve words; no model is "
           "needed.", "Output", False),
    Option(("--logits-file",), str, "Explain the rows of logits of this .npy or .safetensors file, [V] or "
           "[T, V]; with `model` its tokenizer names the tokens.", "Prompt", metavar="FILE"),
    Option(("--tensor",), str, "With --logits-file: the tensor of a .safetensors file that has several.",
           "Prompt", metavar="NAME"),
    Option(("--tokens",), str, "With --logits-file: the ids that were chosen, separated by commas; by "
           "default the chain chooses.", "Prompt", metavar="IDS"),
)  # fmt: skip


def options_of_run(options: Iterable[Option], *left_out: str) -> tuple[Option, ...]:
    """Return the options of a run for a command with options of its own, which explains tokens itself.

    Leaves out searches, whose tokens have no explanations, and options for output that only a run writes.
    """
    foreign = {*_FOREIGN, *left_out, *(entry.key for entry in options)}
    return tuple(entry for entry in OPTIONS if entry.key not in foreign and entry.section != "Search")


_OF_RUN = options_of_run(OWN, "output")
RUN_KEYS = frozenset(entry.key for entry in _OF_RUN)
EXPLAIN_OPTIONS: tuple[Option, ...] = (*OWN, *_OF_RUN)


def open_trace(name: str, *, hint: str = "") -> list[TracedText]:
    """Return the texts of a trace file, or of stdin for `-`. Raises UsageError or GenerationError.

    `hint`: hint of the error for a file that cannot be opened.
    """
    with trace_lines("/dev/stdin" if name == "-" else name, hint=hint) as lines:
        return trace_file.read_trace(lines)


@contextmanager
def trace_lines(name: str, *, hint: str = "") -> Iterator[Iterator[str]]:
    """Open a file of lines. Raises UsageError if it cannot be read, also during iteration."""
    limit = 4 * trace_file.MAX_LINE  # bytes of a line

    def lines() -> Iterator[str]:
        while line := file.readline(limit):
            if len(line) == limit:
                raise GenerationError(f"A line of the trace has more than {limit:,} bytes.")
            yield line.decode("utf-8")

    with trace_file.opened_trace(name, hint=hint) as file:
        yield lines()


def matching(texts: Iterable[TracedText], values: Mapping[str, Any]) -> list[TracedText]:
    """Return the texts selected by the options --run and --sample."""
    return [text for text in texts if is_chosen(text.key, values["request"], values["sample"])]


def is_chosen(key: tuple[str, int], request: str | None, sample: int | None) -> bool:
    """Return whether a text is that of --run and --sample, which counts from 1; None is any."""
    return request in (None, key[0]) and sample in (None, key[1] + 1)


_MAX_TEXTS = 100_000
_MAX_HELD = 1 << 20  # tokens of texts that wait for an earlier one


def show_live(lines: Iterable[str], sink: Sink, request: str | None = None, sample: int | None = None) -> int:
    """Show texts in the order in which they begin, until all have ended; return how many were shown.

    `request` and `sample` select texts. Raises GenerationError for another file, or one that is too large.
    """
    texts, total, ended = _ShownTexts(sink), 0, 0
    begun = set[tuple[str, int]]()
    try:
        for key, line in trace_file.read_lines(lines):
            kind = line["kind"]
            if kind == "text":
                begun.add(key)
                of_run = line.get("texts")  # number of texts of the run; older traces lack it
                total = max(of_run if isinstance(of_run, int) else 0, len(begun))
                if len(begun) > _MAX_TEXTS:
                    raise GenerationError(f"The trace has more than {_MAX_TEXTS:,} texts.")
            ended += kind == "end"
            if is_chosen(key, request, sample):
                texts.has_labels = total > 1
                texts.add(key, line)
            if total and ended >= total:
                break
    except (GencliError, KeyboardInterrupt):
        texts.break_line()  # the next message begins a new line
        raise
    return texts.count


@dataclass(slots=True)
class _LiveText:
    """A text that has begun: its tokens that are not shown yet, and its totals."""

    held: list[tuple[str, int]] = field(default_factory=list)
    tally: TraceTotals = field(default_factory=TraceTotals)
    decoder: codecs.IncrementalDecoder = field(
        default_factory=lambda: codecs.getincrementaldecoder("utf-8")("replace")
    )
    is_done: bool = False

    def add(self, record: Record) -> None:
        """Add a token; a character of several tokens comes with the last of them."""
        try:
            data = base64.b64decode(record.get("bytes") or "", validate=True)
        except (binascii.Error, TypeError, ValueError):
            data = b""
        text = self.decoder.decode(data) if data else str(record["text"])
        self.tally.add(record)
        self.held.append((text, level_of("probability", record)))


class _ShownTexts:
    """Shows the first text that has not ended; later texts wait."""

    def __init__(self, sink: Sink) -> None:
        self._sink, self._brush = sink, Brush(sink)
        self._open: dict[tuple[str, int], _LiveText] = {}  # in the order of their beginnings
        self._num_held = 0
        self._is_begun = False
        self.has_labels = False  # whether there are several texts
        self.count = 0

    def add(self, key: tuple[str, int], line: Mapping[str, Any]) -> None:
        """Add a line of a trace, and show newly visible text."""
        if line["kind"] == "text":
            self._open.setdefault(key, _LiveText())
            return
        text = self._open.get(key)
        if text is None:
            return
        if line["kind"] == "end":
            text.is_done = True
        else:
            text.add(line)
            self._num_held += 1
        self._show()
        if self._num_held > _MAX_HELD:
            raise GenerationError(
                f"More than {_MAX_HELD:,} tokens of texts wait for an earlier one.",
                hint="Choose one with --run and --sample.",
            )

    def break_line(self) -> None:
        """End the line of a text that is partly shown."""
        if self._is_begun:
            self._sink.write("\n")

    def _show(self) -> None:
        while self._open:
            key, text = next(iter(self._open.items()))
            if self.has_labels and not self._is_begun:
                self._sink.write(("\n" if self.count else "") + f"== {trace_file.text_label(key)}\n")
            self._is_begun = True
            for piece, number in text.held:
                self._brush.write(escape_controls(piece), number)
            self._num_held -= len(text.held)
            text.held.clear()
            if not text.is_done:
                return
            tally, explained = text.tally, legend("probability", self._brush.look)
            totals = ["\n", tally.head() + explained, tally.table(), tally.surprising()]
            self._sink.write("\n".join(totals) if tally.count else "No tokens.\n")
            del self._open[key]
            self._is_begun = False
            self.count += 1


_SURPRISING = 4.0  # bits of a surprising token
_PAGE = 10  # tokens of a page
_Panel = Literal["distribution", "alternatives", "help"]
_SCALES: tuple[Scale, ...] = get_args(Scale)


@dataclass(frozen=True, slots=True)
class TraceWalk:
    """A position in texts with at least one token each: text, token, and stage.

    Stage 0 is the model, then come the token's stages, and last the draw. `note`: about the last key.
    """

    texts: tuple[TracedText, ...]
    text: int = 0
    token: int = 0
    stage: int = 0
    panel: _Panel = "distribution"
    scale: Scale = "probability"
    note: str = ""
    is_over: bool = False

    @property
    def records(self) -> tuple[Record, ...]:
        """Of the current text."""
        return self.texts[self.text].records

    @property
    def record(self) -> Record:
        """The record of the current token."""
        return self.records[self.token]

    def at(self, token: int) -> TraceWalk:
        """Return the position at the nearest existing token, at the same stage if that token has it."""
        moved = replace(self, token=min(max(token, 0), len(self.records) - 1))
        return moved.at_stage(self.stage)

    def at_stage(self, stage: int) -> TraceWalk:
        """Return the position at the nearest existing stage."""
        return replace(self, stage=min(max(stage, 0), len(self.record["stages"]) + 1))


def press(walk: TraceWalk, key: str) -> TraceWalk:
    """Return the position after a key; an unknown key changes nothing."""
    action = KEYS.get(key)
    return walk if action is None else action[1](replace(walk, note=""))


def _next(is_wanted: Callable[[Record], bool], missing: str) -> Callable[[TraceWalk], TraceWalk]:
    """Return the action of a key: go to the next token of a kind; without any, set the note `missing`."""

    def action(walk: TraceWalk) -> TraceWalk:
        later = range(walk.token + 1, len(walk.records))
        token = next((at for at in later if is_wanted(walk.records[at])), None)
        return replace(walk, note=missing) if token is None else walk.at(token)

    return action


def _panel(name: _Panel) -> Callable[[TraceWalk], TraceWalk]:
    return lambda walk: replace(walk, panel="distribution" if walk.panel == name else name)


KEYS: dict[str, tuple[str, Callable[[TraceWalk], TraceWalk]]] = {
    "left": ("the token before", lambda walk: walk.at(walk.token - 1)),
    "right": ("the next token", lambda walk: walk.at(walk.token + 1)),
    "up": ("the stage before", lambda walk: walk.at_stage(walk.stage - 1)),
    "down": ("the next stage", lambda walk: walk.at_stage(walk.stage + 1)),
    "pageup": (f"{_PAGE} tokens back", lambda walk: walk.at(walk.token - _PAGE)),
    "pagedown": (f"{_PAGE} tokens on", lambda walk: walk.at(walk.token + _PAGE)),
    "home": ("the first token", lambda walk: walk.at(0)),
    "end": ("the last token", lambda walk: walk.at(len(walk.records))),
    "n": (
        "the next token that a stage decided",
        _next(lambda record: bool(record["decided_by"]), "No stage decided a later token."),
    ),
    "u": (
        f"the next surprising token, {_SURPRISING:g} bits or more",
        _next(
            lambda record: record["surprise"] is None or record["surprise"] >= _SURPRISING,
            f"No later token has {_SURPRISING:g} bits or more.",
        ),
    ),
    "a": ("alternatives: what else was likely, and what became of it", _panel("alternatives")),
    "c": (
        "colour by probability, rank, entropy, deciding stages",
        lambda walk: replace(walk, scale=_SCALES[(_SCALES.index(walk.scale) + 1) % len(_SCALES)]),
    ),
    "t": ("the next text", lambda walk: replace(walk, text=(walk.text + 1) % len(walk.texts)).at(0)),
    "?": ("these keys", _panel("help")),
    "q": ("leave", lambda walk: replace(walk, is_over=True)),
}


Action = Literal["", "grow", "prune", "export", "leave"]
HELP = "arrows parent, child, siblings  [ ] token  n new  x prune  e export  q leave"


@dataclass(frozen=True, slots=True)
class TreeWalk:
    """A node of a tree, and the index of the token at which new children begin.

    `message`: about the last key. `is_asked`: the next key confirms pruning of the node.
    """

    tree: Tree
    node: int = ROOT
    token: int = 0
    message: str = ""
    is_asked: bool = False

    @property
    def here(self) -> Node:
        """The current node."""
        return self.tree.nodes[self.node]

    @property
    def num_tokens(self) -> int:
        """Number of tokens of the node's whole text."""
        return self.here.at + len(self.here.ids)

    def pressed(self, key: str) -> tuple[TreeWalk, Action]:
        """Return the state after a key, and the action that the caller has to perform."""
        calm = replace(self, message="", is_asked=False)
        if self.is_asked:
            return (calm, "prune") if key == "y" else (replace(calm, message="Nothing is pruned."), "")
        if key == "x" and self.node == ROOT:
            return replace(calm, message="The first text of the tree cannot be pruned."), ""
        if key == "x":
            below = sum(1 for _ in self.tree.walk(self.node)) - 1
            question = f"Prune node {self.node} and {below} below it? y or n"
            return replace(calm, message=question, is_asked=True), ""
        if key in _ACTIONS:
            return calm, _ACTIONS[key]
        return (_MOVES[key](calm) if key in _MOVES else replace(calm, message=HELP)), ""

    def at(self, node: Node) -> TreeWalk:
        """Return the state at another node, at the token where its text diverges from its parent's."""
        return replace(self, node=node.id, token=node.at)

    def grown(self, nodes: Sequence[Node]) -> TreeWalk:
        """Return the state with new children, at the first of them."""
        state = replace(self, tree=self.tree.grown(nodes))
        return state.at(nodes[0]) if nodes else state

    def pruned(self) -> TreeWalk:
        """Return the state without the node, at its parent."""
        parent = self.tree.nodes[self.here.parent or ROOT]
        return replace(self, tree=self.tree.pruned(self.node), node=parent.id, token=self.here.at)

    def _parent(self) -> TreeWalk:
        if self.here.parent is None:
            return replace(self, message="This is the first text.")
        return replace(self, node=self.here.parent, token=self.here.at)

    def _child(self) -> TreeWalk:
        # The first child at or after the current token, otherwise the first child.
        children = self.tree.children(self.node)
        if not children:
            return replace(self, message="No children; n grows some.")
        return self.at(next((child for child in children if child.at >= self.token), children[0]))

    def _sibling(self, step: int) -> TreeWalk:
        siblings = [] if self.here.parent is None else self.tree.children(self.here.parent)
        target = next((at for at, node in enumerate(siblings) if node.id == self.node), -2) + step
        if not 0 <= target < len(siblings):
            return replace(self, message="No more siblings there.")
        return self.at(siblings[target])

    def _moved(self, token: int) -> TreeWalk:
        return replace(self, token=max(0, min(token, self.num_tokens - 1)))


_ACTIONS: Mapping[str, Action] = {"n": "grow", "e": "export", "q": "leave", "escape": "leave"}
_MOVES: Mapping[str, Callable[[TreeWalk], TreeWalk]] = {
    "left": TreeWalk._parent,
    "right": TreeWalk._child,
    "enter": TreeWalk._child,
    "up": lambda state: state._sibling(-1),
    "down": lambda state: state._sibling(1),
    "[": lambda state: state._moved(state.token - 1),
    "]": lambda state: state._moved(state.token + 1),
    "home": lambda state: state._moved(state.here.at),
    "end": lambda state: state._moved(state.num_tokens),
}


_MAX_TEXT = 60  # characters of a text
_DEEPEST = 20  # levels that are indented


def tree_text(tree: Tree) -> str:
    """Return a tree as an indented table: where each text diverges from its parent's, and how it goes on."""
    head, count = tree.head, len(tree.nodes)
    facts = f"{head['model']}, seed {head['seed']}, {counted(count, 'text')}"
    return f"{escape_controls(facts)}, prompt {_start(head['prompt'])}\n" + table(tree_rows(tree.walk()))


def tree_rows(nodes: Iterable[tuple[int, Node]]) -> Iterator[tuple[str, ...]]:
    """Yield the rows of the table, header first. `nodes`: pairs (depth, node) of Tree.walk."""
    yield "node", "at", "token", "p", "", "text", "end"
    for depth, node in nodes:
        yield ("  " * min(depth, _DEEPEST) + str(node.id), *_parted(node), _start(node.text), _end(node))


def block(tree: Tree, node: Node) -> str:
    """Return a block: a line about a node, and its whole text."""
    at, token, p, how = _parted(node)
    text = tree.text(node.id)
    line_end = "" if text.endswith("\n") else "\n"
    return f"== node {node.id}, at {at} {token} {p} {how}, {_end(node)}\n{text}{line_end}"


def _parted(node: Node) -> tuple[str, str, str, str]:
    # Where it diverges, its first token, that token's probability, and whether it was given.
    if node.parent is None:
        return "", "", "", ""
    return str(node.at), quoted(node.token), probability(node.p), "given" if node.given else "drawn"


def _end(node: Node) -> str:
    return f"{escape_controls(node.reason) or 'running'}, {counted(len(node.ids), 'token')}"


def _start(text: str) -> str:
    return f'"{shortened(escaped(text[: _MAX_TEXT + 1]), _MAX_TEXT)}"'

"""`gencli fork walk`: interactive navigation in a tree, in which new texts can be grown."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gencli.cli.forking import grower_of
from gencli.cli.navigation_pages import loom_page
from gencli.cli.progress_bars import Drawing
from gencli.cli.render import Sink, is_terminal
from gencli.cli.stderr import Stderr
from gencli.cli.terminal_keys import read_keys
from gencli.cli.trace_views import Action, Loom
from gencli.core.events import Event, Token
from gencli.errors import GencliError, UsageError
from gencli.explain.tree_file import TreeFile
from gencli.files import locked
from processors.errors import ProcessorsError

if TYPE_CHECKING:
    from gencli.cli.commands.generate import Grower


_Draw = Callable[[Loom], None]


def walk(path: Path, values: Mapping[str, Any]) -> int:
    """Navigate the tree of a file until a key quits, and return the exit code.

    The page is drawn on stderr; an exported text goes to `output`, or at the end to stdout. Raises UsageError
    without a terminal.
    """
    if not (is_terminal(sys.stdin) and is_terminal(sys.stderr)):
        raise UsageError("fork walk needs a terminal.", hint="gencli fork show draws the tree anywhere.")
    voice = Stderr(is_quiet=True)  # its lines would disturb the page
    with ExitStack() as stack:
        stack.enter_context(locked(path))
        file = TreeFile(path)
        grower = stack.enter_context(grower_of(file.tree.head, values, values["n"], voice))
        grower.forks.check(file.tree)
        weaver = _Weaver(file, grower, values)
        with closing(read_keys()) as keys, Drawing(sys.stderr) as drawing:
            weaver.drawing = drawing
            follow(Loom(file.tree), weaver.interrupted(keys), weaver.draw, weaver.act)
    if weaver.text is not None:
        Sink().write(weaver.text + ("" if weaver.text.endswith("\n") else "\n"))
    return 0


def follow(loom: Loom, keys: Iterable[str], draw: _Draw, act: Callable[[Loom, Action, _Draw], Loom]) -> Loom:
    """Navigate by keys until one quits or the keys end; return the final state."""
    draw(loom)
    for key in keys:
        loom, action = loom.pressed(key)
        if action == "leave":
            break
        if action:
            try:
                loom = act(loom, action, draw)
            except (GencliError, ProcessorsError) as error:
                loom = replace(loom, message=str(error))
        draw(loom)
    return loom


@dataclass(slots=True)
class _Weaver:
    """Performs the actions of keys. `text`: text written to stdout at the end."""

    file: TreeFile
    grower: Grower
    values: Mapping[str, Any]
    drawing: Drawing | None = None
    text: str | None = None
    _pieces: dict[int, list[str]] = field(default_factory=dict)  # pieces of the last node

    def interrupted(self, keys: Iterable[str]) -> Iterable[str]:
        """Yield the keys; Ctrl-C between two keys ends the navigation, and the terminal is restored."""
        self.grower.handler.on_first = _interrupt
        for key in keys:
            yield key
            self.grower.handler.on_first = _interrupt  # growing has replaced it

    def draw(self, loom: Loom) -> None:
        """Draw the page."""
        if loom.node not in self._pieces:
            self._pieces = {loom.node: self.grower.forks.pieces(loom.tree, loom.node)}
        if self.drawing is not None:
            self.drawing.show(*loom_page(loom, self._pieces[loom.node], *self.drawing.size))

    def act(self, loom: Loom, action: Action, draw: _Draw) -> Loom:
        """Grow children, prune or export; return the state after the action."""
        if action == "grow":
            return self._grow(loom, draw)
        if action == "prune":
            self.file.prune(loom.node)
            return replace(loom.pruned(), message=f"Node {loom.node} is pruned.")
        return replace(loom, message=self._export(loom.tree.text(loom.node)))

    def _grow(self, loom: Loom, draw: _Draw) -> Loom:
        from gencli.explain.forks import Cut

        count, tokens = self.values["n"], 0

        def on_event(event: Event) -> None:
            nonlocal tokens
            tokens += len(event.ids) if isinstance(event, Token) else 0
            if self.drawing is not None and self.drawing.is_due:
                draw(replace(loom, message=f"Growing {count}: {tokens} tokens. Ctrl-C ends them."))

        cut = Cut(loom.node, loom.place)
        growth = self.grower.grow(loom.tree, cut, count, seed=self.values["seed"], on_event=on_event)
        self.file.add(growth.nodes)
        failed = "; ".join(dict.fromkeys(failure.message for failure in growth.results.failures))
        message = f"{len(growth.nodes)} new at {loom.place}. {failed}".strip()
        return replace(loom.grown(growth.nodes), message=message)

    def _export(self, text: str) -> str:
        if (name := self.values["output"]) is None:
            self.text = text
            return "The text is written to stdout when you leave."
        with Sink(name) as sink:
            sink.write(text)
        return f"The text is in {name}."


def _interrupt() -> None:
    raise KeyboardInterrupt

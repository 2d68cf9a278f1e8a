"""`gencli fork walk`: interactive navigation in a tree, in which new texts can be grown; keys of a terminal,
one at a time.
"""

from __future__ import annotations

import os
import select
import sys
from codecs import getincrementaldecoder
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prompt_toolkit.input.vt100_parser import Vt100Parser
from prompt_toolkit.key_binding.key_processor import KeyPress
from prompt_toolkit.keys import Keys

from gencli.cli.forking import grower_of
from gencli.cli.navigation_pages import tree_page
from gencli.cli.progress_bars import Drawing
from gencli.cli.render import Sink, is_terminal
from gencli.cli.stderr import Stderr
from gencli.cli.trace_views import Action, TreeWalk
from gencli.core.events import Event, Token
from gencli.errors import GencliError, UsageError
from gencli.explain.tree_file import TreeFile
from gencli.files import locked
from gencli.helpers import counted
from processors.errors import ProcessorsError

if TYPE_CHECKING:
    from gencli.cli.commands.generate import Grower


def walk(path: Path, values: Mapping[str, Any]) -> int:
    """Navigate the tree of a file until a key quits, and return the exit code.

    The page is drawn on stderr; an exported text goes to `output`, or at the end to stdout. Raises UsageError
    without a terminal.
    """
    if not (is_terminal(sys.stdin) and is_terminal(sys.stderr)):
        raise UsageError("fork walk needs a terminal.", hint="gencli fork show draws the tree anywhere.")
    stderr = Stderr(is_quiet=True)  # its lines would disturb the page
    with ExitStack() as stack:
        stack.enter_context(locked(path))
        file = TreeFile(path)
        grower = stack.enter_context(grower_of(file.tree.head, values, values["n"], stderr))
        grower.check(file.tree)
        with closing(read_keys()) as keys, Drawing(sys.stderr) as drawing:
            actions = _TreeActions(file, grower, values, drawing)
            follow(TreeWalk(file.tree), actions.interrupted(keys), actions.draw, actions.act)
    if actions.text is not None:
        Sink().write(actions.text + ("" if actions.text.endswith("\n") else "\n"))
    return 0


def follow(
    state: TreeWalk,
    keys: Iterable[str],
    draw: Callable[[TreeWalk], None],
    act: Callable[[TreeWalk, Action], TreeWalk],
) -> TreeWalk:
    """Navigate by keys until one quits or the keys end; return the final state."""
    draw(state)
    for key in keys:
        state, action = state.pressed(key)
        if action == "leave":
            break
        if action:
            try:
                state = act(state, action)
            except (GencliError, ProcessorsError) as error:
                state = replace(state, message=str(error))
        draw(state)
    return state


@dataclass(slots=True)
class _TreeActions:
    """Performs the actions of keys. `text`: text written to stdout at the end."""

    file: TreeFile
    grower: Grower
    values: Mapping[str, Any]
    drawing: Drawing
    text: str | None = None
    _pieces: dict[int, list[str]] = field(default_factory=dict)  # pieces of the last node

    def interrupted(self, keys: Iterable[str]) -> Iterable[str]:
        """Yield the keys; Ctrl-C between two keys ends the navigation, and the terminal is restored."""

        def interrupt() -> None:
            raise KeyboardInterrupt

        self.grower.handler.on_first = interrupt
        for key in keys:
            yield key
            self.grower.handler.on_first = interrupt  # growing has replaced it

    def draw(self, state: TreeWalk) -> None:
        """Draw the page."""
        if state.node not in self._pieces:
            self._pieces = {state.node: self.grower.pieces(state.tree, state.node)}
        self.drawing.show(*tree_page(state, self._pieces[state.node], *self.drawing.size))

    def act(self, state: TreeWalk, action: Action) -> TreeWalk:
        """Grow children, prune or export; return the state after the action."""
        if action == "grow":
            return self._grow(state)
        if action == "prune":
            self.file.prune(state.node)
            return replace(state.pruned(), message=f"Node {state.node} is pruned.")
        text = state.tree.text(state.node)
        if (name := self.values["output"]) is None:
            self.text = text
            return replace(state, message="The text is written to stdout when you leave.")
        with Sink(name) as sink:
            sink.write(text)
        return replace(state, message=f"The text is in {name}.")

    def _grow(self, state: TreeWalk) -> TreeWalk:
        from gencli.explain.forks import Cut

        count, tokens = self.values["n"], 0

        def on_event(event: Event) -> None:
            nonlocal tokens
            tokens += len(event.ids) if isinstance(event, Token) else 0
            if self.drawing.is_due:
                message = f"Growing {count}: {counted(tokens, 'token')}. Ctrl-C ends the growth."
                self.draw(replace(state, message=message))

        cut = Cut(state.node, state.token)
        nodes, results = self.grower.grow(state.tree, cut, count, seed=self.values["seed"], on_event=on_event)
        self.file.add(nodes)
        failed = "; ".join(dict.fromkeys(failure.message for failure in results.failures))
        return replace(state.grown(nodes), message=f"{len(nodes)} new at {state.token}. {failed}".strip())


_PATIENCE = 0.05  # seconds in which the rest of a key's sequence follows its escape character
_Read = Callable[[float | None], bytes]  # returns the next byte; b"" after this many seconds, and at the end


def read_keys() -> Generator[str, None, None]:
    """Return the keys pressed from now on, until the input ends: names of keys, or characters.

    Names are up, down, left, right, home, end, enter and escape. Closing the generator restores the terminal.
    Raises UsageError if stdin is not a terminal.
    """
    if not is_terminal(sys.stdin) or find_spec("termios") is None:
        raise UsageError("Keys are read from a terminal, and stdin is none.")
    keys = _keys(sys.stdin.fileno())
    next(keys)
    return keys


def _keys(handle: int) -> Generator[str, None, None]:
    """Yield "" once the terminal sends keys one by one, then the keys."""
    import termios
    import tty

    before = termios.tcgetattr(handle)
    try:
        tty.setcbreak(handle, termios.TCSADRAIN)  # keys typed before are read too
        yield ""
        yield from keys_of(lambda t: os.read(handle, 1) if select.select([handle], [], [], t)[0] else b"")
    finally:
        termios.tcsetattr(handle, termios.TCSADRAIN, before)


def keys_of(read: _Read) -> Iterator[str]:
    """Yield the keys of the bytes that `read` returns."""
    presses = deque[KeyPress]()
    parser, decoder = Vt100Parser(presses.append), getincrementaldecoder("utf-8")("replace")
    while byte := read(None):
        parser.feed(decoder.decode(byte))
        while not presses and (byte := read(_PATIENCE)):
            parser.feed(decoder.decode(byte))
        parser.feed(decoder.decode(b"", final=True))
        parser.flush()  # an escape character without a sequence is a key itself
        while presses:
            pressed = presses.popleft().key
            key = pressed.value if isinstance(pressed, Keys) else pressed
            yield "enter" if key in ("c-m", "c-j") else key

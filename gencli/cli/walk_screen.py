"""Interactive navigation in a trace on a terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence

from prompt_toolkit.application import Application
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.input import Input
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.layout import FormattedTextControl, Layout, Window
from prompt_toolkit.output import Output
from prompt_toolkit.styles import Style

from gencli.cli.navigation_pages import draw
from gencli.cli.render import is_terminal
from gencli.cli.token_colors import LEVELS
from gencli.cli.trace_views import KEYS, TraceWalk, press
from gencli.errors import UsageError
from gencli.explain.trace_file import TracedText


def walk(texts: Sequence[TracedText], at: int | None) -> int:
    """Navigate the texts on the terminal. Raises UsageError without a token or a terminal."""
    shown = tuple(text for text in texts if text.records)
    if not shown:
        raise UsageError("The trace has no tokens.")
    check_terminal()
    walk_through(TraceWalk(shown).at(at or 0))
    return 0


def check_terminal() -> None:
    """Raise UsageError unless stdin and stdout are terminals that support screens."""
    if not (is_terminal(sys.stdin) and is_terminal(sys.stdout)) or os.environ.get("TERM") == "dumb":
        raise UsageError(
            "--keys needs a terminal, for stdin and stdout.",
            hint="Without it the page is text for any output.",
        )


def walk_through(walk: TraceWalk, source: Input | None = None, target: Output | None = None) -> TraceWalk:
    """Navigate until a key quits; return the last position. The terminal is restored, even after an error.

    `source`, `target`: input and output instead of the terminal.
    """
    now = walk

    def screen() -> StyleAndTextTuples:
        size = app.output.get_size()
        lines = draw(now, size.columns, size.rows)
        return [
            (f"class:{style}" if style else "", text)
            for line in lines
            for style, text in ([*line, ("", "\n")] if line is not lines[-1] else line)
        ]

    def follow(event: KeyPressEvent, key: str) -> None:
        nonlocal now
        now = press(now, key)
        if now.is_over:
            event.app.exit()

    control = FormattedTextControl(screen, show_cursor=False)
    app: Application[None] = Application(
        Layout(Window(control, always_hide_cursor=True)),
        key_bindings=_bindings(follow),
        style=_style(),
        full_screen=True,
        input=source,
        output=target,
    )
    app.run()
    return now


def _bindings(follow: Callable[[KeyPressEvent, str], None]) -> KeyBindings:
    bindings = KeyBindings()
    for key in KEYS:
        bindings.add(key)(lambda event, key=key: follow(event, key))
    for key in ("c-c", "c-d"):
        bindings.add(key)(lambda event: follow(event, "q"))
    return bindings


def _style() -> Style:
    """Return the styles of walk_view.Line."""
    is_plain = bool(os.environ.get("NO_COLOR"))
    levels = {
        f"level-{i}": level.plain if is_plain else _colored(level.color)
        for i, level in enumerate(LEVELS)
        if i
    }
    return Style.from_dict({**levels, "head": "bold", "row": "bold", "current": "reverse bold", "dim": ""})


def _colored(style: str) -> str:
    """Return a style of rich as one of prompt_toolkit."""
    from rich.style import Style as RichStyle

    parsed = RichStyle.parse(style)
    color = parsed.color.get_truecolor().hex if parsed.color else ""
    return f"{'bold ' if parsed.bold else ''}{color}"

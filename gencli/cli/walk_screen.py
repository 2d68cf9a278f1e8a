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
    if not (is_terminal(sys.stdin) and is_terminal(sys.stdout)) or os.environ.get("TERM") == "dumb":
        raise UsageError(
            "--keys needs a terminal, for stdin and stdout.",
            hint="Without it the page is text for any output.",
        )
    walk_through(TraceWalk(shown).at(at or 0))
    return 0


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

    def follow(key: str) -> Callable[[KeyPressEvent], None]:
        def pressed(event: KeyPressEvent) -> None:
            nonlocal now
            now = press(now, key)
            if now.is_over:
                event.app.exit()

        return pressed

    bindings = KeyBindings()
    for name, key in {**dict(zip(KEYS, KEYS, strict=True)), "c-c": "q", "c-d": "q"}.items():
        bindings.add(name)(follow(key))
    control = FormattedTextControl(screen, show_cursor=False)
    app: Application[None] = Application(
        Layout(Window(control, always_hide_cursor=True)),
        key_bindings=bindings,
        style=_style(),
        full_screen=True,
        input=source,
        output=target,
    )
    app.run()
    return now


def _style() -> Style:
    """Return the styles of navigation_pages.Line."""
    from rich.style import Style as RichStyle

    styles = {"head": "bold", "row": "bold", "current": "reverse bold", "dim": ""}
    for number, level in enumerate(LEVELS[1:], 1):
        parsed = RichStyle.parse(level.color)
        color = parsed.color.get_truecolor().hex if parsed.color else ""
        colored = f"{'bold ' if parsed.bold else ''}{color}"
        styles[f"level-{number}"] = level.plain if os.environ.get("NO_COLOR") else colored
    return Style.from_dict(styles)

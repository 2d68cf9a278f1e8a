"""Further views of a trace: interactive navigation, and a trace that is still being written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gencli.cli.terminal.render import Sink
from gencli.config.options.option import Option
from gencli.errors import UsageError
from gencli.explain.follow import follow
from gencli.explain.trace_file import TracedText

__all__ = ["MODES", "refuse_beside", "show_trace", "walk"]

MODES = (
    Option(("--keys",), bool, "Walk through the tokens and stages by keys, on a terminal; --at is where it "
           "begins.", "Output", False),
    Option(("--live",), bool, "Follow a trace that a run is still writing: its text as it grows, and the "
           "page in the end.", "Output", False),
)  # fmt: skip
_OTHERS = ("why", "replay", "teach", "logits_file")
_BESIDE = {
    "keys": ("decided_by", "html", "live", "why", "teach"),
    "live": ("at", "decided_by", "html", *_OTHERS),
}


def refuse_beside(values: Mapping[str, Any]) -> None:
    """Raise UsageError for options without effect on the requested view."""
    for mode, others in _BESIDE.items():
        found = [key for key in others if values[mode] and values[key] not in (None, False)]
        found += ["format"] if values[mode] and values["format"] == "jsonl" else []
        if found:
            raise UsageError(
                f"--{mode} and --{found[0].replace('_', '-')} are views of their own.",
                hint="Leave one of them out.",
            )


def show_trace(name: str, values: Mapping[str, Any]) -> int:
    """Follow a trace until its texts have ended. Raises UsageError if no text is selected."""
    from gencli.cli.explain.live import show_live

    if not show_live(follow(name), Sink(), values["request"], values["sample"]):
        raise UsageError("The trace has no such text.")
    return 0


def walk(texts: Sequence[TracedText], at: int | None) -> int:
    """Navigate the texts on the terminal. Raises UsageError without a token or a terminal."""
    from gencli.cli.explain.walk import Walk
    from gencli.cli.explain.walk_screen import check_terminal, walk_through

    shown = tuple(text for text in texts if text.records)
    if not shown:
        raise UsageError("The trace has no tokens.")
    check_terminal()
    walk_through(Walk(shown).at(at or 0))
    return 0

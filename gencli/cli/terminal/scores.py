"""Tables of log-probabilities on stderr, for results that are text."""

from __future__ import annotations

from gencli.cli.terminal.render import say
from gencli.cli.terminal.tables import table
from gencli.results.run_results import Scores, score_rows
from gencli.text.tokenizer import Tokenizer

__all__ = ["show_scores"]


def show_scores(scores: Scores, sample: int, tokenizer: Tokenizer, title: str = "") -> None:
    """Write the log-probabilities of a sample, with the prompt's before the first sample, if any."""
    parts = [("prompt", scores.prompt)] if scores.prompt and sample == 0 else []
    parts += [("output", found)] if (found := scores.of(sample)) else []
    if parts and title:
        say(title)
    for name, entries in parts:
        if len(parts) > 1:
            say(f"{name}:")
        say(table(score_rows(entries, tokenizer)).rstrip("\n"))

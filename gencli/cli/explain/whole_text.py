"""Page of a whole text: tokens marked by probability, effect of each stage, most surprising tokens."""

from __future__ import annotations

from collections.abc import Sequence

from gencli.cli.explain.levels import facts_of, legend, level_of, marked
from gencli.cli.explain.tally import Tally
from gencli.explain.record import Record
from gencli.text.escapes import escape_controls

__all__ = ["whole_text"]


def whole_text(records: Sequence[Record]) -> str:
    """Return the page of a text."""
    if not records:
        return "No tokens.\n"
    tally = Tally()
    for record in records:
        tally.add(record)
    parts = (tally.head() + _marked(records), legend("probability"), tally.table(), tally.surprising())
    return "\n".join(parts)


def _marked(records: Sequence[Record]) -> str:
    """Return the text with the marks of LEVELS."""
    found = ((record["text"], level_of("probability", facts_of(record))) for record in records)
    return "".join(marked(escape_controls(text), number) for text, number in found) + "\n"

"""Totals over the tokens of a text: sums by stage, causes, and the most surprising tokens."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from gencli.cli.explain.shown import quoted
from gencli.cli.terminal.tables import table
from gencli.errors import GenerationError
from gencli.explain.record import Record

__all__ = ["Tally"]

_MOST = 1000  # limit of stages in a trace
_SHOWN = 3  # surprising tokens shown


@dataclass(slots=True)
class _Stage:
    """Sums over the tokens at which a stage ran; `example` is the first token that it decided."""

    ran: int = 0
    acted: int = 0
    decided: int = 0
    mass_removed: float = 0.0
    entropy: float = 0.0
    example: str = ""


class Tally:
    """Accumulates the records of a text; its memory depends on the number of stages, not on the text."""

    def __init__(self) -> None:
        self.count = 0
        self._bits = 0.0
        self._stages: dict[str, _Stage] = {}
        self._by_stage = self._alone = 0
        self._surprising: list[tuple[float, int, str]] = []

    def add(self, record: Record) -> None:
        """Add a token. Raises GenerationError if there are too many stages."""
        self.count += 1
        bits = math.inf if record["surprise"] is None else record["surprise"]
        self._bits += bits if math.isfinite(bits) else 0.0
        found = [*self._surprising, (bits, record["pos"], record["text"][:100])]
        self._surprising = sorted(found, key=lambda one: -one[0])[:_SHOWN]
        self._by_stage += bool(record["decided_by"])
        self._alone += record["final"]["alive"] == 1
        self._add_stages(record)
        if len(self._stages) > _MOST:
            raise GenerationError(f"The trace has more than {_MOST:,} stages.")

    def _add_stages(self, record: Record) -> None:
        before = record["raw"]["entropy"] or 0.0
        for stage in record["stages"]:
            own = self._stages.setdefault(stage["name"], _Stage())
            after = stage["entropy"] or 0.0
            own.ran += 1
            own.acted += stage["acted"]
            own.mass_removed += 1 - (stage["mass_kept"] or 0.0)
            own.entropy += after - before
            before = after
        for name in {*record["decided_by"]} & {*self._stages}:
            own = self._stages[name]
            own.decided += 1
            own.example = own.example or _example(record)

    def head(self) -> str:
        """Return the first line of the page. Bits are -log2 of the probability under the model."""
        mean = self._bits / self.count if self.count else 0.0
        return f"{self.count} tokens   {self._bits:.1f} bits, {mean:.2f} a token\n"

    def table(self) -> str:
        """Return a line for each stage, and the number of tokens decided by each cause."""
        noise = self.count - self._by_stage
        causes = (
            f"decided by a stage {self._by_stage}, by model and noise {noise}, one token left {self._alone}"
        )
        return f"{table(self._rows())}{causes}\n"

    def _rows(self) -> Iterator[tuple[str, ...]]:
        yield "stage", "acted", "decided", "mass removed", "entropy", "example"
        for name, own in self._stages.items():
            yield (
                name, f"{own.acted}/{self.count}", str(own.decided), f"{own.mass_removed / own.ran:.3f}",
                f"{own.entropy / own.ran:+.2f}", own.example,
            )  # fmt: skip

    def surprising(self) -> str:
        """Return a line with the most surprising tokens."""
        shown = ", ".join(f"{at} {quoted(text)} {bits:.1f} bits" for bits, at, text in self._surprising)
        return f"most surprising: {shown}\n"


def _example(record: Record) -> str:
    instead = record["forgone"]
    shown = f"{record['pos']} {quoted(record['text'])}"
    return shown if instead is None else f"{shown} for {quoted(instead['text'])}"

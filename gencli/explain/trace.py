"""The records of a text's tokens as one value, which shows itself."""

from __future__ import annotations

from gencli.explain.record import Record

__all__ = ["Trace"]


class Trace(tuple[Record, ...]):
    """The records of consecutive tokens. A notebook shows them as a coloured text."""

    __slots__ = ()

    def __repr__(self) -> str:
        decided = sum(bool(record["decided_by"]) for record in self)
        return f"Trace({len(self)} tokens, {decided} decided by a stage)"

    def _repr_html_(self) -> str:
        from gencli.explain.page import fragment as html  # only for those who look

        return html.fragment(*html.trace("", self))

"""Static HTML of explained texts, for the output of a notebook's cell."""

from __future__ import annotations

import base64
import codecs
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from html import escape
from pathlib import Path
from typing import NamedTuple

from gencli.explain.token_record import LEGENDS, Record, level
from gencli.helpers import counted
from gencli.text.escapes import escape_controls

_MAX_TOKENS = 4000  # with a colour of their own; others are plain
_MAX_ROWS = 200


class Piece(NamedTuple):
    """A part of a text: its level (0 to 3), what is shown under the pointer, and whether texts part here."""

    text: str
    level: int = 0
    title: str = ""
    parts: bool = False


def fragment(*blocks: str) -> str:
    """Return the blocks as one element with its own style."""
    return f'<div class="gencli"><style>{_style()}</style>{"".join(blocks)}</div>'


@cache
def _style() -> str:
    light, dark = re.findall(r"\{([^{}]*)\}", part("colors.css"))
    themes = f".gencli {{{light}}}\n@media (prefers-color-scheme: dark) {{ .gencli {{{dark}}} }}"
    return f"{themes}\n.gencli {{\n{part('tokens.css')}\n{part('fragment.css')}}}"


def text(prompt: str, tokens: Iterable[Piece]) -> str:
    """Return a text behind its prompt, its pieces in colour."""
    tokens = list(tokens)
    plain = "".join(piece.text for piece in tokens[_MAX_TOKENS:])
    spans = [f'<span class="prompt">{_escaped(prompt)}</span>' if prompt else ""]
    spans += map(_span, tokens[:_MAX_TOKENS])
    return f'<div class="tokens"><div class="line" dir="auto">{"".join(spans)}{_escaped(plain)}</div></div>'


def _span(piece: Piece) -> str:
    if piece == Piece(piece.text):
        return _escaped(piece.text)
    title = f' title="{_escaped(piece.title)}"' if piece.title else ""
    more = " parts" if piece.parts else ""
    return f'<span class="token{more}" data-level="{piece.level}"{title}>{_escaped(piece.text)}</span>'


def facts(*texts: str) -> str:
    """Return a line of facts; empty ones are left out."""
    return f'<p class="facts">{_escaped(" · ".join(filter(None, texts)))}</p>'


def legend(texts: Sequence[str]) -> str:
    """Return the legend of the levels 0, 1, 2 and 3."""
    samples = (
        f'<span class="token sample" data-level="{number}">{_escaped(text)}</span>'
        for number, text in enumerate(texts)
    )
    return f'<p class="legend">{" ".join(samples)}</p>'


def lanes(*blocks: str) -> str:
    """Return blocks beside each other, where there is room."""
    return f'<div class="lanes">{"".join(f"<div>{block}</div>" for block in blocks)}</div>'


def table(title: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table that a click on its title opens; "" without rows. Only the first 200 rows are in it."""
    rows = list(rows)
    if not rows:
        return ""
    names = "".join(f"<th>{_escaped(name)}</th>" for name in head)
    cells = ("".join(f"<td>{_escaped(cell)}</td>" for cell in row) for row in rows[:_MAX_ROWS])
    body = "".join(f"<tr>{row}</tr>" for row in cells)
    left = facts(f"and {len(rows) - _MAX_ROWS:,} more") if len(rows) > _MAX_ROWS else ""
    body = f"<table><thead><tr>{names}</tr></thead><tbody>{body}</tbody></table>{left}"
    return f"<details><summary>{_escaped(title)}</summary>{body}</details>"


def named_id(token: int | None, name: str | None) -> str:
    """Return a token in a table: its text in quotes, or its id; "-" for None."""
    return "-" if token is None else repr(name) if name else f"⟨id {token}⟩"


def _escaped(value: str) -> str:
    return escape(escape_controls(value)).encode("utf-8", "replace").decode()


def trace(prompt: str, records: Sequence[Record]) -> Iterator[str]:
    """Yield the blocks of an explained text: legend, text in colour, and the tokens that a stage decided."""
    yield legend(LEGENDS["probability"])
    yield text(prompt, pieces(records))
    rows = [_decided(record) for record in records if record["decided_by"]]
    head = ("token", "text", "p", "rank", "p at the draw", "decided by", "without it")
    yield table(f"{len(rows)} of {counted(len(records), 'token')} decided by a stage", head, rows)


def pieces(records: Iterable[Record]) -> Iterator[Piece]:
    """Yield the tokens of an explained text; a character of several tokens stands at its last one."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    for record in records:
        data = base64.b64decode(record["bytes"])
        shown = decoder.decode(data) if data else f"⟨{record['id']}⟩"
        raw, by = record["raw"], ", ".join(record["decided_by"])
        title = f"p {_p(raw['p'])}, rank {raw['rank'] or 'masked'}; at the draw p {_p(record['final']['p'])}"
        yield Piece(shown, level("probability", raw["p"]), f"{title}; decided by {by}" if by else title)
    if incomplete := decoder.decode(b"", final=True):
        yield Piece(incomplete)


def _decided(record: Record) -> tuple[str, ...]:
    instead = [named_id(*other) if other else "nothing" for other in record.get("instead", ())]
    raw = record["raw"]
    return (
        str(record["pos"]),
        named_id(record["id"], record["text"]),
        _p(raw["p"]),
        str(raw["rank"] or "masked"),
        _p(record["final"]["p"]),
        ", ".join(record["decided_by"]),
        ", ".join(instead),
    )


def _p(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


def part(name: str) -> str:
    """Return a file of this package."""
    return Path(__file__).with_name(name).read_text(encoding="utf-8")

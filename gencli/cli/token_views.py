"""Records of tokens as text: one token's path through the chain, why a token was not chosen, lessons, and
totals over whole texts.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gencli.cli.render import table
from gencli.cli.token_colors import legend, level_of, marked
from gencli.errors import GenerationError
from gencli.explain.token_record import Record
from gencli.helpers import counted, shortened
from gencli.text.escapes import escape_controls

if TYPE_CHECKING:
    from gencli.explain.lesson import Column, Lesson


def one_token(record: Record, before: str = "", of: int | None = None) -> str:
    """Return the page of a token: its facts, a line for each stage, the deciding stages.

    `before`: the text so far. `of`: the number of tokens.
    """
    return f"{headline(record, of)}\n{text_before(before)}{table(stage_rows(record))}{decision(record)}"


def headline(record: Record, of: int | None = None) -> str:
    """Return the facts of a token in a line; `of` is the number of tokens."""
    position = f"token {record['pos']}" + (f" of {of}" if of is not None else "")
    raw, final = record["raw"], record["final"]
    facts = [
        position,
        named(record),
        f"id {record['id']}",
        f"raw {rank(raw['rank'])} p {probability(raw['p'])}",
        f"final {rank(final['rank'])} p {probability(final['p'])}",
        f"surprise {record['surprise']:.2f} bits" if record["surprise"] is not None else "surprise infinite",
    ]
    return "   ".join(facts)


def stage_rows(record: Record) -> Iterator[tuple[str, ...]]:
    """Yield the rows of a token's table: the header, the model, each stage, the draw."""
    token = named(record)
    yield "stage", "set", "alive", "kept", "top", token, "largest removed or moved"
    raw = record["raw"]
    yield "raw", "-", str(raw["alive"]), "", _likeliest(raw), _p_and_rank(raw), ""
    for stage in record["stages"]:
        values = str(stage["params"]).removeprefix(stage["name"]).lstrip("=:")
        yield (
            stage["name"],
            shortened(values, 24),
            str(stage["alive"][1]),
            "-" if stage["mass_kept"] is None else f"{stage['mass_kept']:.3f}",
            _likeliest(stage),
            _p_and_rank(stage),
            _effect_of(stage),
        )
    draw, margin, runner = record["draw"], "", ""
    if draw["margin"] is not None:
        margin = f" {'behind' if draw['margin'] >= 0 else 'ahead'} by {abs(draw['margin']):.2f}"
    if draw["runner_up"] is not None:
        runner = f"runner-up {quoted(draw['runner_up'][1])}{margin}"
    yield "draw", draw["kind"], "", "", "", "drawn", runner


def _likeliest(measures: dict[str, Any]) -> str:
    if not measures["top"]:
        return "-"
    _, text, p = measures["top"][0]
    return f"{quoted(text)} {probability(p)}"


def _p_and_rank(measures: Mapping[str, Any]) -> str:
    return f"{probability(measures['p'])} {rank(measures['rank'])}"


def _effect_of(stage: dict[str, Any]) -> str:
    if not stage["acted"]:
        reasons = ", ".join(filter(None, (stage["note"], stage.get("why_not"))))
        return escaped(reasons) or "changed nothing"
    changes, note = "", escaped(stage["note"])
    if stage["removed"]:
        count = stage["alive"][0] - stage["alive"][1]
        changes = " ".join(f"{quoted(text)} {probability(p)}" for _, text, p in stage["removed"][:3])
        changes = changes if count <= 3 else f"{count} tokens, largest {changes}"
    elif stage["changed"]:
        _, text, before, after = stage["changed"][0]
        changes = f"{quoted(text)} {before:.2f} -> {after:.2f}"
    return f"{changes} ({note})" if changes and note else changes or note


def decision(record: Record) -> str:
    """Return the last line: the deciding stages, and the token that would come without truncation."""
    others = record.get("instead", [None] * len(record["decided_by"]))  # missing in older traces
    pairs = zip(record["decided_by"], others, strict=True)  # the stage, and the token without it
    stages = (name if other is None else f"{name} (without it {quoted(other[1])})" for name, other in pairs)
    decided = ", ".join(stages) or "the noise of the draw, or the model: no stage alone"
    forgone = record["forgone"]
    lost = "" if forgone is None else (
        f"   forgone {quoted(forgone['text'])} (raw p {probability(forgone['p'])}), removed by "
        f"{forgone['removed_by']}"
    )  # fmt: skip
    return f"decided by {decided}{lost}\n"


_MAX_POSITIONS = 20  # in a table
_WhyRecord = Mapping[str, Any]  # a record of the named token, as a Seeker gives it


def why_table(records: Sequence[_WhyRecord]) -> str:
    """Return a line for each position of a text; for a long text only where the token was most likely."""
    token = named(records[0]) if records else ""
    best = sorted(records, key=lambda record: -(record["raw"]["p"] or 0))[:_MAX_POSITIONS]
    cut = f", the {len(best)} of {len(records)} places where it was likeliest"
    head = f"{token} (id {records[0]['id']}){cut if len(best) < len(records) else ''}\n"
    rows: list[tuple[str, ...]] = [("at", "chosen", "raw", "final", "why not", "it would be chosen")]
    for record in sorted(best, key=lambda record: record["pos"]):
        measures = [f"beyond #{record['kept']}"] * 2
        if record["bound"] is None:
            both = (record["raw"], record["final"])
            measures = [f"{rank(each['rank'])} {probability(each['p'])}" for each in both]
        wins = f"without {' or '.join(record['wins_without'])}" if record["wins_without"] else ""
        rows.append((str(record["pos"]), quoted(record["chosen"][1]), *measures, _reason(record), wins))
    return head + table(rows)


def _reason(record: _WhyRecord) -> str:
    if record["bound"] is not None:
        return f"not kept: its logit is at most {record['bound']:.2f}"
    if record["chosen"][0] == record["id"]:
        return "it was chosen"
    doubt = "" if record["exact"] else ", by the kept logits"
    if record["removed_by"]:
        return f"removed by {record['removed_by']}{doubt}"
    margin = record["draw"]["margin"]
    return ("behind in the draw" if margin is None else f"behind in the draw by {-margin:.2f}") + doubt


def why_page(record: _WhyRecord, before: str, count: int) -> str:
    """Return the named token's path through the chain at one position."""
    token, chosen = f"{named(record)} (id {record['id']})", quoted(record["chosen"][1])
    head = f"token {record['pos']} of {count}   {chosen} was chosen; why not {token}?\n"
    wins = " or ".join(record["wins_without"])
    last = f"{_reason(record)}" + (f"; without {wins} it would be chosen" if wins else "")
    return f"{head}{text_before(before)}{table(list(stage_rows(record))[:-1])}{last}\n"


_CELLS = 10  # cells of a bar
_SAME = 1e-6  # difference due to rounding
_WIDTH = 80  # width of a line of words
_BESIDE = 4  # columns in a row
_DRAWS = {
    "greedy": "The draw is greedy: it takes the most likely word",
    "gumbel": "A random number is added to each word's logit, and the largest sum wins; a word wins as "
    "often as its probability says",
    "multinomial": "A random number between 0 and 1 falls into one word's share",
}


def lesson_page(lesson: Lesson, text: str, words: Sequence[str]) -> str:
    """Return the page: the probabilities, a sentence for each stage, the drawn word."""
    parts = [f"{text} ...\nThe model gives each next word a probability. The stages change them.\n"]
    first, *later = lesson.columns
    for start in range(0, max(len(later), 1), _BESIDE - 1):
        parts.append(table(_rows([first, *later[start : start + _BESIDE - 1]], words)))
        first = later[min(start + _BESIDE - 2, len(later) - 1)] if later else first
    if later:
        pairs = zip(lesson.columns, later, strict=False)
        effects = (f"{after.title}: {_effect(before, after, words)}" for before, after in pairs)
        parts.append("".join(map(_line, effects)))
    parts.append(_line(f"{_DRAWS[lesson.draw]}: {lesson.drawn.strip()}."))
    return "\n".join(parts)


def _line(text: str) -> str:
    return textwrap.fill(text, _WIDTH, subsequent_indent="  ") + "\n"


def _rows(columns: Sequence[Column], words: Sequence[str]) -> Iterator[tuple[str, ...]]:
    yield "", *(column.title for column in columns)
    largest = max(max(column.p) for column in columns)
    for at, word in enumerate(words):
        yield word, *(_cell(column.p[at], largest) for column in columns)


def _cell(p: float, largest: float) -> str:
    return f"{probability(p):<5} {'█' * round(_CELLS * p / largest)}".rstrip() if p > 0 else ""


def _effect(before: Column, after: Column, words: Sequence[str]) -> str:
    # The general effect of the stage, and its effect here.
    gone = [word.strip() for word, old, new in zip(words, before.p, after.p, strict=True) if old > 0 == new]
    if gone:
        left = sum(p > 0 for p in after.p)
        did = f"Here it removes {', '.join(gone)}; {left} {'words are' if left > 1 else 'word is'} left."
    elif max(abs(new - old) for old, new in zip(before.p, after.p, strict=True)) < _SAME:
        did = "Here it changes nothing."
    else:
        moved = max(range(len(words)), key=lambda at: abs(after.p[at] - before.p[at]))
        shown = f"{probability(before.p[moved])} -> {probability(after.p[moved])}"
        did = f"Here most of all it moves {words[moved].strip()}, {shown}."
    return f"{after.about} {did}"


def whole_text(records: Sequence[Record]) -> str:
    """Return the page of a text."""
    if not records:
        return "No tokens.\n"
    tally = TraceTotals()
    for record in records:
        tally.add(record)
    pieces = (marked(escape_controls(r["text"]), level_of("probability", r)) for r in records)
    text = "".join(pieces) + "\n"
    return "\n".join((tally.head() + text, legend("probability"), tally.table(), tally.surprising()))


_MAX_STAGES = 1000  # limit of stages in a trace
_SHOWN = 3  # surprising tokens shown


@dataclass(slots=True)
class _StageTotals:
    """Sums over the tokens at which a stage ran; `example` is the first token that it decided."""

    ran: int = 0
    acted: int = 0
    decided: int = 0
    mass_removed: float = 0.0
    entropy: float = 0.0
    example: str = ""


class TraceTotals:
    """Accumulates the records of a text; its memory depends on the number of stages, not on the text."""

    def __init__(self) -> None:
        self.count = 0
        self._bits = 0.0
        self._stages: dict[str, _StageTotals] = {}
        self._by_stage = self._alone = 0
        self._surprising: list[tuple[float, int, str]] = []

    def add(self, record: Record) -> None:
        """Add a token. Raises GenerationError if there are too many stages."""
        self.count += 1
        bits = math.inf if record["surprise"] is None else record["surprise"]
        self._bits += bits if math.isfinite(bits) else 0.0
        tokens = [*self._surprising, (bits, record["pos"], named(record))]
        self._surprising = sorted(tokens, key=lambda token: -token[0])[:_SHOWN]
        self._by_stage += bool(record["decided_by"])
        self._alone += record["final"]["alive"] == 1
        before = record["raw"]["entropy"] or 0.0
        for stage in record["stages"]:
            totals = self._stages.setdefault(stage["name"], _StageTotals())
            after = stage["entropy"] or 0.0
            totals.ran += 1
            totals.acted += stage["acted"]
            totals.mass_removed += 1 - (stage["mass_kept"] or 0.0)
            totals.entropy += after - before
            before = after
        for name in {*record["decided_by"]} & {*self._stages}:
            totals = self._stages[name]
            totals.decided += 1
            if not totals.example:
                forgone = "" if record["forgone"] is None else f" for {quoted(record['forgone']['text'])}"
                totals.example = f"{record['pos']} {named(record)}{forgone}"
        if len(self._stages) > _MAX_STAGES:
            raise GenerationError(f"The trace has more than {_MAX_STAGES:,} stages.")

    def head(self) -> str:
        """Return the first line of the page. Bits are -log2 of the probability under the model."""
        mean = self._bits / self.count if self.count else 0.0
        return f"{counted(self.count, 'token')}   {self._bits:.1f} bits, {mean:.2f} a token\n"

    def table(self) -> str:
        """Return a line for each stage, and the number of tokens decided by each cause."""
        noise = self.count - self._by_stage
        causes = f"by model and noise {noise}, one token left {self._alone}"
        rows = [("stage", "acted", "decided", "mass removed", "entropy", "example")]
        for name, t in self._stages.items():
            mass, entropy = f"{t.mass_removed / t.ran:.3f}", f"{t.entropy / t.ran:+.2f}"
            rows.append((name, f"{t.acted}/{self.count}", str(t.decided), mass, entropy, t.example))
        return f"{table(rows)}decided by a stage {self._by_stage}, {causes}\n"

    def surprising(self) -> str:
        """Return a line with the most surprising tokens."""
        shown = ", ".join(f"{at} {token} {bits:.1f} bits" for bits, at, token in self._surprising)
        return f"most surprising: {shown}\n"


_MAX_TOKEN = 24  # characters of a token
_BEFORE = 60  # characters of the text before it


def probability(p: float | None) -> str:
    """Return 1.000, .372, .0004 or 2e-05; "-" for None."""
    if p is None:
        return "-"
    if p == 0:
        return "0"
    text = f"{p:.3f}" if p >= 0.001 else f"{p:.1g}"
    return text.removeprefix("0")


def named(record: Record) -> str:
    """Return a record's token in quotes, a special one by its name."""
    return quoted(record.get("name", record["text"]))


def quoted(text: str) -> str:
    """Return a token in quotes, with control characters and newlines as escapes, shortened if long."""
    shown = escaped(text).replace('"', '\\"')
    return f'"{shortened(shown, _MAX_TOKEN)}"'


def text_before(text: str) -> str:
    """Return the end of the text before a token, as a line; "" for an empty text."""
    shown = escaped(text[-_BEFORE:])
    return f"{'...' if len(text) > _BEFORE else ''}{shown}\n" if text else ""


def rank(value: Any) -> str:
    """Return #4; "-" for a masked token."""
    return "-" if value is None else f"#{value}"


def escaped(text: str) -> str:
    """Return the text on one line, with control characters, newlines and tabs as escapes."""
    return escape_controls(text).replace("\n", "\\n").replace("\t", "\\t")

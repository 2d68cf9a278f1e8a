"""Navigation in a trace on a terminal; its pages and those of a tree, lines of styled text for any screen."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Iterator, Sequence

from prompt_toolkit.application import Application
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.input import Input
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.layout import FormattedTextControl, Layout, Window
from prompt_toolkit.output import Output
from prompt_toolkit.styles import Style
from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from gencli.cli.render import is_terminal, table
from gencli.cli.token_colors import LEVELS, legend, level_of
from gencli.cli.token_views import decision, headline, named, probability, quoted, stage_rows
from gencli.cli.trace_views import HELP, KEYS, TraceWalk, TreeWalk, press, tree_rows
from gencli.errors import UsageError
from gencli.explain.trace_file import TracedText
from gencli.text.escapes import escape_controls


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
    """Return the styles of Line."""
    from rich.style import Style as RichStyle

    styles = {"head": "bold", "row": "bold", "current": "reverse bold", "dim": ""}
    for number, level in enumerate(LEVELS[1:], 1):
        parsed = RichStyle.parse(level.color)
        color = parsed.color.get_truecolor().hex if parsed.color else ""
        colored = f"{'bold ' if parsed.bold else ''}{color}"
        styles[f"level-{number}"] = level.plain if os.environ.get("NO_COLOR") else colored
    return Style.from_dict(styles)


Line = list[tuple[str, str]]  # (style, text); styles: "", head, dim, row, level-1 to level-3, current
_CELLS = 20  # cells of a bar
_PARTS = " ▏▎▍▌▋▊▉"
_NEWLINE = "⏎"
_FOOT = "left right token   up down stage   n decided   u surprising   a alternatives   ? keys   q leave"


def draw(walk: TraceWalk, width: int, height: int) -> list[Line]:
    """Return at most `height` lines of at most `width` cells."""
    record, count = walk.record, len(walk.records)
    texts = f"text {walk.text + 1} of {len(walk.texts)}   " if len(walk.texts) > 1 else ""
    head: list[Line] = [[("head", texts + headline(record, count))]]
    foot: list[Line] = [[("dim", walk.note or _FOOT)]]
    room = height - len(head) - len(foot)
    strip = _strip(walk, width, max(1, min(6, room // 4)))
    rows = _stages(walk, max(3, room - len(strip) - 9))
    if walk.panel == "help":
        panel: list[Line] = [[("", f"  {key:<9} {text}")] for key, (text, _) in KEYS.items()]
    else:
        lines = _alternatives(walk) if walk.panel == "alternatives" else _distribution(walk)
        panel = [*rows, [("", decision(walk.record).rstrip("\n"))], *([line] for line in lines)]
    body = [*strip, [("dim", legend(walk.scale, "color"))], *panel]
    page = [*head, *body[: max(0, room)], *foot]
    return [_cut(line, width) for line in page[-height:]]


def bar(p: float | None) -> str:
    """Return a probability as a bar of 20 cells, with a resolution of an eighth of a cell."""
    eighths = round(min(max(p or 0.0, 0.0), 1.0) * _CELLS * 8)
    filled = "█" * (eighths // 8) + _PARTS[eighths % 8].strip()
    return filled.ljust(_CELLS)


def _strip(walk: TraceWalk, width: int, rows: int) -> list[Line]:
    """Return the lines of text around the current token.

    Whole blocks of tokens are wrapped, so that the text does not move with each key.
    """
    block = max(1, width * rows)
    first = max(0, (walk.token // block - 1) * block)
    lines: list[Line] = [[]]
    used = current = 0
    for number, record in enumerate(walk.records[first : walk.token + block], first):
        shade = level_of(walk.scale, record)
        style = "current" if number == walk.token else f"level-{shade}" if shade else ""
        for part in _parts(record["text"]):
            size = cell_len(part)
            if used and used + size > width:
                lines.append([])
                used = 0
            lines[-1].append((style, part))
            used += size
            if number == walk.token:
                current = len(lines) - 1
            if part.endswith(_NEWLINE):
                lines.append([])
                used = 0
    top = max(0, min(current - rows // 2, len(lines) - rows))
    return lines[top : top + rows]


def _parts(text: str) -> Iterator[str]:
    # The lines of a token's text without control characters, each newline shown as a mark.
    *ended, last = escape_controls(text).replace("\t", " ").split("\n")
    yield from (line + _NEWLINE for line in ended)
    if last:
        yield last


def _stages(walk: TraceWalk, room: int) -> list[Line]:
    """Return the table of stages: its header, and the rows around the chosen one that fit."""
    cells = ([_clean(cell) for cell in row] for row in stage_rows(walk.record))
    head, *rows = table(cells).splitlines()
    first = max(0, min(walk.stage - (room - 1) // 2, len(rows) - room + 1))
    shown = enumerate(rows[first : first + room - 1], first)
    lines = [("row", f"> {row}") if number == walk.stage else ("", f"  {row}") for number, row in shown]
    return [[("head", "  " + head)], *([line] for line in lines)]


def _distribution(walk: TraceWalk) -> Iterator[tuple[str, str]]:
    """Yield the most likely tokens after the chosen stage as bars, and all others as one bar."""
    stages = walk.record["stages"]
    names = ["under the model", *(f"behind {stage['name']}" for stage in stages), "at the draw"]
    name, distribution = names[walk.stage], [walk.record["raw"], *stages, walk.record["final"]][walk.stage]
    yield "head", f"{name}, entropy {distribution['entropy'] or 0.0:.2f} nats"
    width = max(len("others"), *(cell_len(quoted(text)) for _, text, _ in distribution["top"]), 0)
    for token, text, p in distribution["top"]:
        style = "row" if token == walk.record["id"] else ""
        yield style, f"  {set_cell_size(quoted(text), width)} {bar(p)} {probability(p)}"
    if all(token != walk.record["id"] for token, _, _ in distribution["top"]):
        p = distribution["p"]
        yield "row", f"  {set_cell_size(named(walk.record), width)} {bar(p)} {probability(p)}"
    others = distribution["others"]
    yield "dim", f"  {'others':<{width}} {bar(others)} {probability(others)}"


def _alternatives(walk: TraceWalk) -> Iterator[tuple[str, str]]:
    """Yield the most likely tokens under the model and at the draw, and the effect of the stages on them."""
    record = walk.record
    raw, final = (
        {
            entry[0]: entry
            for entry in (*measures["top"], (record["id"], record.get("name", record["text"]), measures["p"]))
        }
        for measures in (record["raw"], record["final"])
    )
    removed: dict[int, str] = {}
    for stage in record["stages"]:
        removed |= {entry[0]: f"removed by {_clean(stage['name'])}" for entry in stage["removed"]}
    rows = [("alternative", "raw p", "at the draw", "")]
    for token, (_, text, _) in {**raw, **final}.items():
        fate = "drawn" if token == record["id"] else removed.get(token, "")
        before, after = (probability(kept[token][2]) if token in kept else "-" for kept in (raw, final))
        rows.append((quoted(text), before, after, fate))
    lines = table(rows).splitlines()
    yield from (("head" if number == 0 else "", f"  {line}") for number, line in enumerate(lines))


def _clean(text: str) -> str:
    return escape_controls(text).replace("\n", "\\n").replace("\t", " ")


def _cut(line: Line, width: int) -> Line:
    """Return the line with at most `width` cells."""
    kept: Line = []
    for style, text in line:
        clean = _clean(text)
        size = min(cell_len(clean), width)
        kept.append((style, clean if cell_len(clean) <= width else set_cell_size(clean, size)))
        width -= size
    return kept


def tree_page(state: TreeWalk, pieces: Sequence[str], width: int, height: int) -> list[Text]:
    """Return the lines of a page. `pieces`: the text of each token of the node's whole text."""
    last = Text(state.message or HELP, "bold" if state.message else "dim")
    nodes = [*_nodes(state, max(1, height // 2 - 1))]
    text = _text(state, pieces, width, max(1, height - len(nodes) - 2))
    return [*nodes, Text(""), *text, last][-height:]


def _nodes(state: TreeWalk, limit: int) -> Iterator[Text]:
    """Yield at most `limit` lines of the tree around the node, which is marked by `>`."""
    every = [*state.tree.walk()]
    here = next(index for index, (_, node) in enumerate(every) if node.id == state.node)
    near = _around(here, len(every), limit)
    lines = table(tree_rows(every[near.start : near.stop])).splitlines()[1:]
    for index, line in zip(near, lines, strict=True):
        is_here = index == here
        yield Text(("> " if is_here else "  ") + line, "bold" if is_here else "")


def _text(state: TreeWalk, pieces: Sequence[str], width: int, rows: int) -> list[Text]:
    """Return at most `rows` lines of text around the current token, which is shown in brackets."""
    room, token_index = width * rows, min(state.token, len(pieces) - 1)
    before = _shown("".join(pieces[:token_index])[-room:])
    token = _shown(pieces[token_index]).replace("\n", "\\n")
    after = _shown("".join(pieces[token_index + 1 :])[:room])
    console = Console(width=width, file=io.StringIO())
    marked = Text(before) + Text(f"[{token}]", "reverse")
    at = len(marked.wrap(console, width)) - 1
    lines = (marked + Text(after)).wrap(console, width)
    return [lines[index] for index in _around(at, len(lines), rows)]


def _shown(text: str) -> str:
    return escape_controls(text).expandtabs(4)


def _around(at: int, count: int, limit: int) -> range:
    # At most `limit` of `count` indices, centred at `at` if possible.
    start = max(0, min(at - limit // 2, count - limit))
    return range(start, min(count, start + limit))

"""Explained texts as one HTML file: no network, no framework, the data inside it.

The data is {"kind": ..., ...}; texts of token ids are in `names`, {id: text}.

    texts    texts of a trace, one or two of them side by side (in short: `texts_data`)
    compare  {prompt, names, texts: [{title, chain, tokens: [id ...]}, the other],
              rows: [[pos, tv, kl or null, a, b, [stage ...]] ...]}
    sweep    {title, axes: [{name, values: [text ...]}], measures: [{name, unit}],
              cells: [[[index on each axis], [measure or null ...], text, command or ""] ...]}
    tree     {title, names, nodes: [[index of the parent or -1, token or null, p or null, text] ...]}

The page contains the data compressed (zlib, base64). Numbers have six significant digits; null stands for a
number that is not finite.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shlex
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import TYPE_CHECKING, Any

from gencli.config.option_names import with_flags
from gencli.errors import GenerationError
from gencli.explain.page.html_fragments import Piece, facts, fragment, lanes, legend, named_id, part, table
from gencli.explain.page.html_fragments import text as marked_text
from gencli.explain.text_sets import ROOT, Tree
from gencli.explain.token_record import Record
from gencli.explain.trace_file import TracedText, text_label
from gencli.helpers import counted
from gencli.results.run_results import significant
from processors.chain import Chain
from processors.errors import ProcessorsError

if TYPE_CHECKING:
    from gencli.explain.chain_comparison import ComparedPlace, Comparison, DivergenceSums


_STYLES = ("colors.css", "style.css", "tokens.css", "views.css")
_SCRIPTS = {
    "texts": ("base.js", "tokens.js", "lanes.js", "panel.js", "texts.js"),
    "compare": ("base.js", "tokens.js", "compare.js"),
    "sweep": ("base.js", "sweep.js"),
    "tree": ("base.js", "tree.js"),
}
_TITLES = {"texts": "explain", "tree": "fork"}


def page(texts: Sequence[TracedText]) -> str:
    """Return the page of traced texts. Raises GenerationError for an invalid record."""
    return assemble("texts", texts_data(texts))


def assemble(kind: str, data: Mapping[str, Any]) -> str:
    """Return the file. Texts are data in it, never markup or code."""
    style, script = ("\n".join(map(part, names)) for names in (_STYLES, _SCRIPTS[kind]))
    written = json.dumps({"kind": kind, **data}, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    # Lone surrogates become "?", because UTF-8 cannot encode them.
    packed = base64.b64encode(zlib.compress(written.encode("utf-8", "replace"), 9)).decode()
    # Only the page's own script and style run, and nothing is fetched.
    sources = f"script-src '{_hash(script)}'; style-src '{_hash(style)}'"
    parts = {
        "KIND": kind,
        "TITLE": _TITLES.get(kind, kind),
        "POLICY": f"default-src 'none'; {sources}; base-uri 'none'; form-action 'none'",
        "STYLE": style,
        "SCRIPT": script,
        "DATA": packed,
    }
    return re.sub("%([A-Z]+)%", lambda match: parts[match[1]], part("index.html"))


def short(value: Any) -> Any:
    """Return a number with six significant digits, null if it is not finite; other values unchanged."""
    rounded = significant(value) if isinstance(value, float) else value
    return int(rounded) if isinstance(rounded, float) and rounded.is_integer() else rounded


def named(entries: Iterable[Sequence[Any]], names: dict[int, str]) -> list[Any]:
    """Return the entries [id, text, number ...] as a flat list without texts, which are added to `names`."""
    flat: list[Any] = []
    for token, text, *numbers in entries:
        names[token] = text
        flat += [token, *map(short, numbers)]
    return flat


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


_NO_MASK: Record = {"n_masked": 0, "constrained_by": []}  # for a trace without masks


def texts_data(texts: Sequence[TracedText]) -> dict[str, Any]:
    """Return the page data of these texts. Raises GenerationError for an invalid record."""
    names, spellings, written = dict[int, str](), dict[int, str](), []
    for text in texts:
        try:
            for record in text.records:
                if "\ufffd" in record["text"]:  # a part of a character, which only the bytes show
                    spellings[record["id"]] = str(record["bytes"])
            written.append(_text(text, names) | {"command": command(text, texts)})
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            raise GenerationError(f"A record of the text {text.key[0]!r} is no record: {error}.") from None
    names |= {record["id"]: record["text"] for text in texts for record in text.records}
    return {"texts": written, "names": names, "bytes": spellings}


def _text(text: TracedText, names: dict[int, str]) -> dict[str, Any]:
    keys = ((stage["name"], stage["params"]) for record in text.records for stage in record["stages"])
    stages = {key: number for number, key in enumerate(dict.fromkeys(keys))}
    request, sample = text.key
    return {
        "title": f"prompt {text_label(text.key)}",
        "run": request,
        "sample": sample,
        "facts": {name: text.head.get(name) for name in ("model", "seed")},
        "prompt": str(text.head.get("prompt", "")),
        "reason": text.reason,
        "stages": [list(key) for key in stages],
        "tokens": [_token(record, stages, names) for record in text.records],
    }


def _token(record: Record, stages: dict[tuple[str, str], int], names: dict[int, str]) -> list[Any]:
    ran = [stage["name"] for stage in record["stages"]]
    draw, forgone, runner_up = record["draw"], record["forgone"], None
    mask = record.get("mask", _NO_MASK)
    if draw["runner_up"] is not None:
        runner_up, names[draw["runner_up"][0]] = draw["runner_up"]
    if forgone is not None:
        names[forgone["id"]] = forgone["text"]
    raw = before = _state(record["raw"], record["raw"]["alive"], names)
    rows = []
    for stage in record["stages"]:
        state = _state(stage, stage["alive"][1], names)
        removed, changed = named(stage["removed"], names), named(stage["changed"], names)
        row = [stages[stage["name"], stage["params"]], int(stage["acted"]), short(stage["mass_kept"])]
        row += [0 if state == before else state, removed, changed, stage["note"], stage.get("why_not", "")]
        while row[-1] in (0, "", []):  # missing fields count as empty
            row.pop()
        rows.append(row)
        before = state
    instead = [None if other is None else (other[0], other[1]) for other in record.get("instead", ())]
    names.update(filter(None, instead))
    return [
        record["id"],
        short(record["surprise"]),
        raw,
        rows,
        [draw["kind"], short(draw["margin"]), runner_up],
        [ran.index(name) for name in record["decided_by"] if name in ran],
        0 if forgone is None else [forgone["id"], short(forgone["p"]), forgone["removed_by"]],
        [mask["n_masked"], *mask["constrained_by"]] if mask["n_masked"] else 0,
        [None if other is None else other[0] for other in instead],
    ]


def _state(state: Record, alive: int, names: dict[int, str]) -> list[Any]:
    numbers = [state["p"], state["rank"], state["entropy"], alive, state["others"]]
    return [*map(short, numbers), named(state["top"], names), short(state["logit"])]


_SET_ELSEWHERE = {"grammar", "tail", "kgw", "synthid", "gumbel_mark"}  # stages that no option can restore


def command(text: TracedText, texts: Sequence[TracedText]) -> str:
    """Return a command line with the text's model, prompts, chain, draw and seed; "" if some are unknown.

    A row's noise depends on the index of its prompt, so the command contains all prompts before it. A trace
    does not record guidance, template, grammar or stops; to reproduce such a run, these options have to be
    added.
    """
    head, request = text.head, text.key[0]
    by_request = {other.key[0]: other.head.get("prompt") for other in texts}
    numbers = [str(number) for number in range(1, len(by_request) + 1)]
    numbers = numbers[: numbers.index(request) + 1] if request in numbers else []
    prompts = [prompt for number in numbers if isinstance(prompt := by_request.get(number), str)]
    try:
        chain = Chain.from_list(head["chain"])
    except (ProcessorsError, AttributeError, KeyError, TypeError, ValueError):
        return ""
    names = [name for name, _ in chain]
    if not numbers or len(prompts) < len(numbers) or not _SET_ELSEWHERE.isdisjoint(names):
        return ""
    settings = [("model", head["model"]), ("seed", head["seed"]), ("sampler", head["draw"])]
    settings += [("stage", str(Chain((stage,)))) for stage in chain.stages]
    settings += [("chain", ",".join(dict.fromkeys(names)))] if names else []
    settings += [("n", text.key[1] + 1)] if text.key[1] else []
    settings += [("max_tokens", len(text.records))]
    words = [word for key, value in settings for word in (with_flags(f"`{key}`"), str(value))]
    return shlex.join(["gencli", "run", *words, "--", *prompts])


@dataclass(frozen=True, slots=True)
class Side:
    """One of two chains: a title, the chain as text, and the ids that it drew after the prompt."""

    title: str
    chain: str
    tokens: Sequence[int]


@dataclass(frozen=True, slots=True)
class CompareRow:
    """A position of the first text, `pos` from 0, and the choices of both chains there.

    `tv`: total variation, 0 to 1. `kl`: KL divergence in bits, infinite if one chain masks an id that the
    other can draw. `a`, `b`: ids that the same draw gives. `decided`: the stages that cause a difference.
    """

    pos: int
    tv: float
    kl: float
    a: int | None
    b: int | None
    decided: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Axis:
    """An option that a sweep varies, and its values as text, in order."""

    name: str
    values: Sequence[str]


@dataclass(frozen=True, slots=True)
class Measure:
    """A number of each cell; `unit` may be empty."""

    name: str
    unit: str = ""


@dataclass(frozen=True, slots=True)
class Cell:
    """A run of a sweep: its index on each axis, its measures in order, its text, and its command."""

    at: Sequence[int]
    measures: Sequence[float | None]
    text: str
    command: str = ""


@dataclass(frozen=True, slots=True)
class PageNode:
    """A piece of a text: the index of the node that it continues, which comes before it, or None for a root.

    `text`: the text that the node adds, including the first token, in which it differs from its siblings.
    `p`: probability of that token. The texts from the root to a node form a branch.
    """

    parent: int | None
    token: int | None
    p: float | None
    text: str


def compare_page(
    prompt: str, sides: tuple[Side, Side], rows: Sequence[CompareRow], names: Mapping[int, str]
) -> str:
    """Return the page of two chains; `names` has the texts of all ids."""
    if any(first.pos >= second.pos for first, second in pairwise(rows)):
        raise GenerationError("The places of a comparison are not in ascending order.")
    texts = [{"title": side.title, "chain": side.chain, "tokens": list(side.tokens)} for side in sides]
    written = [[row.pos, short(row.tv), short(row.kl), row.a, row.b, list(row.decided)] for row in rows]
    return assemble("compare", {"prompt": prompt, "names": dict(names), "texts": texts, "rows": written})


def sweep_page(title: str, axes: Sequence[Axis], measures: Sequence[Measure], cells: Sequence[Cell]) -> str:
    """Return the page of a grid; the last axis gives the columns. GenerationError for a cell outside it."""
    if not axes or not measures or not prod(len(axis.values) for axis in axes):
        raise GenerationError("A sweep has at least one axis with values and one measure.")
    sizes = [len(axis.values) for axis in axes]
    for cell in cells:
        is_fit = len(cell.at) == len(sizes) and len(cell.measures) == len(measures)
        if not is_fit or not all(0 <= i < n for i, n in zip(cell.at, sizes, strict=True)):
            raise GenerationError(f"The cell {list(cell.at)} does not fit the sweep's axes and measures.")
    data: dict[str, Any] = {
        "title": title,
        "axes": [{"name": axis.name, "values": list(axis.values)} for axis in axes],
        "measures": [{"name": measure.name, "unit": measure.unit} for measure in measures],
        "cells": [[list(cell.at), [*map(short, cell.measures)], cell.text, cell.command] for cell in cells],
    }
    return assemble("sweep", data)


def tree_page(title: str, nodes: Sequence[PageNode], names: Mapping[int, str]) -> str:
    """Return the page of branches. Raises GenerationError for a node that precedes its parent."""
    for index, node in enumerate(nodes):
        if node.parent is not None and not 0 <= node.parent < index:
            raise GenerationError(f"The parent of node {index} is {node.parent}, which is not before it.")
    written = [
        [-1 if node.parent is None else node.parent, node.token, short(node.p), node.text] for node in nodes
    ]
    return assemble("tree", {"title": title, "names": dict(names), "nodes": written})


_ENDS = dict[int, int | None]  # the piece that ends at each offset of a text


def branches_page(tree: Tree) -> str:
    """Return the page of a tree."""
    pieces, names = list[PageNode](), dict[int, str]()
    ends: dict[int, _ENDS] = {}  # by node
    for _, node in tree.walk():
        before = None if node.parent is None else ends[node.parent][node.kept]
        cuts = {min(max(child.kept - node.kept, 0), len(node.text)) for child in tree.children(node.id)}
        offsets: _ENDS = {} if node.parent is None else dict(ends[node.parent])
        offsets[node.kept] = before
        start = 0
        for end in sorted({*cuts, len(node.text)}):
            if end > start or (end == len(node.text) and not start):
                is_first = not start
                token = node.ids[0] if is_first and node.ids and node.id != ROOT else None
                pieces.append(PageNode(before, token, node.p if is_first else None, node.text[start:end]))
                before, start = len(pieces) - 1, end
            offsets[node.kept + end] = before
        for child in tree.children(node.id):
            offsets.setdefault(child.kept, before)
        ends[node.id] = offsets
        if node.ids:
            names[node.ids[0]] = node.token
    return tree_page(str(tree.head["prompt"]), pieces, names)


_BOUNDS = (0.05, 0.2, 0.5)  # of total variation, between the levels
_LEGEND = ("total variation up to .05", ".05 to .2", ".2 to .5", "above .5")


def compared_fragment(comparison: Comparison, sums: DivergenceSums) -> str:
    """Return the comparison as HTML. Without B's own text only A's is shown."""
    mean = "" if sums.tv_mean is None else f"total variation {sums.tv_mean:.3g} on average"
    where = "" if comparison.parted_at is None else f"the texts part at token {comparison.parted_at}"
    prompt, a, b = comparison.prompt, comparison.a, comparison.b
    sides = [facts("A", a.reason, a.error) + marked_text(prompt, _pieces(comparison))]
    if b is not None:
        names = [comparison.names.get(token) or f"⟨id {token}⟩" for token in b.tokens]
        other = (Piece(name, parts=at == comparison.parted_at) for at, name in enumerate(names))
        sides.append(facts("B", b.reason, b.error) + marked_text(prompt, other))
    rows = [_row(comparison, position) for position in comparison.places if position.is_parted]
    head = ("token", "A", "B", "total variation", "decided by")
    return fragment(
        facts(f"{sums.parted} of {counted(sums.places, 'token')} chosen differently", mean, where),
        legend(_LEGEND),
        lanes(*sides),
        table(f"Where the chains choose differently: {len(rows)}", head, rows),
    )


def _pieces(comparison: Comparison) -> Iterator[Piece]:
    """Yield A's tokens, coloured by how far the chains are apart there."""
    positions = {position.pos: position for position in comparison.places}
    for at, token in enumerate(comparison.a.tokens):
        position, name = positions.get(at), comparison.names.get(token) or f"⟨id {token}⟩"
        if position is None or position.divergence is None:
            yield Piece(name, parts=at == comparison.parted_at)
            continue
        tv = position.divergence.tv
        other = f"; B chooses {_name(comparison, position.b)}" if position.is_parted else ""
        title = f"total variation {tv:.3g}{other}"
        yield Piece(name, sum(tv > bound for bound in _BOUNDS), title, at == comparison.parted_at)


def _row(comparison: Comparison, position: ComparedPlace) -> Sequence[str]:
    decided = ", ".join(dict.fromkeys((*position.decided_a, *position.decided_b)))
    tv = "-" if position.divergence is None else f"{position.divergence.tv:.3g}"
    names = _name(comparison, position.a), _name(comparison, position.b)
    return str(position.pos), *names, tv, decided or "-"


def _name(comparison: Comparison, token: int | None) -> str:
    return named_id(token, comparison.names.get(token) if token is not None else None)

"""Operations on patterns: texts that match all of some and none of others as one pattern, complements, the
texts of finite patterns, and properties by which back ends differ. Combinations are automata by
Antimirov's partial derivatives: a state says what the rest of the text must be.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from gencli.structured.ecma_regex import REST, SHORTHANDS, approximate, parse_regex, whole
from gencli.structured.grammar_tree import (
    ANY,
    EMPTY,
    TOP,
    Alt,
    Anchor,
    Chars,
    Lookaround,
    Node,
    Ranges,
    RegexError,
    Repeat,
    Seq,
    alt,
    chars,
    invert_ranges,
    join_ranges,
    mapped,
    parts,
    seq,
    show,
    single,
    walk,
)
from gencli.structured.schema_errors import GiveUp

_MORE = Repeat(ANY, 1, None)
_FEW = 16
_LIMIT = 2_000  # characters of all words together


def texts_without(words: list[str], *, prefixes: bool = False) -> str:
    """Return a pattern of the texts not in `words`; with `prefixes`, of the texts that begin with none."""
    if sum(map(len, words)) > _LIMIT:
        raise GiveUp("too many texts to exclude")
    return f"^(?:{show(_outside(frozenset(words), prefixes))})$"


def _outside(words: frozenset[str], prefixes: bool) -> Node:
    if prefixes and "" in words:
        raise GiveUp("nothing is left")
    firsts = sorted({word[0] for word in words if word})
    branches: list[Node] = [] if "" in words else [Seq(())]
    if firsts:
        other = Chars(tuple((ord(first), ord(first)) for first in firsts), negated=True)
        branches.append(Seq((other, REST)))
    elif not prefixes:
        branches.append(_MORE)
    for first in firsts:
        below = frozenset(word[1:] for word in words if word.startswith(first))
        if not (prefixes and "" in below):
            branches.append(Seq((single(ord(first)), _outside(below, prefixes))))
    if not branches:
        raise GiveUp("nothing is left")
    return alt(branches)


def complement(text: str) -> str:
    """Return a pattern of the texts that a pattern does not match. Raises GiveUp."""
    try:
        node = parse_regex(text, is_refused=True)
    except RegexError as error:
        raise GiveUp(f"the complement of a pattern: {error}") from None
    items = list(node.items) if isinstance(node, Seq) else [node]
    if items[:1] == [Anchor("^")]:
        return texts_not_beginning(Seq(tuple(items[1:])))
    if len(items) == 1 and isinstance(items[0], Chars):
        return f"^{show(Repeat(Chars(items[0].ranges, not items[0].negated), 0, None))}$"
    raise GiveUp("the complement of this pattern")


def finite_texts(text: str, limit: int = _FEW) -> list[str] | None:
    """Return the texts that a pattern matches if there are at most `limit`, otherwise None."""
    try:
        trees = whole(parse_regex(text))
        return list(dict.fromkeys(_words(trees[0], limit))) if len(trees) == 1 else None
    except (GiveUp, RegexError):
        return None


def texts_not_beginning(node: Node) -> str:
    """Return a pattern of the texts that begin with no word of a tree.

    If the tree ends in $, of the texts that are not a word of the tree.
    """
    words = _words(node)
    ends = {word.endswith("\0") for word in words}
    if len(ends) != 1:
        raise GiveUp("a list of words of which only a part ends in $")
    return texts_without([word.rstrip("\0") for word in words], prefixes=not ends.pop())


def _words(node: Node, limit: int = 200) -> list[str]:
    """Return all texts of a tree; \\0 stands for $. Raises GiveUp if there are more than `limit`."""
    if node == Anchor("$"):
        return ["\0"]
    if isinstance(node, Alt):
        words = [word for item in node.items for word in _words(item, limit)]
    elif isinstance(node, Seq):
        words = [""]
        for item in node.items:
            words = [before + after for before in words for after in _words(item, limit)][: limit + 1]
    elif isinstance(node, Repeat) and node.most is not None and node.least <= limit:
        words, times = [], [""]
        for count in range(min(node.most, limit) + 1):
            words += times if count >= node.least else []
            times = [before + after for before in times for after in _words(node.body, limit)][: limit + 1]
    elif isinstance(node, Chars) and not node.negated and sum(b - a + 1 for a, b in node.ranges) <= 64:
        words = [chr(code) for low, high in node.ranges for code in range(low, high + 1)]
    else:
        raise GiveUp("a pattern that is not a list of words")
    if len(words) > limit:
        raise GiveUp("more than a few words")
    return words


_STATES = 300
_ITEMS = 60  # ways of one state to go on
_SIZE = 1_500  # characters and classes of the resulting pattern
_LENGTH = 40_000  # characters of its text, where a class may have thousands
_BIG = 200  # ranges of a class that count as one more
_WORD = SHORTHANDS["w"]
_BOUNDARIES = frozenset((r"\b", r"\B"))
_EDGE, _LETTER, _OTHER = "edge", "word", "other"  # kinds of what is next to a position


@dataclass(frozen=True, slots=True)
class _Not:
    """The rest of the text satisfies no item of a state."""

    state: _State


_Condition = Node | _Not
_Item = frozenset[_Condition]  # conditions that the rest of the text satisfies together
_State = frozenset[_Item]  # the items of which it satisfies one
_Tail = tuple[Node, _Item]  # what is left of a node, and further conditions on the rest of the text

_TRUE: _State = frozenset([frozenset()])
_FALSE: _State = frozenset()


@dataclass(frozen=True, slots=True)
class _Position:
    """A position in the text: the kinds of its neighbours, and the lookbehinds that match before it."""

    before: str
    after: str
    behind: frozenset[Node]


@dataclass(frozen=True, slots=True)
class _AutomatonState:
    """A state of all patterns together, behind a character of the kind `before`."""

    before: str
    trees: tuple[_State, ...]
    behind: tuple[_State, ...]


def searched(node: Node) -> Node:
    """Return the tree of the whole texts in which a tree matches somewhere."""
    return Seq((REST, node, REST))


def between(wanted: Sequence[Node], refused: Sequence[Node]) -> str | None:
    """Return a pattern of the texts that match all `wanted` and no `refused` trees; None if there are none.

    The trees match whole texts; `refused` were read as such. Raises GiveUp if the result is too large.
    """
    letters = _letters((*wanted, *refused))
    firsts = [ranges[0][0] for ranges in letters]
    trees = tuple(_spelled(tree, firsts) for tree in (*wanted, *refused))
    looks = _lookbehinds(trees)
    kinds = [_LETTER if _has(_WORD, first) else _OTHER for first in firsts]
    behind = tuple(_start(Seq((REST, look))) for look in looks)
    start = _AutomatonState(_EDGE, tuple(map(_start, trees)), behind)
    numbers = {start: 0}
    ends: set[int] = set()
    steps: list[list[int | None]] = []  # for each state and letter the next state
    for state in (queue := [start]):
        end = _position(state, looks, _EDGE)
        accepts = [_accepts(each, end) for each in state.trees]
        if all(accepts[: len(wanted)]) and not any(accepts[len(wanted) :]):
            ends.add(len(steps))
        targets = [_after(state, looks, letter, kind) for letter, kind in enumerate(kinds)]
        steps.append([])
        for target in targets:
            if not all(target.trees[: len(wanted)]) or _TRUE in target.trees[len(wanted) :]:
                steps[-1].append(None)
                continue
            if target not in numbers:
                numbers[target] = len(numbers)
                queue.append(target)
                if len(queue) > _STATES:
                    raise GiveUp("a combination of patterns that is too large")
            steps[-1].append(numbers[target])
    blocks = _blocks(steps, ends)
    edges: dict[tuple[int, int], Ranges] = {}
    for number, row in enumerate(steps):
        for letter, next_ in enumerate(row):
            if next_ is not None:
                edge = blocks[number], blocks[next_]
                edges[edge] = join_ranges([*edges.get(edge, ()), *letters[letter]])
    pattern = _pattern(edges, blocks[0], {blocks[number] for number in ends})
    text = "" if pattern is None else f"^(?:{show(pattern)})$"
    if len(text) > _LENGTH:
        raise GiveUp("a combination of patterns that is too large")
    return text or None


def _blocks(steps: list[list[int | None]], ends: set[int]) -> list[int]:
    """Return for each state a number that it shares with the states that accept the same texts (Moore)."""
    blocks = [int(state in ends) for state in range(len(steps))]
    while True:
        keys = [
            (blocks[state], *(None if next_ is None else blocks[next_] for next_ in row))
            for state, row in enumerate(steps)
        ]
        numbers = {key: number for number, key in enumerate(dict.fromkeys(keys))}
        finer = [numbers[key] for key in keys]
        if len(numbers) == len(set(blocks)):
            return finer
        blocks = finer


def _lookbehinds(trees: Iterable[Node]) -> list[Node]:
    """Return the bodies of lookbehinds, inner ones first."""
    bodies: dict[Node, None] = {}
    for tree in trees:
        for look in walk(tree):
            if isinstance(look, Lookaround) and look.kind.startswith("?<"):
                inner = (each.kind for each in walk(look.body) if isinstance(each, Lookaround))
                if not {"?=", "?!"}.isdisjoint(inner):
                    raise GiveUp("a lookahead in a lookbehind")
                bodies.setdefault(look.body)
    return list(reversed(bodies))


def _letters(trees: Iterable[Node]) -> list[Ranges]:
    """Return the alphabet: for each letter the characters that it stands for, which no tree tells apart."""
    nodes = [node for tree in trees for node in walk(tree)]
    sets = {_ranges(node) for node in nodes if isinstance(node, Chars)}
    if any(isinstance(node, Anchor) and node.kind in _BOUNDARIES for node in nodes):
        sets.add(_WORD)
    changes: dict[int, set[int]] = {0: set()}  # where sets begin and end
    for index, ranges in enumerate(sets):
        for low, high in ranges:
            changes.setdefault(low, set()).symmetric_difference_update((index,))
            changes.setdefault(high + 1, set()).symmetric_difference_update((index,))
    letters: dict[frozenset[int], list[tuple[int, int]]] = {}
    inside: frozenset[int] = frozenset()
    bounds = sorted(changes)
    for low, after in zip(bounds, [*bounds[1:], TOP + 1], strict=True):
        inside ^= changes[low]
        if low < after:
            letters.setdefault(inside, []).append((low, after - 1))
    return [join_ranges(ranges) for ranges in letters.values()]


def _spelled(node: Node, firsts: Sequence[int]) -> Node:
    """Return the tree with classes of letters, which stand for classes with these first characters."""
    if isinstance(node, Chars):
        ranges = _ranges(node)
        held = [(letter, letter) for letter, first in enumerate(firsts) if _has(ranges, first)]
        return ANY if len(held) == len(firsts) else Chars(join_ranges(held))
    return mapped(node, lambda part: _spelled(part, firsts))


def _ranges(node: Chars) -> Ranges:
    return invert_ranges(node.ranges) if node.negated else node.ranges


def _has(ranges: Ranges, code: int) -> bool:
    at = bisect_right(ranges, (code, TOP)) - 1
    return at >= 0 and ranges[at][1] >= code


def _position(state: _AutomatonState, looks: Sequence[Node], after: str) -> _Position:
    position = _Position(state.before, after, frozenset())
    for look, run in zip(looks, state.behind, strict=True):
        if _accepts(run, position):
            position = _Position(state.before, after, position.behind | {look})
    return position


def _after(state: _AutomatonState, looks: Sequence[Node], letter: int, kind: str) -> _AutomatonState:
    position = _position(state, looks, kind)
    trees = tuple(_derived(each, position, letter) for each in state.trees)
    behind = tuple(_derived(each, position, letter) for each in state.behind)
    has_boundary = any(_anchors(each) & _BOUNDARIES for each in (*trees, *behind))
    return _AutomatonState(kind if has_boundary else _OTHER, trees, behind)


@lru_cache(maxsize=4096)
def _anchors(state: _State) -> frozenset[str]:
    """Return the kinds of the anchors in a state."""
    kinds: set[str] = set()
    for item in state:
        for condition in item:
            if isinstance(condition, _Not):
                kinds |= _anchors(condition.state)
            else:
                kinds |= {each.kind for each in walk(condition) if isinstance(each, Anchor)}
    return frozenset(kinds)


def _start(node: Node) -> _State:
    return frozenset([frozenset([node])])


@lru_cache(maxsize=65_536)
def _derived(state: _State, position: _Position, letter: int) -> _State:
    """Return the state behind one more letter."""
    items: set[_Item] = set()
    for item in state:
        items |= _item(item, position, letter)
        if len(items) > _ITEMS:
            raise GiveUp("a combination of patterns that is too large")
    return _TRUE if frozenset() in items else frozenset(items)


def _item(item: _Item, position: _Position, letter: int) -> frozenset[_Item]:
    """Return the items of which one must hold behind one more letter."""
    ways: set[_Item] = {frozenset()}
    for condition in item:
        if isinstance(condition, _Not):
            state = _derived(condition.state, position, letter)
            more = _FALSE if state == _TRUE else _TRUE if not state else frozenset([frozenset([_Not(state)])])
        else:
            firsts = _first(condition, position, letter)
            more = frozenset(held if tail == REST else held | {tail} for tail, held in firsts)
        ways = {way | other for way in ways for other in more}
        if len(ways) > _ITEMS:
            raise GiveUp("a combination of patterns that is too large")
    return frozenset(ways)


@lru_cache(maxsize=65_536)
def _first(node: Node, position: _Position, letter: int) -> frozenset[_Tail]:
    """Return the tails of a node behind one letter."""
    pairs: set[_Tail] = set()
    if isinstance(node, Chars):
        if _has(node.ranges, letter):
            pairs.add((EMPTY, frozenset()))
    elif isinstance(node, Alt):
        for item in node.items:
            pairs |= _first(item, position, letter)
    elif isinstance(node, Repeat) and node.most != 0:
        limit = None if node.most is None else node.most - 1
        pairs |= _followed(node.body, (Repeat(node.body, max(0, node.least - 1), limit),), position, letter)
        if node.least > 1:
            for held in _passed(node.body, position, letter):  # repeats that match the empty text here
                more = _followed(node.body, (Repeat(node.body, 0, limit),), position, letter)
                pairs |= {(tail, held | other) for tail, other in more}
    elif isinstance(node, Seq):
        ways: frozenset[_Item] = frozenset([frozenset()])
        for index, item in enumerate(node.items):
            more = _followed(item, node.items[index + 1 :], position, letter)
            pairs |= {(tail, way | held) for way in ways for tail, held in more}
            ways = frozenset(way | held for way in ways for held in _passed(item, position, letter))
            if not ways:
                break
    return frozenset(pairs)


def _followed(node: Node, after: tuple[Node, ...], position: _Position, letter: int) -> set[_Tail]:
    return {(_join(tail, *after), held) for tail, held in _first(node, position, letter)}


def _passed(node: Node, position: _Position, letter: int) -> set[_Item]:
    """Return the ways to match the empty text before a letter, as conditions on the text behind it."""
    return {item for way in _empty(node, position) for item in _item(way, position, letter)}


@lru_cache(maxsize=65_536)
def _empty(node: Node, position: _Position) -> frozenset[_Item]:
    """Return how a node matches the empty text at a position, as conditions on the text behind it."""
    if isinstance(node, Seq):
        ways: frozenset[_Item] = _TRUE
        for item in node.items:
            ways = frozenset(way | more for way in ways for more in _empty(item, position))
        return ways
    if isinstance(node, Alt):
        return frozenset(way for item in node.items for way in _empty(item, position))
    if isinstance(node, Repeat):
        return _TRUE if node.least == 0 else _empty(node.body, position)
    if isinstance(node, Anchor):
        return _TRUE if _holds(node.kind, position) else _FALSE
    if isinstance(node, Lookaround):
        if node.kind.startswith("?<"):
            return _TRUE if (node.body in position.behind) == (node.kind == "?<=") else _FALSE
        ahead = _join(node.body, REST)
        return _start(ahead) if node.kind == "?=" else frozenset([frozenset([_Not(_start(ahead))])])
    return _FALSE


def _holds(kind: str, position: _Position) -> bool:
    if kind in "^$":
        return (position.before if kind == "^" else position.after) == _EDGE
    return ((position.before == _LETTER) != (position.after == _LETTER)) == (kind == r"\b")


def _accepts(state: _State, position: _Position) -> bool:
    # The text may end here: at its end, or for a lookbehind anywhere.
    return any(all(_meets(condition, position) for condition in item) for item in state)


def _meets(condition: _Condition, position: _Position) -> bool:
    if isinstance(condition, _Not):
        return not _accepts(condition.state, position)
    return _accepts(_empty(condition, position), position)


def _join(*nodes: Node) -> Node:
    items: list[Node] = []
    for node in nodes:
        for part in node.items if isinstance(node, Seq) else (node,):
            is_idle = (isinstance(part, Repeat) and part.most == 0) or (items[-1:] == [REST] and part == REST)
            items += [] if is_idle else [part]
    return seq(items)


def _pattern(edges: dict[tuple[int, int], Ranges], first: int, ends: Iterable[int]) -> Node | None:
    """Return the tree of an automaton, by state elimination."""
    start, end = -1, -2
    nodes: dict[tuple[int, int], Node] = {pair: chars(ranges) for pair, ranges in edges.items()}
    nodes = {**nodes, (start, first): EMPTY, **{(state, end): EMPTY for state in ends}}
    left = _ending(nodes, end) - {start, end}
    nodes = {pair: node for pair, node in nodes.items() if set(pair) <= left | {start, end}}
    while left:
        into: dict[int, list[int]] = defaultdict(list)
        out: dict[int, list[int]] = defaultdict(list)
        for a, b in nodes:
            if a != b:
                into[b].append(a)
                out[a].append(b)
        gone = min(left, key=lambda state: (len(into[state]) * len(out[state]), state))
        left.remove(gone)
        loop = nodes.get((gone, gone))
        again = [Repeat(loop, 0, None)] if loop is not None else []
        for a in into[gone]:
            for b in out[gone]:
                way = _join(nodes[a, gone], *again, nodes[gone, b])
                nodes[a, b] = _either(nodes[a, b], way) if (a, b) in nodes else way
                if _size(nodes[a, b]) > _SIZE:
                    raise GiveUp("a combination of patterns that is too large")
        nodes = {pair: node for pair, node in nodes.items() if gone not in pair}
    return nodes.get((start, end))


def _ending(edges: Iterable[tuple[int, int]], end: int) -> set[int]:
    """Return the states from which the end can be reached."""
    into: dict[int, list[int]] = {}
    for a, b in edges:
        into.setdefault(b, []).append(a)
    states = {end}
    queue = [end]
    for state in queue:
        more = [source for source in into.get(state, ()) if source not in states]
        states.update(more)
        queue.extend(more)
    return states


def _either(a: Node, b: Node) -> Node:
    items = [part for node in (a, b) for part in (node.items if isinstance(node, Alt) else (node,))]
    return Alt(tuple(dict.fromkeys(items)))


@lru_cache(maxsize=65_536)
def _size(node: Node) -> int:
    return 1 + (len(node.ranges) // _BIG if isinstance(node, Chars) else sum(map(_size, parts(node))))


def pattern_forms(text: str) -> list[str]:
    """Return the properties of a pattern as suffixes of shapes; [""] if it has none.

    Examples: the pattern is not anchored, needs JSON escapes, has lookarounds, is not regular.
    """
    try:
        node = parse_regex(text)
    except RegexError:
        return [":irregular"]
    if "(?i" in text:  # no part of ECMA-262
        return [":irregular"]
    if _has_node(node, Lookaround):
        return [":lookaround"]
    try:
        trees = whole(node)
    except RegexError:
        return [":anchors"]
    repeats = (each for tree in trees for each in walk(tree) if isinstance(each, Repeat))
    forms = {
        ":search": not _is_anchored(node),
        ":nested": any(_has_node(each.body, Repeat) for each in repeats),
        ":escapes": any(map(_needs_escapes, trees)),
        ":unicode": re.search(r"\\[WDS]|\[\^[^\]]*\\[wds]", text),
        ":property": re.search(r"\\[pP]\{", text),
        ":wide": not text.isascii(),
        ":control": re.search(r"[\x00-\x1f\x7f]", text),
    }
    return [form for form, has_form in forms.items() if has_form] or [""]


def needs_escapes(text: str) -> bool:
    """Whether a text that a pattern matches may have characters that JSON writes with a backslash."""
    node = approximate(text)[0]
    return not _is_anchored(node) or _needs_escapes(node)


def _has_node(node: Node, kind: type) -> bool:
    return any(isinstance(each, kind) for each in walk(node))


def _needs_escapes(node: Node) -> bool:
    spans = (span for each in walk(node) if isinstance(each, Chars) for span in _ranges(each))
    return any(low < 0x20 or low <= 0x22 <= high or low <= 0x5C <= high for low, high in spans)


def _is_anchored(node: Node) -> bool:
    ends = Anchor("^"), Anchor("$")
    return isinstance(node, Seq) and node.items[:1] == ends[:1] and node.items[-1:] == ends[1:]

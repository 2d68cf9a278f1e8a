"""Readers of grammars: GBNF (llama.cpp), xgrammar's EBNF, and llguidance's Lark.

Only GBNF has `.` for any character, names that begin with a digit, stacked quantifiers; only xgrammar has
names with `_` or `.`, rule options, macros, lookaheads, `[^]`. The features of a text determine its
notation; a text with features of both is rejected.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal

from gencli.errors import ConfigError
from gencli.structured.grammar_tree import (
    EMPTY,
    QUANTIFIERS,
    TOP,
    Alt,
    Chars,
    Node,
    Ref,
    Repeat,
    Rule,
    Seq,
    Verbatim,
    alt,
    bounds_fault,
    drop_surrogates,
    invert_ranges,
    join_ranges,
    line_and_column,
    literal,
    seq,
)

Dialect = Literal["gbnf", "xgrammar"]
MOST_LETTERS = 1 << 20  # characters of a grammar
_MOST_NESTED = 100  # groups inside one another
_MOST_STACKED = 4
_ANY = Chars(drop_surrogates(((0, TOP),)))

_SPACE = re.compile(r"(?:[ \t\r\n]|#[^\r\n]*)*")
_RULE_NAME = re.compile(r"[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*")
_HEAD = re.compile(r"(?P<name>[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*)(?P<options>\[[^\]\r\n]*\])?[ \t]*::=")
_COUNT = re.compile(r"\{\s*(\d+)\s*(,)?\s*(\d+)?\s*\}")
_MACROS = ("TagDispatch", "TokenTagDispatch", "Token", "ExcludeToken", "Regex", "Substring", "Repeat")
_LARK = re.compile(r"\s*(?:%|[?!]?\w+(?:\.\d+)?\s*:(?!:?=))")
_OTHERS = (
    (_LARK, "a Lark grammar", "Give it with `lark`."),
    (re.compile(r"\s*<[^>\n]+>\s*::="), "BNF with names in angle brackets", "Write name ::= ..."),
    (re.compile(r"\s*[\w ]+:="), "EBNF with :=", "Write name ::= ..."),
    (re.compile(r"\s*[\w ]+="), "ISO EBNF with =", "Write name ::= ..., without commas and semicolons."),
    (re.compile(r"\s*[\w ]+->"), "rules with arrows", "Write name ::= ..."),
)


@dataclass(frozen=True, slots=True)
class ParsedGrammar:
    """The rules in order, and their dialect."""

    rules: dict[str, Rule]
    dialect: Dialect


def looks_like_lark(text: str) -> bool:
    """Return whether a grammar begins as one in Lark's notation does, behind comments."""
    start = _SPACE.match(text)
    return start is not None and _LARK.match(text, start.end()) is not None


def read_grammar(text: str) -> ParsedGrammar:
    """Read the rules of a text. Raises ConfigError with line and column."""
    _check_length(text)
    start = _SPACE.match(text)
    if start and start.end() == len(text):
        raise ConfigError("The grammar is empty.", hint='Write at least: root ::= "text"')
    for pattern, notation, hint in _OTHERS:
        if start and pattern.match(text, start.end()):
            raise ConfigError(f"The grammar looks like {notation}; `grammar` takes GBNF.", hint=hint)
    reader = _EbnfReader(text)
    rules = reader.rules()
    dialect = reader.dialect()
    if dialect == "xgrammar" and reader.ambiguous_hex:
        # Read again, because xgrammar takes all hexadecimal digits after \x.
        rules = _EbnfReader(text, hex_digits=8).rules()
    return ParsedGrammar(rules, dialect)


def _check_length(text: str) -> None:
    if len(text) > MOST_LETTERS:
        raise ConfigError(f"The grammar has {len(text)} characters; at most {MOST_LETTERS} are read.")


@dataclass
class _EbnfReader:
    text: str
    hex_digits: int = 2
    at: int = 0
    depth: int = 0
    seen: dict[Dialect, tuple[str, int]] = field(default_factory=dict)
    ambiguous_hex: bool = False

    def dialect(self) -> Dialect:
        """Return the dialect; GBNF if the text has no feature of one dialect only."""
        if len(self.seen) == 2:
            (gbnf, first), (xgrammar, second) = self.seen["gbnf"], self.seen["xgrammar"]
            raise ConfigError(
                f"The grammar mixes two notations: {gbnf} at {line_and_column(self.text, first)} is of GBNF "
                f"alone, {xgrammar} at {line_and_column(self.text, second)} of xgrammar's EBNF alone."
            )
        return next(iter(self.seen), "gbnf")

    def rules(self) -> dict[str, Rule]:
        """Read all rules."""
        rules: dict[str, Rule] = {}
        self._skip()
        while self.at < len(self.text):
            start = self.at
            head = _HEAD.match(self.text, start)
            if not head:
                raise self.fail("A rule is expected here (name ::= ...)")
            name = head["name"]
            if name in rules:
                raise self.fail(f"Rule {name!r} is defined twice")
            self._note_name(name, start)
            options = self._options(head["options"], head.start("options"))
            self.at = head.end()
            rules[name] = Rule(self._choice(), start, options)
            self._skip()
        return rules

    def fail(self, fault: str, offset: int | None = None, hint: str = "") -> ConfigError:
        where = line_and_column(self.text, self.at if offset is None else offset)
        return ConfigError(f"{fault}, at {where} of the grammar.", hint=hint)

    def note(self, dialect: Dialect, construct: str, offset: int) -> None:
        self.seen.setdefault(dialect, (construct, offset))

    def _note_name(self, name: str, offset: int) -> None:
        if name[0].isdigit():
            self.note("gbnf", f"the name {name!r}", offset)
        if "." in name:
            self.note("xgrammar", f"the name {name!r}", offset)

    def _options(self, text: str | None, offset: int) -> str:
        if text is None:
            return ""
        self.note("xgrammar", f"the rule option {text}", offset)
        names = re.findall(r"(\w+)(?:\s*=\s*(?:\"[^\"]*\"|[\w.+-]+))?", text)
        if "temperature" in names:
            also = " together with max_tokens" if "max_tokens" in names else ""
            raise self.fail(f"A temperature of one rule{also} is not applied", offset, "Use `temperature`.")
        for name in names:
            if name not in ("max_tokens", "max_chars", "lazy"):
                raise self.fail(f"The rule option {name!r} has no effect here", offset, "Leave it out.")
        return text

    def _skip(self) -> None:
        space = _SPACE.match(self.text, self.at)
        assert space
        self.at = space.end()

    def _choice(self) -> Node:
        self.depth += 1
        if self.depth > _MOST_NESTED:
            raise self.fail(f"More than {_MOST_NESTED} groups are inside one another")
        items = [self._sequence()]
        while self.text.startswith("|", self.at):
            self.at += 1
            items.append(self._sequence())
        self.depth -= 1
        return alt(items)

    def _sequence(self) -> Node:
        items: list[Node] = []
        self._skip()
        text = self.text
        while self.at < len(text) and text[self.at] not in "|)" and not _HEAD.match(text, self.at):
            items.append(self._repeated(self._element()))
            self._skip()
        return seq(items)

    def _element(self) -> Node:
        letter, start = self.text[self.at], self.at
        if letter == '"':
            return read_string(self)
        if letter == "[":
            return read_class(self)
        if letter == "(":
            return self._group()
        if letter in "<!":
            raise self.fail("A token by its name or id cannot be used", hint="Write its text as a string.")
        if letter == "'":
            raise self.fail("A string has double quotes")
        if letter in "*+?{":
            raise self.fail(f"There is nothing that {letter!r} could repeat")
        if letter == ".":
            self.at += 1
            self.note("gbnf", "a dot for any character", start)
            return _ANY
        name = _RULE_NAME.match(self.text, start)
        if not name:
            raise self.fail(f"{letter!r} is not understood")
        self.at = name.end()
        if self.text.startswith("(", self.at):
            return self._macro(name[0], start)
        self._note_name(name[0], start)
        return Ref(name[0], start)

    def _group(self) -> Node:
        start = self.at
        if self.text.startswith("(=", start):
            raise self.fail("A lookahead cannot be used", hint="Leave it out: the rules say what follows.")
        self.at += 1
        item = self._choice()
        if not self.text.startswith(")", self.at):
            raise self.fail("The group is not closed", start)
        self.at += 1
        return item

    def _macro(self, name: str, start: int) -> Node:
        if name not in _MACROS:
            names = ", ".join(_MACROS)
            raise self.fail(f"There is no macro {name!r}", start, f"xgrammar has {names}; or leave a space.")
        self.note("xgrammar", f"the macro {name}", start)
        if not (end := _closing(self.text, self.at, "()")):
            raise self.fail(f"The macro {name} is not closed", start)
        self.at = end
        return Verbatim(self.text[start:end])

    def _repeated(self, item: Node) -> Node:
        stacked = 0
        while (bounds := self._bounds()) is not None:
            stacked += 1
            if stacked == 2:
                self.note("gbnf", "a quantifier after a quantifier", self.at)
            if stacked > _MOST_STACKED:
                raise self.fail(f"More than {_MOST_STACKED} quantifiers follow one another")
            item = Repeat(item, *bounds)
        return item if not isinstance(item, Repeat) or item.most != 0 else EMPTY

    def _bounds(self) -> tuple[int, int | None] | None:
        space = re.compile(r"[ \t]*(?=[*+?{])").match(self.text, self.at)
        if not space:
            return None
        start = self.at = space.end()
        if self.text[start] in QUANTIFIERS:
            self.at += 1
            return QUANTIFIERS[self.text[start]]
        count = _COUNT.match(self.text, start)
        if not count:
            raise self.fail("A count is expected: {2}, {2,} or {2,4}")
        least = int(count[1])
        limit = int(count[3]) if count[3] else None if count[2] else least
        if fault := bounds_fault(count[0], least, limit):
            raise self.fail(fault)
        self.at = count.end()
        return least, limit


def _closing(text: str, start: int, brackets: str) -> int:
    """Return the offset behind the bracket that closes the first one; 0 if it is not closed."""
    depth = 0
    for mark in re.compile(rf'"(?:[^"\\]|\\.)*"|[{brackets}]').finditer(text, start):
        depth += (mark[0] == brackets[0]) - (mark[0] == brackets[1])
        if depth == 0:
            return mark.end()
    return 0


_SHARED = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\", '"': '"', "[": "[", "]": "]"}
_XGRAMMAR = {"b": "\b", "f": "\f", "a": "\a", "v": "\v", "0": "\0", "e": "\x1b", "/": "/", "'": "'", "?": "?"}
_IN_CLASS, _SHORTHANDS = tuple("^$.*+(){}|"), tuple("dDwWsS")
_DIGITS = {"u": 4, "U": 8}
_HEX = tuple("0123456789abcdefABCDEF")


def read_string(reader: _EbnfReader) -> Node:
    """Read a string in double quotes."""
    start, text = reader.at, ""
    reader.at += 1
    while not reader.text.startswith('"', reader.at):
        if reader.at >= len(reader.text) or reader.text[reader.at] in "\r\n":
            raise reader.fail("The string is not closed", start, r"A line break is written \n.")
        text += chr(_letter(reader, in_class=False))
    reader.at += 1
    return literal(text)


def read_class(reader: _EbnfReader) -> Node:
    """Read a class in brackets."""
    start = reader.at
    negated = reader.text.startswith("[^", start)
    reader.at += 2 if negated else 1
    ranges: list[tuple[int, int]] = []
    while not reader.text.startswith("]", reader.at):
        if reader.at >= len(reader.text) or reader.text[reader.at] in "\r\n":
            raise reader.fail("The class is not closed", start, r"A line break is written \n.")
        ranges.append(_range(reader))
    reader.at += 1
    if negated and not ranges:
        reader.note("xgrammar", "[^]", start)
    joined = join_ranges(ranges)
    chars = drop_surrogates(invert_ranges(joined) if negated else joined)
    if not chars:
        raise reader.fail("No character matches this class", start)
    return Chars(chars)


def _range(reader: _EbnfReader) -> tuple[int, int]:
    start = reader.at
    low = _letter(reader, in_class=True)
    if reader.text[reader.at : reader.at + 1] != "-" or reader.text.startswith("-]", reader.at):
        return low, low
    reader.at += 1
    high = _letter(reader, in_class=True)
    if low > high:
        raise reader.fail(f"The range {reader.text[start : reader.at]} is backwards", start)
    return low, high


def _letter(reader: _EbnfReader, *, in_class: bool) -> int:
    start, letter = reader.at, reader.text[reader.at : reader.at + 1]
    reader.at += 1
    if not letter:
        raise reader.fail("The class is not closed", start)
    if letter != "\\":
        if "\ud800" <= letter <= "\udfff":
            raise reader.fail("The grammar is not valid UTF-8", start)
        return ord(letter)
    name = reader.text[reader.at : reader.at + 1]
    reader.at += 1
    if name in _DIGITS or name == "x":
        return _hex(reader, name, start)
    if name in _SHARED or (in_class and name == "-"):
        return ord(_SHARED.get(name, name))
    if in_class and name in _SHORTHANDS:
        raise reader.fail(f"The shorthand \\{name} is not known in grammars", start, "Write out its range.")
    if name in _XGRAMMAR or (in_class and name in _IN_CLASS):
        reader.note("xgrammar", f"the escape \\{name}", start)
        return ord(_XGRAMMAR.get(name, name))
    raise reader.fail(f"The escape \\{name} is not known", start)


def _hex(reader: _EbnfReader, name: str, start: int) -> int:
    limit = _DIGITS.get(name, reader.hex_digits)
    end = reader.at
    while end < reader.at + limit and reader.text[end : end + 1] in _HEX:
        end += 1
    digits = reader.text[reader.at : end]
    if len(digits) < _DIGITS.get(name, 2):
        raise reader.fail(f"The escape \\{name}{digits} has too few hexadecimal digits", start)
    if name == "x" and reader.text[end : end + 1] in _HEX:
        reader.ambiguous_hex = True
    point = int(digits, 16)
    if point > 0x10FFFF or 0xD800 <= point <= 0xDFFF:
        raise reader.fail(f"The escape \\{name}{digits} is no character", start)
    reader.at = end
    return point


_NAME = r"[!?]?_?[A-Za-z][A-Za-z0-9_-]*"
_TOKENS = re.compile(
    rf"""(?P<space>[ \t\f]+|(?://|\#)[^\n]*)
    |(?P<newline>(?:\r?\n)(?:[ \t\f\r\n]|(?://|\#)[^\n]*)*)
    |(?P<string>"(?:[^"\\\n]|\\.)*"i?)
    |(?P<regex>/(?!/)(?:[^/\\\n]|\\.)+/[imslux]*)
    |(?P<directive>%[a-z]+)
    |(?P<token><[^<>\s]+>)
    |(?P<grammar>@[\w-]+)
    |(?P<name>{_NAME})
    |(?P<number>[+-]?\d+)
    |(?P<mark>->|\.\.|::|[|()\[\]{{}}:,.~&*+?=])""",
    re.VERBOSE,
)
_WITH_JSON = ("%json", "%llguidance", "%regex", "%lark")
_UNKNOWN = {
    "%declare": "%declare",
    "%override": "%override",
    "%extend": "%extend",
    "%grammar_options": "%grammar_options, which is xgrammar's,",
}
_OPTIONS = {
    "temperature": "A temperature of one rule is not applied; give `temperature`.",
    "max_tokens": "Drafts could not be taken back; bound the regex instead: /.{0,200}/.",
    "stop": "The output would have to be taken back; use suffix.",
    "capture": "Nothing reads captures; leave it out.",
    "stop_capture": "Nothing reads captures; leave it out.",
}
_REGEX = (
    (re.compile(r"\(\?<?[=!]"), "lookarounds"),
    (re.compile(r"\(\?>"), "atomic groups"),
    (re.compile(r"\(\?P="), "backreferences"),
    (re.compile(r"(?:[*+?]|\{\d+,?\d*\})\?"), "lazy quantifiers; write [lazy] at the rule"),
    (re.compile(r"(?:[*+?]|\{\d+,?\d*\})\+"), "possessive quantifiers"),
)


@dataclass(frozen=True, slots=True)
class _LarkToken:
    kind: str
    text: str
    offset: int


def read_lark(text: str) -> dict[str, Rule]:
    """Read the rules and terminals. Raises ConfigError with line and column for features llguidance lacks."""
    _check_length(text)
    return _LarkReader(text, _tokens(text)).rules()


def _fail(text: str, fault: str, offset: int, hint: str = "") -> ConfigError:
    return ConfigError(f"{fault}, at {line_and_column(text, offset)} of the Lark grammar.", hint=hint)


def _tokens(text: str) -> list[_LarkToken]:
    tokens, at = [], 0
    while at < len(text):
        match = _TOKENS.match(text, at)
        if not match:
            hint = "Strings have double quotes." if text[at] == "'" else ""
            raise _fail(text, f"{text[at]!r} is not understood", at, hint)
        kind = str(match.lastgroup)
        if kind != "space":
            tokens.append(_LarkToken(kind, match[0], at))
        at = match.end()
        if match[0] in _WITH_JSON:
            if not (end := _closing(text, at, "{}")):
                raise _fail(text, "The JSON object is not closed", at)
            tokens.append(_LarkToken("json", text[at:end], at))
            at = end
    return [*tokens, _LarkToken("end", "", len(text))]


class _LarkReader:
    def __init__(self, text: str, tokens: list[_LarkToken]) -> None:
        self.text, self.tokens, self.at, self.depth = text, tokens, 0, 0

    @property
    def next(self) -> _LarkToken:
        return self.tokens[self.at]

    def rules(self) -> dict[str, Rule]:
        rules: dict[str, Rule] = {}
        while self.next.kind != "end":
            token = self._take()
            if token.kind == "directive":
                self._directive(token, rules)
            elif token.kind == "name":
                self._define(rules, token, self._rule())
            elif token.kind != "newline":
                raise self._fail(f"{token.text!r} is not understood where a rule would begin", token)
        if not rules:
            raise ConfigError("The Lark grammar is empty.", hint='Write at least: start: "text"')
        return rules

    def _define(self, rules: dict[str, Rule], name: _LarkToken, node: Node) -> None:
        plain = name.text.lstrip("?!")
        if plain in rules:
            raise self._fail(f"{plain!r} is defined twice", name)
        rules[plain] = Rule(node, name.offset)

    def _fail(self, fault: str, token: _LarkToken | None = None, hint: str = "") -> ConfigError:
        return _fail(self.text, fault, (token or self.next).offset, hint)

    def _take(self) -> _LarkToken:
        self.at += 1
        return self.tokens[self.at - 1]

    def _accept(self, *texts: str) -> bool:
        is_next = self.next.text in texts and self.next.kind != "string"
        self.at += is_next
        return is_next

    def _expect(self, text: str) -> None:
        if not self._accept(text):
            raise self._fail(f"{text!r} is expected, not {self.next.text[:20] or 'the end'!r}")

    def _directive(self, token: _LarkToken, rules: dict[str, Rule]) -> None:
        if token.text in _UNKNOWN or token.text not in ("%import", "%ignore", "%llguidance"):
            raise self._fail(f"llguidance does not have {_UNKNOWN.get(token.text, token.text)}", token)
        if token.text == "%llguidance":
            self._take()
        elif token.text == "%ignore":
            self._choice()
        else:
            self._import(token, rules)

    def _import(self, token: _LarkToken, rules: dict[str, Rule]) -> None:
        line: list[_LarkToken] = []
        while self.next.kind not in ("newline", "end"):
            line.append(self._take())
        if not line or line[0].text != "common":
            raise self._fail("llguidance imports from 'common' alone", token)
        names = [part for part in line[1:] if part.kind == "name"]
        for name in names[-1:] if any(part.text == "->" for part in line) else names:
            self._define(rules, name, Verbatim(name.text))

    def _rule(self) -> Node:
        for mark, feature in ((".", "priorities"), ("{", "templates")):
            if self._accept(mark):
                raise self._fail(f"llguidance does not have {feature}")
        if self._accept("["):
            self._options()
        if self._accept("::"):
            raise self._fail("Parameters of rules (::) cannot be used here")
        self._expect(":")
        return self._choice()

    def _options(self) -> None:
        named: dict[str, _LarkToken] = {}
        while not self._accept("]"):
            token = self._take()
            if token.kind in ("newline", "end"):
                raise self._fail("The options of the rule are not closed", token)
            if token.kind == "name" and self.tokens[self.at - 2].text in ("[", ","):
                named[token.text] = token
        if "temperature" in named and "max_tokens" in named:
            fault = "A temperature of one rule together with max_tokens is not applied"
            raise self._fail(fault, named["temperature"], _OPTIONS["temperature"])
        for name in named.keys() & _OPTIONS.keys():
            raise self._fail(f"The rule option {name!r} cannot be used", named[name], _OPTIONS[name])

    def _choice(self) -> Node:
        self.depth += 1
        if self.depth > _MOST_NESTED:
            raise self._fail(f"More than {_MOST_NESTED} groups are inside one another")
        items = [self._sequence()]
        while self._accept("|") or self._continues():
            items.append(self._sequence())
        self.depth -= 1
        return Alt(tuple(items))

    def _continues(self) -> bool:
        is_more = self.next.kind == "newline" and self.tokens[self.at + 1].text == "|"
        self.at += 2 * is_more
        return is_more

    def _sequence(self) -> Node:
        items: list[Node] = []
        while self.next.kind not in ("newline", "end") and self.next.text not in ("|", ")", "]"):
            if self._accept("->"):
                self._take()
            elif not self._accept("&", "~"):
                items.append(self._repeated(self._element()))
        return Seq(tuple(items))

    def _element(self) -> Node:
        token = self._take()
        if token.text in ("(", "[") and token.kind == "mark":
            return self._group(token)
        if token.kind == "name":
            return Ref(token.text, token.offset)
        if token.kind == "regex":
            inner = re.sub(r"\\.|\[(?:\\.|[^\]\\])*\]", "..", token.text)
            for pattern, feature in _REGEX:
                if match := pattern.search(inner):
                    raise self._fail(
                        f"llguidance does not have {feature} ({match[0]}) in {token.text}", token
                    )
        elif token.kind == "string" and self._accept(".."):
            self._take()
        elif token.kind == "token":
            fault = f"{token.text} names a token, but the output is text"
            raise self._fail(fault, token, "Write the text of the token.")
        elif token.kind == "grammar":
            raise self._fail(f"There is no grammar {token.text} beside this one", token, "Write it inside.")
        elif token.text in ("{", "::"):
            feature = "templates" if token.text == "{" else "parameters of rules here"
            raise self._fail(f"llguidance does not have {feature}", token)
        elif token.kind not in ("string", "directive", "json"):
            raise self._fail(f"{token.text!r} is not understood", token)
        return EMPTY if token.text in ('""', '""i') else Verbatim(token.text)

    def _group(self, opening: _LarkToken) -> Node:
        inner = self._choice()
        while self.next.kind == "newline":
            self._take()
        self._expect(")" if opening.text == "(" else "]")
        return inner if opening.text == "(" else Repeat(inner, 0, 1)

    def _repeated(self, item: Node) -> Node:
        for mark in ("*", "?", "+"):
            if self._accept(mark):
                return Repeat(item, int(mark == "+"), None)
        if self.next.text == "~" and self.tokens[self.at + 1].kind == "number":
            self._take()
            least = int(self._take().text)
            if self._accept(".."):
                self._take()
            return Repeat(item, least, None)
        return self._counted(item) if self._accept("{") else item

    def _counted(self, item: Node) -> Node:
        least = 0
        if self.next.kind == "number":
            least = int(self._take().text)
        elif self.next.text != ",":
            raise self._fail("llguidance does not have templates")
        if self._accept(",") and self.next.kind == "number":
            self._take()
        self._expect("}")
        return Repeat(item, least, None)

"""Reader of llguidance's Lark notation, which reports mistakes before the back end runs."""

from __future__ import annotations

import re
from dataclasses import dataclass

from gencli.errors import ConfigError
from gencli.structured.notations.grammar_checks import Rule, place
from gencli.structured.regex.tree import EMPTY, Alt, Node, Ref, Repeat, Seq, Verbatim

__all__ = ["read_lark"]

_MOST_LETTERS = 1 << 20
_MOST_NESTED = 100
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
class _Token:
    kind: str
    text: str
    offset: int


def read_lark(text: str) -> dict[str, Rule]:
    """Read the rules and terminals. Raises ConfigError with line and column for features llguidance lacks."""
    if len(text) > _MOST_LETTERS:
        raise ConfigError(f"The grammar has {len(text)} characters; at most {_MOST_LETTERS} are read.")
    return _Reader(text, _tokens(text)).rules()


def _fail(text: str, what: str, offset: int, hint: str = "") -> ConfigError:
    return ConfigError(f"{what}, at {place(text, offset)} of the Lark grammar.", hint=hint)


def _tokens(text: str) -> list[_Token]:
    tokens, at = [], 0
    while at < len(text):
        found = _TOKENS.match(text, at)
        if not found:
            hint = "Strings have double quotes." if text[at] == "'" else ""
            raise _fail(text, f"{text[at]!r} is not understood", at, hint)
        kind = str(found.lastgroup)
        if kind != "space":
            tokens.append(_Token(kind, found[0], at))
        at = found.end()
        if found[0] in _WITH_JSON:
            end = _json_end(text, at)
            tokens.append(_Token("json", text[at:end], at))
            at = end
    return [*tokens, _Token("end", "", len(text))]


def _json_end(text: str, start: int) -> int:
    depth = 0
    for found in re.compile(r'"(?:[^"\\]|\\.)*"|[{}]').finditer(text, start):
        depth += {"{": 1, "}": -1}.get(found[0], 0)
        if depth == 0:
            return found.end()
    raise _fail(text, "The JSON object is not closed", start)


class _Reader:
    def __init__(self, text: str, tokens: list[_Token]) -> None:
        self.text, self.tokens, self.at, self.depth = text, tokens, 0, 0

    @property
    def next(self) -> _Token:
        return self.tokens[self.at]

    def rules(self) -> dict[str, Rule]:
        found: dict[str, Rule] = {}
        while self.next.kind != "end":
            token = self._take()
            if token.kind == "directive":
                self._directive(token, found)
            elif token.kind == "name":
                self._define(found, token, self._rule())
            elif token.kind != "newline":
                raise self._fail(f"{token.text!r} is not understood where a rule would begin", token)
        if not found:
            raise ConfigError("The Lark grammar is empty.", hint='Write at least: start: "text"')
        return found

    def _define(self, found: dict[str, Rule], name: _Token, node: Node) -> None:
        plain = name.text.lstrip("?!")
        if plain in found:
            raise self._fail(f"{plain!r} is there a second time", name)
        found[plain] = Rule(node, name.offset)

    def _fail(self, what: str, token: _Token | None = None, hint: str = "") -> ConfigError:
        return _fail(self.text, what, (token or self.next).offset, hint)

    def _take(self) -> _Token:
        self.at += 1
        return self.tokens[self.at - 1]

    def _accept(self, *texts: str) -> bool:
        if self.next.text in texts and self.next.kind != "string":
            self.at += 1
            return True
        return False

    def _expect(self, text: str) -> None:
        if not self._accept(text):
            raise self._fail(f"{text!r} is expected, not {self.next.text[:20] or 'the end'!r}")

    def _directive(self, token: _Token, found: dict[str, Rule]) -> None:
        if token.text in _UNKNOWN or token.text not in ("%import", "%ignore", "%llguidance"):
            raise self._fail(f"llguidance does not have {_UNKNOWN.get(token.text, token.text)}", token)
        if token.text == "%llguidance":
            self._take()
        elif token.text == "%ignore":
            self._choice()
        else:
            self._import(token, found)

    def _import(self, token: _Token, found: dict[str, Rule]) -> None:
        line: list[_Token] = []
        while self.next.kind not in ("newline", "end"):
            line.append(self._take())
        if not line or line[0].text != "common":
            raise self._fail("llguidance imports from 'common' alone", token)
        names = [part for part in line[1:] if part.kind == "name"]
        for name in names[-1:] if any(part.text == "->" for part in line) else names:
            self._define(found, name, Verbatim(name.text))

    def _rule(self) -> Node:
        if self._accept("."):
            raise self._fail("llguidance does not have priorities")
        if self._accept("{"):
            raise self._fail("llguidance does not have templates")
        if self._accept("["):
            self._options()
        if self._accept("::"):
            raise self._fail("Parameters of rules (::) cannot be used here")
        self._expect(":")
        return self._choice()

    def _options(self) -> None:
        named: dict[str, _Token] = {}
        while not self._accept("]"):
            token = self._take()
            if token.kind in ("newline", "end"):
                raise self._fail("The options of the rule are not closed", token)
            if token.kind == "name" and self.tokens[self.at - 2].text in ("[", ","):
                named[token.text] = token
        if "temperature" in named and "max_tokens" in named:
            what = "A temperature of one rule together with max_tokens is not applied"
            raise self._fail(what, named["temperature"], _OPTIONS["temperature"])
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
        """Whether the next line has another alternative; advances to it."""
        if self.next.kind == "newline" and self.tokens[self.at + 1].text == "|":
            self.at += 2
            return True
        return False

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
            self._check_regex(token)
        elif token.kind == "string" and self._accept(".."):
            self._take()
        elif token.kind == "token":
            what = f"{token.text} names a token, which an output of text has not"
            raise self._fail(what, token, "Write the text of the token.")
        elif token.kind == "grammar":
            raise self._fail(f"There is no grammar {token.text} beside this one", token, "Write it inside.")
        elif token.text in ("{", "::"):
            what = "templates" if token.text == "{" else "parameters of rules here"
            raise self._fail(f"llguidance does not have {what}", token)
        elif token.kind not in ("string", "directive", "json"):
            raise self._fail(f"{token.text!r} is not understood", token)
        return EMPTY if token.text in ('""', '""i') else Verbatim(token.text)

    def _group(self, opening: _Token) -> Node:
        inner = self._choice()
        while self.next.kind == "newline":
            self._take()
        self._expect(")" if opening.text == "(" else "]")
        return inner if opening.text == "(" else Repeat(inner, 0, 1)

    def _repeated(self, item: Node) -> Node:
        if self._accept("*", "?"):
            return Repeat(item, 0, None)
        if self._accept("+"):
            return Repeat(item, 1, None)
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

    def _check_regex(self, token: _Token) -> None:
        inner = re.sub(r"\\.|\[(?:\\.|[^\]\\])*\]", "..", token.text)
        for pattern, what in _REGEX:
            if found := pattern.search(inner):
                raise self._fail(f"llguidance does not have {what} ({found[0]}) in {token.text}", token)

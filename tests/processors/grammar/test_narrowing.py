"""Near the limit of tokens masks keep what leaves room for the document's end, in few tries."""

import json
from dataclasses import replace

import torch

from processors.base import Env
from processors.grammar.closing import Position, TokenKinds
from processors.grammar.forced_tokens import JsonContext
from processors.grammar.grammar_backend import allowed_ids, load_backend, mask_of, words
from processors.grammar.narrowing import SLACK, Narrower, Outlook, TriggerTokens, find_triggers
from processors.grammar.short_texts import SearchBudget, guide_of
from processors.request_values import Constraint
from processors.testing import ToyVocabulary
from tests.processors.grammar.kit import Words, closer_of, env_of, json_spot

# What code and markup bring into large vocabularies: a string may hold most of it.
CODE = tuple(f"{sign}w{number}".encode() for sign in ("{", "],", "[:", "}{,") for number in range(100))

CROSSING = (b'",', b'", "', b'"}', b'a"}', b'\\"', b"\\u", b'a", "b', b'{"', b"\xc3\xa9", b"\xe6\x97")
WORDS = Words((*(bytes([byte]) for byte in range(256)), *CODE, *CROSSING))
TOY = ToyVocabulary()

SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "string"}, "b": {"type": "array", "items": {"type": "string"}}},
    "required": ["a", "b"],
    "additionalProperties": False,
}

EMAILS = {"type": "array", "items": {"type": "string", "format": "email"}}


class Counted:
    """A matcher that counts what it is tried with."""

    def __init__(self, matcher):
        self.matcher, self.tries = matcher, 0

    def __getattr__(self, name):
        return getattr(self.matcher, name)

    def accept(self, token):
        self.tries += 1
        return self.matcher.accept(token)


class Open:
    """A document that has begun, near its limit of tokens."""

    def __init__(self, schema, name, begun, vocabulary=WORDS):
        self.env = Env(len(vocabulary.token_bytes) + 1, vocabulary)
        backend = load_backend(name, self.env)
        matcher = backend.compile(Constraint("json_schema", json.dumps(schema), name, 1)).matcher()
        self.closer = closer_of(backend, self.env)
        kinds = TokenKinds(vocabulary.token_bytes, self.env.vocab_size)
        self.narrower = Narrower(self.closer, kinds, self.env.vocab_size)
        json_spot(self.closer, matcher, begun)
        self.mask, _ = mask_of(backend, matcher, words(self.env.vocab_size))
        self.matcher = Counted(matcher)
        context = JsonContext().after(begun)
        guide = guide_of(Constraint("json_schema", json.dumps(schema), name))
        self.spot = Position(self.matcher, begun, context, self.closer.canonical, replace(guide, samples=()))
        self.legal = allowed_ids(self.mask, len(vocabulary.token_bytes)).tolist()
        self.path = self.narrower.shortest(self.spot, 64)

    def narrowed(self, left, slack=SLACK):
        mask = self.mask.clone()
        self.narrower.narrow(mask, self.spot, self.path, left, slack=slack)
        return allowed_ids(mask, len(self.closer.canonical.token_bytes)).tolist()

    def fits_alone(self, token, left):
        assert self.spot.accept(token)
        found = self.closer.path(self.spot, left - 1, SearchBudget(8000), hint=self.path)
        self.spot.rollback(1)
        return found is not None


def test_far_from_the_end_nothing_goes_nor_without_room_or_a_completion():
    on = Open(SCHEMA, "xgrammar", b'{"a":"')
    assert on.narrowed(200) == on.legal
    assert on.narrowed(len(on.path) - 1) == on.legal
    on.path = None
    assert on.narrowed(3) == on.legal


def test_a_value_that_would_grow_beyond_the_limit_is_not_begun():
    large = {"type": "string", "minLength": 300}
    schema = {**SCHEMA, "properties": {"a": {"type": "null"}, "o": large, "z": {"type": "null"}}}
    on = Open({**schema, "required": ["a", "z"]}, "xgrammar", b'{"a":null,"', TOY)
    ids = {name: TOY.encode(name, special=False)[0] for name in "oz"}
    assert set(ids.values()) <= set(on.narrowed(250))
    slack = on.spot.guide.growth
    assert slack > 300
    assert ids["z"] in on.narrowed(250, slack)
    assert ids["o"] not in on.narrowed(250, slack)
    assert set(ids.values()) <= set(on.narrowed(330, slack))


def test_a_completion_that_was_not_found_is_searched_again_now_and_then():
    on = Open(SCHEMA, "xgrammar", b'{"a":"')
    lost = on.narrower.start(None, 100)
    assert lost == Outlook(100, True)
    assert on.narrower.after(lost, 97, lambda: on.spot, 9, 91) == lost
    assert on.narrower.after(lost, 97, lambda: on.spot, 16, 84).path == on.path


def test_a_completion_is_followed_token_by_token():
    on = Open(EMAILS, "xgrammar", b'["', TOY)
    outlook, left = on.narrower.start(on.path, 64), 64
    for number, token in enumerate(on.path):
        assert on.spot.accept(token)
        left -= 1
        outlook = on.narrower.after(outlook, token, lambda: on.spot, 2 + number, left)
        assert outlook.path == on.path[number + 1 :]
    assert on.spot.matcher.is_complete()


def test_behind_another_token_the_completion_still_fits():
    on = Open(EMAILS, "xgrammar", b'["a', TOY)
    (letter,) = TOY.encode("z", special=False)
    assert on.spot.accept(letter)
    outlook = on.narrower.after(on.narrower.start(on.path, 60), letter, lambda: on.spot, 3, 59)
    assert outlook == Outlook(len(on.path), True, on.path)
    assert not on.narrower.has_given_up


def test_far_from_the_limit_the_end_is_looked_at_now_and_then():
    on = Open(SCHEMA, "xgrammar", b'{"a":"')
    outlook = on.narrower.start((), 5000)
    assert outlook == on.narrower.after(outlook, 97, lambda: on.spot, 15, 4985) == Outlook(0)
    assert on.narrower.after(outlook, 97, lambda: on.spot, 16, 4984) == Outlook(len(on.path))


def test_kinds_tell_apart_what_goes_on_differently():
    kinds = TokenKinds((b"a", b"bc", b'bc"', b'de"', b"7", b"78", b"\xc3", b""), 9)
    assert groups(kinds.at("string").of) == [{0, 1, 4, 5}, {2, 3}, {6}, {7, 8}]
    assert groups(kinds.at("pattern").of) == [{0}, {1}, {2, 3}, {4}, {5}, {6}, {7, 8}]
    assert groups(kinds.at("structure").of) == [{0, 1}, {2, 3}, {4, 5}, {6}, {7, 8}]


def groups(of):
    found = {}
    for token, kind in enumerate(of.tolist()):
        found.setdefault(kind, set()).add(token)
    return list(found.values())


def test_the_work_for_a_mask_is_bounded():
    vocabulary = Words((*(bytes([byte]) for byte in range(256)), *(b"x%dy" % n for n in range(20_000))))
    on = Open({"type": "string", "pattern": "^[a-z0-9]+x$"}, "xgrammar", b'"a', vocabulary)
    before = on.matcher.tries
    assert torch.tensor(on.narrowed(3)).numel() > 0
    assert on.matcher.tries - before < 10_000


TAG_SCHEMA = {"type": "object", "properties": {"<f=": {"const": "the cat"}}, "required": ["<f="]}

TAG = {
    "type": "tag",
    "begin": "<f=a>",
    "content": {"type": "json_schema", "json_schema": TAG_SCHEMA},
    "end": "</f>",
}

TAGS = {"type": "structural_tag", "format": {"type": "triggered_tags", "triggers": ["<f="], "tags": [TAG]}}
LARK = 'start: (head "!" )* text\ntext: TEXT\nTEXT: /(?s:.*)/\nhead[lazy]: TEXT "cat"\n'


def test_a_trigger_is_a_literal_after_which_the_text_may_not_end():
    cases = [
        ("xgrammar", "structural_tag", json.dumps(TAGS), (b"<f=",)),
        ("llguidance", "lark", LARK, (b"cat",)),
        ("xgrammar", "ebnf", 'root ::= [a-z]* ("x" "y")?', ()),
        ("xgrammar", "json_schema", json.dumps(TAG_SCHEMA), ()),
    ]
    env = env_of("toy")
    for name, kind, text, expected in cases:
        matcher = load_backend(name, env).compile(Constraint(kind, text, name)).matcher()
        byte_ids = closer_of(load_backend(name, env), env).canonical.byte_ids
        assert find_triggers(text, matcher, byte_ids) == expected, (name, kind)


def test_tokens_complete_a_trigger_by_the_text_before_them():
    tokens = TriggerTokens([b"<f=", b"a<f=b", b"f=", b"=", b"=a", b"<f", b"f", b""])
    assert tokens.completing(b"x", [b"<f="]) == [0, 1]
    assert tokens.completing(b"x<", [b"<f="]) == [0, 1, 2]
    assert tokens.completing(b"<f", [b"<f=", b"f"]) == [0, 1, 2, 3, 4, 5, 6]


def test_near_the_limit_free_text_loses_what_opens_a_tag_too_late_and_nothing_else():
    more = (b"<f=", b"a<f=", b"<f=a>", *(b"w%d" % number for number in range(500)))
    vocabulary = Words((*(bytes([byte]) for byte in range(256)), *more))
    env = Env(len(vocabulary.token_bytes) + 1, vocabulary)
    backend = load_backend("xgrammar", env)
    text = json.dumps(TAGS)
    matcher = backend.compile(Constraint("structural_tag", text, "xgrammar")).matcher()
    closer = closer_of(backend, env)
    narrower = Narrower(closer, TokenKinds(vocabulary.token_bytes, env.vocab_size), env.vocab_size)
    triggers = find_triggers(text, matcher, closer.canonical.byte_ids)
    mask, _ = mask_of(backend, matcher, words(env.vocab_size))
    spot = Position(matcher, b"", None, closer.canonical)
    whole = '{"<f=":"the cat"}</f>'

    def lost(left):
        narrowed = mask.clone()
        narrower.narrow(narrowed, spot, (), left, triggers)
        kept = allowed_ids(narrowed, env.vocab_size).tolist()
        return sorted(set(allowed_ids(mask, env.vocab_size).tolist()) - set(kept))

    for left in range(1, 1 + len(whole)):
        assert lost(left) == [256, 257, 258], left
    assert lost(1 + len(whole)) == [256, 257]
    assert lost(3 + len(whole)) == []

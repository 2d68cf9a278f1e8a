"""The literals that end free text are found by the matcher; the tokens that complete them, by bytes."""

import json

from processors.base import Env
from processors.grammar.closing import Position, TokenKinds
from processors.grammar.grammar_backend import allowed_ids, load_backend, mask_of, words
from processors.grammar.narrowing import Narrower, TriggerTokens, find_triggers
from processors.request_values import Constraint
from tests.processors.grammar.kit import Words, closer_of, env_of

SCHEMA = {"type": "object", "properties": {"<f=": {"const": "the cat"}}, "required": ["<f="]}
TAG = {
    "type": "tag",
    "begin": "<f=a>",
    "content": {"type": "json_schema", "json_schema": SCHEMA},
    "end": "</f>",
}
TAGS = {"type": "structural_tag", "format": {"type": "triggered_tags", "triggers": ["<f="], "tags": [TAG]}}
LARK = 'start: (head "!" )* text\ntext: TEXT\nTEXT: /(?s:.*)/\nhead[lazy]: TEXT "cat"\n'


def test_a_trigger_is_a_literal_after_which_the_text_may_not_end():
    cases = [
        ("xgrammar", "structural_tag", json.dumps(TAGS), (b"<f=",)),
        ("llguidance", "lark", LARK, (b"cat",)),
        ("xgrammar", "ebnf", 'root ::= [a-z]* ("x" "y")?', ()),
        ("xgrammar", "json_schema", json.dumps(SCHEMA), ()),
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

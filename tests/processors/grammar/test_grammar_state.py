"""Where a request stands in its grammar, and what comes next: forced text, and legal guesses."""

import json
from itertools import product

import pytest
import torch

from processors.base import Env
from processors.grammar.closing import Position, TokenKinds
from processors.grammar.forced_tokens import CanonicalTokenizer, JsonContext, SeparatorModel
from processors.grammar.grammar_backend import load_backend, words
from processors.grammar.grammar_state import GrammarRules, GrammarState, predict_next
from processors.grammar.narrowing import Narrower
from processors.request_values import Constraint, Marker
from processors.testing import ToyVocabulary
from tests.processors.grammar.kit import backend_of, closer_of, env_of, ids_of

BACKENDS = ["xgrammar", "llguidance"]
ENV = env_of("toy")
(END,) = ENV.eos_ids[:1]
ANY = -1  # all bits of a word of a mask


def ids(text):
    return tuple(ENV.vocabulary.encode(text, special=False))


def state(backend, pattern="(ab|ac)d", after="", **rules):
    loaded = backend_of(backend)
    matcher = loaded.compile(Constraint("regex", pattern, backend)).matcher()
    kinds = TokenKinds(ENV.vocabulary.token_bytes, ENV.vocab_size)
    narrower = Narrower(closer_of(loaded, ENV), kinds, ENV.vocab_size)
    marker = Marker.of(after, ENV.vocabulary) if after else None
    canonical = CanonicalTokenizer(ENV.vocabulary)
    return GrammarState.start(
        matcher, GrammarRules(canonical, narrower, frozenset(ENV.eos_ids), marker, **rules)
    )


def documents(statuses):
    return [status.document for status in statuses]


def test_a_preview_tells_each_token_and_its_end_and_changes_nothing():
    for backend in BACKENDS:
        one = state(backend)
        for _ in range(2):
            assert documents(one.preview(ids("a"))) == ["open"], backend
            assert documents(one.preview((*ids("a"), *ids("b"), *ids("d"))))[-1] == "over", backend
            assert documents(one.preview((*ids("a"), *ids("d"), *ids("d")))) == ["open", "broken"], backend
        ask = one.ask((*ids("a"), END, *ids("b")), 5)
        assert (ask.drafts, ask.row) == (ids("a"), 5), backend
        one = state(backend, "ab*")
        assert documents(one.preview((*ids("a"), END))) == ["complete", "over"], backend
        assert documents(one.preview((END,))) == ["broken"], backend


def test_committed_tokens_advance_it_and_a_forbidden_one_ends_it():
    for backend in BACKENDS:
        one = state(backend)
        one.commit(ids("a"))
        assert documents(one.preview(ids("d"))) == ["broken"], backend
        assert not one.is_done, backend
        one.commit(ids("d"))
        assert (one.is_done, one.ask((), 0), one.completion((), 9)) == (True, None, ()), backend


def test_a_fork_goes_its_own_way():
    for backend in BACKENDS:
        one = state(backend)
        one.commit(ids("a"))
        other = one.fork()
        other.commit(ids("b"))
        assert documents(one.preview(ids("c"))) == ["open"], backend
        assert documents(other.preview(ids("c"))) == ["broken"], backend


def test_before_its_marker_which_may_cross_tokens_every_token_is_free():
    for backend in BACKENDS:
        one = state(backend, after="!\n")
        drafts = (*ids("d"), *ids("!"), *ids("\n"), *ids("a"))
        assert (one.free(drafts), one.free(drafts[:2])) == (3, 3), backend
        assert documents(one.preview(drafts)) == ["free", "free", "open", "open"], backend
        one.commit(drafts[:3])
        assert one.free(ids("a")) == 0, backend
    marker, tail = Marker.of("aab", ENV.vocabulary), b""
    for token in (*ids("a"), *ids("a"), *ids("a")):
        tail = marker.step(tail, token)
    assert tail == b"aa"
    assert marker.step(tail, *ids("b")) is None


def test_a_mask_is_narrowed_to_the_token_of_the_forced_text():
    for backend in BACKENDS:
        masks = torch.full((1, words(ENV.vocab_size)), ANY, dtype=torch.int32)
        one = state(backend, "the cat", is_canonical=True)
        one.refine(masks, (), 0)
        assert ids_of(masks[0]) == [ids("the cat")[0]], backend
        loose = torch.full_like(masks, ANY)
        state(backend, "the cat").refine(loose, (), 0)
        assert (loose == ANY).all(), backend


def test_a_completion_follows_the_tokens_that_are_given():
    for backend in BACKENDS:
        one = state(backend)
        found = one.completion(ids("a"), 9)
        text = b"".join(ENV.vocabulary.token_bytes[token] for token in found)
        assert text in (b"bd", b"cd"), backend
        assert one.completion(ids("a"), 0) == (), backend


TOY = ToyVocabulary()
CANONICAL = CanonicalTokenizer(TOY)


def pieces(tokens):
    return [TOY.token_bytes[token] for token in tokens]


SPELLED = [
    (b"", b"the cat sat.", [b"the", b" cat", b" sat", b"."]),
    (b"", b"th cat", [b"th", b" cat"]),
    (b"", b"th", []),  # it may become "the"
    (b" t", b"he cat", [b"he c", b"at"]),  # behind " t", which is a token already
    (b"", b"", []),
    (b"", b"\xc3", []),  # half of a character
]


def test_forced_text_is_spelled_as_far_as_nothing_can_change_it():
    for before, forced, spelled in SPELLED:
        assert pieces(CANONICAL.tokenize_forced(before, forced)) == spelled, (before, forced)


TOY_ENV = Env(TOY.vocab_size, TOY, TOY.eos_ids)

SCHEMA = {
    "type": "object",
    "properties": {key: {"type": "boolean"} for key in ("a", "b", "c")} | {"d": {"type": "string"}},
    "required": ["a", "b", "c", "d"],
    "additionalProperties": False,
}


def ahead(backend, begun, whitespace=8, noise=None):
    constraint = Constraint("json_schema", json.dumps(SCHEMA), backend, whitespace)
    matcher = load_backend(backend, TOY_ENV).compile(constraint).matcher()
    canonical, separators = CanonicalTokenizer(TOY), SeparatorModel.usual(TOY)
    for token in TOY.encode(begun, special=False):
        assert matcher.accept(token)
        separators.add(token, TOY.token_bytes[token])
    spot = Position(matcher, begun.encode(), separators.signs, canonical)
    found = [token for token, _ in predict_next(spot, separators, noise)]
    assert all(map(matcher.accept, found))
    return b"".join(TOY.token_bytes[token] for token in found).decode()


NEXT = [
    ('{"a": t', 'rue, "b": '),
    ('{"a": true,', ' "b": '),
    ('{"a":true,"b":true,', '"c":'),
    ('{"a": true, "b": true,', ' "c": '),
    ('{"a": true,\n  "b": true,', '\n  "c": '),
    ('{"a": true,\n  "b": true,\n', '  "c": '),
    ('{\n\t"a": true,\n\t"b": true,', '\n\t"c": '),
    ('{"a": true, "b": true, "c": true, "d": "a"', "}"),
]


def test_parts_follow_each_other_as_before_or_as_usual_and_strings_are_not_guessed():
    for backend, (begun, next_one) in product(("xgrammar", "llguidance"), NEXT):
        assert ahead(backend, begun).startswith(next_one), (backend, begun)
    for backend in BACKENDS:
        assert not ahead(backend, '{"a": true, "b": true, "c": true, "d": "a'), backend
        assert ahead(backend, '{"a":true,', whitespace=0).startswith('"b":'), backend


@pytest.mark.parametrize("sign", [" ", "\n", "\t"])
def test_noise_chooses_between_what_has_come_as_often(sign):
    """The draw will choose the token with the most noise, if the model finds them as likely."""
    begun, (token,) = '{"a": true,\n"b":\ttrue,', TOY.encode(sign, special=False)

    def noise(place, ids):
        return [9.0 * (place == 0 and known == token) for known in ids]

    assert ahead("xgrammar", begun, noise=noise)[:1] == sign


SIGNS = [
    ('{"a": -1.5e3,', JsonContext(b": a,", depth=1)),
    ('["x\\\\"', JsonContext(b'[""', depth=1)),
    ('["x\\"', JsonContext(b'["', in_string=True, depth=1)),
    ('["x\\', JsonContext(b'["', in_string=True, is_escaped=True, depth=1)),
]


def test_of_a_text_its_signs_are_known():
    for text, signs in SIGNS:
        assert JsonContext().after(text.encode()) == signs, text
        assert JsonContext().after(text[:3].encode()).after(text[3:].encode()) == signs, text

"""Where a request stands in its grammar: before the document, inside it, at its end."""

import torch

from processors.grammar.closing import TokenKinds
from processors.grammar.forced_tokens import CanonicalTokenizer
from processors.grammar.grammar_backend import words
from processors.grammar.grammar_state import GrammarRules, GrammarState
from processors.grammar.narrowing import Narrower
from processors.request_values import Constraint, Marker
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


def test_a_preview_tells_each_token_and_changes_nothing():
    for backend in BACKENDS:
        one = state(backend)
        for _ in range(2):
            assert documents(one.preview(ids("a"))) == ["open"], backend
            assert documents(one.preview((*ids("a"), *ids("b"), *ids("d"))))[-1] == "over", backend
            assert documents(one.preview((*ids("a"), *ids("d"), *ids("d")))) == ["open", "broken"], backend


def test_the_end_of_a_text_is_legal_where_the_document_is_complete():
    for backend in BACKENDS:
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


def test_before_its_marker_every_token_is_free():
    for backend in BACKENDS:
        one = state(backend, after="!\n")
        drafts = (*ids("d"), *ids("!"), *ids("\n"), *ids("a"))
        assert (one.free(drafts), one.free(drafts[:2])) == (3, 3), backend
        assert documents(one.preview(drafts)) == ["free", "free", "open", "open"], backend
        one.commit(drafts[:3])
        assert one.free(ids("a")) == 0, backend


def test_a_marker_is_found_across_tokens_and_once():
    marker = Marker.of("aab", ENV.vocabulary)
    tail = b""
    for token in (*ids("a"), *ids("a"), *ids("a")):
        tail = marker.step(tail, token)
    assert tail == b"aa"
    assert marker.step(tail, *ids("b")) is None


def test_a_request_of_the_back_end_ends_before_an_end_of_the_text():
    for backend in BACKENDS:
        one = state(backend)
        ask = one.ask((*ids("a"), END, *ids("b")), 5)
        assert (ask.drafts, ask.row) == (ids("a"), 5), backend


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

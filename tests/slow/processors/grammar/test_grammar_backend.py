"""The contract of a grammar back end, on random walks: accept, refuse, take back, copy, look ahead."""

import json
import random
from itertools import product

import pytest
import torch

from processors.grammar.grammar_backend import Ask
from tests.processors.grammar.kit import (
    GRAMMARS,
    TEXTS,
    VALUES,
    backend_of,
    compiled,
    env_of,
    ids_of,
    legal,
    replay,
    same_language,
    state_of,
    vocabulary_of,
)
from tests.processors.grammar.test_grammar_backend import BACKENDS, UNTOUCHED


def walk(rng, name, grammar, vocabulary):
    """Ten random steps; afterwards the matcher has to be what a fresh one is after the same tokens."""
    matcher, tokens = grammar.matcher(), []
    for _ in range(10):
        step = rng.random()
        if step < 0.5:
            choices = legal(name, matcher, vocabulary)
            if choices:
                tokens.append(rng.choice(choices))
                assert matcher.accept(tokens[-1])
        elif step < 0.6:
            token = rng.randrange(-1, env_of(vocabulary).vocab_size + 2)
            may = token in legal(name, matcher, vocabulary)
            assert matcher.accept(token) is may
            tokens += [token] * may
        elif step < 0.75:
            count = rng.randint(0, len(tokens))
            matcher.rollback(count)
            del tokens[len(tokens) - count :]
        elif step < 0.85:
            matcher, left = matcher.fork(), matcher
            for token in legal(name, left, vocabulary)[:1]:
                left.accept(token)
        else:
            check_drafts(rng, name, matcher, vocabulary)
    assert state_of(name, matcher, vocabulary) == state_of(name, replay(grammar, tokens), vocabulary)


def check_drafts(rng, name, matcher, vocabulary):
    """The masks of drafts are the masks of the steps one by one, up to the first illegal draft."""
    steps, drafts = [matcher.fork()], []
    for _ in range(rng.randint(0, 4)):
        choices = legal(name, steps[-1], vocabulary)
        draft = (
            rng.choice(choices)
            if choices and rng.random() < 0.8
            else rng.randrange(env_of(vocabulary).vocab_size)
        )
        drafts.append(draft)
        following = steps[-1].fork()
        if not following.accept(draft):
            break
        steps.append(following)
    drafts += [rng.randrange(env_of(vocabulary).vocab_size)] * (len(steps) == len(drafts))
    words = vocabulary_of(vocabulary)
    masks = torch.full((len(drafts) + 3, words.words), UNTOUCHED, dtype=torch.int32)
    before = state_of(name, matcher, vocabulary)
    (complete,) = backend_of(name, vocabulary).fill([Ask(matcher, tuple(drafts), 1)], masks)
    rows = len(complete)
    assert complete[: len(steps)] == [step.is_complete() for step in steps]
    for row, step in zip(masks[1:], steps, strict=False):
        assert ids_of(row & words.text_mask) == legal(name, step, vocabulary)
    assert (masks[0] == UNTOUCHED).all()
    assert (masks[1 + rows :] == UNTOUCHED).all()
    assert state_of(name, matcher, vocabulary) == before


@pytest.mark.parametrize("name", BACKENDS)
def test_a_walk_ends_where_a_fresh_replay_ends(name):
    for vocabulary, walks in {"toy": 70, "no end": 20, "qwen2": 4}.items():
        take_walks(name, vocabulary, walks)


def take_walks(name, vocabulary, walks):
    rng = random.Random(f"{name} {vocabulary}")
    grammars = [compiled(name, *grammar, vocabulary=vocabulary) for grammar in GRAMMARS[name]]
    for number in range(walks):
        walk(rng, name, grammars[number % len(grammars)], vocabulary)


@pytest.mark.parametrize("vocabulary", ["toy", "qwen2"])
def test_finite_languages_have_the_masks_of_the_plain_back_end(vocabulary):
    languages = {"texts": TEXTS, "values": [json.dumps(value, ensure_ascii=False) for value in VALUES]}
    for name, (language, texts) in product(("xgrammar", "llguidance"), languages.items()):
        case = name, language
        plain = compiled("trie", *same_language("trie", list(texts)), vocabulary=vocabulary)
        ours = compiled(name, *same_language(name, list(texts)), vocabulary=vocabulary)
        rng = random.Random(language + vocabulary)
        for _ in range(25):
            twin, matcher = plain.matcher(), ours.matcher()
            while choices := legal("trie", twin, vocabulary):
                assert legal(name, matcher, vocabulary) == choices, case
                assert (matcher.is_complete(), matcher.is_over()) == (twin.is_complete(), False), case
                assert twin.forced().startswith(matcher.forced()), case
                token = rng.choice(choices)
                assert twin.accept(token), case
                assert matcher.accept(token), case
            assert matcher.is_over() == twin.is_over() == matcher.is_complete() is True, case
            assert legal(name, matcher, vocabulary) == [], case
            assert matcher.forced() == b"", case

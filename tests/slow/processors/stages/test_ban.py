"""Bans by text, entry 38: the text never appears, and nothing else is masked."""

import random
from dataclasses import dataclass

import pytest
import torch

from processors.base import Admission, Env
from processors.history import History
from processors.rows import Rows
from processors.stages.masks import BAN_LIMIT, Ban, BanParams
from processors.testing.checks import View
from tests.processors.reference.twins import REFERENCE
from tests.processors.stages.test_ban import forbidden


@dataclass
class RandomVocabulary:
    """Every single byte of the alphabet, many longer tokens, and two ids without text."""

    token_bytes: tuple[bytes, ...]

    @classmethod
    def of(cls, seed, alphabet, size):
        dice = random.Random(seed)
        longer = [bytes(dice.choices(alphabet, k=dice.randint(2, 5))) for _ in range(size)]
        return cls((b"", b"", *(bytes([byte]) for byte in alphabet), *longer))


@pytest.mark.timeout(30)
def test_the_largest_text_is_built_and_applied_in_a_moment(vocabulary):
    for text in ("a" * BAN_LIMIT, "ab" * (BAN_LIMIT // 2)):
        assert forbidden(vocabulary, (text,), text[:-1]), text[:2]


def a_text(dice, alphabet):
    return "".join(dice.choices(alphabet, k=dice.choice([1, 2, 2, 3, 4, 6])))


ALPHABETS = {"letters": "ab", "three": "abc", "newlines": "a\n", "characters": "é😀a"}


def check_random_tokenizer(alphabet, seed):
    dice = random.Random(seed)
    vocabulary = RandomVocabulary.of(seed, sorted(set(alphabet.encode())), 40)
    width = len(vocabulary.token_bytes) + 3
    stage, history = Ban(Env(width, vocabulary)), History()
    lists = [tuple(a_text(dice, alphabet) for _ in range(dice.randint(1, 4))) for _ in range(3)]
    params = [BanParams(texts) for texts in (*lists, lists[0])]  # two rows share a list
    prompts = [tuple(dice.randrange(width) for _ in range(dice.choice([0, 1, 5]))) for _ in params]
    outputs = [() for _ in params]
    for slot, (values, prompt) in enumerate(zip(params, prompts, strict=True)):
        history.admit(slot, prompt)
        stage.admit(slot, values, Admission(prompt))
    for _ in range(40):
        drafts = [tuple(dice.randrange(width) for _ in range(dice.choice([0, 2]))) for _ in params]
        rows = Rows.build(history, range(len(params)), drafts)
        out = iter(stage.apply(torch.zeros(len(rows), width), rows))
        for slot, (values, run) in enumerate(zip(params, drafts, strict=True)):
            for j in range(len(run) + 1):
                view = View(prompts[slot], outputs[slot] + run[:j], vocabulary=vocabulary)
                masks = next(out).tolist()
                assert masks == REFERENCE["ban"]([0.0] * width, values, view), (alphabet, seed)
                if j == 0:
                    token = dice.choice([t for t in range(width) if masks[t] == 0])
            outputs[slot] += (token,)
            history.append([slot], [[token]])
    for values, prompt, output in zip(params, prompts, outputs, strict=True):
        view = View(vocabulary=vocabulary)
        prompt_size, text = len(view.text(prompt)), view.text(prompt + output)
        for banned in map(str.encode, values.texts):
            assert text.find(banned, max(0, prompt_size - len(banned) + 1)) < 0, (alphabet, seed)


def test_on_a_random_tokenizer_exactly_the_completing_tokens_are_masked():
    for alphabet in ALPHABETS.values():
        check_random_tokenizer(alphabet, 0)

"""Where a repetition is cut: breakers in any tokens, exempt ids."""

import random

import pytest

from processors.base import Env
from processors.errors import TokenError
from processors.history import History
from processors.rows import Rows
from processors.stages.repeats import Cuts
from processors.testing.checks import View
from tests.processors.reference.twins import _since
from tests.processors.vectors.run import Words

TEXTS = ("a", "b", "ab", "x", "", "ba", "\n", "aab")


def followed(breakers, prompt, output, drafts=(), exempt=()):
    """num_since of each row, after the prompt and after the output token by token."""
    cuts, history = Cuts(Env(len(TEXTS) + 2, Words(TEXTS))), History()
    history.admit(0, prompt)
    cuts.admit(0, prompt, breakers=breakers, exempt=exempt)
    history.append([0], [output])
    for token in output:
        cuts.commit(0, [token])
    return cuts.num_since(Rows.build(history, [0], [drafts])).tolist()


def test_a_breaker_is_found_in_whatever_tokens():
    for breakers, text, num_since in [
        (("\n",), (0, 6, 1, 1), 2),
        (("x",), (0, 1), 2),  # none: the whole text
        (("ba",), (2, 2, 1), 1),  # ab + ab: it lies across the two
        (("ba",), (1, 4, 4, 0, 1), 1),  # a token without text does not part it
        (("aa",), (7, 1), 1),  # inside aab
        (("ab", "abab"), (0, 1, 0, 1), 0),  # the latest end decides
        (("abx",), (2, 3, 3), 1),
    ]:
        for cut in range(len(text) + 1):
            assert followed(breakers, text[:cut], text[cut:]) == [num_since], breakers


def test_random_texts_and_drafts_are_cut_as_in_the_reference():
    rng = random.Random(5)
    for _ in range(400):
        breakers = tuple(rng.sample(("a", "ba", "abab", "xx", "aaab", "\na"), rng.randint(0, 3)))
        exempt = tuple(rng.sample(range(8), rng.choice((0, 0, 1))))
        prompt, output, drafts = (tuple(rng.choices(range(9), k=rng.randint(0, n))) for n in (9, 5, 4))
        expected = [
            _since((*prompt, *output, *drafts[:n]), breakers, set(exempt), View(vocabulary=Words(TEXTS)))
            for n in range(len(drafts) + 1)
        ]
        assert followed(breakers, prompt, output, drafts, exempt) == expected


def test_breakers_without_a_tokenizer_are_refused():
    with pytest.raises(TokenError, match="but there is no tokenizer"):
        Cuts(Env(9)).admit(0, (), breakers=("a",), stage="dry")

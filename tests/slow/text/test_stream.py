"""When and why a sample ends, and what of its text is given out [42, 43, 44, 61, 62, 64, 65]."""

from __future__ import annotations

import random

from gencli.text.text_stream import MAX_PERIOD, LoopDetector
from gencli.text.tokenizer import ByteTokenizer
from tests.text.test_stream import run


def test_joined_deltas_are_the_decoded_text_cut_at_the_first_stop():
    """[63]"""
    rng, tokenizer = random.Random(0), ByteTokenizer()
    for _ in range(500):
        text = "".join(rng.choices(["a", "b", "é", "👩‍👩", "ส", " "], k=12))
        ends = [text[:i] for i in range(len(text) + 1) if text[:i].endswith(("ab", "éb"))]
        got, _ = run(tokenizer.encode(text), strings=("ab", "éb"))
        assert got == (ends[0][:-2] if ends else text)


def is_loop(ids, times):
    """The plain definition of a loop."""
    periods = range(1, MAX_PERIOD + 1)
    return any(len(ids) >= p * times and ids[-p * times :] == ids[-p:] * times for p in periods)


def test_loops_are_found_as_soon_as_they_complete():
    for times in [2, 3, 5]:
        rng = random.Random(times)
        for _ in range(200):
            detector, ids = LoopDetector(times), []
            for _ in range(40):
                ids.append(rng.choice(ids[-3:]) if ids and rng.random() < 0.8 else rng.randrange(4))
                assert detector.push(ids[-1]) == is_loop(ids, times), times

    for period in (1, 2, MAX_PERIOD, MAX_PERIOD + 1):
        detector = LoopDetector(3)
        found = [detector.push(i % period) for i in range(4 * period)]
        assert found.count(True) == (period + 1 if period <= MAX_PERIOD else 0)
        assert period > MAX_PERIOD or found.index(True) == 3 * period - 1

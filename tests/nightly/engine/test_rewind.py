"""Texts that are banned with rewind never appear, and what appears is what a plain loop finds."""

from dataclasses import replace

from tests.engine.harness import Scripted, request
from tests.engine.test_rewind import FREE, asked, run, text
from tests.slow.engine.test_rewind import BANNED


def test_drafts_and_company_change_nothing():
    for texts in BANNED:
        many, ends = [asked(texts, seed=seed, n=2) for seed in range(2)], {}
        for one in many:
            ends |= run([one])
        free = {o.prompt_ids: tuple(text(replace(o, chain=FREE, n=1)).encode()) for o in many}
        other = [request(f"other {n}", max_tokens=30) for n in range(3)]
        together = run([*many, *other], max_batch=3, drafter=Scripted(free), step_tokens=16)
        assert all(together[key].text == end.text for key, end in ends.items()), texts
        alone = text(one := replace(many[0], n=1))
        assert text(one, drafter=Scripted({one.prompt_ids: tuple(alone.encode())})) == alone, texts

"""The detector: evidence, p-values, and texts marked by gencli and by transformers."""

import pytest

from gencli import SamplingParams
from gencli.watermark_detector import detect
from tests.slow.watermark.test_watermark_detector import (
    MARKS,
    PROMPTS,
    VOCAB,
    check_drafts_and_company,
    check_false_alarms,
    check_marked,
    draws_by_its_key,
    llm,
    scorer,
)
from tests.watermark.test_watermark_detector import SCORERS


def test_false_alarms_of_each_mark_have_the_stated_rate():
    for name in SCORERS:
        check_false_alarms(name)


@pytest.fixture(scope="module")
def unmarked(llm):
    params = SamplingParams(max_tokens=50, ignore_eos=True, temperature=1.3, n=50)
    found = llm.generate(PROMPTS, params)
    return [llm.tokenizer.encode(text, special=False) for out in found for text in out.texts]


@draws_by_its_key
def test_each_mark_is_found_in_marked_texts_and_in_no_others(llm, unmarked, tmp_path):
    for name in MARKS:
        judge = check_marked(llm, name, tmp_path, PROMPTS)
        assert sum(detect(judge, ids, level=0.01).verdict == "marked" for ids in unmarked) <= 5, name


@draws_by_its_key
def test_drafts_and_company_change_no_text_of_any_mark(llm, tmp_path):
    for name in ("kgw", "synthid", "dual"):
        check_drafts_and_company(llm, name, tmp_path)


@draws_by_its_key
def test_a_banned_token_stays_banned(llm, tmp_path):
    banned = set(range(1, VOCAB, 2))
    params = SamplingParams(max_tokens=60, ignore_eos=True, seed=2, suppress_ids=sorted(banned), logprobs=0)
    for name, (kind, content) in MARKS.items():
        path, _ = scorer(kind, content, tmp_path / name)
        (done,) = llm.generate(PROMPTS[:1], params.replaced(watermark=kind, watermark_key=path))
        chosen = {one.chosen.id for one in done.samples[0].logprobs}
        assert len(chosen) > 1, name
        assert not chosen & banned, name

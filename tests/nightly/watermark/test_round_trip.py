"""The detectors, ours and those of transformers, find marked texts of a model and no others."""

import pytest

from gencli import SamplingParams
from gencli.watermark.detect import detect
from tests.slow.watermark.test_round_trip import (
    MARKS,
    PROMPTS,
    check_drafts_and_company,
    check_marked,
    draws_by_its_key,
    llm,
)


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

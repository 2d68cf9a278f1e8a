"""The detector: evidence, p-values, and texts marked by gencli and by transformers."""

import pytest
import torch
from transformers import AutoModelForCausalLM, WatermarkDetector, WatermarkingConfig

from gencli import LLM, SamplingParams
from gencli.models.files.local_models import bundled_folder
from gencli.watermark_detector import KgwScorer, detect, scorer_of
from gencli.watermark_keys import read_key_file
from tests.watermark.test_watermark_detector import SCORERS, agrees, marked, texts
from tests.watermark.test_watermark_detector import VOCAB as FAST_VOCAB


def check_false_alarms(name):
    scorer, vocab = SCORERS[name], 64 if name == "selfhash" else FAST_VOCAB
    found = [detect(scorer, text, level=0.01) for text in texts(1000, 40, vocab)]
    alarms = sum(one.verdict == "marked" for one in found)
    assert alarms <= 21, "10 are expected; more than 21 in one of 1000 trials"
    likely = sum(one.p_value <= 0.25 for one in found)
    assert (50 if name in ("kgw", "selfhash") else 190) < likely < 300, name


def test_false_alarms_have_the_stated_rate():
    check_false_alarms("kgw")


def test_windows_keep_the_rate_of_false_alarms():
    found = [detect(SCORERS["gumbel"], text, level=0.01, window=20) for text in texts(500, 60)]
    assert sum(one.verdict == "marked" for one in found) <= 12
    assert all(one.window.count == 9 for one in found)


# huggingface/transformers tests/generation/test_watermarking.py, WatermarkDetectorTest: the scheme, the width
# of the context, and how many windows of tokens are scored; the texts, and how many of the windows differ.
SCHEMES = [("lefthash", 1, 9), ("lefthash", 2, 8), ("selfhash", 1, 10), ("selfhash", 2, 9)]
TEXTS = [("identical", [3] * 10, 1), ("alternating", [1, 2] * 5, 2), ("distinct", list(range(1, 11)), None)]
SETTINGS = [
    (scheme, width, tokens, is_once, (unique or windows) if is_once else windows)
    for scheme, width, windows in SCHEMES
    for _, tokens, unique in TEXTS
    for is_once in (True, False)
]


def test_the_24_settings_of_transformers():
    for scheme, width, tokens, is_once, scored in SETTINGS:
        assert agrees(scheme, width, tokens, is_once) == scored, scheme


def test_a_long_text_has_the_z_value_of_transformers():
    for is_once in [True, False]:
        for scheme in ["lefthash", "selfhash"]:
            tokens = torch.randint(0, 40, (300,), generator=torch.Generator().manual_seed(3)).tolist()
            agrees(scheme, 2, tokens, is_once)


PROMPTS = ["Once upon a time", "One winter, a fox"]
MARKS = {
    "kgw": ("kgw", "{key: 15485863, bias: 4}"),
    "selfhash": ("kgw", "{key: 15485863, bias: 6, scheme: selfhash, width: 2}"),
    "synthid": ("synthid", "60902184713"),
    "gumbel": ("gumbel", "60902184713"),
    "dual": ("gumbel", "{key: 60902184713, alpha: 0.1}"),
}
VOCAB = 2048
draws_by_its_key = pytest.mark.filterwarnings("ignore:The watermark gumbel draws by its key")


@pytest.fixture(scope="module")
def llm():
    return LLM("tiny", dtype="float32")


def scorer(kind, content, path):
    path.write_text(content)
    return str(path), scorer_of(read_key_file(kind, str(path)), vocab=VOCAB)


def check_marked(llm, name, tmp_path, prompts):
    """200 marked tokens have a p value below one in a million; return the judge."""
    path, judge = scorer(*MARKS[name], tmp_path / name)
    params = SamplingParams(max_tokens=200, ignore_eos=True, temperature=1.5, seed=1)
    for out in llm.generate(prompts, params.replaced(watermark=MARKS[name][0], watermark_key=path)):
        assert detect(judge, llm.tokenizer.encode(out.text, special=False)).p_value < 1e-6, name
    return judge


def test_the_detector_of_transformers_finds_our_mark_and_ours_finds_theirs(llm, tmp_path):
    path, _ = scorer("kgw", "{key: 42, bias: 5}", tmp_path / "kgw")
    model = AutoModelForCausalLM.from_pretrained(bundled_folder("tiny"))
    config = WatermarkingConfig(hashing_key=42, bias=5.0)
    theirs = WatermarkDetector(model.config, "cpu", config)
    ours = KgwScorer(read_key_file("kgw", path), VOCAB, is_once=False)
    params = SamplingParams(
        max_tokens=100, ignore_eos=True, seed=1, temperature=1.5, watermark="kgw", watermark_key=path
    )
    prompt = llm.tokenizer.encode(PROMPTS[0])
    (out,) = llm.generate(PROMPTS[:1], params)
    torch.manual_seed(0)
    made = model.generate(
        torch.tensor([prompt]), watermarking_config=config, do_sample=True, temperature=1.5,
        max_new_tokens=100, min_new_tokens=100,
    )[0, len(prompt) :]  # fmt: skip
    for ids in (llm.tokenizer.encode(out.text, special=False), made.tolist()):
        expected = theirs(torch.tensor([ids]), return_dict=True)
        assert expected.prediction[0]
        assert ours.facts(ours.evidence(ids))["z"] == pytest.approx(float(expected.z_score[0]))


def check_drafts_and_company(llm, name, tmp_path):
    path, _ = scorer(*MARKS[name], tmp_path / name)
    params = SamplingParams(max_tokens=40, seed=0, watermark=MARKS[name][0], watermark_key=path)
    alone = llm.generate(PROMPTS[:1], params)[0].text
    beside = llm.generate([PROMPTS[0], *["The"] * 7], params)[0].text
    drafted = llm.generate(PROMPTS[:1], params.replaced(draft="ngram"))[0].text
    assert alone == beside == drafted, name


@draws_by_its_key
def test_drafts_and_company_change_no_marked_text(llm, tmp_path):
    check_drafts_and_company(llm, "gumbel", tmp_path)

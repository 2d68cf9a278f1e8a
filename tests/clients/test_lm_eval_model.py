"""gencli under lm-evaluation-harness gives the numbers of the harness's own backend."""

from importlib.util import find_spec
from types import SimpleNamespace

import pytest

from gencli.models.files.local_models import find_local

pytestmark = pytest.mark.skipif(find_spec("lm_eval") is None, reason="lm-eval is not installed")


PAIRS = [
    ("Brindle is", " a town."),
    ("Brindle is ", "Biscuit."),
    ("", "Once upon a time"),
    ("Question: Is Brindle a town?\nAnswer:", " yes"),
    # No pair begins as another and has one token more: the harness would give it the other's log-probability.
    ("One winter, a", " fox"),
]


TEXTS = ["Once upon a time, a kind fox named Clover lived in a house.", "Hello", "The baker " * 30 + "sat."]


@pytest.fixture(scope="module")
def models():
    from lm_eval.models.huggingface import HFLM

    from gencli.lm_eval import GencliLM

    own = GencliLM("tiny", max_length=64)
    folder = str(find_local("tiny"))
    theirs = HFLM(pretrained=folder, device="cpu", dtype="float32", max_length=64, batch_size=1)
    yield own, theirs
    own.llm.close()


def asked(*args):
    return SimpleNamespace(args=args)


def test_pairs_have_the_numbers_of_the_harness(models):
    own, theirs = (model.loglikelihood([asked(*pair) for pair in PAIRS]) for model in models)
    for (mine, greedy), (other, is_greedy) in zip(own, theirs, strict=True):
        assert mine == pytest.approx(other, abs=1e-4)
        assert greedy == is_greedy


def test_rolling_texts_have_the_numbers_of_the_harness(models):
    own, theirs = (model.loglikelihood_rolling([asked(text) for text in TEXTS]) for model in models)
    assert own == pytest.approx(theirs, abs=1e-3)


def test_greedy_texts_are_those_of_the_harness(models):
    wanted = {"until": ["."], "max_gen_toks": 12, "do_sample": False}
    requests = [asked(text, wanted) for text in TEXTS[:2]]
    own, theirs = (model.generate_until(requests) for model in models)
    assert own == theirs


def test_a_chat_and_the_length_of_a_prompt(models):
    own, theirs = models
    messages = [{"role": "user", "content": "Who owns Biscuit?"}]
    assert own.apply_chat_template(messages) == theirs.apply_chat_template(messages)
    (text,) = own.generate_until([asked(TEXTS[2] * 4, {"max_gen_toks": 5})])
    assert text


def test_a_whole_chain_is_evaluated():
    from gencli.lm_eval import GencliLM

    with_chain = GencliLM("tiny", temperature=0.9, seed=3, ban=[" fox"], max_batch=2)
    (text,) = with_chain.generate_until([asked("One winter, a", {"max_gen_toks": 8})])
    made = with_chain.llm.generate("One winter, a", temperature=0.9, seed=3, ban=[" fox"], max_tokens=8)
    assert text == made.text
    with_chain.llm.close()


def test_the_device_that_the_harness_has_by_default_may_be_missing():
    from gencli.lm_eval import GencliLM

    for given in [{}, {"device": "cpu"}]:
        harness = {"device": "cuda:0", "batch_size": 1}
        made = GencliLM.create_from_arg_obj({"pretrained": "fake", **given}, harness)
        assert made.llm.spec.vocab_size, given
        made.llm.close()

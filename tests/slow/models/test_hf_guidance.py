"""Guidance on real architectures is the library's own guidance_scale, whatever shares the step."""

from itertools import chain

import torch
import transformers as hf

from gencli.core.request import Guidance, Limits, Request
from gencli.engine.engine import Engine
from gencli.models.files.local_models import bundled_folder
from gencli.runtime.model_loading import ModelChoice, load
from gencli.runtime.wiring import load_amateurs
from gencli.speculative.drafter import NgramDrafter
from tests.models.guided import CASES, build, by_engine, by_library, engine, generated, request

REQUESTS = [request(case) for case in CASES]


def check_guidance(kind):
    """Texts and logits are those of the library, alone, in batches and with drafts."""
    model, expected = build(kind), {}
    for case in CASES:
        one = request(case)
        expected[one.id], scores = by_library(model, one)
        found, logits = by_engine(model, case)
        assert found == expected[one.id], case
        torch.testing.assert_close(logits.log_softmax(-1), scores.log_softmax(-1), atol=1e-4, rtol=0)
    assert len({*chain.from_iterable(expected.values())}) > 30  # varied enough to mean something
    for max_batch in (2, 8):
        found = generated(REQUESTS, engine(model, max_batch=max_batch, step_tokens=24))
        assert found == expected, max_batch
    for stages in ("", "temperature=0.7 | top_p=0.8 | repetition=1.2"):
        requests = [request(case, draw="gumbel", chain=stages) for case in CASES]
        drafted = generated(requests, engine(model, drafter=NgramDrafter()))
        assert drafted == generated(requests, engine(model)), stages


def test_texts_and_logits_are_those_of_the_library():
    check_guidance("llama")


def test_a_model_that_cannot_forget_is_guided_as_well():
    mamba = build("mamba")
    requests = [request(case, draw="gumbel") for case in CASES]
    alone = {one.id: generated([one], engine(mamba, max_batch=1))[one.id] for one in requests}
    assert generated(requests, engine(mamba, max_batch=4, step_tokens=24)) == alone


def test_a_contrast_is_the_formula_over_two_separate_models():
    choice = ModelChoice("tiny", dtype="float32", max_batch=2)
    tiny = load(choice)
    amateurs = load_amateurs("tiny-draft", tiny, choice)
    models = [
        hf.AutoModelForCausalLM.from_pretrained(bundled_folder(name), dtype=torch.float32).eval()
        for name in ("tiny", "tiny-draft")
    ]
    on = Engine(tiny.runner, tiny.tokenizer, amateurs=amateurs, max_batch=2)
    for beta, alpha in [(0.5, 0.1), (2.0, 0.3), (0.0, 0.2)]:
        ids = tuple(tiny.tokenizer.encode("Once upon a time"))
        guidance = Guidance(1 + beta, cutoff=alpha, amateur="tiny-draft")
        one = Request("a", ids, draw="greedy", guidance=guidance, limits=Limits(24))
        assert generated([one], on)["a"] == contrasted(models, ids, beta, alpha, tiny.tokenizer.eos_ids)


@torch.inference_mode()
def contrasted(models, prompt, beta, alpha, eos_ids):
    """Greedy ids by (1 + beta) expert - beta amateur, among what the expert finds plausible."""
    found = []
    while len(found) < 24 and not {*found} & {*eos_ids}:
        text = torch.tensor([[*prompt, *found]])
        expert, amateur = (model(text).logits[0, -1].log_softmax(-1) for model in models)
        score = (1 + beta) * expert - beta * amateur
        score[expert.exp() < alpha * expert.exp().max()] = -torch.inf
        found.append(score.argmax().item())
    return found

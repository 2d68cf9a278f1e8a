"""Scores beside a plain forward of transformers and beside generation itself."""

import pytest
import torch

from gencli.models.files.local_models import find_local
from gencli.scoring.text_scores import prefix_id
from tests.scoring.test_scorer import TEXT, llm

REGEX = "[A-Z][a-z]+( [a-z]+){3}[.]"


def test_a_text_has_the_numbers_of_a_plain_forward_of_transformers(llm):
    transformers = pytest.importorskip("transformers")
    model = transformers.AutoModelForCausalLM.from_pretrained(find_local("tiny"), dtype=torch.float32)
    score = llm.score(TEXT)
    ids = [prefix_id(llm.tokenizer, llm.spec.eos_ids), *(one.chosen.id for one in score.entries)]
    with torch.no_grad():
        table = model(torch.tensor([ids])).logits[0, :-1].double().log_softmax(-1)
    plain = table.gather(1, torch.tensor(ids[1:])[:, None]).squeeze(1).tolist()
    assert [one.chosen.logprob for one in score.entries] == pytest.approx(plain, abs=1e-5)


@pytest.mark.parametrize(
    "options",
    [
        {"repetition_penalty": 1.3, "frequency_penalty": 0.4, "temperature": 1.2, "top_p": 0.9},
        {"regex": REGEX, "grammar_backend": "llguidance"},
        {"guidance": 1.5, "negative": "A dog", "min_p": 0.01},
    ],
    ids=["penalties", "grammar", "guidance"],
)
def test_generated_ids_have_the_numbers_of_their_generation(llm, options):
    made = llm.generate("Once upon a time", seed=4, max_tokens=24, logprobs=2, **options)
    pair = llm.score(
        ("Once upon a time", made.text), mode="processed", top=2, seed=4, max_tokens=24, **options
    )
    count = len(pair.entries)  # a generated text may end with an end-of-text token, which is no part of it
    assert len(made.logprobs) - 1 <= count <= len(made.logprobs)
    assert [one.chosen.id for one in pair.entries] == [one.chosen.id for one in made.logprobs][:count]
    for mine, theirs in zip(pair.entries, made.logprobs, strict=False):
        assert mine.chosen.processed == pytest.approx(theirs.chosen.processed, abs=1e-5)
        assert mine.chosen.logprob == pytest.approx(theirs.chosen.logprob, abs=1e-5)
        assert mine.processed_rank == theirs.processed_rank

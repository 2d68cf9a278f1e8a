"""A CUDA device with too little memory: a clear end, and texts again when there is enough."""

import pytest
import torch

from gencli import LLM, SamplingParams
from gencli.errors import GencliError, ModelError
from tests.gpu.card import ON_A_CARD

pytestmark = [*ON_A_CARD, pytest.mark.filterwarnings("ignore::gencli.errors.GencliWarning")]
PARAMS = SamplingParams(max_tokens=64, seed=3, temperature=0.8, top_p=0.9)
PROMPTS = [f"Story {number}: Once upon a time " * 12 for number in range(48)]


@pytest.fixture
def limit():
    """Sets the bytes that this process may have on the device beside those that it has."""

    def leave(size):
        torch.cuda.empty_cache()
        total = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + size) / total)

    yield leave
    torch.cuda.set_per_process_memory_fraction(1.0)
    torch.cuda.empty_cache()


def outcome(llm):
    """The texts, None for one that ended with an error of ours, and the message if all did."""
    try:
        return [None if out.error else out.text for out in llm.generate(PROMPTS, PARAMS)], ""
    except GencliError as error:
        return [None] * len(PROMPTS), error.message


def test_with_too_little_memory_texts_end_right_or_with_an_error_and_then_go_on(limit):
    llm = LLM("tiny", device="cuda", dtype="float32", max_batch=48)
    expected, _ = outcome(llm)
    llm = LLM("tiny", device="cuda", dtype="float32", max_batch=48)
    for size in (64 << 20, 16 << 20, 4 << 20):
        limit(size)
        found, reason = outcome(llm)
        assert all(one in (None, text) for one, text in zip(found, expected, strict=True))
        assert not reason or "memory" in reason
    limit(1 << 30)
    assert outcome(llm) == (expected, "")


def test_a_model_that_does_not_fit_is_refused_by_name(limit):
    limit(1 << 20)
    with pytest.raises(ModelError, match="memory"):
        LLM("tiny", device="cuda", dtype="float32", memory_check="off")

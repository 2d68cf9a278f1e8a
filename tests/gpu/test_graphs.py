"""Graphs on a CUDA device: decode steps and choices are recorded there, and none of them fails to be."""

import pytest

from gencli import LLM, SamplingParams
from tests.gpu.card import ON_A_CARD

pytestmark = [*ON_A_CARD, pytest.mark.filterwarnings("ignore::gencli.errors.GencliWarning")]


@pytest.mark.parametrize("backend", ["native", "transformers"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_decode_steps_are_replayed(dtype, backend):
    llm = LLM("tiny", device="cuda", dtype=dtype, backend=backend, cuda_graphs="on", max_batch=4)
    params = SamplingParams(max_tokens=40, temperature=0.8, top_p=0.9, seed=1)
    llm.generate(["Once upon a time", "The fox", "A"], params)
    graphs = llm.spec.graphs
    assert graphs.num_replayed > 20
    assert not [notice for notice in llm.notices if "CUDA graph" in notice]
    assert 0 < graphs.nbytes < 2**30


def test_without_graphs_none_are_recorded():
    llm = LLM("tiny", device="cuda", cuda_graphs="off")
    llm.generate("Once upon a time", SamplingParams(max_tokens=8))
    assert llm.spec.graphs.num_recorded == 0

"""The token budget of a step leaves room for its temporary memory."""

import torch

from gencli.models.model_memory import plan_chunk, row_bytes
from gencli.models.model_runner import ModelSpec

GIB = 2**30


def spec(token_bytes: int) -> ModelSpec:
    """A model of 128k ids in bfloat16."""
    return ModelSpec("m", 2**17, 2**15, torch.device("cuda", 0), torch.bfloat16, token_bytes=token_bytes)


def test_a_step_takes_fewer_tokens_where_little_memory_is_free() -> None:
    model = spec(2**20)  # 512 tokens take half a GiB
    found = {free: plan_chunk(model, free * GIB // 4, rows=8, most=512) for free in (1, 2, 4, 8, 16, 100)}
    assert [*found.values()] == sorted(found.values())
    for free, tokens in found.items():
        if tokens > 64:
            step = tokens * 2**20 + 8 * row_bytes(2**17, torch.bfloat16)
            assert step <= 0.2 * free * GIB // 4 + 2**20
    assert (found[1], found[100]) == (64, 512)
    assert 64 < found[8] < 512


def test_every_sequence_still_decodes_and_an_unknown_model_keeps_the_default() -> None:
    assert plan_chunk(spec(2**20), 0, rows=100, most=512) == 200
    assert plan_chunk(spec(0), 0, rows=8, most=512) == 512
    assert plan_chunk(spec(2**20), None, rows=8, most=512) == 512

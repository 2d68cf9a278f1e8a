"""Long-rope models: a lane's own text decides on its rotary factors, not its chunks or neighbours."""

from __future__ import annotations

from typing import Any

import torch

from tests.models.loops import Job, decode
from tests.models.test_longrope import COUNT, PROMPTS, Case, case, jobs, model, texts
from tests.models.tiny_models import SWITCH


def test_fresh_passes_are_what_generate_does(model: Any, texts: list[list[int]]) -> None:
    """For Phi-3 and its relatives; generate() goes on with the keys of other factors for all other models."""
    for prompt, text in zip(PROMPTS, texts, strict=True):
        if len(prompt) + COUNT <= SWITCH or len(prompt) > SWITCH or model.config.model_type != "llama":
            ids = torch.tensor([prompt])
            mask = torch.ones_like(ids)
            whole = model.generate(ids, attention_mask=mask, do_sample=False, max_new_tokens=COUNT)
            assert whole[0, len(prompt) :].tolist() == text


def test_chunks_and_neighbours_change_nothing(case: Case, texts: list[list[int]]) -> None:
    for chunk in (5, 16, 10**6):
        runner = case.runner()
        assert decode(runner, jobs(), count=COUNT, chunk=chunk) == texts, chunk
        alone = [decode(runner, [Job(0, list(prompt))], count=COUNT, chunk=chunk)[0] for prompt in PROMPTS]
        assert alone == texts, chunk

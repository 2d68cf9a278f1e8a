"""Where Triton cannot launch a kernel its reference computes, on the tensors of the GPU."""

import torch

from processors.chain_end import Control, without_stages
from processors.kernels.choice import NUM_EDITS, Edit
from processors.kernels.choice.choose_rows import (
    all_facts_torch,
    block_weights_torch,
    draw_listed_torch,
    find_window_torch,
    invert_ids_torch,
    processed_logits_torch,
)
from processors.kernels.choice.tables import CAPACITY, patch_logits_torch
from processors.verification import rejection_torch
from tests.processors.kernels.drafts import MANY, case
from tests.sham import CUDA, sham_device


def choice(logits, controls, ids):
    """The tokens of rows that are truncated, and their processed logits, by the references alone."""
    rows, width = logits.shape
    edits = torch.zeros(rows, NUM_EDITS, dtype=torch.float64, device=logits.device)
    edits[:, Edit.SIZE] = width
    masks = torch.full((rows, (width + 31) // 32), -1, dtype=torch.int32, device=logits.device)
    listed, seen, drafts = ids[:, None], ids.repeat(rows, 2), ids[:, None][:, :0]
    history = seen, ids + 1, ids, ids, drafts, ids * 0
    patches = patch_logits_torch(logits, edits, masks, listed, None, *history)
    facts, levels, marks, tokens = all_facts_torch(logits, controls, True, patches)
    lists = torch.empty(rows, 2, CAPACITY, dtype=torch.int64, device=logits.device)
    tables = logits, controls, levels, facts, marks, lists
    draw_listed_torch(*tables, ids, ids, tokens, False, patches)
    find_window_torch(*tables, tokens, patches)
    draw_listed_torch(*tables, ids, ids, tokens, True, patches)
    weights = block_weights_torch(logits, controls, levels, marks, patches)
    invert_ids_torch(logits, controls, levels, marks, weights, ids, ids, tokens, patches)
    processed = processed_logits_torch(logits, controls, levels, marks, patches)
    return torch.cat([tokens[:, None], processed], 1)


def test_the_references_compute_on_a_gpu_as_on_a_cpu():
    line = without_stages()
    line[Control.TOP_K], line[Control.TOP_P], line[Control.HEAT_DRAW] = 20, 0.9, 1.0
    logits = torch.randn(3, 700, generator=torch.Generator().manual_seed(0))
    given = logits, torch.tensor([line] * 3, dtype=torch.float64), torch.arange(3)
    drafts = case(0, 600, MANY)
    here = choice(*given).tolist(), [one.tolist() for one in rejection_torch(*drafts)]
    with sham_device():
        there = choice(*(one.to(CUDA) for one in given)).tolist()
        found = rejection_torch(*(one.to(CUDA) for one in drafts))
        assert (there, [one.tolist() for one in found]) == here

"""What a choice takes beside the logits."""

import torch

from processors.kernels.choice import NUM_EDITS
from processors.kernels.choice.tables import (
    CAPACITY,
    Control,
    Fact,
    Level,
    Mark,
    num_values,
    patch_logits_torch,
)
from processors.sampler import BLOCK


def test_a_row_takes_less_than_its_logits_in_float32():
    for width in (32_000, 128_256):
        lists, facts = 2 * CAPACITY * 8, len(Fact) * -(-width // BLOCK) * 4
        tables = 8 * (len(Control) + len(Level) + len(Mark) + 3)
        assert lists + facts + tables < 4 * width, width


def test_masks_and_penalties_leave_it_so():
    """With 4,096 tokens of history, whose new logits take 8 bytes each."""
    for width in (32_000, 128_256):
        lists, facts = 2 * CAPACITY * 8, len(Fact) * -(-width // BLOCK) * 4
        history = torch.zeros(1, 4096, dtype=torch.int64)
        room = num_values(width, history[:, :0], history, history[:, :0])
        edits = torch.full((1, NUM_EDITS), 2.0**62, dtype=torch.float64)
        patches = patch_logits_torch(torch.zeros(1, width), edits)
        assert lists + facts + 4 * patches.numel() + 2 * 4 * room < 4 * width, width

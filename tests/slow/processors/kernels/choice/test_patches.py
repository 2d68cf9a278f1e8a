"""Patches give the logits behind masks, biases and penalties; kernels and PyTorch agree bit for bit."""

import torch

from processors.kernels.choice import Edit, Turn
from processors.kernels.choice.choose_rows import processed_logits_torch
from processors.kernels.choice.tables import num_words, patch_logits_torch, patched
from tests.interpreted import interpreted
from tests.processors.kernels.choice.cases import INF, controls_of, made, marked
from tests.processors.kernels.choice.test_patches import CASES, inputs

MODULE = "processors.kernels.choice.patches_triton"


def test_the_kernels_agree_on_each_edit():
    for name, kind in zip(CASES, 2 * ["normal", "whole numbers", "masked", "huge"], strict=True):
        check(name, kind, 700, ways=2)


def check(name, kind, width, ways=4):
    """The kernels make the patches of the references, with masks and lists or without, in so many ways."""
    edits = CASES[name]
    is_biased = bool((edits[:, Edit.TURNS :] == Turn.BIAS).any())
    logits, given = made(kind, 3, width), inputs(width, is_biased)
    logits[0, 5], logits[1, 6], logits[2, 1] = torch.nan, INF, INF
    masks = torch.randint(-(2**31), 2**31 - 1, (3, num_words(width)), dtype=torch.int32)
    for bits, named in ((masks, given), (None, ()), (None, given), (masks, ()))[:ways]:
        patches = interpreted(MODULE, "patch_logits_triton")(logits, edits, bits, *named)
        same = patch_logits_torch(logits, edits, bits, *named)
        assert patches.shape == same.shape, (name, kind, width)
        both = (patched(logits, one).nan_to_num(7) for one in (patches, same))
        assert torch.equal(*both), (name, kind, width)


def test_a_kernel_reads_logits_with_their_patches():
    for width in (31, 700, 4097):
        logits, edits = made("normal", 3, width), CASES["bias between penalties"]
        logits[0, 5] = torch.nan
        masks = torch.randint(-(2**31), 2**31 - 1, (3, num_words(width)), dtype=torch.int32)
        patches = patch_logits_torch(logits, edits, masks, *inputs(width, True))
        controls = controls_of(3, TOP_K=9)
        tables = controls, *marked(patched(logits, patches), controls), patches
        kernel = interpreted("processors.kernels.choice.processed_triton", "processed_logits_triton")
        found, same = kernel(logits, *tables), processed_logits_torch(logits, *tables)
        assert torch.equal(found.nan_to_num(7), same.nan_to_num(7)), width

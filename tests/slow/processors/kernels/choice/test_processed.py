"""The logits that a kernel writes are those behind the stages, bit for bit."""

import torch

from processors.kernels.choice.choose_rows import processed_logits_torch
from tests.interpreted import interpreted
from tests.processors.kernels.choice.cases import INF, KINDS, controls_of, made, marked

MODULE = "processors.kernels.choice.processed_triton"


CUTS = {"off": {}, "k": {"TOP_K": 7}, "raw": {"heat": 0, "TOP_P": 0.6}, "late": {"HEAT_CUT": 0, "MIN_P": 0.1}}


def test_the_kernel_agrees_on_each_kind_of_logits():
    for cut, kind in zip([*CUTS, *CUTS], KINDS, strict=False):
        check(cut, kind, (4, 4097) if kind == "normal" else (2, 513))


def check(cut, kind, shape):
    """The kernel writes what the reference does; three of four rows are not sound."""
    logits = made(kind, *shape)
    if len(logits) == 4:
        logits[0], logits[1, 7], logits[2, 9] = -INF, torch.nan, INF
    controls = controls_of(len(logits), **CUTS[cut])
    levels, marks = marked(logits, controls)
    found = interpreted(MODULE, "processed_logits_triton")(logits, controls, levels, marks)
    same = processed_logits_torch(logits, controls, levels, marks)
    assert torch.equal(found.nan_to_num(7.0), same.nan_to_num(7.0)), (cut, kind, shape)

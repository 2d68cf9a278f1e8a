"""A draw by inverse CDF in two kernels is the draw of the sampler."""

from itertools import product

import torch

from processors.kernels.choice.choose_rows import block_weights_torch, invert_ids_torch, kept
from processors.kernels.choice.tables import Control, patched
from processors.sampler import inverse_cdf
from processors.stages.scale import cool_
from processors.stages.shared import LOWEST
from tests.interpreted import interpreted
from tests.processors.kernels.choice.cases import INF, KINDS, SHAPES, controls_of, made, marked, patches_of

MODULE = "processors.kernels.choice.inverse_triton"


CUTS = {"off": {}, "k": {"TOP_K": 7}, "p": {"TOP_P": 0.8}, "raw": {"heat": 0, "MIN_P": 0.01}}


REFERENCES = (block_weights_torch, invert_ids_torch)


def kernels():
    return tuple(interpreted(MODULE, name) for name in ("block_weights_triton", "invert_ids_triton"))


def tokens_of(logits, controls, functions, patches=None):
    """Tokens of the rows by inverse CDF, -7 in the others, and what is kept of the logits."""
    weigh, invert = functions
    seeds, positions = torch.arange(len(logits)) * 7919, torch.arange(len(logits)) + 3
    levels, marks = marked(patched(logits, patches), controls)
    tokens = torch.full((len(logits),), -7)
    weights = weigh(logits, controls, levels, marks, patches)
    invert(logits, controls, levels, marks, weights, seeds, positions, tokens, patches)
    return tokens, kept(patched(logits, patches), controls, levels, marks)


def expected(logits, controls, is_kept):
    """The tokens of the sampler, from logits that the stages have processed."""
    seeds, positions = torch.arange(len(logits)) * 7919, torch.arange(len(logits)) + 3
    heat = controls[:, Control.HEAT_DRAW, None].float()
    peak = logits.amax(1, keepdim=True).clamp(min=LOWEST)
    cool = torch.where(heat > 0, cool_(logits.clone(), peak, torch.where(heat > 0, heat, 1)), logits)
    return inverse_cdf(cool.masked_fill(~is_kept, -INF), seeds, positions)


def test_tokens_are_those_of_the_sampler():
    for cut, kind, shape in product(CUTS, KINDS, (*SHAPES, (40, 700))):
        logits = made(kind, *shape)
        logits[:, 0] = logits[:, 0].clamp(min=-1e30)  # one is left
        controls = controls_of(len(logits), INVERSE=1, **CUTS[cut])
        found, is_kept = tokens_of(logits, controls, REFERENCES)
        assert torch.equal(found, expected(logits, controls, is_kept)), (cut, kind, shape)


def test_the_kernels_agree_on_each_kind_of_logits():
    for cut, kind in zip([*CUTS, *CUTS], KINDS, strict=False):
        check(cut, kind, (3, 1300))


def check(cut, kind, shape):
    """The kernels draw what the references do, in rows beside one with another draw."""
    logits = made(kind, *shape)
    controls = controls_of(len(logits), INVERSE=torch.arange(len(logits)) != 1, **CUTS[cut])
    found, _ = tokens_of(logits, controls, kernels())
    assert torch.equal(found, tokens_of(logits, controls, REFERENCES)[0]), (cut, kind, shape)


def test_a_draw_reads_logits_with_their_patches():
    logits = made("normal", 3, 1300)
    patches = patches_of(logits)
    for cut, functions in product(CUTS, (REFERENCES, kernels())):
        controls = controls_of(3, INVERSE=1, **CUTS[cut])
        found, is_kept = tokens_of(logits, controls, functions, patches)
        assert torch.equal(found, expected(patched(logits, patches), controls, is_kept)), cut


def test_failed_rows_keep_their_tokens():
    logits = torch.randn(3, 700)
    logits[0], logits[1, 7] = -INF, torch.nan
    for functions in (REFERENCES, kernels()):
        found, _ = tokens_of(logits, controls_of(3, INVERSE=1), functions)
        assert found[:2].tolist() == [-7, -7]
        assert found[2] >= 0

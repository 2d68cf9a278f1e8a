"""The kernels edit logits as PyTorch does, bit for bit."""

import pytest
import torch

from processors.kernels.choice.edits import NUM_EDITS, Edit, Listed, Turn, edit_facts_torch, edit_listed_torch
from processors.kernels.choice.parts import Fact
from tests.interpreted import interpreted
from tests.processors.kernels.choice.cases import INF, controls_of, made

MODULE = "processors.kernels.choice.edits_triton"
PROMPT, OUTPUT, BOTH, ALL = 0, 1, 2, 2.0**62


def edits_of(rows, size=ALL, early=0, **turns):
    """Edits of rows, in order; of each penalty its value, scope and window."""
    table = torch.zeros(rows, NUM_EDITS, dtype=torch.float64)
    table[:, Edit.SIZE], table[:, Edit.EARLY] = size, early
    for number, (name, values) in enumerate(turns.items()):
        table[:, Edit.TURNS + number] = Turn[name]
        if values:
            table[:, Edit[name] : Edit[name] + 3] = torch.tensor(values, dtype=torch.float64)
    return table


CASES = {
    "repetition": edits_of(3, REPETITION=(1.3, BOTH, ALL)),
    "frequency of the output": edits_of(3, FREQUENCY=(0.7, OUTPUT, ALL)),
    "presence in a window of the prompt": edits_of(3, PRESENCE=(0.5, PROMPT, 4)),
    "all": edits_of(3, 25, REPETITION=(0.8, BOTH, 9), FREQUENCY=(-0.3, BOTH, ALL), PRESENCE=(1, OUTPUT, 5)),
    "none": edits_of(3, 20),
    "bias": edits_of(3, BIAS=()),
    "bias between penalties": edits_of(3, PRESENCE=(1, BOTH, ALL), BIAS=(), REPETITION=(1.7, BOTH, 9)),
    "bias first": edits_of(3, 25, 30, BIAS=(), FREQUENCY=(0.2, BOTH, ALL), REPETITION=(0.6, OUTPUT, ALL)),
}


def inputs(width, is_biased):
    """Lists, values, tokens, lengths, prompts, slots, drafts and offsets of three rows."""
    torch.manual_seed(width)
    tokens = torch.randint(0, min(width + 2, 30), (5, 1400))
    spared = [[2, Listed.NO_REPETITION], [3, Listed.NO_FREQUENCY], [4, Listed.NO_PRESENCE]]
    masked = [[1, Listed.MASKED], [7, Listed.FIRST], [8, Listed.EARLY]]
    biased = [[one, Listed.BIASED] for one in (1, 2, 5, 6, 8, 9, 10, 30)]
    entries = [id_ + (int(bits) << 32) for id_, bits in (*spared, *masked, *(biased if is_biased else []))]
    lists = torch.tensor([*entries, -1]).expand(3, -1).clone()
    lists[1] = -1
    values = torch.randn(lists.shape, dtype=torch.float64)
    values[:, -4] = -INF
    return (
        lists,
        values if is_biased else None,
        tokens,
        torch.tensor([9, 40, 1300, 0, 7]),
        torch.tensor([4, 40, 600, 0, 0]),
        torch.tensor([2, 0, 4]),
        torch.randint(0, 9, (2, 3)).T,
        torch.tensor([0, 2, 1]),
    )


@pytest.mark.parametrize("edits", CASES.values(), ids=CASES)
@pytest.mark.parametrize("kind", ["normal", "whole numbers", "masked", "huge"])
@pytest.mark.parametrize("width", [31, 700])
def test_the_kernels_agree(edits, kind, width):
    is_biased = bool((edits[:, Edit.TURNS :] == Turn.BIAS).any())
    logits, controls, given = made(kind, 3, width), controls_of(3), inputs(width, is_biased)
    logits[0, 5], logits[1, 6], logits[2, 1] = torch.nan, INF, INF
    masks = torch.randint(-(2**31), 2**31 - 1, (3, (width + 31) // 32), dtype=torch.int32)
    work, same = torch.zeros(3, width), torch.zeros(3, width)
    edit_listed_torch(logits, edits, *given, same)
    interpreted(MODULE, "edit_listed_triton")(logits, edits, *given, work)
    assert torch.equal(work.nan_to_num(7), same.nan_to_num(7))
    for bits, is_listed in ((masks, True), (None, True), (masks, False), (None, False)):
        mine, theirs = work.clone(), work.clone()
        facts = interpreted(MODULE, "edit_facts_triton")(logits, controls, edits, bits, mine, is_listed)
        others = edit_facts_torch(logits, controls, edits, bits, theirs, is_listed)
        assert torch.equal(mine.nan_to_num(7), theirs.nan_to_num(7))
        assert torch.equal(facts[:, Fact.TOP].nan_to_num(7), others[:, Fact.TOP].nan_to_num(7))

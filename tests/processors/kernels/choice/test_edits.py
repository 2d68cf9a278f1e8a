"""The kernels edit logits as PyTorch does, bit for bit."""

import pytest
import torch

from processors.kernels.choice.edits import NUM_EDITS, Edit, Listed, edit_facts_torch, edit_listed_torch
from processors.kernels.choice.parts import Fact
from tests.interpreted import interpreted
from tests.processors.kernels.choice.cases import INF, controls_of, made

MODULE = "processors.kernels.choice.edits_triton"
PROMPT, OUTPUT, BOTH, ALL = 0, 1, 2, 2.0**62


def edits_of(rows, size=ALL, **penalties):
    """Edits of rows; of each penalty its value, scope and window."""
    table = torch.zeros(rows, NUM_EDITS, dtype=torch.float64)
    table[:, Edit.SIZE] = size
    for name, values in penalties.items():
        table[:, Edit[name] : Edit[name] + 3] = torch.tensor(values, dtype=torch.float64)
    return table


CASES = {
    "repetition": edits_of(3, REPETITION=(1.3, BOTH, ALL)),
    "frequency of the output": edits_of(3, FREQUENCY=(0.7, OUTPUT, ALL)),
    "presence in a window of the prompt": edits_of(3, PRESENCE=(0.5, PROMPT, 4)),
    "all": edits_of(3, 25, REPETITION=(0.8, BOTH, 9), FREQUENCY=(-0.3, BOTH, ALL), PRESENCE=(1, OUTPUT, 5)),
    "none": edits_of(3, 20),
}


def inputs(width):
    """Lists, tokens, lengths, prompts and slots of three rows; tokens are often equal."""
    torch.manual_seed(width)
    tokens = torch.randint(0, min(width + 2, 30), (5, 1400))
    entry = [[2, Listed.NO_REPETITION], [3, Listed.NO_FREQUENCY], [4, Listed.NO_PRESENCE], [1, Listed.MASKED]]
    lists = torch.tensor([id_ + (int(bits) << 32) for id_, bits in entry] + [-1]).expand(3, -1).clone()
    lists[1] = -1
    return (
        lists,
        tokens,
        torch.tensor([9, 40, 1300, 0, 7]),
        torch.tensor([4, 40, 600, 0, 0]),
        torch.tensor([2, 0, 4]),
    )


@pytest.mark.parametrize("edits", CASES.values(), ids=CASES)
@pytest.mark.parametrize("kind", ["normal", "whole numbers", "masked", "huge"])
@pytest.mark.parametrize("width", [31, 700])
def test_the_kernels_agree(edits, kind, width):
    logits, controls, given = made(kind, 3, width), controls_of(3), inputs(width)
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

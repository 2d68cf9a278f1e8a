"""Patches give the logits behind masks, biases and penalties; kernels and PyTorch agree bit for bit."""

import torch

from processors.kernels.choice import NUM_EDITS, Edit, Listed, Turn
from processors.kernels.choice.tables import patch_logits_torch, patched
from tests.processors.kernels.choice.cases import INF

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


def test_a_value_takes_its_id_and_no_more():
    patches = patch_logits_torch(torch.zeros(3, 700), CASES["bias"], None, *inputs(700, True))
    new = patched(torch.zeros(3, 700), patches)
    assert new[0, [1, 2, 5, 6, 9]].ne(0).all()
    assert new[0, [0, 3, 4, 11, 699]].eq(0).all()
    assert new[1].eq(0).all()

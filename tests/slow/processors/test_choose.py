"""The fused tail of a chain chooses the tokens that its stages and the draw choose, one after the other."""

from collections import Counter

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from processors.chooser import Chooser
from tests.processors.random_chains import KINDS, admitted, peaked, random_cases
from tests.processors.test_choose import compare


def test_random_chains_over_all_kinds_of_logits():
    for kind in KINDS:
        for case in random_cases(kind, 40, mixed=0.3):
            compare(*case)


class Counting(TorchDispatchMode):
    """Counts operations, and the tensors as large as the logits that they make."""

    def __init__(self, size):
        super().__init__()
        self.size, self.calls, self.large = size, Counter(), Counter()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        name = str(function).split(".")[1]
        self.calls[name] += name not in VIEWS
        mine = {x.untyped_storage().data_ptr() for x in args if isinstance(x, torch.Tensor)}
        if isinstance(result, torch.Tensor) and result.untyped_storage().nbytes() >= self.size:
            self.large[name] += result.untyped_storage().data_ptr() not in mine
        return result


VIEWS = {"slice", "view", "unsqueeze", "squeeze", "select", "detach", "resolve_conj", "resolve_neg", "unfold",
         "lift_fresh", "expand", "_to_copy", "to", "alias", "as_strided"}  # fmt: skip


# PyTorch operations for 8 rows, and copies made of the logits, by chain. Raise one only for a reason.
COSTS = {
    "temperature=0.8": (13, 0),
    "temperature=0.8 | min_p=0.05": (11, 0),
    "temperature=0.8 | top_p=0.9": (21, 0),
    "repetition=1.1 | temperature=0.8 | top_k=50 | top_p=0.9": (21, 1),
}


@pytest.mark.skipif(not torch.__version__.startswith("2.13"), reason="the table was made with PyTorch 2.13")
def test_a_draw_takes_no_more_operations_and_copies_than_the_table_says():
    logits = peaked(torch.randn(8, 128_256, generator=torch.Generator().manual_seed(1)), None)
    for chain, costs in COSTS.items():
        pipeline, sampler, rows = admitted([chain] * 8, logits.shape[1])
        choose = Chooser(pipeline, sampler)
        choose(logits, rows)
        with Counting(4 * logits.numel()) as seen:
            choose(logits, rows)
        assert (seen.calls.total(), seen.large.total()) == costs, chain

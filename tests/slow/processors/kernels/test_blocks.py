"""What is found by blocks is what is found by looking at every logit."""

import math
from itertools import product

import torch

from processors.kernels.operations import drop_below
from tests.processors.kernels.test_blocks import INF, WIDTHS, logits_of


def test_what_is_below_or_one_too_many_is_masked_and_the_lowest_ids_stay():
    for width, threshold, room in product(WIDTHS, (-2.0, 6.0, 9.0), (None, (1, 2, 30, 99_999, 0))):
        logits = logits_of(5, width, 0.9, tied=True)
        logits[2, 3], logits[3] = math.nan, -INF
        limit = torch.full((5, 1), threshold)
        out = drop_below(logits.clone(), limit, None if room is None else torch.tensor(room)[:, None])
        for row, before in enumerate(logits.tolist()):
            left = math.inf if room is None else room[row]
            for id_, value in enumerate(before):
                if value == threshold:
                    left -= 1
                if value < threshold or (value == threshold and left < 0):
                    before[id_] = -INF
            assert str(out[row].tolist()) == str(before), (width, threshold, room)

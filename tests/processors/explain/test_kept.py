"""Kept logits have the row's values for the ids that they name, and its probabilities."""

import math

import torch

from processors.explain_rows import KeptLogits

ROW = torch.randn(500, generator=torch.Generator().manual_seed(0)) * 3


def test_both_rows_have_the_kept_values_and_the_probability_of_the_others():
    for count in (1, 20, 499):
        kept = KeptLogits.of(ROW, count, seed=1)
        best = ROW.topk(count).indices
        assert set(kept.ids.tolist()) == set(best.tolist()), count
        for row in kept.rows():
            assert torch.equal(row[best], ROW[best]), count
            assert torch.allclose(row.softmax(0)[best], ROW.softmax(0)[best], rtol=1e-5), count
            assert row[kept.ids].min() >= row.index_fill(0, kept.ids, -math.inf).max() - 1e-5, count


def test_a_row_that_is_kept_whole_is_the_row():
    kept = KeptLogits.of(ROW, 500, seed=1)
    assert all(torch.equal(row, ROW) for row in kept.rows())


def test_the_first_of_equal_logits_is_kept_and_masked_ones_have_no_probability():
    kept = KeptLogits.of(torch.tensor([0.0, 1.0, 1.0, -torch.inf]), 1, seed=1)
    assert kept.ids.tolist() == [1]
    masked = KeptLogits.of(torch.tensor([0.0, -torch.inf, 1.0, -torch.inf]), 2, seed=1)
    assert masked.rows().tolist() == [[0.0, -torch.inf, 1.0, -torch.inf]] * 2

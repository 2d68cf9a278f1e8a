"""synthid changes probabilities as transformers does, call for call, and revives no masked token."""

import torch

from tests.processors.stages.test_synthid import WIDTH, both


def test_probabilities_are_those_of_transformers():
    for settings in [{}, {"skip_first_ngram_calls": True}, {"history": 2}, {"table_size": 64}]:
        generator = torch.Generator().manual_seed(1)
        logits = 3 * torch.randn(14, 2, WIDTH, generator=generator)
        ids = torch.tensor(
            [[9, 1, 2, 3, 1, 2, 3, 1, 2, 5, 5, 5, 5, 0], [9, 0, 0, 0, 7, 8, 7, 8, 7, 8, 7, 6, 5, 4]]
        )
        plain = 0
        for (ours, theirs), row in zip(both(logits, ids, **settings), logits, strict=True):
            torch.testing.assert_close(ours.softmax(-1), theirs.softmax(-1), rtol=2e-5, atol=1e-7)
            plain += int((ours == row).all(-1).sum())
            assert (theirs == row).all(-1).tolist() == (ours == row).all(-1).tolist(), (
                "marked in the same steps"
            )
        assert plain > 0, settings

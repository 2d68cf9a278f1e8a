"""Logits of draft heads equal those of references without a cache, however the text was fed."""

import pytest
import torch

from tests.speculative.head_cases import KINDS, SHAPE, Drafts, admit

TEXT = torch.randint(0, SHAPE.vocab, (45,), generator=torch.Generator().manual_seed(3)).tolist()
PATH = [5, 77, 11]


@pytest.mark.parametrize("kind", KINDS)
def test_logits_equal_the_reference_however_the_text_was_fed(kind, tmp_path):
    drafts, known = Drafts.of(kind, tmp_path), len(TEXT) - 1
    path = PATH[: drafts.depth - 1]
    admit(drafts.drafter, 0, 1)
    drafts.feed([(0, TEXT, 0, known)])
    for start, end in ((0, 1), (1, 20), (20, 21), (21, known)):
        drafts.feed([(1, TEXT, start, end)])
    found, wanted = drafts.logits(dict.fromkeys((0, 1), (TEXT, path))), drafts.expected(TEXT, path)
    for logits in found.values():
        torch.testing.assert_close(logits, wanted, rtol=1e-5, atol=1e-5)

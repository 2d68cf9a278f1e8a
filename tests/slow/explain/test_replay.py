"""A chain on kept logits is the chain on all logits; which token a text names."""

from dataclasses import replace

import torch

from processors.explain_rows import KeptLogits
from tests.explain.test_replay import CHAIN, explained, replayed


def test_another_chain_on_few_logits_is_exact_where_it_says_so():
    one, whole, env = explained(CHAIN, 10_000)
    few = [replace(view, kept=KeptLogits.of(view.kept.values, 12, view.kept.seed)) for view in whole]
    said = set()
    for chain in ("temperature=0.7 | top_k=8", "top_p=0.7", "min_p=0.1", "temperature=1.5 | top_p=0.9"):
        pairs = zip(replayed(chain, one, few, env), replayed(chain, one, whole, env), strict=True)
        for (look, _), (right, _) in pairs:
            said.add(look.is_exact)
            if look.is_exact:
                assert look.token == right.token
                assert torch.allclose(look.logits.softmax(0), right.logits.softmax(0), atol=1e-5)
    assert said == {True, False}

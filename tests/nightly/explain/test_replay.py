"""A chain on kept logits is the chain on all logits; which token a text names."""

from dataclasses import replace

from tests.explain.test_replay import CHAIN, explained, replayed

STATES = [
    "mirostat:version=2,tau=3",
    "dry=0.8 | temperature=1.5 | xtc:probability=0.5,threshold=0.05 | top_k=9",
]


def test_the_same_chain_chooses_the_text_again():
    for keep in [40, 10_000]:
        for chain in [CHAIN, *STATES]:
            for draw in ["gumbel", "multinomial"]:
                one, views, env = explained(chain, keep, draw=draw)
                for view, (look, again) in zip(views, replayed(chain, one, views, env), strict=True):
                    assert look.token == view.token or not look.is_exact, (keep, chain, draw)
                    if keep == 10_000:
                        assert look.is_exact, (keep, chain, draw)
                        assert again == replace(view, kept=None), (keep, chain, draw)

"""synthid changes probabilities as transformers does, call for call, and revives no masked token."""

import torch
from transformers.generation import SynthIDTextWatermarkLogitsProcessor

from processors.chain import Chain
from processors.stages.watermarks import SynthIdParams
from processors.standalone import LogitsProcessor

WIDTH = 400


KEYS = [654, 400, 836, 123, 340, 443, 597, 160, 57, 29, 590, 639, 13, 715, 468]


def both(logits, ids, history=1024, table_size=65536, **settings):
    """Processed logits of each step: ours, and those of transformers."""
    theirs = SynthIDTextWatermarkLogitsProcessor(
        ngram_len=3, keys=KEYS, sampling_table_size=table_size, sampling_table_seed=5,
        context_history_size=history, device=torch.device("cpu"), **settings,
    )  # fmt: skip
    params = SynthIdParams(
        KEYS, ngram=3, table_seed=5, table_size=table_size, history=history,
        skip_first=settings.get("skip_first_ngram_calls", False),
    )  # fmt: skip
    ours = LogitsProcessor(Chain((("synthid", params),)))
    for step, row in enumerate(logits):
        seen = ids[:, : step + 1]
        yield ours(seen, row), theirs(seen, row.clone())


def test_a_masked_token_stays_masked_where_transformers_revives_it():
    logits = torch.randn(1, 1, WIDTH)
    logits[..., ::2] = -torch.inf
    ((ours, theirs),) = both(logits, torch.tensor([[9]]))
    assert ours.isneginf().equal(logits[0].isneginf())
    assert not theirs.isneginf().any()
    torch.testing.assert_close(ours.softmax(-1), theirs.softmax(-1), rtol=2e-5, atol=1e-7)


def test_few_and_many_finite_logits_give_the_same_bits():
    for table_size in [65536, 64]:
        params = SynthIdParams(KEYS, table_size=table_size)
        logits = torch.randn(1, WIDTH).masked_fill(torch.arange(WIDTH) % 20 > 0, -torch.inf)
        alone = LogitsProcessor(Chain((("synthid", params),)))(torch.tensor([[1]]), logits)
        beside = LogitsProcessor(Chain((("synthid", params),)))(
            torch.tensor([[1]] * 9), torch.cat([logits, torch.randn(8, WIDTH)])
        )
        assert torch.equal(alone[0], beside[0]), table_size

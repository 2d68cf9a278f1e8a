"""Hashes and bits are those of transformers."""

import torch
from transformers.generation import SynthIDTextWatermarkLogitsProcessor

from processors.rng import Tournament
from processors.stages.watermarks import SynthIdParams

KEYS = [654, 400, 836, 123, 340, 443, 597, 160, 57, 2**62 + 1, 0, 7]


def test_bits_are_the_g_values_of_transformers():
    for ngram, size, seed in [(5, 65536, 0), (2, 64, 12), (4, 2**20, 2**40)]:
        theirs = SynthIDTextWatermarkLogitsProcessor(
            ngram_len=ngram, keys=KEYS, sampling_table_size=size, sampling_table_seed=seed,
            context_history_size=1024, device=torch.device("cpu"),
        )  # fmt: skip
        params = SynthIdParams(KEYS, ngram=ngram, table_size=size, table_seed=seed)
        ours = Tournament(params, torch.device("cpu"))
        ids = torch.randint(0, 200_000, (1, 300), generator=torch.Generator().manual_seed(seed))
        grams = ids[0].unfold(0, ngram, 1)
        bits = ours.bits(ours.hashed(grams[:, :-1]), grams[:, -1])[:, None] >> torch.arange(len(KEYS)) & 1
        assert torch.equal(bits, theirs.compute_g_values(ids)[0]), ngram

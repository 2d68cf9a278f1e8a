"""Kernels that the verification of a step's drafts launches on a GPU, by policy."""

import torch

from processors.base import Admission, Env
from processors.chain import Chain
from processors.chooser import Chooser
from processors.history import History
from processors.pipeline import Pipeline
from processors.request_values import Verification
from processors.rows import Rows
from processors.sampler import Sampler
from processors.verification import Proposal, Verifier
from tests.sham import CUDA, sham_device

WIDTH, REQUESTS, DRAFTS = 8192, 8, 4


def launched(policy, *, is_drawn=True, chain=""):
    """What verifying the same drafts launches on the sham device; the host waits for none of it.

    With a chain the logits are those of the model, and its stages count too.
    """
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(REQUESTS * (DRAFTS + 1), WIDTH, generator=generator)
    source = torch.randn(REQUESTS * DRAFTS, WIDTH, generator=generator)
    tokens = source.softmax(-1).multinomial(1, generator=generator)
    chances = source.softmax(-1).gather(1, tokens).squeeze(1)
    drafts = tokens.view(REQUESTS, DRAFTS).tolist()
    with sham_device() as seen:
        history, sampler = History(slots=REQUESTS, device=CUDA), Sampler()
        verifier, pipeline = Verifier(sampler), Pipeline(Env(WIDTH, device=CUDA))
        for slot in range(REQUESTS):
            history.admit(slot, [7], seed=slot)
            sampler.admit(slot, "gumbel")
            verifier.admit(slot, Verification(policy))
            pipeline.admit(slot, Chain.parse(chain).active(), Admission((7,)))
        rows = Rows.build(history, range(REQUESTS), drafts)
        told = Proposal(source.to(CUDA), (is_drawn,) * len(source), chances.to(CUDA)) if is_drawn else None
        logits, tokens, chooser = logits.to(CUDA), None, Chooser(pipeline, sampler)
        seen.clear()
        if chain:
            logits, tokens = chooser.process(logits, rows, reads=verifier.reads(rows))
        verifier(logits, rows, told, tokens)
        assert not seen.waits
        return seen.launches


def test_rejection_decides_and_replaces_in_one_launch():
    for is_drawn in (True, False):
        found = launched("rejection", is_drawn=is_drawn)
        assert found["rejection"] == 1, is_drawn
        assert not found["token_probability"], is_drawn

"""On CUDA masks and penalties are one kernel; the logits are those of the stages, bit for bit."""

import random

import torch

from processors.base import Admission, Env
from processors.chain import Chain
from processors.choose_on_device import DeviceChoice
from processors.history import History
from processors.kernels.choice.tables import patch_logits, patched
from processors.pipeline import Pipeline
from processors.rows import Rows
from processors.sampler import Sampler


def step(chains, width, draw="gumbel", drafts=()):
    """A pipeline, a sampler and rows that see a prompt and some output, of ids that are often equal."""
    generator = random.Random(width)
    pipeline, sampler, history = Pipeline(Env(width, eos_ids=(0,))), Sampler(), History(slots=len(chains))
    for slot, chain in enumerate(chains):
        prompt = tuple(generator.randrange(min(width, 12)) for _ in range(5 + slot))
        history.admit(slot, prompt, seed=99 * slot)
        pipeline.admit(slot, Chain.parse(chain).active(), Admission(prompt))
        sampler.admit(slot, draw)
        history.append([slot], [[generator.randrange(min(width, 12)) for _ in range(3 * slot)]])
    return pipeline, sampler, Rows.build(history, range(len(chains)), drafts)


def compare(chains, logits, drafts=()):
    """The edited logits, where kernels know the whole chain before its end, and the tokens."""
    pipeline, sampler, rows = step(chains, logits.shape[1], drafts=drafts)
    choose = DeviceChoice(pipeline, sampler)
    expected = pipeline(logits, rows)
    assert torch.equal(choose(logits, rows), sampler(expected, rows)), chains
    plan = choose._plans.of(rows)
    assert not plan.head or any("slope" in chain for chain in chains)
    if plan.edits and not plan.head:
        found = patched(logits, patch_logits(logits, *plan.edits.inputs(rows)))
        same = pipeline.run(plan.before, logits, rows)
        sound = same.amax(1) < torch.inf  # of failed rows only the fault counts
        assert torch.equal(found[sound], same[sound])


def test_a_fault_at_a_masked_id_is_seen():
    logits = torch.randn(2, 300)
    logits[0, 2], logits[1, 250] = torch.nan, torch.inf
    compare(["suppress=[2] | repetition=1.1", "tail=200 | repetition=1.1"], logits)


def test_rows_with_drafts_see_them():
    drafts = [(3, 3, 5), (), (1,)]
    logits = 3 * torch.randn(7, 300, generator=torch.Generator().manual_seed(1))
    chains = [
        "repetition=1.3 | frequency=0.7 | temperature=0.8",
        "presence=0.5 | top_k=9",
        'min_tokens=7 | presence:penalty=1,window=3 | bias={"3": 2} | repetition=0.8',
    ]
    compare(chains, logits, drafts)


def test_long_lists_of_masked_ids_are_bits():
    logits = 3 * torch.randn(3, 1000, generator=torch.Generator().manual_seed(2))
    chains = [f"suppress={[*range(20, 700)]} | presence=1", "allowed=[3,5,700,999]", "repetition=1.2"]
    compare(chains, logits)

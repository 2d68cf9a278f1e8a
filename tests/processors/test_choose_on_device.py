"""On CUDA the end of a chain is a few kernels; their tokens are those of the stages and the sampler."""

import torch

from processors.base import Admission
from processors.chain import Chain
from processors.choose_on_device import DeviceChoice, Plans
from processors.rows import Rows
from processors.sampler import NON_FINITE
from tests.processors.random_chains import admitted

ORDERS = (
    "top_p=0.9 | temperature=0.7",
    "top_k=20 | top_p=0.7 | temperature=3",
    "top_p=0.8 | min_p=0.1 | top_k=30 | temperature=0.9",
    "temperature=0.8 | top_p=0.6 | top_k:k=40,ties=keep",
    "top_p=0.9 | temperature=0.5 | top_k=9",
    "top_p:p=0.8,boundary=exclusive | min_p=0.2",
)


def test_a_slot_that_is_admitted_again_has_its_new_values():
    logits = 3 * torch.randn(1, 5000)
    pipeline, sampler, rows = admitted(["top_k=1"], 5000)
    choose = DeviceChoice(pipeline, sampler)
    assert choose(logits, rows) == logits.argmax()
    pipeline.admit(0, Chain.parse("temperature=50 | top_k=400"), Admission((1,)))
    assert torch.equal(choose(logits, rows), sampler(pipeline(logits, rows), rows))


def test_how_a_row_is_computed_does_not_depend_on_the_rows_beside_it():
    chains = [
        *ORDERS,
        "repetition=1.2 | top_k:k=9,keep=20 | temperature=0.7",
        "typical=0.8 | presence=1 | top_p=0.9",
        "presence=1 | top_k=5 | frequency=0.5 | temperature=0.8",
        "allowed=[3,4] | min_p=0.1",
        "",
    ]
    draws = [("gumbel", "multinomial", "greedy")[place % 3] for place in range(len(chains))]
    pipeline, sampler, rows = admitted(chains, 300, draws)
    whole = Plans(pipeline, sampler).of(rows)
    for slot in range(len(chains)):
        own = Plans(pipeline, sampler).of(Rows.build(rows.history, [slot]))
        stages = [call.stage for call in whole.head if call.places is None or slot in call.places]
        assert stages == [call.stage for call in own.head]
        assert torch.equal(whole.controls[slot], own.controls[0])
        if own.edits:
            assert torch.equal(whole.edits.edits[slot], own.edits.edits[0])


def test_a_fault_is_seen_where_the_stage_that_looked_for_it_is_fused():
    pipeline, sampler, rows = admitted(["tail=250 | temperature=0.8", "allowed=[1,2] | typical=0.9"], 300)
    logits = torch.randn(2, 300)
    logits[:, 7] = torch.nan
    assert DeviceChoice(pipeline, sampler)(logits, rows).tolist() == [NON_FINITE] * 2

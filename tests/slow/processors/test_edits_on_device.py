"""On CUDA masks and penalties are one kernel; the logits are those of the stages, bit for bit."""

import random

import torch

from tests.processors.random_chains import KINDS
from tests.processors.test_edits_on_device import compare

PARTS = (
    ("", "tail=50", "suppress=[1,2,3]", "tail=60 | ignore_eos=true", "allowed=[1,2,3,4,5,6,7,8,9]",
     "begin_suppress=[4,5] | min_tokens=4"),
    ("", "", 'bias={"3": 2}', 'bias={"1": -1.5, "2": -Infinity, "6": 3, "40": 1}'),
    ("", "repetition=1.3", "repetition:penalty=0.7,scope=output", "repetition:penalty=2,window=3,exempt=[5]",
     "repetition:penalty=1.5,slope=0.5"),
    ("", "frequency=0.7", "frequency:penalty=-1.1,scope=both,exempt=[3,4]",
     "frequency:penalty=2,scope=prompt"),
    ("", "presence=0.6", "presence:penalty=1,scope=both,window=4"),
    ("", "temperature=0.8", "temperature=1.5 | top_k=5", "top_p=0.8"),
)  # fmt: skip


def test_random_chains_over_all_kinds_of_logits():
    for kind in KINDS:
        compare_random(kind, 5)


def compare_random(kind, count):
    draw, generator = random.Random(kind), torch.Generator().manual_seed(len(kind))
    for _ in range(count):
        rows, width = draw.choice((1, 2, 5)), draw.choice((64, 300, 5000))
        logits = KINDS[kind](torch.randn(rows, width, generator=generator), generator)
        chains = [[*filter(None, map(draw.choice, PARTS))] for _ in range(rows)]
        for chain in chains:
            edits = [part for part in chain if not part.startswith(("tem", "top"))]
            if draw.random() < 0.5:  # another order; with another end it would not be fused
                chain[: len(edits)] = draw.sample(edits, len(edits))
        compare([" | ".join(chain) for chain in chains], logits)

"""Trace the effect of each stage on one row of logits."""

import torch

from processors import Chain, Env, History, Pipeline, Rows
from processors.base import Admission
from processors.pipeline import trace

chain = Chain.parse("suppress=[0] | repetition=1.3 | temperature=0.7 | min_p=0.05 | top_p=0.9")
history = History()
history.admit(0, [3, 5, 3])
pipeline = Pipeline(Env(vocab_size=50))
pipeline.admit(0, chain, Admission())
logits = 3 * torch.randn(1, 50, generator=torch.Generator().manual_seed(0))

records, undo = trace(pipeline)
pipeline(logits, Rows.build(history, [0]))
undo()
for record in records:
    before, after = int(record.survivors_before[0]), int(record.survivors_after[0])
    mass, top = float(record.mass_kept[0]), int(record.top_after[0])
    print(f"{record.stage:12} keeps {after:2} of {before} ids and {mass:6.1%} of the mass; top id {top}")

"""Your own stage without a model: one tensor operation for all rows of the batch."""

from dataclasses import dataclass
from typing import ClassVar

import torch

from processors import Chain, Env, History, Params, Phase, Pipeline, Processor, Registry, Rows, param
from processors.base import Admission
from processors.catalog import BUILTIN


@dataclass(frozen=True, slots=True)
class EvenParams(Params):
    """Keep multiples of a number."""

    every: int = param(0, "Keep ids that are multiples of this number; 0 is off.", ge=0)


class Even(Processor[EvenParams]):
    """Masks every id that `every` does not divide."""

    name: ClassVar[str] = "even"
    phase: ClassVar[Phase] = Phase.CONSTRAIN
    Params: ClassVar[type[Params]] = EvenParams

    def apply(self, logits: torch.Tensor, rows: Rows) -> torch.Tensor:
        every = self.columns.gather("every", rows)[:, None]  # [A, 1]
        ids = torch.arange(logits.shape[1])
        return logits.masked_fill(ids % every != 0, -torch.inf)


registry = Registry(BUILTIN)
registry.register(Even)
pipeline = Pipeline(Env(vocab_size=8), registry)
history = History()
for slot, chain in enumerate(["even=2", "even=3 | temperature=0.5", ""]):
    history.admit(slot, [1])
    pipeline.admit(slot, Chain.parse(chain, registry), Admission())
print(pipeline(torch.arange(8.0).expand(3, 8), Rows.build(history, [0, 1, 2])))

"""Check your own stages with the contract kit: a correct one, and one that ignores draft tokens."""

from dataclasses import dataclass

import torch

from processors import Params, Phase, Processor, Rows, param
from processors.testing import check_stage


@dataclass(frozen=True, slots=True)
class FadeParams(Params):
    """Lower the first id a little more with each token."""

    by: float = param(0.0, "Subtracted from the logit of id 0 for each token of the output.")


class Fade(Processor[FadeParams]):
    name = "fade"
    phase = Phase.ADJUST
    Params = FadeParams

    def generated(self, rows: Rows) -> torch.Tensor:
        return rows.positions  # committed tokens and visible drafts

    def apply(self, logits: torch.Tensor, rows: Rows) -> torch.Tensor:
        logits[:, 0] -= (self.columns.gather("by", rows) * self.generated(rows)).float()
        return logits


class ForgetsDrafts(Fade):
    def generated(self, rows: Rows) -> torch.Tensor:
        return rows.positions - rows.offsets


for stage in (Fade, ForgetsDrafts):
    failed = [result for result in check_stage(stage) if not result.passed]
    print(f"{stage.__name__}: {'sound' if not failed else ''}")
    for result in failed:
        print(f"  {result.name}: {result.detail}")

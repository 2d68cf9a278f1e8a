"""A stage that limits runs of one token, such as !!!!!!!! or rows of dashes."""

from dataclasses import dataclass

import torch

from processors import Params, Phase, Processor, Rows, param

__all__ = ["MaxRun", "MaxRunParams"]


@dataclass(frozen=True, slots=True)
class MaxRunParams(Params):
    """Limit how often a token repeats in a row."""

    most: int = param(0, "The longest run of one token; 0 is off.", ge=0)


class MaxRun(Processor[MaxRunParams]):
    name = "max_run"
    phase = Phase.CONSTRAIN
    Params = MaxRunParams

    def apply(self, logits: torch.Tensor, rows: Rows) -> torch.Tensor:
        seen = rows.visible()  # prompt, output and drafts of each row
        for row, most in enumerate(self.columns.gather("most", rows).tolist()):
            ids = seen.ids[row, seen.valid[row]][-most:]
            if len(ids) == most and bool((ids == ids[-1]).all()):
                logits[row, ids[-1]] = -torch.inf
        return logits

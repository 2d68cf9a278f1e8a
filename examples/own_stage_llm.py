"""Your own stage in an LLM: this file is the plug-in, and `chain` names the stage."""

from dataclasses import dataclass

import torch

from gencli import LLM, SamplingParams
from processors import Params, Phase, Processor, Rows, param


@dataclass(frozen=True, slots=True)
class AlternateParams(Params):
    """Lower the logits of ids that are as odd or even as the last id."""

    by: float = param(0.0, "Subtracted from the logits; 0 is off.", ge=0)


class Alternate(Processor[AlternateParams]):
    name = "alternate"
    phase = Phase.ADJUST
    Params = AlternateParams

    def apply(self, logits: torch.Tensor, rows: Rows) -> torch.Tensor:
        seen = rows.visible()  # prompt, output and drafts of each row
        last = torch.where(seen.valid, seen.ids, 0)[:, -1:]  # [A, 1]
        is_same = torch.arange(logits.shape[1], device=logits.device) % 2 == last % 2  # [A, V]
        return logits - self.columns.gather("by", rows)[:, None] * is_same


if __name__ == "__main__":  # the plug-in loader imports this file too
    with LLM("tiny", plugins=[f"{__file__}:Alternate"]) as llm:
        for chain in ("temperature=0.7", "alternate=20 | temperature=0.7"):
            out = llm.generate("Once upon a time", SamplingParams(chain=chain, seed=1, max_tokens=24))
            print(f"{chain}: {out.text}")

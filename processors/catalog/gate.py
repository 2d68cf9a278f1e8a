"""The stage xtc, which removes the most likely tokens with some probability."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from processors.catalog.stage_spec import Note, Phase, StageSpec
from processors.params import MOST, Params, param

__all__ = ["GATE", "XtcParams"]


@dataclass(frozen=True, slots=True)
class XtcParams(Params):
    """Exclude the top choices: of the likely tokens only the least likely stays (Weidmann 2024)."""

    probability: float = param(0.0, "Exclude the top choices with this probability; 0 is never.", ge=0, le=1)
    threshold: float = param(
        0.1, "Tokens at least this probable are top choices; all but the least likely of them go.",
        gt=0, le=1, hint="A probability of 0 switches it off.",
    )  # fmt: skip
    exempt: tuple[int | str, ...] = param(
        ("eos", "newline"),
        "Never excluded: eos, stop, special, newline, ids, texts of one token.",
        ge=0,
        le=MOST,
    )
    on_exempt: Literal["keep", "skip", "uncount"] = param(
        "keep",
        "Exempt tokens are top choices that stay (keep) or none (uncount); skip: nothing goes if one would.",
    )
    compare: Literal["ge", "gt"] = param("ge", "A top choice reaches the threshold (ge) or exceeds it (gt).")
    ties: Literal["cut", "keep"] = param(
        "cut", "Equally likely top choices at the end: cut keeps the lowest id, keep keeps all."
    )
    mode: Literal["roll", "expected"] = param(
        "roll", "Roll for each token, or give each token the probability that it has on average over rolls."
    )
    keep: int = param(1, "Exclude nothing if fewer than this many tokens would be left.", ge=1, le=MOST)

    def can_act(self) -> bool:
        """Whether the threshold allows two top choices: their probabilities sum to at most 1."""
        return self.threshold < 0.5 or (self.threshold == 0.5 and self.compare == "ge")


GATE: tuple[StageSpec, ...] = (
    StageSpec(
        "xtc",
        Phase.GATE,
        XtcParams,
        "processors.stages.gate:Xtc",
        note=Note(
            "with the given probability x[i] = -inf where p[i] >= threshold, but the least likely of these",
            "Weidmann 2024, Exclude Top Choices, text-generation-webui PR 6335.",
            "xtc:probability=0.5,threshold=0.1",
            "llama.cpp and koboldcpp exempt nothing; text-generation-webui skips the step; mlx-lm "
            "compares with gt and keeps ties; ExLlamaV2 and V3 are expected and uncount",
        ),
    ),
)

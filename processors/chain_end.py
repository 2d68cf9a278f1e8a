"""The end of a row's chain as numbers: the temperature and the cuts that are fused with the draw, on a CPU by
`fused` and on a GPU by the kernels that `choose_on_device` plans.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Any

from processors.stages.shared import COLDEST, HIGHEST

FUSED = ("temperature", "min_p", "top_k", "top_p")  # stages that may be fused with the draw


class Control(IntEnum):
    """Columns of controls. The value 0 turns a stage off in a row; for top-p it is 1."""

    GREEDY = 0  # 1: argmax; the lowest id wins a tie
    HEAT_CUT = 1  # temperature of the logits that are truncated; 0: none
    HEAT_DRAW = 2  # temperature of the logits that are sampled; 0: none
    MIN_P = 3
    TOP_K = 4
    KEEP_TIES = 5  # 1: top-k keeps all logits equal to the k-th largest
    TOP_P = 6
    EXCLUSIVE = 7  # 1: the kept mass is at most p; 0: it reaches p
    IS_K_LATE = 8  # 1: top-k follows top-p in the chain
    IS_MIN_LATE = 9  # 1: min-p follows top-p in the chain
    INVERSE = 10  # 1: the draw is by inverse CDF


_OFF = tuple(float(control == Control.TOP_P) for control in Control)


def without_stages() -> list[float]:
    """Return the controls [C] of a row in which every stage is off."""
    return [*_OFF]


def controls_of(stages: Sequence[tuple[str, Any]]) -> list[float] | None:
    """Return the controls [C] of a row that equal these stages, with their values, in order; None if none do.

    Top-k and min-p may change places, as neither depends on what the other keeps.
    """
    names, params = [name for name, _ in stages], dict(stages)
    is_plain = len(params) == len(stages) and all(getattr(p, "keep", 1) == 1 for p in params.values())
    if not is_plain or "temperature" in names[1:-1]:
        return None
    line = without_stages()
    if heat := params.get("temperature"):
        line[Control.GREEDY] = float(heat.temperature == 0)
        line[Control.HEAT_DRAW] = min(max(heat.temperature, COLDEST), HIGHEST)
        line[Control.HEAT_CUT] = line[Control.HEAT_DRAW] if names[0] == "temperature" else 0.0
    if min_p := params.get("min_p"):
        line[Control.MIN_P] = min_p.p
        line[Control.IS_MIN_LATE] = float("top_p" in names[: names.index("min_p")])
    if top_k := params.get("top_k"):
        line[Control.TOP_K], line[Control.KEEP_TIES] = top_k.k, float(top_k.ties == "keep")
        line[Control.IS_K_LATE] = float("top_p" in names[: names.index("top_k")])
    if top_p := params.get("top_p"):
        line[Control.TOP_P], line[Control.EXCLUSIVE] = top_p.p, float(top_p.boundary == "exclusive")
    return line

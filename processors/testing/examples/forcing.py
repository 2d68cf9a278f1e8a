"""Example parameters of the stages in processors.catalog.forcing."""

from __future__ import annotations

from processors.catalog.forcing import ForceParams, ReasoningBudgetParams
from processors.params import Params

__all__ = ["EXAMPLES"]

EXAMPLES: dict[type[Params], tuple[Params, ...]] = {
    ForceParams: (
        ForceParams(" the cat sat"),
        ForceParams(ids=(7, 7, 200)),
        ForceParams("😀é", at="text", after="at the"),
        ForceParams("\n\n", at="id", after_id=7),
        ForceParams("abab", at="tokens", after_tokens=2),
        ForceParams("a", at="tokens", after_tokens=10_000),
        ForceParams(" the", at="end"),
    ),
    ReasoningBudgetParams: (
        ReasoningBudgetParams(0, start="the", end=" cat"),
        ReasoningBudgetParams(1, start="a", end="b"),
        ReasoningBudgetParams(2, start="the", end="</", message=" sat\n"),
        ReasoningBudgetParams(0, start="\n", end="é"),
        ReasoningBudgetParams(2, start="é\n", end="aba", message="😀"),
        ReasoningBudgetParams(10_000),
    ),
}

"""Stages that make the end of the text more or less likely with its length: length_decay, length_boost."""

from __future__ import annotations

from dataclasses import dataclass

from processors.catalog.stage_spec import Note, Phase, StageSpec
from processors.errors import ParamError
from processors.params import MOST, Params, param

__all__ = ["ENDINGS", "ENDS_LIMIT", "LengthBoostParams", "LengthDecayParams"]

ENDS_LIMIT = 1024  # bytes of all texts after which a boost acts


@dataclass(frozen=True, slots=True)
class LengthDecayParams(Params):
    """Raise the logits of the end-of-text ids exponentially (transformers)."""

    decay: tuple[int, float] | None = param(
        None, "A start and a factor: behind this many output tokens, each raises the end of text by it.",
        ge=0, le=MOST, hint="[30, 1.05] starts after 30 tokens.",
    )  # fmt: skip

    def __post_init__(self) -> None:
        Params.__post_init__(self)
        if self.decay is not None and not self.decay[1]:
            raise ParamError("decay has the factor 0, but it has to be above 0; 1.0 means off.", (1,))

    def is_off(self) -> bool:
        """Whether there is no decay, or one by the factor 1."""
        return self.decay is None or self.decay[1] == 1


@dataclass(frozen=True, slots=True)
class LengthBoostParams(Params):
    """Add to the logits of the end-of-text ids by a power of the length (logits-processor-zoo)."""

    boost: float = param(
        0.0, "Added to the end of text after ten output tokens; below 0 makes it less likely, 0 is off."
    )
    power: float = param(2.0, "The boost grows with this power of the number of output tokens.", ge=0)
    after: tuple[str, ...] = param(
        (), 'Only where the text ends with one of these, as in [".", "\\n"]; an empty list is everywhere.'
    )

    def __post_init__(self) -> None:
        Params.__post_init__(self)
        if "" in self.after:
            raise ParamError("after has an empty text. Remove it.", (self.after.index(""),))
        size = sum(len(text.encode(errors="surrogatepass")) for text in self.after)
        if size > ENDS_LIMIT:
            raise ParamError(f"after are {size} bytes together, but the limit is {ENDS_LIMIT}.")


ENDINGS: tuple[StageSpec, ...] = (
    StageSpec(
        "length_decay",
        Phase.ADJUST,
        LengthDecayParams,
        "processors.stages.endings:LengthDecay",
        note=Note(
            "x[i] = x[i] + |x[i]| * (factor^(n - start) - 1) for every end-of-text id i, "
            "behind n > start output tokens",
            "transformers' ExponentialDecayLengthPenalty.",
            "length_decay=[30,1.05]",
            "transformers exponential_decay_length_penalty, the same",
        ),
    ),
    StageSpec(
        "length_boost",
        Phase.ADJUST,
        LengthBoostParams,
        "processors.stages.endings:LengthBoost",
        note=Note(
            "x[i] = x[i] + boost * (n / 10)^power for every end-of-text id i after n output tokens",
            "GenLengthLogitsProcessor of NVIDIA's logits-processor-zoo.",
            'length_boost:boost=0.1,after=[".","\\n"]',
            "logits-processor-zoo boost_factor, p; complete_sentences is after, for "
            "tokens that are a full stop or a new line",
        ),
    ),
)

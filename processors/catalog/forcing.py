"""Stages that write text of their own, force and reasoning_budget, and stages that make the end of the
text more or less likely with its length.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from processors.errors import ParamError
from processors.params import MOST, Params, Phase, StageSpec, param

TEXT_LIMIT = 16384  # bytes of a text that is forced or waited for


@dataclass(frozen=True, slots=True)
class ForceParams(Params):
    """Write a text into the output at a place."""

    text: str = param("", "This text is written into the output, cut into tokens by the tokenizer.")
    ids: tuple[int, ...] = param((), "In place of a text: these token ids.", ge=0, le=MOST)
    at: Literal["start", "text", "id", "tokens", "end"] = param(
        "start",
        "Where: at the start, behind a text (after), an id (after_id) or a number of tokens (after_tokens), "
        "or before the end.",
    )
    after: str = param("", "With at = text: it follows the first place of this text in the output.")
    after_id: int | None = param(None, "With at = id: it follows the first one of this id.", ge=0, le=MOST)
    after_tokens: int = param(0, "With at = tokens: it follows this many output tokens.", ge=0, le=MOST)

    def __post_init__(self) -> None:
        Params.__post_init__(self)
        if self.text and self.ids:
            raise ParamError("text and ids are both given. Leave one out.")
        for name, at in (("after", "text"), ("after_id", "id"), ("after_tokens", "tokens")):
            is_given = getattr(self, name) != self.default(name)
            if is_given and self.at != at:
                raise ParamError(f"{name} goes with at={at}, but at is {self.at}.")
            if self.at == at and not is_given and name != "after_tokens":
                raise ParamError(f"at is {at}, which needs {name}.")
        _check_texts(self, "text", "after")

    def is_off(self) -> bool:
        return not self.text and not self.ids


@dataclass(frozen=True, slots=True)
class ReasoningBudgetParams(Params):
    """End the model's thinking after a number of tokens."""

    tokens: int | None = param(
        None, "Thinking has at most this many tokens, then its end is written.", ge=0, le=MOST
    )
    start: str = param("<think>", "The text, or special token, with which thinking begins.")
    end: str = param("</think>", "The text, or special token, that ends it.")
    open: bool = param(False, "The output begins inside thinking, unless the prompt ends with its end.")
    message: str = param("", "This text is written before the end, such as one that sums up.")

    def __post_init__(self) -> None:
        Params.__post_init__(self)
        for name in ("start", "end"):
            if not getattr(self, name):
                raise ParamError(f"{name} is empty. Give the text that marks the {name} of thinking.")
        _check_texts(self, "start", "end", "message")


def _check_texts(params: Params, *names: str) -> None:
    for name in names:
        size = len(getattr(params, name).encode(errors="surrogatepass"))
        if size > TEXT_LIMIT:
            raise ParamError(f"{name} is {size} bytes, but the limit is {TEXT_LIMIT}.")


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


FORCING = (
    StageSpec("force", Phase.CONSTRAIN, ForceParams, "processors.stages.forcing:Force").with_note(
        "x[i] = -inf for every i but the next id of the text, from its place on; "
        "before the end: where an end has the largest x, or max_tokens leaves no more room",
        "NVIDIA's logits-processor-zoo: TriggerPhrase, ForceLastPhrase.",
        'force:text="Answer: ",at=end',
        "transformers forced_bos_token_id and forced_eos_token_id, which revive a masked id",
    ),
    StageSpec(
        "reasoning_budget",
        Phase.CONSTRAIN,
        ReasoningBudgetParams,
        "processors.stages.forcing:ReasoningBudget",
    ).with_note(
        "x[i] = -inf for every i but the next id of message + end, once tokens have come behind start",
        "llama.cpp's reasoning budget: idle, counting, waiting for a whole character, forcing.",
        "reasoning_budget=512",
        "llama.cpp --reasoning-budget, vLLM thinking_token_budget; SGLang writes a newline first",
    ),
    StageSpec(
        "length_decay", Phase.ADJUST, LengthDecayParams, "processors.stages.forcing:LengthDecay"
    ).with_note(
        "x[i] = x[i] + |x[i]| * (factor^(n - start) - 1) for every end-of-text id i, "
        "behind n > start output tokens",
        "transformers' ExponentialDecayLengthPenalty.",
        "length_decay=[30,1.05]",
        "transformers exponential_decay_length_penalty, the same",
    ),
    StageSpec(
        "length_boost", Phase.ADJUST, LengthBoostParams, "processors.stages.forcing:LengthBoost"
    ).with_note(
        "x[i] = x[i] + boost * (n / 10)^power for every end-of-text id i after n output tokens",
        "GenLengthLogitsProcessor of NVIDIA's logits-processor-zoo.",
        'length_boost:boost=0.1,after=[".","\\n"]',
        "logits-processor-zoo boost_factor, p; complete_sentences is after, for "
        "tokens that are a full stop or a new line",
    ),
)
